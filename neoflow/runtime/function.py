"""`Function`: a compiled program. Call it with arrays; parameters stay where they are between calls."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from neoflow.boundary import publish_methods
from neoflow.errors import RuntimeFault
from neoflow.expr import dtype as dt
from neoflow.expr.interp import find_fault
from neoflow.expr.tensor import Placeholder, Tensor
from neoflow.graph import Graph
from neoflow.runtime.arrays import array_of, converted, is_bare
from neoflow.runtime.constants import constant_memory
from neoflow.runtime.executor import Executor, Loaded, OutOfRange
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
    def written(self) -> Graph: ...

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


T = TypeVar("T")


def _references(array: np.ndarray | None) -> tuple[int, int]:
    """How often an array and the memory under it (the base of its views) are held: more than at first means outside."""
    return (0, 0) if array is None else (sys.getrefcount(array), sys.getrefcount(array.base))


def _layout(array: Any) -> tuple[dict[str, Any], np.dtype]:
    """Where an array lies in memory, in what order, and what: all that can be changed in place but its values."""
    return array.__array_interface__, array.dtype


class Function:
    """What `nf.compile` gives: `f(array, ...) -> [ndarray, ...]`.

    Arrays: NumPy or anything with DLPack on the CPU, of the placeholder's shape and dtype (`runtime.arrays` says what
    else); what is not contiguous and aligned to 64 bytes is copied. Results are the caller's: their memory is used
    again only once nobody holds it.
    Updates are written to the parameters at the end of a call, all of them or none: an exception from outside (Ctrl-C)
    finds the call not begun or done, and `runs` tells which. Threads may call functions that share parameters: none
    reads them while another writes (`runtime.sharing`).
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
        memory = [store.memory(p) for p in self.parameters]
        constants = [constant_memory(store.device, c) for c in compiled.graph.constants]
        written = frozenset(id(p) for p, _ in compiled.graph.updates)
        updated = [n for n, p in zip(plan.parameters, self.parameters, strict=True) if id(p) in written]
        self._executor = Executor(plan, kernels, memory, constants, store.device, threads, updated)
        self._sharing = store.sharing
        self._use = self._sharing.join(frozenset(map(id, self.parameters)), written)
        self._is_inside = False
        self._copied: set[str] = set()
        self._bound: dict[int, tuple[dict[str, Any], np.dtype]] = {}
        """by the number of an input that is taken as it is: where its array lay, and of what dtype it was"""
        self._held: dict[int, tuple[int, int]] = {}
        self._fresh = [n for n, b in enumerate(plan.buffers) if b.kind == "output"]

    @property
    def runs(self) -> int:
        """How many calls have run to their end, and so have made their updates; of a profile, every run counts.

        After an exception from outside it says whether the call that was interrupted is one of them.
        """
        return self._executor.runs

    def __repr__(self) -> str:
        def told(tensors: Sequence[Tensor]) -> str:
            return ", ".join(f"{t.name}: {t.dtype}{list(t.shape)}" for t in tensors)

        graph, calls = self.compiled.graph, len(self.plan.calls)
        updated = ", ".join(p.name for p, _ in graph.updates)
        updates = f", updates {updated}" if updated else ""
        return f"<Function ({told(self.inputs)}) -> [{told(graph.outputs)}]{updates}: {calls} kernel calls>"

    def __call__(self, *arrays: Any) -> list[np.ndarray]:
        """Run once. Raises `RuntimeFault` for wrong arrays and for indices that leave their table."""
        return self._sharing.run(self._use, lambda: self._turn(self._run, arrays))

    def _turn(self, action: Callable[[], T], arrays: Sequence[Any]) -> T:
        """`action` on these arrays, unless this thread is in the middle of another one."""
        if self._is_inside:
            raise RuntimeFault(
                "a function was called while it runs, on the same thread: by a signal's handler, or by an argument as "
                "it is made into an array; let it set a flag instead"
            )
        self._is_inside = True
        try:
            self._bind(arrays)
            return action()
        finally:
            self._is_inside = False

    def _run(self) -> list[np.ndarray]:
        try:
            self._executor.run()
        except OutOfRange as fault:
            raise self._located(fault) from None
        return self.results()

    def _located(self, fault: OutOfRange) -> RuntimeFault:
        """A fault of a kernel with the value, its place and the user's line, where NumPy finds them."""
        numbers, given = (*self.plan.inputs, *self.plan.parameters), (*self.inputs, *self.parameters)
        feeds: dict[Tensor, np.ndarray] = {}
        for n, t in zip(numbers, given, strict=True):
            memory, feeds[t] = self._executor.arrays[n], np.empty(t.shape, dt.NUMPY[t.dtype])
            if memory is not None:
                self._executor.device.copy(feeds[t], memory)
        found = find_fault(self.compiled.written.roots, feeds)
        return fault if found is None else RuntimeFault(f"{found.message}; {fault.changed}", found.where)

    def _bind(self, arrays: Sequence[Any]) -> None:
        if len(arrays) != len(self.inputs):
            names = ", ".join(t.name for t in self.inputs)
            raise RuntimeFault(f"the program takes {len(self.inputs)} arrays ({names}), got {len(arrays)}")
        bound = self._executor.arrays
        for number, t, value in zip(self.plan.inputs, self.inputs, arrays, strict=True):
            if value is not bound[number] or _layout(value) != self._bound.get(number):
                array = self._accept(t, value)
                self._executor.bind(number, array)
                self._bound[number] = _layout(array)
        for number in self._fresh:
            if self._held.get(number) != _references(bound[number]):
                b = self.plan.buffers[number]
                self._executor.bind(number, self._executor.device.allocate(b.shape, b.dtype))
                self._held[number] = _references(bound[number])

    def results(self) -> list[np.ndarray]:
        """What the last call returned, or would have, had no exception come in between."""
        results = [self._executor.arrays[n] for n in self.plan.outputs]
        return [r for r in results if r is not None]

    def _accept(self, t: Placeholder, value: Any) -> np.ndarray:
        """`value` as an aligned contiguous array of the placeholder's shape and dtype, copied only when needed."""
        what = f"input {t.name}"
        array = array_of(value, what, t.where)
        if array.shape != t.shape:
            raise RuntimeFault(f"{what} has shape {t.shape}, the array {array.shape}", t.where)
        if is_bare(value):
            array = converted(array, t.dtype, what, t.where)
        if array.dtype != dt.NUMPY[t.dtype]:
            raise RuntimeFault(
                f"{what} is {t.dtype}, the array {array.dtype}; convert it: array.astype('{t.dtype}')", t.where
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
        if runs < 1:
            raise RuntimeFault(f"a profile has at least one run, not {runs}")
        timed = self._executor.run_timed
        samples = [self._sharing.run(self._use, lambda: self._turn(timed, arrays)) for _ in range(runs)]
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


publish_methods(Function)
