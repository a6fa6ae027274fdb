"""Processes that stay alive and answer requests side by side; the parent keeps their deadlines.

A worker that hangs, holds the interpreter's lock, stops, crashes, eats memory or loops for ever costs the one request
it had: it is killed with its group, and another one, warmed up meanwhile, takes its place. None outlives its parent
(`serving.py`). Nothing here knows what is asked.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial

from neoflow.errors import RuntimeFault
from neoflow.tune.jobs import Desk, Job
from neoflow.tune.process import Answer, Request, Worker

START_SECONDS = 120.0
"""In which a worker must have warmed up: importing a compiler from a cold disk takes 20 of them."""
START_TRIALS = 3
"""Workers in a row that do not come up, after which no more are started."""
MEMORY = 8 << 30
"""Resident bytes a worker may have with what it starts. Chosen: more than twice what the largest kernels of the models
need."""


class Workers:
    """`count` workers of a command, and one in reserve. Raises `RuntimeFault` when none comes up."""

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        memory: int = MEMORY,
        environment: Mapping[str, str] | None = None,
        start_seconds: float = START_SECONDS,
    ):
        """command: of a process that calls `serving.serve` with its last argument. environment: of it, besides ours."""
        self.count, self._start_seconds = count, start_seconds
        self._crew = crew = _Crew(tuple(command), memory, dict(environment or {}), start_seconds)
        self._desk = Desk(count, crew.taken, crew.replace, crew.settle)
        self._finalizer = weakref.finalize(self, _close, self._desk, self._crew)
        for _ in range(count + 1):
            self._crew.order()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers."""
        self._finalizer()

    @property
    def pids(self) -> list[int]:
        """Of the workers that there are, those in reserve too."""
        return self._crew.pids()

    def submit(self, job: Job) -> Future[Answer]:
        """The answer to come; its exception is a `RuntimeFault` when no worker comes up."""
        return self._desk.submit(job)

    def thinking(self) -> AbstractContextManager[None]:
        """Within, the caller needs a core: no job runs alone."""
        return self._desk.thinking()

    def drop(self) -> None:
        """Forget the jobs that wait."""
        self._desk.drop()

    def answers(self, requests: Sequence[Request], together: int | None = None) -> list[Answer]:
        """The answers, in order; at most `together` of them at a time (all workers when None)."""
        places = None if together is None else range(min(together, self.count))
        waiting = [self.submit(Job(partial(_same, request), places)) for request in requests]
        try:
            return [answer.result() for answer in waiting]
        except BaseException:  # Ctrl-C: what they are doing is not waited for
            for answer in waiting:
                answer.cancel()
            self._crew.end_all()
            raise

    def settle(self) -> None:
        """Wait until the one in reserve has warmed up: it needs a core meanwhile."""
        self._crew.settle()


def _same(request: Request) -> Request:
    return request


def _close(desk: Desk, crew: _Crew) -> None:
    if crew.is_ours:
        desk.close()
        crew.close()


class _Crew:
    """Starts workers, from one thread that stays for as long as they do, and knows those that are there."""

    def __init__(self, command: tuple[str, ...], memory: int, environment: dict[str, str], seconds: float):
        """seconds: in which one must have warmed up."""
        self._seconds = seconds
        self._reserve = threading.Lock()
        """held by whoever takes from those in reserve"""
        self._start = lambda: Worker(command, memory, environment)
        self._owner = os.getpid()
        self._orders = queue.SimpleQueue[bool]()
        self._spare = queue.SimpleQueue[Worker | OSError]()
        self._in_reserve = 0
        self._there: set[Worker] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="neoflow-workers", daemon=True)
        self._thread.start()

    def order(self) -> None:
        """Have one more started."""
        with self._lock:
            self._in_reserve += 1
        self._orders.put(True)

    def take(self) -> Worker:
        """One of those in reserve, perhaps not ready yet. Raises `RuntimeFault` when it cannot be started."""
        with self._reserve:
            with self._lock:
                self._in_reserve -= 1
            found = self._spare.get()
        if isinstance(found, OSError):
            self.order()
            raise RuntimeFault(f"a worker process cannot be started: {found}") from found
        return found

    def taken(self, last: Worker | None) -> Worker:
        """A worker that is ready. last: the one that died in its place while it had nothing to do."""
        if last is not None:
            self.replace(last)
        for _ in range(START_TRIALS):
            worker = self.take()
            answer = worker.ready(self._seconds)
            if answer.outcome == "ok":
                return worker
            self.replace(worker)
        raise RuntimeFault(f"worker processes do not come up ({answer.outcome}): {answer.reason}")

    def settle(self) -> None:
        """Wait for those in reserve."""
        with self._reserve:
            with self._lock:
                count = self._in_reserve
            for found in [self._spare.get() for _ in range(count)]:
                if isinstance(found, Worker):
                    found.ready(self._seconds)
                self._spare.put(found)

    def replace(self, worker: Worker) -> None:
        """End a worker, and have another one started."""
        with self._lock:
            self._there.discard(worker)
        worker.end()
        self.order()

    def pids(self) -> list[int]:
        with self._lock:
            return [worker.pid for worker in self._there]

    def end_all(self) -> None:
        """Kill those that are there; whoever waits for one finds it gone, and has others started."""
        with self._lock:
            there = tuple(self._there)
        for worker in there:
            worker.kill()

    @property
    def is_ours(self) -> bool:
        """Not a parent's, of which this process is a child by `fork`."""
        return os.getpid() == self._owner

    def close(self) -> None:
        """End all, and the thread."""
        with self._lock:
            self._is_closed = True
        self._orders.put(False)
        with self._lock:
            there, self._there = tuple(self._there), set()
        for worker in there:
            worker.end()

    def _serve(self) -> None:
        while self._orders.get():
            try:
                worker = self._start()
            except OSError as error:
                self._spare.put(error)
                continue
            with self._lock:
                if self._is_closed:
                    worker.end()
                    return
                self._there.add(worker)
            self._spare.put(worker)
