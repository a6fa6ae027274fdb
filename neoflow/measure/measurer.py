"""`Measurer`: candidates built and judged by all workers side by side, then timed one at a time with all threads."""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import psutil

import neoflow
from neoflow.loops import Schedule
from neoflow.machine import available_cores
from neoflow.measure import tasks
from neoflow.measure.build import Built
from neoflow.measure.turn import turn
from neoflow.partition import Subgraph
from neoflow.target import Target
from neoflow.tune.process import Answer, Request
from neoflow.tune.trial import Trial
from neoflow.tune.workers import MEMORY, Workers

DEADLINE = 10.0
"""Seconds of a candidate. Chosen: a hundred times what most need."""
ROUNDS = 15
"""In which finalists are timed."""
COMMAND = (sys.executable, "-m", "neoflow.measure.worker")
KEPT = 256
"""Subgraphs whose preparation is remembered."""


class Measurer:
    """Measures candidates on this machine: the `tune.Measure` of a search.

    Each is built and judged on inputs drawn from `seed`, edge values among them, before its time counts; a worker
    works out once for all candidates of a subgraph what is right. For a CPU there is a worker a core, for a GPU one.
    A context manager; `close` ends the workers.
    """

    def __init__(
        self,
        workers: int | None = None,
        seed: int = 0,
        deadline: float = DEADLINE,
        memory: int | None = None,
        command: Sequence[str] = COMMAND,
    ):
        """workers: of a CPU. deadline: seconds of a candidate. memory: resident bytes of a worker."""
        self._count, self._seed, self._deadline, self._command = workers, seed, deadline, tuple(command)
        self._memory = memory
        self._pools: dict[str, Workers] = {}
        self._best: dict[str, float] = {}
        """seconds by what is measured"""
        self._requests: OrderedDict[tuple[str, str, int], Request] = OrderedDict()

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()

    def workers(self, target: Target) -> Workers:
        """Those for a target's device, started when they are first asked for."""
        pool = self._pools.get(target.device)
        if pool is None:
            count = 1 if target.device == "gpu" else self._count or available_cores()
            memory = self._memory or min(MEMORY, psutil.virtual_memory().total // (count + 1))
            pool = self._pools[target.device] = Workers(self._command, count, memory, environment())
        return pool

    def __call__(
        self, subgraph: Subgraph, target: Target, schedules: Sequence[Schedule], deadline: float | None = None
    ) -> list[Trial]:
        """A trial of each schedule, in order. deadline: seconds of a candidate, building, judging and timing together.

        The time of one that is clearly slower than the best of this subgraph so far is rough; one ten times as slow
        was judged on infinities and other special values alone. Finalists are `interleaved`. Raises `RuntimeFault`
        when no worker can be started; nothing for a bad candidate.
        """
        pool, seconds = self.workers(target), deadline or self._deadline
        before = self._prepared(subgraph, target, self._seed)
        best = self._best.get(str(before.message["key"]))
        judged = pool.answers([tasks.judge(s, best, seconds, before) for s in schedules])
        pool.settle()
        trials = []
        for schedule, answer in zip(schedules, judged, strict=True):
            trials.append(self._timed(pool, schedule, answer, seconds, before))
        return trials

    def _timed(self, pool: Workers, schedule: Schedule, judged: Answer, seconds: float, before: Request) -> Trial:
        built, key = tasks.built_of(judged), str(before.message["key"])
        if built is None:
            return tasks.failed(schedule, judged)
        if (rough := tasks.rough_of(judged)) is not None:
            return Trial(schedule, tasks.OK, rough)
        left = max(tasks.LEAST_SECONDS, seconds - judged.seconds)
        with turn():
            (answer,) = pool.answers([tasks.time(built, self._best.get(key), left, before)], together=1)
        trial = tasks.timed(schedule, answer)
        if trial.seconds is not None:
            self._best[key] = min(trial.seconds, self._best.get(key, trial.seconds))
        return trial

    def interleaved(
        self, subgraph: Subgraph, target: Target, schedules: Sequence[Schedule], rounds: int = ROUNDS
    ) -> list[Trial]:
        """Finalists, judged once more on other inputs and timed in turns in one process.

        The ratio of two trials' seconds is the median of the ratios within a round, so that it holds on a machine that
        does other things; spread: of these ratios.
        """
        pool, before = self.workers(target), self._prepared(subgraph, target, self._seed + 1)
        judged = pool.answers([tasks.judge(s, None, self._deadline, before) for s in schedules])
        pool.settle()
        builts = [tasks.built_of(a) for a in judged]
        trials = [tasks.failed(s, a) for s, a in zip(schedules, judged, strict=True)]
        sound = [(n, b) for n, b in enumerate(builts) if b is not None]
        if sound:
            for (n, _), trial in zip(sound, self._in_turns(pool, sound, schedules, rounds, before), strict=True):
                trials[n] = trial
        return trials

    def _in_turns(
        self, pool: Workers, sound: list[tuple[int, Built]], schedules: Sequence[Schedule], rounds: int, before: Request
    ) -> list[Trial]:
        seconds = self._deadline * len(sound)
        with turn():
            (answer,) = pool.answers([tasks.turns([b for _, b in sound], rounds, seconds, before)], together=1)
        if answer.outcome != tasks.OK:
            return [tasks.failed(schedules[n], answer) for n, _ in sound]
        rows = zip(sound, answer.message["seconds"], answer.message["spreads"], strict=True)
        return [Trial(schedules[n], tasks.OK, float(s), float(spread)) for (n, _), s, spread in rows]

    def _prepared(self, subgraph: Subgraph, target: Target, seed: int) -> Request:
        """One request for each, as a worker is known to have answered it by its identity."""
        key = (subgraph.digest, str(target), seed)
        if key not in self._requests:
            self._requests[key] = tasks.prepare(subgraph, target, seed)
        self._requests.move_to_end(key)
        while len(self._requests) > KEPT:
            self._requests.popitem(last=False)
        return self._requests[key]


def environment() -> dict[str, str]:
    """Of workers: they import this very neoflow, and compute what is right side by side, each with a core."""
    here = str(Path(neoflow.__file__).parents[1])
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path, **{f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}}
