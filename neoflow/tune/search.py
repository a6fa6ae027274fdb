"""The search for a subgraph's schedule, a batch of candidates at a time.

    first batch    the default, schedules to start from, what the model thinks best of many, strangers
    a batch        children of the fastest; with a model, the best of generations that are bred by its scores alone
    between        no schedule twice; none whose floor is above the best time; nothing better for long: begin again
    at the end     the fastest and the default measured again side by side; of equals the one nearest to the default

The same seed and the same times give the same candidates in the same order.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from neoflow.errors import ConfigError
from neoflow.loops import Schedule, default, legal, nearest, problem_of, space
from neoflow.partition import Subgraph
from neoflow.roofs import Roofs
from neoflow.target import Target
from neoflow.tune import finals
from neoflow.tune.finals import is_timed
from neoflow.tune.floors import floor_of, least_seconds, subgraph_floor
from neoflow.tune.genetic import Breeder, diverse
from neoflow.tune.likely import HOPELESS, likely_cycles
from neoflow.tune.limits import Limits
from neoflow.tune.model import Model
from neoflow.tune.roofs import nominal
from neoflow.tune.trial import OUTCOMES, Measure, Trial
from neoflow.tune.underway import Pending, begun, overlapping, thinking

BATCH = 8
"""Candidates built side by side and then timed: those of a generation."""
MANY = 2000
"""Schedules that a model which is trained looks at before the first batch."""
GENERATIONS, BRED, KEPT = 2, 48, 24
"""Generations by the model's scores before a batch, children of each, and those of them that breed."""
LEAST_TRUST = 0.1
"""Part of a floor that stays, however much faster something was: roofs are not that far off."""
SPARED = 0.1
"""Part of the candidates that are thought hopeless and are measured all the same."""
UNGUIDED = 0.25
"""Part of a batch that the model has no say in: without it only what it knows would ever be seen."""
STALE = 32
"""Candidates without a better one after which the population begins again."""
SMALL = 5_000
"""Schedules of a space up to which all are looked through when chance finds no more new ones."""
PARENTS = 10
"""Schedules that breed: the fastest that are not close to each other."""
ALL, ASKED = "space", "asked"
"""Why a search stops, beside its limits."""


@dataclass(frozen=True)
class Found:
    """What a search ends with.

    best: as measured in the finals; the default's trial where nothing could be timed. trials: all in their order, those
    of the finals with the times of these. stopped: why. default: the default's trial. dropped: candidates that were not
    measured, as their floors are above the best time. floor: seconds that no schedule gets below.
    """

    best: Trial
    trials: tuple[Trial, ...]
    stopped: str
    default: Trial
    dropped: int
    floor: float


@dataclass(frozen=True)
class Progress:
    """After a batch: `new` is what became of it, `trials` how many there were, `best` the fastest so far."""

    subgraph: Subgraph
    new: tuple[Trial, ...]
    trials: int
    best: Trial | None
    default: Trial | None
    floor: float


Watch = Callable[[Progress], object]
"""Told of every batch; a search ends when it says True."""


def search(
    subgraph: Subgraph,
    target: Target,
    measure: Measure,
    limits: Limits,
    seed: int = 0,
    start: Sequence[Schedule] = (),
    model: Model | None = None,
    watch: Watch | None = None,
    *,
    known: Sequence[Trial] = (),
    roofs: Roofs | None = None,
    clock: Callable[[], float] = time.monotonic,
    crossing: bool = True,
) -> Found:
    """The best schedule within the limits. start: schedules to begin with, made legal. known: trials of earlier runs,
    which are not repeated. roofs: of the machine, for floors (default: what no machine exceeds). crossing: whether
    children have two parents.

    Raises `ConfigError` for no limits at all and nobody watching: it would never end.
    """
    if watch is None and limits == Limits():
        raise ConfigError("a search without limits and without a watch never ends: give trials, seconds or patience")
    running = Search(
        subgraph, target, measure, seed, start, model, known=known, roofs=roofs, clock=clock, crossing=crossing
    )
    first, stopped, waiting = clock(), None, deque[Batch]()
    end = None if limits.seconds is None else first + limits.seconds
    while stopped is None:
        while running.under_way <= (BATCH if overlapping(measure) else 0):
            left = None if end is None else end - clock() - running.finals_seconds()
            most = BATCH if limits.trials is None else limits.trials - running.made - running.under_way
            batch = running.begin(min(BATCH, most), left) if most > 0 else None
            if batch is None:
                break
            waiting.append(batch)
        if not waiting:
            stopped = running.exhausted()
            break
        new = running.end(waiting.popleft(), None if end is None else end - running.finals_seconds())
        if watch is not None and watch(running.progress(new)) is True:
            stopped = f"{ASKED}: whoever watches said so"
        else:
            stopped = limits.reached(running.made, clock() - first + running.finals_seconds(), running.since_best)
    for batch in waiting:
        running.end(batch, clock())
    running.finish(end)
    return running.found(stopped)


Proposal = tuple[list[Schedule], int]
"""Candidates in the order of their merit, and how many of them to take."""


@dataclass(frozen=True)
class Batch:
    """Candidates that are being measured, and when they were begun."""

    schedules: tuple[Schedule, ...]
    pending: Pending
    begun: float


class Search:
    """A search; `begin` and `end` make a batch, `finish` the finals."""

    def __init__(
        self,
        subgraph: Subgraph,
        target: Target,
        measure: Measure,
        seed: int = 0,
        start: Sequence[Schedule] = (),
        model: Model | None = None,
        *,
        known: Sequence[Trial] = (),
        roofs: Roofs | None = None,
        clock: Callable[[], float] = time.monotonic,
        crossing: bool = True,
        many: int = MANY,
    ):
        """many: schedules that a trained model looks at before the first batch; the rest as of `search`."""
        self.subgraph, self.target, self.measure, self.model, self.clock = subgraph, target, measure, model, clock
        self.problem = problem_of(subgraph)
        self.space = space(self.problem, target)
        self.default = default(self.problem, target)
        self.roofs, self.many = nominal(target) if roofs is None else roofs, many
        self.floor = subgraph_floor(subgraph, self.roofs)
        self.breeder = Breeder(self.space, np.random.default_rng(seed), crossing)
        given = [nearest(self.problem, s, target) for s in start if s.template in self.space.templates]
        self.waiting = list(dict.fromkeys([self.default, *given]))
        self.trials = {t.schedule: t for t in known if legal(self.problem, t.schedule, target).ok}
        """by schedule, in the order they were made, those known before first"""
        self.before = len(self.trials)
        self.dropped: set[Schedule] = set()
        self.unlikely: set[Schedule] = set()
        """what is thought hopeless"""
        self.spared: set[Schedule] = set()
        """what was, and is measured all the same"""
        self.since_best = 0
        self.is_typical = False
        """whether `each` is of several candidates: the first of all also waits for what is right to be worked out"""
        self.each = 0.0
        """seconds of a candidate in the last batches, with what it took to think of it"""
        self._era: list[Schedule] = []
        """schedules measured since the population began again"""
        self._unchanged = 0
        self._has_begun = False
        self._finalists: list[Schedule] = []
        self._trust = 1.0
        """by which floors are lower than the roofs say"""
        self._asked: dict[Schedule, None] = {}
        """of batches under way"""
        self._ended = -math.inf
        """when the last batch did"""
        if model is not None and self.trials:
            model.learn(subgraph, target, list(self.trials.values()))

    # --- what is known

    @property
    def made(self) -> int:
        """Candidates measured in this run."""
        return len(self.trials) - self.before

    @property
    def best(self) -> Trial | None:
        """The fastest so far."""
        return min(filter(is_timed, self.trials.values()), key=lambda t: t.seconds or 0.0, default=None)

    def progress(self, new: Sequence[Trial]) -> Progress:
        default = self.trials.get(self.default)
        return Progress(self.subgraph, tuple(new), self.made, self.best, default, self.floor)

    def exhausted(self) -> str:
        """Why there is no other candidate."""
        dropped = f", {len(self.dropped)} have floors above the best time" if self.dropped else ""
        return f"{ALL}: {len(self.trials)} schedules were measured{dropped}, and no others were found"

    def offer(self, schedule: Schedule) -> None:
        """One that was good elsewhere, made legal, is among the next candidates."""
        if schedule.template in self.space.templates:
            made = nearest(self.problem, schedule, self.target)
            if made not in self.trials and made not in self._asked and made not in self.waiting:
                self.waiting.append(made)

    # --- a batch

    @property
    def under_way(self) -> int:
        """Candidates that are being measured."""
        return len(self._asked)

    def begin(self, count: int = BATCH, seconds: float | None = None) -> Batch | None:
        """Have so many candidates measured, fewer where the seconds are fewer; None when there are no more."""
        if seconds is not None and self.each > 0:
            count = min(count, max(0 if self.under_way else 1, int(seconds / self.each) - self.under_way))
        with thinking(self.measure, self.target):
            begun_at, schedules = self.clock(), self._proposed(count) if count else []
        if not schedules:
            return None
        self._asked.update(dict.fromkeys(schedules))
        return Batch(tuple(schedules), begun(self.measure, self.subgraph, self.target, schedules), begun_at)

    def end(self, batch: Batch, until: float | None = None, since: float = -math.inf) -> list[Trial]:
        """What became of a batch, in its order; of what is not done `until` then nothing. since: when the measure was
        free for it, if that was after it began."""
        new, before = batch.pending.trials(until), self.best
        for s in batch.schedules:
            self._asked.pop(s, None)
        self.trials.update((t.schedule, t) for t in new)
        self._check_floors(new)
        self._era += [t.schedule for t in new]
        best = self.best
        is_better = best is not None and (before is None or best is not before)
        self.since_best = 0 if is_better else self.since_best + len(new)
        self._unchanged = 0 if is_better else self._unchanged + len(new)
        if self.model is not None and new:
            with thinking(self.measure, self.target):
                self.model.learn(self.subgraph, self.target, new)
        now = self.clock()
        took = (now - max(batch.begun, self._ended, since)) / max(1, len(new))
        begins = self.each == 0 or (len(new) > 1 and not self.is_typical)
        self.each, self._ended = took if begins else (self.each + took) / 2, now
        self.is_typical = self.is_typical or len(new) > 1
        return new

    def _proposed(self, count: int) -> list[Schedule]:
        """Candidates that are not known, their floors below the best time."""
        found = [s for s in self.waiting if s not in self.trials and s not in self._asked]
        found, self.waiting = found[:count], found[count:]
        if len(found) < count:
            propose = self._next if self._has_begun and self.trials else self._first
            self._has_begun = True
            for schedules, most in propose(count - len(found), found):
                found += self._filtered(schedules, found)[: min(most, count - len(found))]
        return found or self._reprieved(count) or self._remaining(count)

    def _first(self, count: int, besides: Sequence[Schedule]) -> Iterator[Proposal]:
        """Of many the best by the model; without one what is near the default, and strangers."""
        known = {*self.trials, *self._asked, *besides}
        if self.model is not None and self.model.is_trained:
            strangers = self.breeder.strangers(self.many, known)
            scores = dict(zip(strangers, self._scores(strangers), strict=True))
            yield diverse(sorted(strangers, key=lambda s: -scores[s]), 2 * count), count
            return
        near = self.breeder.children([self.default, *besides], count, known)
        yield near, math.ceil(count / 2)
        yield self.breeder.strangers(2 * count, known.union(near)), count // 2

    def _next(self, count: int, besides: Sequence[Schedule]) -> Iterator[Proposal]:
        if self._unchanged >= STALE:  # a new population: not too far from the best, and strangers
            self._unchanged, self._era = 0, []
        known = {*self.trials, *self._asked, *self.dropped, *self.unlikely, *besides}
        if not self._era:
            best = self.best
            near = [] if best is None else self.breeder.far(best.schedule, count, known)
            yield near, count // 2
            yield self.breeder.strangers(2 * count, known.union(near)), count
            return
        parents, unguided = self._parents(), count
        if self.model is not None and self.model.is_trained:
            unguided = round(UNGUIDED * count)
            guided = self._bred(parents, count - unguided, known)
            known.update(guided)
            yield guided, count - unguided
        yield self.breeder.children(parents, 2 * count, known), unguided

    def _parents(self) -> list[Schedule]:
        """The fastest of this population, and once it has grown the best of all."""
        timed = [t for s in self._era if is_timed(t := self.trials[s])]
        elite = self.best
        if elite is not None and elite not in timed and len(timed) >= PARENTS // 2:
            timed.append(elite)
        fastest = [t.schedule for t in sorted(timed, key=lambda t: t.seconds or 0.0)]
        return diverse(fastest, PARENTS) or [self.default]

    def _bred(self, parents: list[Schedule], count: int, known: set[Schedule]) -> list[Schedule]:
        """Generations whose merit is the model's score alone; the best of all that came by."""
        scores: dict[Schedule, float] = {}
        for _ in range(GENERATIONS):
            new = [s for s in self.breeder.children(parents, BRED, known) if s not in scores]
            scores.update(zip(new, self._scores(new), strict=True))
            parents = sorted(scores, key=lambda s: -scores[s])[:KEPT] or parents
        return diverse(sorted(scores, key=lambda s: -scores[s]), 2 * count)

    def _scores(self, schedules: list[Schedule]) -> list[float]:
        assert self.model is not None
        return self.model.scores(self.problem, self.target, schedules).tolist()

    def _filtered(
        self, schedules: Sequence[Schedule], besides: Sequence[Schedule], is_any: bool = False
    ) -> list[Schedule]:
        """Without those that are there already, those whose floor is above the best time and, unless any will do, most
        of those that are thought to take many times as long."""
        best = self.best
        found: dict[Schedule, None] = {}
        for s in schedules:
            if s in self.trials or s in self._asked or s in besides:
                continue
            if best is not None and best.seconds is not None and self.floor_of(s) > best.seconds:
                self.dropped.add(s)
            elif is_any or not self._is_unlikely(s):
                found[s] = None
        return list(found)

    def _is_unlikely(self, schedule: Schedule) -> bool:
        """Whether it is thought to take many times as long as the best so far, and not spared."""
        if schedule in self.unlikely or schedule in self.spared:
            return schedule in self.unlikely
        best = self.best
        usual = likely_cycles(self.problem, self.default if best is None else best.schedule, self.target)
        if likely_cycles(self.problem, schedule, self.target) <= HOPELESS * usual:
            return False
        is_spared = self.breeder.rng.random() < SPARED
        (self.spared if is_spared else self.unlikely).add(schedule)
        return not is_spared

    def floor_of(self, schedule: Schedule) -> float:
        """Seconds that it takes at least."""
        return self._trust * least_seconds(floor_of(self.problem, schedule, self.target), self.target, self.roofs)

    def _check_floors(self, new: Sequence[Trial]) -> None:
        """Lower all floors by as much as something was faster than its own: the roofs were measured beside others."""
        for t in new:
            if is_timed(t) and t.seconds:
                over = max(self.floor, self.floor_of(t.schedule)) / t.seconds
                trust = max(LEAST_TRUST, self._trust / max(1.0, over))
                self.floor, self._trust = self.floor * trust / self._trust, trust

    def _reprieved(self, count: int) -> list[Schedule]:
        """Some of what was thought hopeless, where nothing else is left."""
        found = self._filtered(sorted(self.unlikely, key=str), (), is_any=True)[:count]
        self.unlikely.difference_update(found)
        return found

    def _remaining(self, count: int) -> list[Schedule]:
        """Of a small space the first that nobody has met."""
        found: list[Schedule] = []
        for n, s in enumerate(self.space):
            if n == SMALL or len(found) == count:
                break
            found += self._filtered([s], ())
        return found

    # --- the end

    def finals_seconds(self) -> float:
        """About what the finals take: of kernels that are built already a round of timing is about one candidate's."""
        rounds = 1 if overlapping(self.measure) else finals.ROUNDS
        return self.each * rounds * len(self._compared())

    def _compared(self) -> list[Schedule]:
        """The fastest and the default; none where the default has it already."""
        trials = list(self.trials.values())
        usual, best = self.trials.get(self.default), finals.chosen(trials, self.default)
        is_over = best is not None and best is usual and best.times == 1
        return [] if is_over else finals.finalists(trials, self.default)

    def finals(self) -> Pending | None:
        """The fastest and the default being measured again, side by side; None where there is nothing to compare."""
        self._finalists = self._compared()
        return finals.again(self.measure, self.subgraph, self.target, self._finalists) if self._finalists else None

    def finish(self, until: float | None = None, pending: Pending | None = None) -> None:
        """Wait for the finals, which begin now if they have not; what is not done `until` then keeps its time."""
        pending = pending or self.finals()
        if pending is not None:
            made = {t.schedule: replace(t, times=finals.ROUNDS) for t in pending.trials(until)}
            self.trials.update(made)
            self._finalists = [s for s in self._finalists if s in made]

    def found(self, stopped: str) -> Found:
        """What there is now."""
        trials = tuple(self.trials.values())
        default = self.trials.get(self.default) or Trial(self.default, OUTCOMES[3], reason="there was no time for it")
        among = [self.trials[s] for s in self._finalists] if self._finalists else trials
        best = finals.chosen(among, self.default) or finals.chosen(trials, self.default) or default
        return Found(best, trials, stopped, default, len(self.dropped), self.floor)
