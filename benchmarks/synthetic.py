"""A machine that is a formula: times of candidates without compiling any, for tests of the search and its ablations.

    seconds = floor of the subgraph  x  2 ^ (what each knob is away from a place where it would be best, in its own way,
              some in pairs)  x  (1 + noise)

The places depend on the template and a little on the subgraph, so that what is learned of one helps with another.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from neoflow.loops import problem_of
from neoflow.loops.features import SHARED, feature_names, features
from neoflow.loops.schedule import Schedule
from neoflow.partition import Subgraph
from neoflow.target import Target
from neoflow.tune.floors import floor_of, least_seconds, subgraph_floor
from neoflow.tune.roofs import nominal
from neoflow.tune.trial import OUTCOMES, Trial

SPREAD = 6.0
"""Powers of two, about, between a template's best and worst: as many for one of thirty knobs as for one of five."""


def _drawn(*what: object) -> np.random.Generator:
    """Numbers that follow from words."""
    digest = hashlib.sha256(" ".join(map(str, what)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little"))


@dataclass
class Synthetic:
    """A `Measure`. seed: of the machine. noise: of each time, relative. failing: part of the candidates that fail, one
    way or another. cost: seconds that `now` goes on by, a candidate."""

    seed: int = 0
    noise: float = 0.0
    failing: float = 0.0
    cost: float = 0.05
    now: float = 0.0
    asked: list[Schedule] = field(default_factory=list)
    _places: dict[tuple, NDArray[np.float64]] = field(default_factory=dict, repr=False)

    def clock(self) -> float:
        return self.now

    def __call__(
        self, subgraph: Subgraph, target: Target, schedules: Sequence[Schedule], deadline: float | None = None
    ) -> list[Trial]:
        self.now += self.cost * len(schedules)
        found = []
        for s in schedules:
            self.asked.append(s)
            chance = _drawn(self.seed, len(self.asked), subgraph.digest)
            if chance.random() < self.failing:
                outcome = OUTCOMES[1 + int(chance.integers(len(OUTCOMES) - 1))]
                found.append(Trial(s, outcome, reason="it was drawn"))
                continue
            noise = self.noise * chance.standard_normal() if self.noise else 0.0
            seconds = self.seconds(subgraph, target, s) * math.exp(noise)
            found.append(Trial(s, "ok", seconds, spread=self.noise))
        return found

    def seconds(self, subgraph: Subgraph, target: Target, schedule: Schedule) -> float:
        """Without noise, and never below the floor."""
        problem = problem_of(subgraph)
        least = least_seconds(floor_of(problem, schedule, target), target, nominal(target))
        values = features(problem, schedule, target)[: -len(SHARED)]
        away = self._away(schedule.template, values, subgraph.digest)
        for n, inner in enumerate(schedule.inner):
            own = [self._taste(n, inner.template, name, value) for name, value in inner.knobs]
            away += 0.3 * sum(own) / (1 + len(own))
        return max(least, subgraph_floor(subgraph, nominal(target))) * 2.0 ** (0.1 + away)

    def _taste(self, *what: object) -> float:
        if what not in self._places:
            self._places[what] = _drawn(self.seed, *what).random(1)
        return float(self._places[what][0])

    def _away(self, template: str, values: NDArray[np.float64], digest: str) -> float:
        place, weight = self._place(template, digest)
        distances = weight * np.minimum(3.0, np.abs(values - place))
        pairs = np.sqrt(distances[1:] * distances[:-1])
        return SPREAD * float(distances.mean() + (pairs.mean() if len(pairs) else 0.0))

    def _place(self, template: str, digest: str) -> NDArray[np.float64]:
        """Where each knob is best, and how much it matters."""
        if (template, digest) not in self._places:
            found = []
            for name in feature_names(template)[: -len(SHARED)]:
                machine, own = _drawn(self.seed, template, name), _drawn(self.seed, template, name, digest)
                found.append((machine.uniform(0, 4) + own.uniform(-0.5, 0.5), machine.uniform(0.05, 0.5)))
            self._places[template, digest] = np.array(found).T
        return self._places[template, digest]
