"""Workers as their parent sees them: started, asked in turn, and quiet while it is another's turn."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

PAUSE, PATIENCE = 0.03, 2.0
"""Seconds: looked at for whether others are quiet; waited for it at most."""
QUIET = 0.02
"""The share of a core that waiting processes may take."""


class WorkerFailure(Exception):
    """A worker said why it cannot do what it was asked."""


class WorkerEnded(WorkerFailure):
    """A worker ended, or was late and has been ended."""


class Worker:
    """One contender's process. Raises `WorkerFailure` where it cannot run."""

    def __init__(
        self,
        request: Mapping[str, Any],
        environment: Mapping[str, str],
        program: Sequence[str],
        patience: float | None = None,
    ) -> None:
        """program: what Python runs. patience: seconds that an answer may take; None: for ever."""
        command = [sys.executable, *program, json.dumps(request)]
        self._patience = patience
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=dict(environment),
        )
        try:
            self.ready = self._answer()
        except WorkerFailure:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def block(self, seconds: float, **what: str) -> float:
        """Seconds of a step, over a block of so many seconds. what: else to be asked."""
        return self.ask({"seconds": seconds, **what})["step"]

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """What it answers. Raises `WorkerFailure` where it says why not; `WorkerEnded` where it ends, or is late."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerEnded(f"its process ended with status {self._process.wait()}") from None
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if self._patience is not None and not select.select([self._process.stdout], [], [], self._patience)[0]:
            self._process.kill()
            raise WorkerEnded(f"it took more than {self._patience:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise WorkerEnded(f"its process ended with status {self._process.wait()}")
        answer = json.loads(line)
        if "failure" in answer:
            raise WorkerFailure(answer["failure"])
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended, and was asked something
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def on_processor(pid: int) -> float:
    """Seconds that the threads of a process have run, to the nanosecond; those that ended do not count."""
    total = 0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat") as file:
                total += int(file.read().split()[0])
    except OSError:  # it ended meanwhile
        pass
    return total / 1e9


class Running(Protocol):
    """A process that is asked in turn."""

    @property
    def pid(self) -> int: ...


def wait_until_quiet(workers: Iterable[Running]) -> None:
    """Let threads that wait for work actively go to sleep: at least a pause, at most `PATIENCE`."""
    pids = [w.pid for w in workers]
    end = time.perf_counter() + PATIENCE
    while time.perf_counter() < end:
        before = sum(map(on_processor, pids))
        time.sleep(PAUSE)
        if sum(map(on_processor, pids)) - before < QUIET * PAUSE:
            return


@dataclass(frozen=True)
class Usage:
    """Seconds of all cores, since the machine started: in all, busy, and of those these processes."""

    total: float
    busy: float
    own: float

    @staticmethod
    def now(pids: Iterable[int]) -> Usage:
        """pids: of the processes that count as own, their ended threads included."""
        tick = os.sysconf("SC_CLK_TCK")
        with open("/proc/stat") as file:
            user, nice, system, idle, iowait, irq, softirq, steal = map(int, file.readline().split()[1:9])
        own = 0
        for pid in pids:
            with open(f"/proc/{pid}/stat") as file:
                own += sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
        busy = user + nice + system + irq + softirq + steal
        return Usage((busy + idle + iowait) / tick, busy / tick, own / tick)

    def foreign_until(self, later: Usage) -> float:
        """The share of all cores that other processes took from here on."""
        total = later.total - self.total
        others = (later.busy - self.busy) - (later.own - self.own)
        return max(0.0, others / total) if total else 0.0
