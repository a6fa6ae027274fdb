"""`Bound`: a plan with its memory, to be called with arrays; parameters stay where they are between calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from neoflow.errors import RuntimeFault
from neoflow.runtime.declared import Declared, Lasting, Lying
from neoflow.runtime.device import Device, Memory
from neoflow.runtime.exchange import Exchange
from neoflow.runtime.executor import Executor, Loaded, OutOfRange
from neoflow.runtime.layout import Whole
from neoflow.runtime.plan import Plan
from neoflow.runtime.store import ParameterStore


class KernelTime(NamedTuple):
    """Time of one call of a plan: seconds are the median over the profiled runs."""

    name: str
    seconds: float
    share: float


class Profile(list[KernelTime]):
    """The calls of a plan in order; notebooks show a table."""

    def _repr_html_(self) -> str:
        from neoflow.text import html  # imported here: what a package runs is not shown

        rows = [(t.name, t.seconds * 1e6, f"{t.share:.1%}") for t in self]
        return html.table(f"{sum(t.seconds for t in self) * 1e3:.4g} ms", ("kernel", "us", "share"), rows)


T = TypeVar("T")


class Bound:
    """What a compiled program and one of a package have in common: a call with arrays.

    inputs, parameters: in the order of the plan's. written: parameters that a call updates, by their ids. constants:
    their memory. exchange: how arrays get to the device, and back. lying: the order of each parameter in the program.
    returns: calls before which some had to come back from another device or order. wholes: loops that are one launch.
    """

    def __init__(
        self,
        plan: Plan,
        inputs: Sequence[Declared],
        parameters: Sequence[Lasting],
        written: frozenset[int],
        kernels: Sequence[Loaded],
        constants: Sequence[Memory],
        store: ParameterStore,
        device: Device,
        threads: int,
        exchange: Callable[[Executor, Sequence[Declared]], Exchange],
        lying: Sequence[Lying | None] = (),
        wholes: Mapping[int, Whole] | None = None,
    ):
        self.threads = threads
        self._inputs, self._parameters = tuple(inputs), tuple(parameters)
        self._store, self._device = store, device
        self._moves, self.returns = store.moves, 0
        self._lying = tuple(lying) or (None,) * len(self._parameters)
        memory = [store.memory(p, device, lies) for p, lies in zip(parameters, self._lying, strict=True)]
        updated = [n for n, p in zip(plan.parameters, parameters, strict=True) if id(p) in written]
        self._executor = Executor(plan, kernels, memory, constants, device, threads, updated, wholes)
        self._sharing = store.sharing
        self._use = self._sharing.join(frozenset(map(id, parameters)), written)
        self._seen = -1
        self._told: Callable[[Sequence[float]], object] | None = None
        """what `changes` of the store was when the last call began"""
        self._is_inside = False
        self._exchange = exchange(self._executor, self._inputs)

    @property
    def plan(self) -> Plan:
        """What a call runs, as it is now."""
        return self._executor.plan

    @property
    def runs(self) -> int:
        """How many calls have run to their end, and so have made their updates; of a profile, every run counts.

        After an exception from outside it says whether the call that was interrupted is one of them.
        """
        return self._executor.runs

    def __call__(self, *arrays: Any) -> list[Any]:
        """Run once. Raises `RuntimeFault` for wrong arrays and for indices that leave their table."""
        return self._call(arrays)

    def _call(self, arrays: Sequence[Any]) -> list[Any]:
        return self._sharing.run(self._use, self._turn, self._run, arrays)

    def run_beside(self, meanwhile: Callable[[], None], *arrays: Any) -> list[Any]:
        """A call; a GPU is at work while `meanwhile()` runs, which may `bring` the arrays of the next one."""
        run = partial(self._run_beside, meanwhile)
        return self._sharing.run(self._use, self._turn, run, arrays)

    def bring(self, arrays: Sequence[Any]) -> None:
        """Have the first arrays of the next call on the device: they are not copied then, where it gives the same.

        Until then they are not to be changed. Raises `RuntimeFault` for arrays of another shape or dtype.
        """
        self._exchange.ahead(arrays)

    def _turn(self, action: Callable[[], T], arrays: Sequence[Any]) -> T:
        """`action` on these arrays, unless this thread is in the middle of another one."""
        return self._alone(self._bind, arrays, action)

    def run_at(self, addresses: Sequence[int]) -> None:
        """Run once on the CPU, where others have memory: of every input, then of every output, dense, aligned to 64
        bytes and no part of another's. It has to stay until this returns. Raises `RuntimeFault` as a call does, but
        without the user's line.
        """
        self._sharing.run(self._use, self._alone, self._executor.point, addresses, self._executor.run)

    def _alone(self, prepare: Callable[[Sequence[Any]], None], given: Sequence[Any], action: Callable[[], T]) -> T:
        if self._is_inside:
            raise RuntimeFault(
                "a function was called while it runs, on the same thread: by a signal's handler, or by an argument as "
                "it is made into an array; let it set a flag instead"
            )
        self._is_inside = True
        try:
            if (before := self._store.moves) != self._moves:
                self._moves = self._store.settle(self._parameters, self._device, self._lying)
                self.returns += self._moves != before
            prepare(given)
            if self._use.written:
                self._store.changed()
            return action()
        finally:
            self._is_inside = False

    def watch(self, told: Callable[[Sequence[float]], object] | None) -> None:
        """From the next call on tell after each what its kernel calls took, in seconds; None: no more. A call takes
        somewhat longer so."""
        self._told = told

    def _run(self) -> list[Any]:
        changes, told = self._store.changes, self._told
        try:
            if told is None:
                self._executor.run(is_unchanged=changes == self._seen)
            else:
                told(self._executor.run_timed())
            self._seen = changes
        except OutOfRange as fault:
            raise self._located(fault) from None
        return self._exchange.results()

    def _run_beside(self, meanwhile: Callable[[], None]) -> list[Any]:
        try:
            self._executor.run_beside(meanwhile)
        except OutOfRange as fault:
            raise self._located(fault) from None
        return self._exchange.results()

    def _located(self, fault: OutOfRange) -> RuntimeFault:
        """A fault of a kernel, as the user is told."""
        return fault

    def _bind(self, arrays: Sequence[Any]) -> None:
        if len(arrays) != len(self._inputs):
            names = ", ".join(t.name for t in self._inputs)
            raise RuntimeFault(f"the program takes {len(self._inputs)} arrays ({names}), got {len(arrays)}")
        self._exchange.bind(arrays)

    def results(self) -> list[Any]:
        """What the last call returned, or would have, had no exception come in between."""
        return self._exchange.results()

    def profile(self, *arrays: Any, runs: int = 5) -> list[KernelTime]:
        """Median seconds of every kernel call over `runs` runs, in order. Updates are made as in a call."""
        if runs < 1:
            raise RuntimeFault(f"a profile has at least one run, not {runs}")
        timed = self._executor.run_timed
        samples = [self._sharing.run(self._use, self._turn, timed, arrays) for _ in range(runs)]
        medians = np.median(np.array(samples).reshape(runs, -1), axis=0)
        total = float(medians.sum()) or 1.0
        names = [c.name for c in self.plan.calls]
        return Profile(KernelTime(n, float(s), float(s) / total) for n, s in zip(names, medians, strict=True))
