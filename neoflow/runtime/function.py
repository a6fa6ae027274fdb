"""`Function`: a compiled program. Call it with arrays; parameters stay where they are between calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from neoflow import dtype as dt
from neoflow.boundary import publish_methods
from neoflow.errors import PackageError, RuntimeFault
from neoflow.expr.interp import find_fault
from neoflow.expr.tensor import Tensor
from neoflow.graph import Graph, Packed, plain
from neoflow.runtime.bound import Bound, KernelTime
from neoflow.runtime.constants import constant_memory, is_there
from neoflow.runtime.device import Device
from neoflow.runtime.device.cuda import Cuda
from neoflow.runtime.exchange import OnHost
from neoflow.runtime.executor import Loaded, OutOfRange
from neoflow.runtime.layout import Whole
from neoflow.runtime.plan import Plan
from neoflow.runtime.store import ParameterStore
from neoflow.runtime.transfer import OnDevice, needs


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

    def save(self, path: Path, functions: Mapping[str, Any]) -> None: ...

    def explain(self, stage: str | None = None) -> str: ...


T = TypeVar("T")
RETURNS = 8
"""How often parameters that a function has packed come back from others, at most every other call, before they stay
plain for it too: to convert them takes longer than to pack them in its kernels."""


class Function(Bound):
    """What `nf.compile` gives: `f(array, ...) -> [ndarray, ...]`.

    Arrays: NumPy or anything with DLPack on the CPU, of the placeholder's shape and dtype (`runtime.arrays` says what
    else); what is not contiguous and aligned to 64 bytes is copied. Results are the caller's: their memory is used
    again only once nobody holds it. A program for a GPU takes arrays that lie there (of PyTorch, by DLPack) as they
    are, after what their library's stream has still to do; then its results stay there, for `torch.from_dlpack(y)` or
    `np.asarray(y)`. NumPy's arrays it copies there, and the results back.
    Updates are written to the parameters at the end of a call, all of them or none: an exception from outside (Ctrl-C)
    finds the call not begun or done, and `runs` tells which. Threads may call functions that share parameters: none
    reads them while another writes (`runtime.sharing`).
    """

    def __init__(
        self,
        compiled: Compilation,
        kernels: Sequence[Loaded],
        store: ParameterStore,
        device: Device,
        threads: int,
        otherwise: Callable[[], Function] | None = None,
        wholes: Mapping[int, Whole] | None = None,
    ):
        """otherwise: makes the same function with no parameter packed, of one that has some. wholes: its loops that are
        one launch."""
        graph, self._otherwise, self._runs_before = compiled.graph, otherwise, 0
        self.compiled, self.inputs, self.parameters = compiled, graph.inputs, tuple(map(plain, graph.parameters))
        lying = [p.layout if isinstance(p, Packed) else None for p in graph.parameters]
        if isinstance(device, Cuda):
            parameters = sum(p.nbytes for p in graph.parameters if not store.is_there(p, device))
            constants = sum(c.nbytes for c in graph.constants if not is_there(device, c))
            device.require(needs(compiled.plan, parameters, constants))
        super().__init__(
            compiled.plan,
            graph.inputs,
            self.parameters,
            frozenset(id(plain(p)) for p, _ in graph.updates),
            kernels,
            [constant_memory(device, c) for c in graph.constants],
            store,
            device,
            threads,
            partial(OnDevice, device=device) if isinstance(device, Cuda) else OnHost,
            lying,
            wholes,
        )

    def __call__(self, *arrays: Any) -> list[Any]:
        """Run once. Raises `RuntimeFault` for wrong arrays and for indices that leave their table."""
        if self._otherwise is not None and self.returns >= RETURNS and 2 * self.returns >= self.runs:
            plainly, runs = self._otherwise(), self.runs
            self.__dict__.update(plainly.__dict__)
            self._runs_before = runs
        return self._call(arrays)

    @property
    def runs(self) -> int:
        """See `Bound.runs`."""
        return self._runs_before + self._executor.runs

    def adopt(self, compiled: Compilation, kernels: Mapping[int, Loaded]) -> None:
        """Run other code for these kernels of the plan, by their numbers, from the next call on; see `pipeline.adopt`.

        compiled: the compilation as it is then. A call on another thread ends first.
        """

        def change() -> None:
            self._executor.adopt(compiled.plan, kernels)
            self.compiled = compiled

        self._sharing.run(self._use, change)

    def __repr__(self) -> str:
        def told(tensors: Sequence[Tensor]) -> str:
            return ", ".join(f"{t.name}: {t.dtype}{list(t.shape)}" for t in tensors)

        graph, calls = self.compiled.graph, len(self.plan.calls)
        updated = ", ".join(p.name for p, _ in graph.updates)
        updates = f", updates {updated}" if updated else ""
        return f"<Function ({told(self.inputs)}) -> [{told(graph.outputs)}]{updates}: {calls} kernel calls>"

    def _repr_html_(self) -> str:
        """As notebooks show it: what it takes, gives and changes."""
        from neoflow.text import html  # imported here: what a package runs is not shown

        graph = self.compiled.graph
        updated = {id(plain(p)) for p, _ in graph.updates}
        kinds: list[tuple[str, Tensor]] = [("input", t) for t in self.inputs]
        kinds += [("parameter, updated" if id(p) in updated else "parameter", p) for p in self.parameters]
        kinds += [("output", t) for t in graph.outputs]
        rows = [(kind, t.name, t.dtype, " x ".join(map(str, t.shape))) for kind, t in kinds]
        return html.table(f"{len(self.plan.calls)} kernel calls", ("", "name", "dtype", "shape"), rows)

    def _located(self, fault: OutOfRange) -> RuntimeFault:
        """A fault of a kernel with the value, its place and the user's line, where NumPy finds them."""
        numbers = (*self.plan.inputs, *self.plan.parameters)
        given = (*self.inputs, *self.compiled.graph.parameters)
        feeds: dict[Tensor, np.ndarray] = {}
        for n, t in zip(numbers, given, strict=True):
            memory, value = self._executor.arrays[n], np.empty(t.shape, dt.NUMPY[t.dtype])
            if memory is not None:
                self._executor.device.copy(value, memory)
            if isinstance(t, Packed):
                feeds[t.of] = t.layout.unpack(value)
            else:
                feeds[t] = value
        found = find_fault(self.compiled.written.roots, feeds)
        return fault if found is None else RuntimeFault(f"{found.message}; {fault.changed}", found.where)

    def source(self, format: str = "tir") -> str:
        """The generated code: `tir`, and of a CPU `llvm` or `asm`, of a GPU `cuda`."""
        return self.compiled.source(format)

    def save(self, path: str | os.PathLike, name: str = "run", **others: Function) -> None:
        """Write this function, under `name`, and others that share its parameters into a package: the folder `path`.

        `step.save("digits.nflib", "step", infer=infer)`, and `nf.load("digits.nflib").step(x, labels)` runs it without
        a compiler; docs/packages.md has the rest. Raises `PackageError`, and `CheckpointError` for two parameters of
        one name.
        """
        if name in others:
            raise PackageError(f"two functions of a package are named {name!r}")
        functions = {name: self.compiled, **{n: f.compiled for n, f in others.items()}}
        self.compiled.save(Path(path), functions)

    def explain(self, stage: str | None = None) -> str:
        """Every stage of the compilation, printed in order; or what one `stage` made."""
        return self.compiled.explain(stage)


class Elsewhere(Function):
    """A program for a device that is not here: its code can be looked at; `reason` says why it cannot run."""

    def __init__(self, compiled: Compilation, reason: str):
        self.compiled, self.reason = compiled, reason
        self.inputs, self.parameters = compiled.graph.inputs, tuple(map(plain, compiled.graph.parameters))

    @property
    def plan(self) -> Plan:
        return self.compiled.plan

    @property
    def runs(self) -> int:
        return 0

    def _turn(self, action: Callable[[], T], arrays: Sequence[Any]) -> T:
        raise RuntimeFault(f"the program cannot run here: {self.reason}")

    def __call__(self, *arrays: Any) -> list[Any]:
        """Raises `RuntimeFault` with the reason."""
        return self._turn(list, arrays)

    def profile(self, *arrays: Any, runs: int = 5) -> list[KernelTime]:
        """Raises `RuntimeFault` with the reason."""
        return self._turn(list, arrays)


publish_methods(Bound)
publish_methods(Function)
publish_methods(Elsewhere)
