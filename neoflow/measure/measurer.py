"""`Measurer`: candidates built and judged side by side, then timed one at a time on a machine: a `tune.Measure`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from neoflow.loops import Schedule
from neoflow.measure import tasks
from neoflow.measure.build import Built
from neoflow.measure.here import Here
from neoflow.partition import Subgraph
from neoflow.target import Target
from neoflow.tune.process import Answer, Request
from neoflow.tune.trial import Trial

DEADLINE = 10.0
"""Seconds of a candidate. Chosen: a hundred times what most need."""
ROUNDS = 15
"""In which finalists are timed."""
KEPT = 256
"""Subgraphs whose preparation is remembered."""


class Pool(Protocol):
    """Workers for the targets of a device, here or elsewhere."""

    def judged(self, requests: Sequence[Request]) -> list[Answer]:
        """The answers, in order; many at a time."""
        ...

    def timed(self, requests: Sequence[Callable[[], Request]], heard: Callable[[Answer], None]) -> list[Answer]:
        """The answers, in order; one at a time on a machine, which does nothing else for us meanwhile. A request is
        made when its turn has come; heard: told of each answer at once."""
        ...

    def close(self) -> None:
        """End the workers."""
        ...


def _nobody(_: Answer) -> None:
    pass


class Measurer:
    """Measures candidates for a search.

    Each is built and judged on inputs drawn from `seed`, edge values among them, before its time counts; a worker
    works out once for all candidates of a subgraph what is right. A context manager; `close` ends the workers.
    """

    def __init__(self, pool: Callable[[Target], Pool] = Here, seed: int = 0, deadline: float = DEADLINE):
        """pool: starts the workers for a target, `Here` those of this machine. deadline: seconds of a candidate."""
        self._start, self._seed, self._deadline = pool, seed, deadline
        self._pools: dict[str, Pool] = {}
        """by device"""
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

    def _pool(self, target: Target) -> Pool:
        """The workers for a target's device, started when they are first asked for."""
        if target.device not in self._pools:
            self._pools[target.device] = self._start(target)
        return self._pools[target.device]

    def __call__(
        self, subgraph: Subgraph, target: Target, schedules: Sequence[Schedule], deadline: float | None = None
    ) -> list[Trial]:
        """A trial of each schedule, in order. deadline: seconds of a candidate, building, judging and timing together.

        The time of one that is clearly slower than the best of this subgraph so far is rough; one ten times as slow
        was judged on infinities and other special values alone. Finalists are `interleaved`. Raises `RuntimeFault`
        when no worker can be started; nothing for a bad candidate.
        """
        pool, seconds = self._pool(target), deadline or self._deadline
        before = self._prepared(subgraph, target, self._seed)
        key = str(before.message["key"])
        judged = pool.judged([tasks.judge(s, self._best.get(key), seconds, before) for s in schedules])
        trials = [tasks.unmeasured(s, a) for s, a in zip(schedules, judged, strict=True)]
        waiting = [(n, built) for n, a in enumerate(judged) if (built := tasks.to_be_timed(a)) is not None]

        def request(n: int, built: Built) -> Request:
            left = max(tasks.LEAST_SECONDS, seconds - judged[n].seconds)
            return tasks.time(built, self._best.get(key), left, before)

        answers = pool.timed([partial(request, n, built) for n, built in waiting], partial(self._heard, key))
        for (n, _), answer in zip(waiting, answers, strict=True):
            trials[n] = tasks.timed(schedules[n], answer)
        return trials

    def _heard(self, key: str, answer: Answer) -> None:
        seconds = tasks.seconds_of(answer)
        if seconds is not None:
            self._best[key] = min(seconds, self._best.get(key, seconds))

    def interleaved(
        self, subgraph: Subgraph, target: Target, schedules: Sequence[Schedule], rounds: int = ROUNDS
    ) -> list[Trial]:
        """Finalists, judged once more on other inputs and timed in turns in one process.

        The ratio of two trials' seconds is the median of the ratios within a round, so that it holds on a machine that
        does other things; spread: of these ratios.
        """
        pool, before = self._pool(target), self._prepared(subgraph, target, self._seed + 1)
        judged = pool.judged([tasks.judge(s, None, self._deadline, before) for s in schedules])
        trials = [tasks.unmeasured(s, a) for s, a in zip(schedules, judged, strict=True)]
        sound = [(n, built) for n, a in enumerate(judged) if (built := tasks.to_be_timed(a)) is not None]
        if not sound:
            return trials
        request = tasks.turns([b for _, b in sound], rounds, self._deadline * len(sound), before)
        (answer,) = pool.timed([lambda: request], _nobody)
        for place, (n, _) in enumerate(sound):
            trials[n] = tasks.of_turns(schedules[n], answer, place)
        return trials

    def _prepared(self, subgraph: Subgraph, target: Target, seed: int) -> Request:
        """One request for each, as a worker is known to have answered it by its identity."""
        key = (subgraph.digest, str(target), seed)
        if key not in self._requests:
            self._requests[key] = tasks.prepare(subgraph, target, seed)
        self._requests.move_to_end(key)
        while len(self._requests) > KEPT:
            self._requests.popitem(last=False)
        return self._requests[key]
