"""A program's budget: seconds shared out over its kernels, a batch at a time, to where most is expected of them.

    expected gain of a kernel's next batch, a second of tuning
        = calls in a step  x  room: seconds of a call above its floor  x  part of the room that a batch closes  /
          seconds of a batch

The part is what its latest batches closed, and hope that fades with each batch that closed nothing. So the kernel that
takes most of a step comes first, and is left when it stops gaining; one that is near its floor, or hardly called, may
never come. Defaults whose times nobody knows are measured before that. (Sharing by gradients: Zheng et al., Ansor,
2020, section 6; the estimate is our own.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from neoflow.loops import Schedule
from neoflow.partition import Subgraph
from neoflow.target import Target
from neoflow.tune.limits import Limits
from neoflow.tune.model import Model
from neoflow.tune.roofs import Roofs
from neoflow.tune.search import ALL, ASKED, BATCH, MANY, Found, Progress, Search
from neoflow.tune.trial import Measure, Trial

HOPE = 0.25
"""Part of the room that the first batch is thought to close; after one without gain half of it, after two a third."""
MEMORY = 0.5
"""Weight of the latest batch in the part that is expected of the next one."""
UNKNOWN = 3.0
"""A call's seconds, by its floor, where nobody knows them: about what defaults are from their floors in the models."""
FEW = 500
"""Schedules that a trained model looks at before a kernel's first batch: a quarter of a second, of about one."""
SLICE = 0.2
"""Part of the budget that finals may take; and defaults whose times nobody knows, before anything is shared out."""


@dataclass(frozen=True)
class Task:
    """A kernel of a program: how often a step calls it, seconds of a call as it is now (None: not known), schedules to
    start from, trials of earlier runs."""

    subgraph: Subgraph
    calls: int = 1
    seconds: float | None = None
    start: tuple[Schedule, ...] = ()
    known: tuple[Trial, ...] = ()


@dataclass(frozen=True)
class Spent:
    """What a budget gave. found: of each task, None where it never came. stopped: why. trials: candidates measured."""

    found: tuple[Found | None, ...]
    stopped: str
    trials: int


class _Account:
    """One kernel's search and what is expected of it."""

    def __init__(self, task: Task, search: Search):
        self.task, self.search = task, search
        self.closed, self.idle = 0.0, 0
        self.is_over = False

    @property
    def is_unknown(self) -> bool:
        return self.task.seconds is None and not self.search.trials

    @property
    def seconds(self) -> float:
        """Of a call, with the best schedule so far."""
        best = self.search.best
        known = [s for s in (self.task.seconds, best.seconds if best is not None else None) if s is not None]
        return min(known) if known else UNKNOWN * self.search.floor

    def expected(self, each: float) -> float:
        """Seconds of a step that a second of tuning is thought to save. each: seconds of a candidate, where this
        kernel has had none."""
        room = max(0.0, self.seconds - self.search.floor)
        part = min(1.0, self.closed + HOPE / (1 + self.idle))
        return self.task.calls * room * part / (BATCH * (self.search.each or each))

    def step(self, count: int, seconds: float | None) -> list[Trial]:
        before, was_unknown = self.seconds, self.is_unknown
        new = self.search.step(count, seconds)
        self.is_over = not new
        if was_unknown:
            return new
        room = before - self.search.floor
        gained = max(0.0, before - self.seconds) / room if room > 0 else 0.0
        self.closed = MEMORY * min(1.0, gained) + (1 - MEMORY) * self.closed
        self.idle = 0 if gained > 0 else self.idle + 1
        return new


def spend(
    tasks: Sequence[Task],
    target: Target,
    measure: Measure,
    limits: Limits,
    seed: int = 0,
    model: Model | None = None,
    watch: Callable[[int, Progress], object] | None = None,
    *,
    roofs: Roofs | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Spent:
    """Search for the schedules of a program's kernels within limits that hold for all of them together.

    watch: told of every batch with the number of its task; the tuning ends when it says True.
    """
    many = MANY if len(tasks) == 1 else FEW
    accounts = [
        _Account(
            t,
            Search(
                t.subgraph,
                target,
                measure,
                seed + n,
                t.start,
                model,
                known=t.known,
                roofs=roofs,
                clock=clock,
                many=many,
            ),
        )
        for n, t in enumerate(tasks)
    ]
    begun, trials, idle, each = clock(), 0, 0, 1.0
    stopped = f"{ALL}: there is nothing to tune" if not tasks else None
    while stopped is None:
        is_early = _part(limits, trials, clock() - begun) < SLICE
        unknown = [a for a in accounts if a.is_unknown and not a.is_over and a.task.calls] if is_early else []
        open_ones = unknown or [a for a in accounts if not a.is_over]
        if not open_ones:
            stopped = f"{ALL}: every schedule of every kernel was measured"
            continue
        chosen = max(open_ones, key=lambda a: a.expected(each))
        most = 1 if unknown else BATCH
        most = most if limits.trials is None else min(most, limits.trials - trials)
        left = None if limits.seconds is None else limits.seconds - (clock() - begun) - _finals(accounts, limits)
        before = chosen.seconds
        new = chosen.step(most, left)
        trials, each = trials + len(new), chosen.search.each or each
        idle = 0 if chosen.seconds < before else idle + len(new)
        if new and watch is not None and watch(accounts.index(chosen), chosen.search.progress(new)) is True:
            stopped = f"{ASKED}: whoever watches said so"
        else:
            stopped = limits.reached(trials, clock() - begun + _finals(accounts, limits), idle)
    _finish(accounts, None if limits.seconds is None else begun + limits.seconds, clock)
    found = tuple(a.search.found(stopped) if a.search.made else None for a in accounts)
    return Spent(found, stopped, trials)


def _part(limits: Limits, trials: int, seconds: float) -> float:
    """Of the limits, what is spent."""
    of_trials = trials / limits.trials if limits.trials is not None else 0.0
    return max(of_trials, seconds / limits.seconds if limits.seconds is not None else 0.0)


def _finals(accounts: Sequence[_Account], limits: Limits) -> float:
    """Seconds kept for the finals."""
    wanted = sum(a.search.finals_seconds() for a in accounts if a.search.made)
    return wanted if limits.seconds is None else min(wanted, SLICE * limits.seconds)


def _finish(accounts: Sequence[_Account], end: float | None, clock: Callable[[], float]) -> None:
    """The finals of what gained most first, as far as the time goes."""

    def gain(a: _Account) -> float:
        default = a.search.progress(()).default
        now = default.seconds if default is not None and default.seconds is not None else a.seconds
        return a.task.calls * (now - a.seconds)

    for a in sorted((a for a in accounts if a.search.made), key=gain, reverse=True):
        if end is None or clock() + a.search.finals_seconds() <= end:
            a.search.finish()
