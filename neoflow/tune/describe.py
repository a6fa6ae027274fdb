"""A candidate as a row of numbers, its columns the same for all templates of a device, so that what is learned of one
subgraph serves others: the features of its knobs, of its problem, of the nests inside, and its floors."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from neoflow.loops import TEMPLATES, Problem, Schedule, feature_names, features
from neoflow.loops.features import SHARED
from neoflow.loops.rows import alone
from neoflow.loops.template import INNER
from neoflow.target import Target
from neoflow.tune.floors import floor_of

INSIDE = 4
"""Nests of a row that are described: a softmax has three, a layer norm four."""
FLOORS = ("log cycles", "share", "log bytes", "held", "log footprint", "log seconds", "intensity")


class Columns:
    """The columns of a device's rows, in order: `names`; what a row does not have is NaN, which trees take as such."""

    def __init__(self, device: str):
        self.names: list[str] = [*SHARED, *FLOORS]
        for t in TEMPLATES.values():
            if t.device == device:
                self.names += [f"{t.name}: {name}" for name in _own(t.name)]
        for n in range(INSIDE):
            self.names += [f"nest {n} {t}: {name}" for t in INNER for name in _own(t)]

    @cached_property
    def places(self) -> dict[str, int]:
        return {name: n for n, name in enumerate(self.names)}

    def row(self, problem: Problem, schedule: Schedule, target: Target) -> NDArray[np.float32]:
        """Of a legal schedule."""
        found = np.full(len(self.names), np.nan, np.float32)
        values = features(problem, schedule, target)
        found[: len(SHARED)] = values[-len(SHARED) :]
        found[len(SHARED) : len(SHARED) + len(FLOORS)] = _floors(problem, schedule, target)
        self._fill(found, f"{schedule.template}: ", schedule.template, values)
        inside = TEMPLATES[schedule.template].inner(problem, schedule)
        for n, (nest, one) in enumerate(zip(inside[:INSIDE], schedule.inner, strict=False)):
            self._fill(found, f"nest {n} {one.template}: ", one.template, features(nest, one, alone(target)))
        return found

    def _fill(self, row: NDArray[np.float32], prefix: str, template: str, values: NDArray[np.float64]) -> None:
        own = _own(template)
        if own:
            first = self.places[prefix + own[0]]
            row[first : first + len(own)] = values[: len(own)]


def _own(template: str) -> tuple[str, ...]:
    """The features that are not shared."""
    return feature_names(template)[: -len(SHARED)]


def _floors(problem: Problem, schedule: Schedule, target: Target) -> list[float]:
    f = floor_of(problem, schedule, target)
    logs = [math.log2(1 + f.cycles), f.share, math.log2(1 + f.nbytes), f.held, math.log2(1 + f.footprint)]
    return [*logs, math.log2(1 + 1e9 * f.seconds), f.cycles / (1 + f.nbytes)]
