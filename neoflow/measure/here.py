"""The workers of this machine: one a core; for a GPU as many as build what it can time."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import psutil

import neoflow
from neoflow.machine import available_cores
from neoflow.measure.near import Cores
from neoflow.measure.turn import turn
from neoflow.target import Target
from neoflow.tune.jobs import Job
from neoflow.tune.process import Answer, Request
from neoflow.tune.workers import MEMORY, Workers

COMMAND = (sys.executable, "-m", "neoflow.measure.worker")
BUILDERS = 8
"""Workers of a GPU at most: each has a context of its own there, and one at a time is timed."""
PATIENCE, EARNED = 5.0, 0.02
"""Seconds waited at most for cores that are apart, and those that each timing adds to what is left of them."""
HELD = 256 << 20
"""Bytes that a worker's heap keeps, as those of arrays that NumPy is done with: pages that are new each time take as
long as what is computed in them. Larger arrays than this have pages of their own, which are given back."""


class Here:
    """A `Pool` of this machine's processes."""

    def __init__(
        self,
        target: Target,
        count: int | None = None,
        memory: int | None = None,
        command: Sequence[str] = COMMAND,
        going: threading.Event | None = None,
    ):
        """count: of workers. memory: resident bytes of each, with what it starts. going: cleared while nothing is to be
        asked of them; what is asked already is answered."""
        count = count or (min(BUILDERS, available_cores()) if target.device == "gpu" else available_cores())
        memory = memory or min(MEMORY, psutil.virtual_memory().total // (count + 1))
        blas = max(1, available_cores() // 2) if target.device == "gpu" else 1
        self._workers = Workers(command, count, memory, environment(blas))
        self._going = going
        self._cores = Cores(PATIENCE) if target.device == "cpu" and target.threads > 1 else None

    @property
    def count(self) -> int:
        """Of workers."""
        return self._workers.count

    def build(self, request: Request) -> Future[Answer]:
        """By any worker."""
        return self._workers.submit(Job(self._when_going(lambda: request)))

    def judge(self, request: Callable[[], Request], place: int) -> Future[Answer]:
        """By one that is prepared."""
        return self._workers.submit(Job(self._when_going(request), (place,)))

    def time(self, request: Callable[[], Request], place: int) -> Future[Answer]:
        """By one that is prepared, when this process has its turn on this machine; the others pause."""
        return self._workers.submit(Job(request, (place,), self._turn))

    def _when_going(self, request: Callable[[], Request]) -> Callable[[], Request]:
        def made() -> Request:
            self._wait()
            return request()

        return made

    def _wait(self) -> None:
        if self._going is not None:
            self._going.wait()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Within, one kernel is timed, on cores that are near each other where they are so soon."""
        self._wait()  # before: whoever waits has no turn
        with turn():
            if self._cores is not None:
                self._cores.patience = min(PATIENCE, self._cores.patience + EARNED)
                self._cores.wait()
            yield

    def thinking(self) -> AbstractContextManager[None]:
        """Within, the caller needs a core: nothing is timed."""
        return self._workers.thinking()

    def drop(self) -> None:
        """Forget what waits."""
        self._workers.drop()

    def judged(self, requests: Sequence[Request]) -> list[Answer]:
        """By all workers side by side."""
        return self._workers.answers(requests)

    def timed(self, requests: Sequence[Callable[[], Request]], heard: Callable[[Answer], None]) -> list[Answer]:
        """By the first worker, each when this process has its turn on this machine."""
        answers = []
        for request in requests:
            answers.append(self.time(request, 0).result())
            heard(answers[-1])
        return answers

    def close(self) -> None:
        """End the workers."""
        self._workers.close()


def environment(blas: int = 1) -> dict[str, str]:
    """Of workers: they import this very neoflow, and compute what is right with so many threads each: one beside
    others that do so; more where kernels run elsewhere, whose products are a hundred times what a core does. They keep
    memory that NumPy frees, up to `HELD` bytes, unless the user's environment says otherwise."""
    here = str(Path(neoflow.__file__).parents[1])
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    threads = {f"{name}_NUM_THREADS": str(blas) for name in ("OPENBLAS", "OMP", "MKL")}
    heap = {name: os.environ.get(name, str(HELD)) for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")}
    return {"PYTHONPATH": path, **threads, **heap}
