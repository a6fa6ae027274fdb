"""Launches of a step as one CUDA Graph: captured when they first run, and anew for addresses not seen lately."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from neoflow.errors import RuntimeFault
from neoflow.runtime.device import Launch, Status
from neoflow.runtime.device.cuda.driver import Driver

COPY = 0
"""Stands for the address of a function that copies."""
GRAPHS = 8
"""How many graphs a recording keeps: arrays come from few addresses, in turn."""


class CudaRecording:
    """Launches in order. A timed one is not captured: an event stands between its launches."""

    def __init__(
        self, driver: Driver, launches: Sequence[Launch], table: np.ndarray, status: Status | None, timed: bool
    ):
        self.table, self.status = table, status
        self._counted: tuple[int, deque[Any]] = (0, deque())
        """runs, and the launches since"""
        self._driver, self._launches, self._timed = driver, launches, timed
        self._graphs: dict[bytes, _Graph] = {}
        """by what the table holds, the one used last at the end"""
        self._events: list[int] = []

    def run(self) -> None:
        """Run all launches; they may still run when this returns."""
        if self._timed:
            self._run_timed()
        else:
            addresses = self.table.tobytes()
            graph = self._graphs.pop(addresses, None) or self._capture()
            self._graphs[addresses] = graph
            counted, launched = self._counted = (self.runs, deque())
            launched.extend(self._driver.launches(graph.handle))  # and is counted, with no bytecode in between
            try:
                self._driver.judge(launched[0])
            except RuntimeFault:
                self._counted = (counted, deque())
                raise

    @property
    def runs(self) -> int:
        """How often all launches were put into the stream; there they run to their end."""
        counted, launched = self._counted
        return counted + len(launched)

    def _capture(self) -> _Graph:
        driver = self._driver
        while len(self._graphs) >= GRAPHS:
            del self._graphs[next(iter(self._graphs))]
        driver.begin_graph()
        try:
            self._clear()
            for launch in self._launches:
                self._put(launch)
        finally:
            handle = driver.end_graph()
        return _Graph(driver, handle)

    def _run_timed(self) -> None:
        driver = self._driver
        for event in self._events:
            driver.free_event(event)
        self._clear()
        self._events = [driver.event()]
        for launch in self._launches:
            self._put(launch)
            self._events.append(driver.event())
        self._counted = (self.runs + 1, deque())

    def _clear(self) -> None:
        if self.status is not None:
            self._driver.clear(self.status.memory.address, self.status.memory.nbytes)

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


def _freed(driver: Any, handle: int) -> None:
    driver.synchronize()
    driver.free_graph(handle)
