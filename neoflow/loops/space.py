"""`Space`: the legal schedules of a problem, as the knobs declare them: all of them, random ones, neighbours.

Ranges depend on the knobs before them, so the space is a tree: a level for each knob, a branch for each value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from neoflow.loops import rows
from neoflow.loops.knob import MASK, NUMBER, Chosen, Knob, Range
from neoflow.loops.schedule import KnobValue, Schedule, schedule_of
from neoflow.loops.template import INNER, TEMPLATES, Problem, fits, fitting, legal, nearest
from neoflow.target import Target

SURE = 10_000
"""Schedules up to which a space is counted; a larger one is estimated."""
PROBES = 200
STEPPED, RESET = 0.5, 0.25
"""How often a mutation is a step, and how often the knobs after it begin anew."""


def space(problem: Problem, target: Target) -> Space:
    """The schedules of every template that fits."""
    return Space(problem, target, fitting(problem, target))


@dataclass(frozen=True)
class Space:
    """The legal schedules of a problem by `templates`."""

    problem: Problem
    target: Target
    templates: tuple[str, ...]

    def __contains__(self, schedule: Schedule) -> bool:
        return schedule.template in self.templates and legal(self.problem, schedule, self.target).ok

    def __iter__(self) -> Iterator[Schedule]:
        """Every schedule once, in the order of templates and ranges."""
        for name in self.templates:
            for knobs in self._assignments(name, {}):
                for inner in _products(self._inside(name, knobs)):
                    yield schedule_of(name, knobs, inner)

    def _assignments(self, template: str, chosen: dict[str, KnobValue]) -> Iterator[dict[str, KnobValue]]:
        row = TEMPLATES[template]
        if len(chosen) == len(row.knobs):
            yield chosen
            return
        knob = row.knobs[len(chosen)]
        for value in knob.range(self.problem, self.target, chosen).values:
            yield from self._assignments(template, {**chosen, knob.name: value})

    def _inside(self, template: str, knobs: Chosen) -> list[Space]:
        """The spaces of the nests inside."""
        alone = rows.alone(self.target)
        found = TEMPLATES[template].inner(self.problem, knobs)
        return [Space(p, alone, tuple(name for name in INNER if fits(name, p).ok)) for p in found]

    # --- chance

    def sample(self, rng: np.random.Generator) -> Schedule:
        """A random schedule: a template, then knob after knob; amounts are drawn by their logarithm."""
        return self._probe(rng)[0]

    def _probe(self, rng: np.random.Generator) -> tuple[Schedule, float]:
        """A random schedule and how many there would be if all branches were as wide as those on its way."""
        name = self.templates[int(rng.integers(len(self.templates)))]
        chosen: dict[str, KnobValue] = {}
        count = float(len(self.templates))
        for knob in TEMPLATES[name].knobs:
            allowed = knob.range(self.problem, self.target, chosen)
            chosen[knob.name], likely = _drawn(knob, allowed, rng)
            count /= likely
        inside = [s._probe(rng) for s in self._inside(name, chosen)]
        inner = tuple(schedule for schedule, _ in inside)
        return schedule_of(name, chosen, inner), count * math.prod(c for _, c in inside)

    def size(self) -> int:
        """How many schedules there are; above `SURE` an estimate from the widths met by `PROBES` random ones.

        Knuth, Estimating the efficiency of backtrack programs, 1975: its expected value is the size.
        """
        for count, _ in enumerate(self, 1):
            if count > SURE:
                rng = np.random.default_rng(0)
                return round(sum(self._probe(rng)[1] for _ in range(PROBES)) / PROBES)
        return count

    # --- neighbours

    def neighbours(self, schedule: Schedule) -> list[Schedule]:
        """The schedules that differ in one knob, and in those that must follow it: they take their defaults."""
        row = TEMPLATES[schedule.template]
        found: dict[Schedule, None] = {}
        for knob in row.knobs:
            allowed = knob.range(self.problem, self.target, schedule)
            for value in _steps(knob, allowed, schedule[knob.name]):
                knobs = {**dict(schedule.knobs), knob.name: value}
                changed = schedule_of(schedule.template, knobs, schedule.inner)
                found[nearest(self.problem, changed, self.target)] = None
        inside = self._inside(schedule.template, dict(schedule.knobs))
        for n, (part, one) in enumerate(zip(inside, schedule.inner, strict=True)):
            for other in part.neighbours(one):
                inner = (*schedule.inner[:n], other, *schedule.inner[n + 1 :])
                found[Schedule(schedule.template, schedule.knobs, inner)] = None
        found.pop(schedule, None)
        return list(found)

    def mutated(self, schedule: Schedule, rng: np.random.Generator) -> Schedule:
        """A schedule that differs in one knob, drawn, and in those that must follow it; itself where none has a choice.

        Half of the time the value is a step away, else any; and of the knobs declared later those that may keep their
        values do, or, every fourth time, all take their defaults. Knobs of nests inside are drawn as often as others.
        """
        row = TEMPLATES[schedule.template]
        allowed = [(knob, knob.range(self.problem, self.target, schedule)) for knob in row.knobs]
        open_here = [n for n, (_, found) in enumerate(allowed) if _count(found) > 1]
        inside = self._inside(schedule.template, schedule) if schedule.inner else []
        widths = [len(open_here), *(len(one.knobs) for one in schedule.inner)]
        if not sum(widths):
            return schedule
        place = int(rng.choice(len(widths), p=np.array(widths) / sum(widths)))
        if place:
            n = place - 1
            changed = inside[n].mutated(schedule.inner[n], rng)
            return Schedule(schedule.template, schedule.knobs, (*schedule.inner[:n], changed, *schedule.inner[n + 1 :]))
        at = open_here[int(rng.integers(len(open_here)))]
        knob, found = allowed[at]
        near = _steps(knob, found, schedule[knob.name])
        if near and rng.random() < STEPPED:
            value = near[int(rng.integers(len(near)))]
        else:
            value = _drawn(knob, found, rng)[0]
        knobs = {**dict(schedule.knobs), knob.name: value}
        if rng.random() < RESET:
            knobs = {k.name: knobs[k.name] for k in row.knobs[: at + 1]}
        return nearest(self.problem, schedule_of(schedule.template, knobs, schedule.inner), self.target)


def _products(parts: list[Space]) -> Iterator[tuple[Schedule, ...]]:
    if not parts:
        yield ()
        return
    for first in parts[0]:
        for rest in _products(parts[1:]):
            yield (first, *rest)


MOST_DRAWN = 1 << 62
"""Values that one random number chooses from."""


def _count(allowed: Range) -> int:
    """How many values: a mask of 64 bits has more than `len` can say."""
    values = allowed.values
    return values.stop - values.start if isinstance(values, range) and values.step == 1 else len(values)


def _drawn(knob: Knob, allowed: Range, rng: np.random.Generator) -> tuple[KnobValue, float]:
    """A value of the range and how likely it was."""
    count = _count(allowed)
    if count > MOST_DRAWN:  # a mask of many bits
        return int.from_bytes(rng.bytes(count.bit_length() // 8 + 1), "little") % count, 1 / count
    if knob.kind is not NUMBER:
        return allowed.values[int(rng.integers(count))], 1 / count
    n = min(count - 1, int(math.exp(rng.random() * math.log(count + 1))) - 1)
    return allowed.values[n], math.log((n + 2) / (n + 1)) / math.log(count + 1)


def _steps(knob: Knob, allowed: Range, value: KnobValue) -> list[KnobValue]:
    """Values next to one: every other name or place, one bit changed, the next amounts and those of half and twice."""
    if knob.kind is MASK:
        bits = (_count(allowed) - 1).bit_length()
        return [int(value) ^ (1 << n) for n in range(bits)]
    if knob.kind is not NUMBER:
        return [v for v in allowed.values if v != value]
    here = allowed.values.index(value)
    wanted = (here - 1, here + 1, (here + 1) // 2 - 1, 2 * here + 1)
    places = dict.fromkeys(n for n in wanted if 0 <= n < len(allowed.values) and n != here)
    return [allowed.values[n] for n in places]
