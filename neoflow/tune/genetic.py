"""Genetics of schedules: how far two are apart, children of two, and a population that breeds.

Knobs are declared in order, and a range knows the knobs before it. So a child takes stretches of neighbouring knobs,
which were chosen for each other, and what then is out of its range takes its default (`loops.nearest`): children are
always legal.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

import numpy as np

from neoflow.loops import TEMPLATES, Problem, Schedule, Space, nearest
from neoflow.loops.schedule import schedule_of
from neoflow.target import Target

APART = 2
"""Knobs in which two schedules differ that are not close: a neighbour tells little that is new."""
TOURNAMENT = 3
"""Parents drawn for each place, of which the fastest breeds."""
CROSSED = 0.5
"""Children of two parents; the others are mutations of one."""
STRANGERS = 0.1
"""Candidates that are drawn from all of the space."""
MUTATIONS = 3
"""Mutations of a child at most: one, and each further one half as often."""
TRIES = 20
"""Draws for each child that is wanted, as most of a small space is known after a while."""


def distance(a: Schedule, b: Schedule) -> int:
    """Knobs that differ, inside too; of different templates all of them."""
    if a.template != b.template:
        return max(_width(a), _width(b))
    here = sum(dict(b.knobs).get(name) != value for name, value in a.knobs)
    if len(a.inner) != len(b.inner):
        return here + sum(_width(s) for s in max(a.inner, b.inner, key=len))
    return here + sum(distance(x, y) for x, y in zip(a.inner, b.inner, strict=True))


def _width(s: Schedule) -> int:
    return len(s.knobs) + sum(_width(inner) for inner in s.inner)


def crossed(problem: Problem, target: Target, a: Schedule, b: Schedule, rng: np.random.Generator) -> Schedule:
    """A legal child: a stretch of knobs as declared from `b`, the others from `a`; so in each nest inside.

    Of different templates it is one of the two.
    """
    return nearest(problem, _mixed(a, b, rng), target)


def _mixed(a: Schedule, b: Schedule, rng: np.random.Generator) -> Schedule:
    if a.template != b.template:
        return (a, b)[int(rng.integers(2))]
    names = [k.name for k in TEMPLATES[a.template].knobs]
    low, high = sorted(int(n) for n in rng.integers(len(names) + 1, size=2))
    child = schedule_of(a.template, {n: (b if low <= at < high else a)[n] for at, n in enumerate(names)})
    if [s.template for s in a.inner] == [s.template for s in b.inner]:
        inner = tuple(_mixed(x, y, rng) for x, y in zip(a.inner, b.inner, strict=True))
    else:  # the nests are other ones: those of the parent whose knobs made them
        inner = min((a, b), key=lambda s: distance(Schedule(s.template, s.knobs), child)).inner
    return Schedule(child.template, child.knobs, inner)


def diverse(schedules: Sequence[Schedule], count: int) -> list[Schedule]:
    """So many of schedules in the order of their merit, in that order: where there are enough, no two are close."""
    found: dict[Schedule, None] = {}
    close: list[Schedule] = []
    for s in schedules:
        if len(found) == count:
            break
        if all(distance(s, other) >= APART for other in found):
            found[s] = None
        else:
            close.append(s)
    kept = {*found, *close[: count - len(found)]}
    return [s for s in schedules if s in kept]


@dataclass(frozen=True, eq=False)
class Breeder:
    """Makes candidates of one space. crossing: whether children have two parents at times."""

    space: Space
    rng: np.random.Generator
    crossing: bool = True

    def strangers(self, count: int, known: Container[Schedule]) -> list[Schedule]:
        """Random schedules that are not known, different ones: fewer where few are left."""
        return self._different(count, known, lambda: self.space.sample(self.rng))

    def children(self, parents: Sequence[Schedule], count: int, known: Container[Schedule]) -> list[Schedule]:
        """Children of parents that stand in the order of their merit, and some strangers; none of them known."""
        return self._different(count, known, lambda: self._child(parents))

    def far(self, schedule: Schedule, count: int, known: Container[Schedule]) -> list[Schedule]:
        """What some mutations make of a schedule, to begin again not too far from it."""
        return self._different(count, known, lambda: self._mutated(schedule, 2 * MUTATIONS))

    def _child(self, parents: Sequence[Schedule]) -> Schedule:
        if self.rng.random() < STRANGERS or not parents:
            return self.space.sample(self.rng)
        first = self._chosen(parents)
        if not self.crossing or self.rng.random() >= CROSSED:
            return self._mutated(first, self._mutations())
        child = crossed(self.space.problem, self.space.target, first, self._chosen(parents), self.rng)
        return child if self.rng.random() < 0.5 else self._mutated(child, 1)

    def _chosen(self, parents: Sequence[Schedule]) -> Schedule:
        return parents[int(self.rng.integers(len(parents), size=TOURNAMENT).min())]

    def _mutations(self) -> int:
        return min(MUTATIONS, int(self.rng.geometric(0.5)))

    def _mutated(self, schedule: Schedule, times: int) -> Schedule:
        for _ in range(times):
            schedule = self.space.mutated(schedule, self.rng)
        return schedule

    def _different(self, count: int, known: Container[Schedule], draw: Callable[[], Schedule]) -> list[Schedule]:
        found: dict[Schedule, None] = {}
        for _ in range(TRIES * count):
            if len(found) == count:
                break
            schedule = draw()
            if schedule not in known:
                found[schedule] = None
        return list(found)
