"""Launches of a step as one CUDA Graph: captured when they first run, and anew for addresses not seen lately.
Calls of a group are branches of it. A call of another library is no part of one: it cuts the launches in two.

    kernels, a call of PyTorch, kernels    ->    graph, the call, graph        in one stream; the host waits for none
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, takewhile
from operator import ne
from typing import Any

import numpy as np

from neoflow.errors import RuntimeFault
from neoflow.runtime.device import Launch, Status
from neoflow.runtime.device.cuda.driver import Driver
from neoflow.runtime.device.cuda.libraries import HOST

COPY = 0
"""Stands for the address of a function that copies."""
GRAPHS = 8
"""How many graphs a recording keeps: arrays come from few addresses, in turn."""
BRANCHES = 16
"""Of a group of calls: so many go side by side, the others after one of them. Chosen."""
_UNDONE = 1
"""What the word of a call of another library is until it is done, see `runtime.handed`."""
_C_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int)


class CudaRecording:
    """Launches in order. In the graphs of timed ones an event stands between each two."""

    def __init__(self, driver: Driver, launches: Sequence[Launch], table: np.ndarray, status: Status, timed: bool):
        self.table, self.status = table, status
        self._may_fail = any(a.status is not None and not a.is_handed for a in launches)
        """whether there are words for kernels, to be cleared first"""
        self._counted: tuple[int, deque[Any]] = (0, deque())
        """runs, and what was launched since"""
        self._driver, self._launches, self._timed = driver, launches, timed
        self._parts: dict[bytes, tuple[_Graph | _Handed, ...]] = {}
        """by what the table holds, those used last at the end"""
        self._needed = 0
        """of what the parts launch, all of it"""
        self._events = driver.events(len(launches) + 1) if timed else []
        weakref.finalize(self, _forgotten, driver, self._events).atexit = False

    def run(self, followers: Sequence[int] = ()) -> None:
        """Run all launches, but for those after a call of another library that fails; they may still run when this
        returns. Streams of other libraries that follow them wait."""
        addresses = self.table.tobytes()
        parts = self._parts.pop(addresses, None) or self._captured()
        self._parts[addresses] = parts
        items = chain.from_iterable([part.items(self._driver) for part in parts])
        leads = self._driver.leads([f for f in followers if f != HOST])
        counted, launched = self._counted = (self.runs, deque())
        self._needed = sum(part.count for part in parts)
        waits = deque(  # they are launched, waited for and counted with no bytecode of ours in between
            chain(map(launched.append, takewhile(partial(ne, _UNDONE), items)), leads)
        )
        try:
            for item in launched:
                self._judge(item)
        except RuntimeFault:
            self._counted = (counted, deque())
            raise
        for waiting in waits:
            self._judge(waiting)
        if HOST in followers:
            self._driver.synchronize()

    def _judge(self, item: Any) -> None:
        if item is not None and item != 0:  # of another library's call, which tells by its word
            self._driver.judge(item)

    @property
    def runs(self) -> int:
        """How often all launches were put into the stream; there they run to their end."""
        counted, launched = self._counted
        return counted + (0 < self._needed <= len(launched))

    def _captured(self) -> tuple[_Graph | _Handed, ...]:
        """The launches as graphs and the calls between them."""
        while len(self._parts) >= GRAPHS:
            del self._parts[next(iter(self._parts))]
        parts: list[_Graph | _Handed] = []
        first = 0
        for n in (*(n for n, a in enumerate(self._launches) if a.is_handed), len(self._launches)):
            clears = self._may_fail and not first
            if n > first or clears or self._timed or len(self._launches) == 0:
                parts.append(self._capture(first, n, clears))
            if n < len(self._launches):
                parts.append(_Handed(self._launches[n], self.table, self.status))
            first = n + 1
        return tuple(parts)

    def _capture(self, first: int, end: int, clears: bool) -> _Graph:
        """Those from one to before another as a graph."""
        driver = self._driver
        try:
            driver.begin_graph()
            if clears:
                driver.clear(self.status.memory.address, self.status.memory.nbytes)
            for n in range(first, end):
                self._mark(n)
                if not self._timed:
                    self._branch(n)
                self._put(self._launches[n])
            self._mark(end)
            if end > first and not self._timed and self._launches[end - 1].group is not None:
                driver.join()
            return _Graph(driver, driver.end_graph())
        except BaseException:
            driver.drop_graph()
            raise

    def _branch(self, number: int) -> None:
        """Before the launch of this number: out of the branches of the last group, into the one of its own call."""
        launch, before = self._launches[number], self._launches[max(0, number - 1)]
        if before.group is not None and before.group != launch.group:
            self._driver.join()
        if launch.group is not None and launch.call is not None:
            self._driver.branch(1 + (launch.call - launch.group) % BRANCHES)

    def _mark(self, number: int) -> None:
        """Before the launch of this number, or after the last one; where they are timed."""
        if self._timed:
            self._driver.mark(self._events[number])

    def _put(self, launch: Launch) -> None:
        """One launch into the stream."""
        if launch.function == COPY:
            source, target, nbytes = (int(n) for n in self.table[launch.pointers : launch.pointers + 3])
            self._driver.copy(target, source, nbytes)
            return
        arguments = [int(n) for n in self.table[launch.pointers : launch.pointers + launch.arguments]]
        self._driver.launch(launch.function, launch.tasks, launch.threads, launch.shared_bytes, arguments)

    def seconds(self) -> list[float]:
        """The times of the launches in the last run."""
        if not self._timed:
            raise RuntimeFault("the recording was not made to be timed")
        pairs = zip(self._events, self._events[1:], strict=False)
        return [self._driver.seconds(first, last) for first, last in pairs]


class _Graph:
    """A captured graph, freed with its last holder."""

    count = 1

    def __init__(self, driver: Driver, handle: int):
        self.handle = handle
        weakref.finalize(self, _freed, driver, handle).atexit = False

    def items(self, driver: Driver) -> Iterator[Any]:
        """What runs it as it is asked for its item."""
        return driver.launches(self.handle)


class _Handed:
    """A call of another library, a function of the host's that puts its work into the stream."""

    count = 2

    def __init__(self, launch: Launch, table: np.ndarray, status: Status):
        assert launch.status is not None
        self._call = _C_CALL(launch.function)
        self._given = ((table.ctypes.data + table.itemsize * launch.pointers,), (0,), (0,), (1,))
        self._word, self._number = status.handed.data, launch.status

    def items(self, _: Driver) -> Iterator[Any]:
        """What calls it as it is asked for its first item; the second one is its word."""
        return chain(map(self._call, *self._given), map(self._word.__getitem__, (self._number,)))


def _freed(driver: Driver, handle: int) -> None:
    with suppress(RuntimeFault):  # of a GPU that runs nothing any more
        driver.synchronize()
    driver.free_graph(handle)


def _forgotten(driver: Driver, events: Sequence[int]) -> None:
    for event in events:
        driver.free_event(event)
