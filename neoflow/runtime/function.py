"""`Function`: a compiled program. Call it with arrays; parameters stay where they are between calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from neoflow.boundary import publish_methods
from neoflow.errors import RuntimeFault
from neoflow.expr import dtype as dt
from neoflow.expr.interp import find_fault
from neoflow.expr.tensor import Tensor
from neoflow.graph import Graph
from neoflow.runtime.constants import constant_memory
from neoflow.runtime.device import Device
from neoflow.runtime.device.cuda import Cuda
from neoflow.runtime.exchange import Exchange, OnHost
from neoflow.runtime.executor import Executor, Loaded, OutOfRange
from neoflow.runtime.parameters import ParameterStore
from neoflow.runtime.plan import Plan
from neoflow.runtime.transfer import OnDevice, needs


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


class Function:
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
    ):
        plan = compiled.plan
        self.threads = threads
        self.compiled = compiled
        self.inputs = compiled.graph.inputs
        self.parameters = compiled.graph.parameters
        self._store, self._device = store, device
        self._moves = store.moves
        if isinstance(device, Cuda):
            device.require(needs(compiled.graph, plan, store, device))
        memory = [store.memory(p, device) for p in self.parameters]
        constants = [constant_memory(device, c) for c in compiled.graph.constants]
        written = frozenset(id(p) for p, _ in compiled.graph.updates)
        updated = [n for n, p in zip(plan.parameters, self.parameters, strict=True) if id(p) in written]
        self._executor = Executor(plan, kernels, memory, constants, device, threads, updated)
        self._sharing = store.sharing
        self._use = self._sharing.join(frozenset(map(id, self.parameters)), written)
        self._is_inside = False
        self._exchange: Exchange = (
            OnDevice(self._executor, self.inputs, device)
            if isinstance(device, Cuda)
            else OnHost(self._executor, self.inputs)
        )

    @property
    def plan(self) -> Plan:
        """What a call runs, as it is now."""
        return self._executor.plan

    def adopt(self, compiled: Compilation, kernels: Mapping[int, Loaded]) -> None:
        """Run other code for these kernels of the plan, by their numbers, from the next call on; see `pipeline.adopt`.

        compiled: the compilation as it is then. A call on another thread ends first.
        """

        def change() -> None:
            self._executor.adopt(compiled.plan, kernels)
            self.compiled = compiled

        self._sharing.run(self._use, change)

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

    def __call__(self, *arrays: Any) -> list[Any]:
        """Run once. Raises `RuntimeFault` for wrong arrays and for indices that leave their table."""
        return self._sharing.run(self._use, lambda: self._turn(self._run, arrays))

    def run_beside(self, meanwhile: Callable[[], None], *arrays: Any) -> list[Any]:
        """A call; a GPU is at work while `meanwhile()` runs, which may `bring` the arrays of the next one."""
        run = partial(self._run_beside, meanwhile)
        return self._sharing.run(self._use, lambda: self._turn(run, arrays))

    def bring(self, arrays: Sequence[Any]) -> None:
        """Have the first arrays of the next call on the device: they are not copied then, where it gives the same.

        Until then they are not to be changed. Raises `RuntimeFault` for arrays of another shape or dtype.
        """
        self._exchange.ahead(arrays)

    def _turn(self, action: Callable[[], T], arrays: Sequence[Any]) -> T:
        """`action` on these arrays, unless this thread is in the middle of another one."""
        if self._is_inside:
            raise RuntimeFault(
                "a function was called while it runs, on the same thread: by a signal's handler, or by an argument as "
                "it is made into an array; let it set a flag instead"
            )
        self._is_inside = True
        try:
            if self._moves != self._store.moves:
                self._moves = self._store.settle(self.parameters, self._device)
            self._bind(arrays)
            return action()
        finally:
            self._is_inside = False

    def _run(self) -> list[Any]:
        try:
            self._executor.run()
        except OutOfRange as fault:
            raise self._located(fault) from None
        return self.results()

    def _run_beside(self, meanwhile: Callable[[], None]) -> list[Any]:
        try:
            self._executor.run_beside(meanwhile)
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
        self._exchange.bind(arrays)

    def results(self) -> list[Any]:
        """What the last call returned, or would have, had no exception come in between."""
        return self._exchange.results()

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
        """The generated code: `tir`, and of a CPU `llvm` or `asm`, of a GPU `cuda`."""
        return self.compiled.source(format)

    def explain(self, stage: str | None = None) -> str:
        """Every stage of the compilation, printed in order; or what one `stage` made."""
        return self.compiled.explain(stage)


class Elsewhere(Function):
    """A program for a device that is not here: its code can be looked at; `reason` says why it cannot run."""

    def __init__(self, compiled: Compilation, reason: str):
        self.compiled, self.reason = compiled, reason
        self.inputs, self.parameters = compiled.graph.inputs, compiled.graph.parameters

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


publish_methods(Function)
publish_methods(Elsewhere)
