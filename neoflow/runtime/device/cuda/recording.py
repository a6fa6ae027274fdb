"""Launches of a step as one CUDA Graph: captured when they first run, and anew when an address has changed."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from neoflow.errors import RuntimeFault
from neoflow.runtime.device import Launch, Status
from neoflow.runtime.device.cuda.driver import Driver

COPY = 0
"""Stands for the address of a function that copies."""


class CudaRecording:
    """Launches in order. A timed one is not captured: an event stands between its launches."""

    def __init__(
        self, driver: Driver, launches: Sequence[Launch], table: np.ndarray, status: Status | None, timed: bool
    ):
        self.table, self.status, self.runs = table, status, 0
        self._driver, self._launches, self._timed = driver, launches, timed
        self._captured: np.ndarray | None = None
        self._graph: _Graph | None = None
        self._events: list[int] = []

    def run(self) -> None:
        """Run all launches; they may still run when this returns."""
        if self._timed:
            self._run_timed()
        else:
            if self._captured is None or not np.array_equal(self._captured, self.table):
                self._capture()
            assert self._graph is not None
            self._driver.run_graph(self._graph.handle)
        self.runs += 1

    def _capture(self) -> None:
        driver = self._driver
        self._graph, self._captured = None, None
        driver.begin_graph()
        try:
            self._clear()
            for launch in self._launches:
                self._put(launch)
        finally:
            handle = driver.end_graph()
        self._graph, self._captured = _Graph(driver, handle), self.table.copy()

    def _run_timed(self) -> None:
        driver = self._driver
        for event in self._events:
            driver.free_event(event)
        self._clear()
        self._events = [driver.event()]
        for launch in self._launches:
            self._put(launch)
            self._events.append(driver.event())

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
