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
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from neoflow.loops import Schedule
from neoflow.partition import Subgraph
from neoflow.roofs import Roofs
from neoflow.target import Target
from neoflow.tune.limits import Limits
from neoflow.tune.model import Model
from neoflow.tune.search import ALL, ASKED, BATCH, MANY, Batch, Found, Progress, Search
from neoflow.tune.trial import Measure, Trial
from neoflow.tune.underway import overlapping

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
    start from, trials of earlier runs; by which schedule the program runs it, and seconds of a call there."""

    subgraph: Subgraph
    calls: int = 1
    seconds: float | None = None
    start: tuple[Schedule, ...] = ()
    known: tuple[Trial, ...] = ()
    there: tuple[Schedule, float] | None = None


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
        self.closed, self.idle, self.batches = 0.0, 0, 0
        self.is_over = False

    @property
    def is_unknown(self) -> bool:
        return self.task.seconds is None and self.task.there is None and not self.search.trials

    @property
    def seconds(self) -> float:
        """Of a call, with the best schedule so far; in a program that was timed, where it is not much longer than by
        itself: what waits there for something else no schedule makes faster."""
        best = self.search.best
        if self.task.there is not None:
            schedule, there = self.task.there
            now = self.search.trials.get(schedule)
            if best is None or now is None or not best.seconds or not now.seconds:
                return there
            return min(there, UNKNOWN * now.seconds) * best.seconds / now.seconds
        known = [s for s in (self.task.seconds, best.seconds if best is not None else None) if s is not None]
        return min(known) if known else UNKNOWN * self.search.floor

    def expected(self, each: float) -> float:
        """Seconds of a step that a second of tuning is thought to save. each: seconds of a candidate, where this
        kernel has had one at most. What is under way counts as if it gained nothing."""
        room = max(0.0, self.seconds - self.search.floor)
        part = min(1.0, self.closed + HOPE / (1 + self.idle + self.batches)) / (1 + self.batches)
        return self.task.calls * room * part / (BATCH * (self.search.each if self.search.is_typical else each))

    def begin(self, count: int, seconds: float | None) -> Batch | None:
        batch = self.search.begin(count, seconds)
        if batch is not None:
            self.batches += 1
        elif not self.batches:
            self.is_over = True
        return batch

    def end(self, batch: Batch, until: float | None, since: float) -> list[Trial]:
        """What became of a batch, and what it says of the next one."""
        before, was_unknown = self.seconds, self.is_unknown
        new = self.search.end(batch, until, since)
        self.batches -= 1
        if was_unknown or not new:
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
    return _Spending(accounts, limits, measure, watch, clock).run()


class _Spending:
    """A budget being spent: batches under way, as many as keep the workers busy."""

    def __init__(
        self,
        accounts: Sequence[_Account],
        limits: Limits,
        measure: Measure,
        watch: Callable[[int, Progress], object] | None,
        clock: Callable[[], float],
    ):
        self.accounts, self.limits, self.watch, self.clock = accounts, limits, watch, clock
        self.most = BATCH if overlapping(measure) else 0
        """candidates under way beside which others are begun"""
        self.begun = clock()
        self.last = self.begun
        """when a batch ended"""
        self.each, self.trials, self.idle = 1.0, 0, 0
        self.waiting: deque[tuple[_Account, Batch]] = deque()

    @property
    def under_way(self) -> int:
        return sum(len(batch.schedules) for _, batch in self.waiting)

    @property
    def end(self) -> float | None:
        return None if self.limits.seconds is None else self.begun + self.limits.seconds

    def run(self) -> Spent:
        stopped = f"{ALL}: there is nothing to tune" if not self.accounts else None
        while stopped is None:
            while self.under_way <= self.most and self._begin():
                pass
            stopped = self._ended() if self.waiting else f"{ALL}: every schedule of every kernel was measured"
        for account, batch in self.waiting:
            new = account.end(batch, self.clock(), self.last)
            self._note(account, new)
        _finish(self.accounts, self.end, self.clock, self.most > 0)
        found = tuple(a.search.found(stopped) if a.search.made else None for a in self.accounts)
        return Spent(found, stopped, self.trials)

    def _begin(self) -> bool:
        """Have a batch of the most promising kernel measured; False where there is none to begin now."""
        left = None if self.limits.trials is None else self.limits.trials - self.trials - self.under_way
        if left is not None and left <= 0:
            return False
        is_early = _part(self.limits, self.trials, self.clock() - self.begun) < SLICE
        unknown = [a for a in self.accounts if a.is_unknown and not a.is_over and a.task.calls and not a.batches]
        open_ones = (unknown if is_early else []) or [
            a for a in self.accounts if not a.is_over and not (a.batches and a.is_unknown)
        ]
        if not open_ones:
            return False
        chosen = max(open_ones, key=lambda a: a.expected(self.each))
        most = 1 if unknown and is_early else BATCH
        most = most if left is None else min(most, left)
        seconds = None if self.end is None else self.end - self.clock() - _finals(self.accounts, self.limits)
        if self.waiting and seconds is not None and seconds <= self.each * self.under_way:
            return False
        batch = chosen.begin(most, seconds)
        if batch is not None:
            self.waiting.append((chosen, batch))
        return batch is not None or (chosen.is_over and self._begin())

    def _ended(self) -> str | None:
        """Wait for the batch that was begun first; why the search stops with it."""
        account, batch = self.waiting.popleft()
        finals = _finals(self.accounts, self.limits)
        before, until = account.seconds, None if self.end is None else self.end - finals
        best = account.search.best
        new = account.end(batch, until, self.last)
        if account.search.best is not best:
            self._pass_on(account)
        self.last = self.clock()
        if account.search.is_typical:
            self.each = account.search.each
        self.idle = 0 if account.seconds < before else self.idle + len(new)
        if self._note(account, new) is True:
            return f"{ASKED}: whoever watches said so"
        spent = self.clock() - self.begun + _finals(self.accounts, self.limits)
        return self.limits.reached(self.trials, spent, self.idle)

    def _pass_on(self, account: _Account) -> None:
        """Offer what is best now to the kernels that differ in sizes alone."""
        best = account.search.best
        for other in self.accounts:
            is_alike = other is not account and other.task.subgraph.family == account.task.subgraph.family
            if is_alike and best is not None and best.schedule != account.search.default:
                other.search.offer(best.schedule)

    def _note(self, account: _Account, new: Sequence[Trial]) -> object:
        self.trials += len(new)
        if not new or self.watch is None:
            return None
        return self.watch(self.accounts.index(account), account.search.progress(new))


def _part(limits: Limits, trials: int, seconds: float) -> float:
    """Of the limits, what is spent."""
    of_trials = trials / limits.trials if limits.trials is not None else 0.0
    return max(of_trials, seconds / limits.seconds if limits.seconds is not None else 0.0)


def _finals(accounts: Sequence[_Account], limits: Limits) -> float:
    """Seconds kept for the finals."""
    wanted = sum(a.search.finals_seconds() for a in accounts if a.search.made)
    return wanted if limits.seconds is None else min(wanted, SLICE * limits.seconds)


def _finish(accounts: Sequence[_Account], end: float | None, clock: Callable[[], float], side_by_side: bool) -> None:
    """The finals of what gained most first, as far as the time goes; side_by_side: begun all at once."""

    def gain(a: _Account) -> float:
        default = a.search.progress(()).default
        now = default.seconds if default is not None and default.seconds is not None else a.seconds
        return a.task.calls * (now - a.seconds)

    those = sorted((a for a in accounts if a.search.made), key=gain, reverse=True)
    begun = [(a, a.search.finals() if side_by_side else None) for a in those]
    for a, pending in begun:
        if side_by_side or end is None or clock() + a.search.finals_seconds() <= end:
            a.search.finish(end, pending)
