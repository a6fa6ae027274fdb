"""`Measurer`: candidates built and judged side by side, then timed one at a time on a machine: a `tune.Measure`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Protocol
from weakref import WeakSet

from neoflow.loops import Schedule
from neoflow.measure import tasks
from neoflow.measure.build import Built
from neoflow.measure.here import Here
from neoflow.measure.pending import Pending, Subject
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
KEPT_BYTES = 1 << 26
"""Of kernels that were built, the latest: finalists are among them."""


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
        self._requests: OrderedDict[tuple[str, str, int | None], Request] = OrderedDict()
        self._places: dict[str, int] = {}
        """by what is measured, the worker that judges it"""
        self._built: OrderedDict[tuple[str, Schedule], Built] = OrderedDict()
        self._built_bytes = 0
        self._pending: WeakSet[Pending] = WeakSet()

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
        if isinstance(self._pool(target), Here):
            return self.begin(subgraph, target, schedules, deadline).trials()
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

    @property
    def is_overlapping(self) -> bool:
        """Whether several batches may be under way: on this machine."""
        return self._start is Here or (isinstance(self._start, partial) and self._start.func is Here)

    def begin(
        self, subgraph: Subgraph, target: Target, schedules: Sequence[Schedule], deadline: float | None = None
    ) -> Pending:
        """The same, under way: built side by side with what was begun before, timed in the order they are ready."""
        return self._begun(subgraph, target, schedules, self._seed, deadline or self._deadline)

    def begin_turns(
        self, subgraph: Subgraph, target: Target, schedules: Sequence[Schedule], rounds: int = ROUNDS
    ) -> Pending:
        """`interleaved`, under way."""
        return self._begun(subgraph, target, schedules, self._seed + 1, self._deadline, rounds)

    def thinking(self, target: Target) -> AbstractContextManager[None]:
        """Within, the caller needs a core: nothing is timed on this machine."""
        pool = self._pools.get(target.device)
        return pool.thinking() if isinstance(pool, Here) else nullcontext()

    def warm(self, target: Target) -> None:
        """Have the workers started."""
        self._pool(target)

    def _begun(
        self,
        subgraph: Subgraph,
        target: Target,
        schedules: Sequence[Schedule],
        seed: int,
        seconds: float,
        rounds: int | None = None,
    ) -> Pending:
        pool = self._pool(target)
        assert isinstance(pool, Here)
        known, prepared = self._known(subgraph, target), self._prepared(subgraph, target, seed)
        what, key = str(known.message["key"]), str(prepared.message["key"])
        subject = Subject(
            known,
            prepared,
            self._places.setdefault(key, len(self._places) % pool.count),
            seconds,
            lambda: self._best.get(key),
            partial(self._heard, key),
            partial(self._keep, what),
            self._late,
        )
        made = Pending(pool, subject, schedules, [self._built.get((what, s)) for s in schedules], rounds)
        self._pending.add(made)
        return made

    def _late(self) -> None:
        """Give up all that is under way; what workers are at ends by itself, or at its deadline."""
        for pending in list(self._pending):
            pending.give_up()
        for pool in self._pools.values():
            if isinstance(pool, Here):
                pool.drop()

    def _keep(self, what: str, schedule: Schedule, built: Built) -> None:
        if (what, schedule) not in self._built:
            self._built[what, schedule] = built
            self._built_bytes += len(built.library)
        while self._built_bytes > KEPT_BYTES:
            self._built_bytes -= len(self._built.popitem(last=False)[1].library)

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
        if isinstance(self._pool(target), Here):
            return self.begin_turns(subgraph, target, schedules, rounds).trials()
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

    def _known(self, subgraph: Subgraph, target: Target) -> Request:
        return self._once((subgraph.digest, str(target), None), lambda: tasks.know(subgraph, target))

    def _prepared(self, subgraph: Subgraph, target: Target, seed: int) -> Request:
        return self._once((subgraph.digest, str(target), seed), lambda: tasks.prepare(subgraph, target, seed))

    def _once(self, key: tuple[str, str, int | None], made: Callable[[], Request]) -> Request:
        """One request for each, as a worker is known to have answered it by its identity."""
        if key not in self._requests:
            self._requests[key] = made()
        self._requests.move_to_end(key)
        while len(self._requests) > KEPT:
            self._requests.popitem(last=False)
        return self._requests[key]
