"""`Function`: a compiled program. Call it with arrays; parameters stay where they are between calls."""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from neoflow.errors import RuntimeFault
from neoflow.expr import dtype as dt
from neoflow.expr.tensor import Placeholder
from neoflow.graph import Graph
from neoflow.runtime.executor import Executor, Loaded
from neoflow.runtime.memory import ALIGNMENT
from neoflow.runtime.parameters import ParameterStore
from neoflow.runtime.plan import Plan

log = logging.getLogger("neoflow")


@dataclass(frozen=True)
class KernelTime:
    """Time of one call of a plan: seconds are the median over the profiled runs."""

    name: str
    seconds: float
    share: float


class Compilation(Protocol):
    """What a function needs to know of its compilation; built, cached: kernels compiled now, and from the cache."""

    @property
    def graph(self) -> Graph: ...

    @property
    def plan(self) -> Plan: ...

    @property
    def built(self) -> int: ...

    @property
    def cached(self) -> int: ...

    def source(self, format: str) -> str: ...

    def explain(self, stage: str | None = None) -> str: ...


_FUNCTIONS: weakref.WeakSet[Function] = weakref.WeakSet()


def _unlock() -> None:
    """In a child of `fork` nobody is inside a function, whoever was in the parent."""
    for f in _FUNCTIONS:
        f._lock = threading.Lock()


os.register_at_fork(after_in_child=_unlock)


def _references(array: np.ndarray | None) -> tuple[int, int]:
    """How often an array and the memory under it (the base of its views) are held: more than at first means outside."""
    return (0, 0) if array is None else (sys.getrefcount(array), sys.getrefcount(array.base))


class Function:
    """What `nf.compile` gives: `f(array, ...) -> [ndarray, ...]`.

    Arrays: NumPy or anything with DLPack on the CPU, of the placeholder's shape and dtype; what is not contiguous and
    aligned to 64 bytes is copied. Results are the caller's: their memory is used again only once nobody holds it.
    Updates are written to the parameters at the end of a call.
    """

    def __init__(
        self,
        compiled: Compilation,
        kernels: Sequence[Loaded],
        store: ParameterStore,
        threads: int,
    ):
        plan = self.plan = compiled.plan
        self.threads = threads
        self.compiled = compiled
        self.inputs = compiled.graph.inputs
        self.parameters = compiled.graph.parameters
        self._executor = Executor(plan, kernels, [store.memory(p) for p in self.parameters], store.device, threads)
        self._lock = threading.Lock()
        _FUNCTIONS.add(self)
        self._copied: set[str] = set()
        self._held: dict[int, tuple[int, int]] = {}
        self._fresh = [n for n, b in enumerate(plan.buffers) if b.kind == "output"]

    def __call__(self, *arrays: Any) -> list[np.ndarray]:
        """Run once. Raises `RuntimeFault` for wrong arrays and for indices that leave their table."""
        with self._lock:
            self._bind(arrays)
            self._executor.run()
            return self._results()

    def _bind(self, arrays: Sequence[Any]) -> None:
        if len(arrays) != len(self.inputs):
            names = ", ".join(t.name for t in self.inputs)
            raise RuntimeFault(f"the program takes {len(self.inputs)} arrays ({names}), got {len(arrays)}")
        bound = self._executor.arrays
        for number, t, value in zip(self.plan.inputs, self.inputs, arrays, strict=True):
            if value is not bound[number] or getattr(value, "shape", ()) != t.shape:
                self._executor.bind(number, self._accept(t, value))
        for number in self._fresh:
            if self._held.get(number) != _references(bound[number]):
                b = self.plan.buffers[number]
                self._executor.bind(number, self._executor.device.allocate(b.shape, b.dtype))
                self._held[number] = _references(bound[number])

    def _results(self) -> list[np.ndarray]:
        results = [self._executor.arrays[n] for n in self.plan.outputs]
        return [r for r in results if r is not None]

    def _accept(self, t: Placeholder, value: Any) -> np.ndarray:
        """`value` as an aligned contiguous array of the placeholder's shape and dtype, copied only when needed."""
        if not isinstance(value, (np.ndarray, np.generic, int, float, bool, list, tuple)) and hasattr(
            value, "__dlpack__"
        ):
            value = np.from_dlpack(value)
        is_bare = not isinstance(value, (np.ndarray, np.generic))
        array = np.asarray(value, dtype=dt.NUMPY[t.dtype] if is_bare else None)
        if array.shape != t.shape:
            raise RuntimeFault(f"input {t.name} has shape {t.shape}, the array {array.shape}", t.where)
        if array.dtype != dt.NUMPY[t.dtype]:
            raise RuntimeFault(
                f"input {t.name} is {t.dtype}, the array {array.dtype}; convert it: array.astype('{t.dtype}')", t.where
            )
        if array.flags.c_contiguous and array.flags.writeable and array.ctypes.data % ALIGNMENT == 0:
            return array
        if t.name not in self._copied and array.size > 4096:
            self._copied.add(t.name)
            log.info(
                "input %s is copied at every call: kernels take contiguous, writable arrays aligned to 64 bytes", t.name
            )
        copy = self._executor.device.allocate(t.shape, t.dtype)
        copy[...] = array
        return copy

    def profile(self, *arrays: Any, runs: int = 5) -> list[KernelTime]:
        """Median seconds of every kernel call over `runs` runs, in order. Updates are made as in a call."""
        with self._lock:
            samples = []
            for _ in range(runs):
                self._bind(arrays)
                samples.append(self._executor.run_timed())
        medians = np.median(np.array(samples).reshape(runs, -1), axis=0)
        total = float(medians.sum()) or 1.0
        names = [c.name for c in self.plan.calls]
        return [KernelTime(n, float(s), float(s) / total) for n, s in zip(names, medians, strict=True)]

    def source(self, format: str = "tir") -> str:
        """The generated code: `tir`, `llvm` or `asm`."""
        return self.compiled.source(format)

    def explain(self, stage: str | None = None) -> str:
        """Every stage of the compilation, printed in order; or what one `stage` made."""
        return self.compiled.explain(stage)
