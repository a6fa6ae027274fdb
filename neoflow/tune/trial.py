"""A trial: what became of a candidate; and what makes trials of schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from neoflow.loops import Schedule
from neoflow.partition import Subgraph
from neoflow.target import Target

OUTCOMES = ("ok", "wrong", "refused", "deadline", "crash", "memory")
# refused: could not be lowered or compiled; wrong: verify said no; a deadline is never a slow time


@dataclass(frozen=True)
class Trial:
    """What became of a candidate. seconds: median of a call, of an "ok" one. spread: (q3-q1)/median of its blocks.
    reason: why not ok."""

    schedule: Schedule
    outcome: str
    seconds: float | None = None
    spread: float = 0.0
    reason: str = ""
    times: int = 1


class Measure(Protocol):
    """Builds, judges and times candidates for one subgraph: a Trial each, in their order. Raises nothing for a bad
    candidate."""

    def __call__(
        self, subgraph: Subgraph, target: Target, schedules: Sequence[Schedule], deadline: float | None = None
    ) -> list[Trial]: ...
