"""Batches under way: while workers build and time one, the next one is thought of, where the measure can do that."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, cast

from neoflow.loops import Schedule
from neoflow.partition import Subgraph
from neoflow.target import Target
from neoflow.tune.trial import Measure, Trial


class Pending(Protocol):
    """Candidates that are being measured."""

    def trials(self, until: float | None = None) -> list[Trial]:
        """Of all, in their order, when they are done; at that time (`time.monotonic`) of those that are."""
        ...


class Overlapping(Measure, Protocol):
    """A `Measure` of several batches at a time: built side by side, timed one by one in the order they were begun."""

    @property
    def is_overlapping(self) -> bool: ...

    def begin(self, subgraph: Subgraph, target: Target, schedules: Sequence[Schedule]) -> Pending: ...

    def begin_turns(self, subgraph: Subgraph, target: Target, schedules: Sequence[Schedule]) -> Pending:
        """Finalists, timed in turns."""
        ...

    def thinking(self, target: Target) -> AbstractContextManager[None]:
        """Within, whoever searches needs a core, so that nothing is timed."""
        ...


@dataclass(frozen=True)
class Done:
    """Candidates that were measured at once."""

    found: tuple[Trial, ...]

    def trials(self, until: float | None = None) -> list[Trial]:
        return list(self.found)


def overlapping(measure: Measure) -> Overlapping | None:
    """The measure, where batches may be under way."""
    return cast(Overlapping, measure) if getattr(measure, "is_overlapping", False) else None


def begun(measure: Measure, subgraph: Subgraph, target: Target, schedules: Sequence[Schedule]) -> Pending:
    """A batch, begun; measured now where nothing can be under way."""
    over = overlapping(measure)
    return (
        Done(tuple(measure(subgraph, target, schedules))) if over is None else over.begin(subgraph, target, schedules)
    )


def thinking(measure: Measure, target: Target) -> AbstractContextManager[None]:
    """Within, nothing is timed."""
    over = overlapping(measure)
    return nullcontext() if over is None else over.thinking(target)


class Ahead:
    """A `Measure` of single schedules that were all begun before the first of them is asked for."""

    def __init__(self, measure: Measure, target: Target, asked: Mapping[Subgraph, Schedule]):
        """asked: of each subgraph, in the order in which they will be asked for."""
        self._measure = measure
        over = overlapping(measure)
        self._begun: dict[tuple[str, Schedule], Pending] = {}
        for subgraph, schedule in asked.items() if over is not None else ():
            self._begun[subgraph.digest, schedule] = begun(measure, subgraph, target, [schedule])

    def __call__(
        self, subgraph: Subgraph, target: Target, schedules: Sequence[Schedule], deadline: float | None = None
    ) -> list[Trial]:
        pending = self._begun.pop((subgraph.digest, schedules[0]), None) if len(schedules) == 1 else None
        return self._measure(subgraph, target, schedules, deadline) if pending is None else pending.trials()

    def forget(self) -> None:
        """Give up what was not asked for after all."""
        for pending in self._begun.values():
            pending.trials(-math.inf)
        self._begun.clear()
