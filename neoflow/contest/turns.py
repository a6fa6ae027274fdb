"""Steps timed in turn: a block of each contender in every round, only one of them running at a time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from neoflow.contest.process import Running, WorkerFailure, wait_until_quiet
from neoflow.measure.near import Cores

LEAST_ROUNDS = 3


class Timed(Running, Protocol):
    """What runs blocks of steps when asked, and is quiet in between."""

    def block(self, seconds: float) -> float:
        """Seconds of a step."""


def in_turn(
    timed: Mapping[str, Timed], seconds: float, block: float, cores: Cores, least: int = LEAST_ROUNDS
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Seconds of a step by name, a block of each in every round; and why others have not come to the end.

    Each round begins with another. There are as many rounds as fit into so many seconds, and at least `least`. A block
    is timed while `cores` are near each other, as far as their patience goes.
    """

    def quiet_block(name: str) -> float:
        wait_until_quiet(timed.values())
        return timed[name].block(block)

    found: dict[str, list[float]] = {name: [] for name in timed}
    missing: dict[str, str] = {}
    end, n = time.perf_counter() + seconds, 0
    while found and (n < least or time.perf_counter() < end):
        names = list(found)
        for name in (*names[n % len(names) :], *names[: n % len(names)]):
            try:
                found[name].append(cores.between(partial(quiet_block, name)))
            except WorkerFailure as failure:
                missing[name] = str(failure)
                del found[name]
        n += 1
    return found, missing


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Of the ratios within the rounds."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
