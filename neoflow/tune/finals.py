"""The end of a search: the fastest candidates measured again, side by side, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Protocol, cast

from neoflow.loops import Schedule
from neoflow.partition import Subgraph
from neoflow.target import Target
from neoflow.tune.genetic import distance
from neoflow.tune.trial import Measure, Trial
from neoflow.tune.underway import Done, Pending, overlapping

FINALISTS, ROUNDS = 4, 3
"""Candidates that are measured again, beside the default, and how often each, one after the other."""
MOST_NOISE = 0.03
"""A difference that counts as one, however much the blocks of a candidate differ among themselves."""


def is_timed(trial: Trial) -> bool:
    """Whether its time counts."""
    return trial.outcome == "ok" and trial.seconds is not None


def finalists(trials: Sequence[Trial], default: Schedule, count: int = FINALISTS) -> list[Schedule]:
    """The fastest, and the default where it has a time; none where there is nothing to compare."""
    timed = sorted((t for t in trials if is_timed(t)), key=lambda t: t.seconds or 0.0)
    chosen = dict.fromkeys([t.schedule for t in timed[:count]])
    chosen.update(dict.fromkeys(t.schedule for t in timed if t.schedule == default))
    return list(chosen) if len(chosen) > 1 else []


class Interleaves(Protocol):
    """A `Measure` that can time finalists in turns in one process, so that their ratios hold on a busy machine."""

    def interleaved(self, subgraph: Subgraph, target: Target, schedules: Sequence[Schedule]) -> list[Trial]:
        """A trial each, in their order."""
        ...


def again(measure: Measure, subgraph: Subgraph, target: Target, schedules: Sequence[Schedule]) -> Pending:
    """Trials of finalists, side by side: as `measure` does that, or one after the other, each time in another order."""
    over = overlapping(measure)
    if over is not None:
        return over.begin_turns(subgraph, target, schedules)
    if callable(getattr(measure, "interleaved", None)):
        found = cast(Interleaves, measure).interleaved(subgraph, target, schedules)
        return Done(tuple(replace(t, times=ROUNDS) for t in found))
    made: dict[Schedule, list[Trial]] = {s: [] for s in schedules}
    for n in range(ROUNDS):
        start = n % len(schedules)
        turned = [*schedules[start:], *schedules[:start]]
        for s, trial in zip(turned, measure(subgraph, target, turned), strict=True):
            made[s].append(trial)
    return Done(tuple(combined(trials) for trials in made.values()))


def combined(trials: Sequence[Trial]) -> Trial:
    """One trial of several of a schedule: the median of their times. What failed once is what failed.

    The time by which it became a finalist is not among them: it was the best of many, and so it was lucky.
    """
    failed = next((t for t in trials if not is_timed(t)), None)
    if failed is not None:
        return failed
    times = [t.seconds for t in trials if t.seconds is not None]
    return replace(trials[0], seconds=median(times), spread=median(t.spread for t in trials), times=len(trials))


def chosen(trials: Sequence[Trial], default: Schedule) -> Trial | None:
    """The fastest, or of those that are as fast but for noise the one nearest to the default; None where all failed."""
    timed = [t for t in trials if is_timed(t)]
    timed = [t for t in timed if t.times > 1] or timed  # a single time that is short may be a lucky one
    if not timed:
        return None
    best = min(timed, key=_seconds)
    return min((t for t in timed if _is_tie(t, best)), key=lambda t: (distance(t.schedule, default), _seconds(t)))


def _seconds(trial: Trial) -> float:
    assert trial.seconds is not None
    return trial.seconds


def _is_tie(trial: Trial, best: Trial) -> bool:
    noise = min(MOST_NOISE, max(trial.spread, best.spread))
    return _seconds(trial) <= (1 + noise) * _seconds(best)
