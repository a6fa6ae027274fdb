"""Launches of a step as one CUDA Graph: captured when they first run, and anew for addresses not seen lately.
Calls of a group are branches of it."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
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


class CudaRecording:
    """Launches in order. In the graph of timed ones an event stands between each two."""

    def __init__(
        self, driver: Driver, launches: Sequence[Launch], table: np.ndarray, status: Status | None, timed: bool
    ):
        self.table, self.status = table, status
        self._counted: tuple[int, deque[Any]] = (0, deque())
        """runs, and the launches since"""
        self._driver, self._launches, self._timed = driver, launches, timed
        self._graphs: dict[bytes, _Graph] = {}
        """by what the table holds, the one used last at the end"""
        self._events = driver.events(len(launches) + 1) if timed else []
        weakref.finalize(self, _forgotten, driver, self._events).atexit = False

    def run(self, followers: Sequence[int] = ()) -> None:
        """Run all launches; they may still run when this returns. Streams of other libraries that follow them wait."""
        addresses = self.table.tobytes()
        graph = self._graphs.pop(addresses, None) or self._capture()
        self._graphs[addresses] = graph
        launches = self._driver.launches(graph.handle, [f for f in followers if f != HOST])
        counted, launched = self._counted = (self.runs, deque())
        launched.extend(launches)  # it is launched, waited for and counted with no bytecode in between
        try:
            self._driver.judge(launched[0])
        except RuntimeFault:
            self._counted = (counted, deque())
            raise
        for waiting in list(launched)[1:]:
            self._driver.judge(waiting)
        if HOST in followers:
            self._driver.synchronize()

    @property
    def runs(self) -> int:
        """How often all launches were put into the stream; there they run to their end."""
        counted, launched = self._counted
        return counted + bool(launched)

    def _capture(self) -> _Graph:
        driver = self._driver
        while len(self._graphs) >= GRAPHS:
            del self._graphs[next(iter(self._graphs))]
        try:
            driver.begin_graph()
            self._clear()
            for n, launch in enumerate(self._launches):
                self._mark(n)
                if not self._timed:
                    self._branch(n)
                self._put(launch)
            self._mark(len(self._launches))
            if self._launches and not self._timed and self._launches[-1].group is not None:
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

    def _clear(self) -> None:
        if self.status is not None:
            self._driver.clear(self.status.memory.address, self.status.memory.nbytes)

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

    def __init__(self, driver: Driver, handle: int):
        self.handle = handle
        weakref.finalize(self, _freed, driver, handle).atexit = False


def _freed(driver: Driver, handle: int) -> None:
    with suppress(RuntimeFault):  # of a GPU that runs nothing any more
        driver.synchronize()
    driver.free_graph(handle)


def _forgotten(driver: Driver, events: Sequence[int]) -> None:
    for event in events:
        driver.free_event(event)
