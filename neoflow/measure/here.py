"""The workers of this machine: for a CPU one a core, for a GPU one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

import neoflow
from neoflow.machine import available_cores
from neoflow.measure.turn import turn
from neoflow.target import Target
from neoflow.tune.process import Answer, Request
from neoflow.tune.workers import MEMORY, Workers

COMMAND = (sys.executable, "-m", "neoflow.measure.worker")


class Here:
    """A `Pool` of this machine's processes."""

    def __init__(
        self,
        target: Target,
        count: int | None = None,
        memory: int | None = None,
        command: Sequence[str] = COMMAND,
    ):
        """count: of workers. memory: resident bytes of each."""
        count = count or (1 if target.device == "gpu" else available_cores())
        memory = memory or min(MEMORY, psutil.virtual_memory().total // (count + 1))
        self._workers = Workers(command, count, memory, environment())

    def judged(self, requests: Sequence[Request]) -> list[Answer]:
        """By all workers side by side."""
        return self._workers.answers(requests)

    def timed(self, requests: Sequence[Callable[[], Request]], heard: Callable[[Answer], None]) -> list[Answer]:
        """By the first worker, each when this process has its turn on this machine."""
        answers = []
        if requests:
            self._workers.settle()
        for request in requests:
            with turn():
                answers += self._workers.answers([request()], together=1)
            heard(answers[-1])
        return answers

    def close(self) -> None:
        """End the workers."""
        self._workers.close()


def environment() -> dict[str, str]:
    """Of workers: they import this very neoflow, and compute what is right side by side, each with a core."""
    here = str(Path(neoflow.__file__).parents[1])
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path, **{f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}}
