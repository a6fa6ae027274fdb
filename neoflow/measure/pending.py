"""Candidates under way on this machine: built by any worker, judged and timed by the one that is prepared for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from neoflow.loops import Schedule
from neoflow.measure import tasks
from neoflow.measure.build import Built
from neoflow.measure.here import Here
from neoflow.tune.process import Answer, Request
from neoflow.tune.trial import Trial


@dataclass(frozen=True)
class Subject:
    """What candidates are of: how workers are told of it and made ready, who judges, seconds of a candidate; of the
    best so far, None where none counts; heard: told of each time, kept: of each kernel that was built, late: that the
    time is over."""

    known: Request
    prepared: Request
    place: int
    seconds: float
    best: Callable[[], float | None]
    heard: Callable[[Answer], None]
    kept: Callable[[Schedule, Built], None]
    late: Callable[[], None]


class Pending:
    """Some candidates and what has become of them. rounds: in which they are timed in turns, all together; None: each
    by itself, as soon as it is judged."""

    def __init__(
        self,
        here: Here,
        subject: Subject,
        schedules: Sequence[Schedule],
        built: Sequence[Built | None],
        rounds: int | None = None,
    ):
        """built: of each the kernel, where there is one already."""
        self._here, self._of, self._schedules, self._rounds = here, subject, list(schedules), rounds
        self._trials: list[Trial | None] = [None] * len(schedules)
        self._spent = [0.0] * len(schedules)
        """seconds of a candidate"""
        self._sound: list[tuple[int, Built]] = []
        self._unjudged, self._left = len(schedules), len(schedules)
        self._changed = threading.Condition()
        self._failure: BaseException | None = None
        self._is_cut = False
        for n, (schedule, kernel) in enumerate(zip(schedules, built, strict=True)):
            if kernel is not None:
                self._judge(n, kernel)
            else:
                request = tasks.build(schedule, subject.seconds, subject.known)
                here.build(request).add_done_callback(partial(self._on_built, n))

    def trials(self, until: float | None = None) -> list[Trial]:
        """In order, of those that are done; waits for all, or until that time (`time.monotonic`), at which what is not
        done is given up. Raises `RuntimeFault` when no worker comes up."""
        with self._changed:
            seconds = None if until is None else max(0.0, until - time.monotonic())
            is_done = self._changed.wait_for(lambda: self._left == 0 or self._failure is not None, seconds)
        if not is_done:
            self._of.late()
        if self._failure is not None:
            raise self._failure
        return [t for t in self._trials if t is not None]

    def give_up(self) -> None:
        """What is not done will have no trial."""
        with self._changed:
            self._is_cut, self._left = True, 0
            self._changed.notify_all()

    def _judge(self, n: int, built: Built) -> None:
        def request() -> Request:
            best = None if self._rounds else self._of.best()
            return tasks.judge_built(built, best, self._rest(n), self._of.prepared)

        self._here.judge(request, self._of.place).add_done_callback(partial(self._on_judged, n, built))

    def _rest(self, n: int) -> float:
        """Seconds that a candidate still has."""
        return max(tasks.LEAST_SECONDS, self._of.seconds - self._spent[n])

    def _answer(self, n: int, future: Future[Answer]) -> Answer | None:
        """What was answered; None where that does not matter any more."""
        if future.cancelled() or self._is_cut:
            return None
        error = future.exception()
        if error is not None:
            with self._changed:
                self._failure = error
                self._changed.notify_all()
            return None
        answer = future.result()
        self._spent[n] += answer.seconds
        return answer

    def _on_built(self, n: int, future: Future[Answer]) -> None:
        answer = self._answer(n, future)
        if answer is None:
            return
        built = tasks.built(answer)
        if built is None:
            self._note(n, tasks.unmeasured(self._schedules[n], answer))
        else:
            self._of.kept(self._schedules[n], built)
            self._judge(n, built)

    def _on_judged(self, n: int, built: Built, future: Future[Answer]) -> None:
        answer = self._answer(n, future)
        if answer is None:
            return
        if not tasks.is_to_be_timed(answer):
            self._note(n, tasks.unmeasured(self._schedules[n], answer))
        elif self._rounds is None:
            timed = self._here.time(lambda: self._request_of_time(n, built), self._of.place)
            timed.add_done_callback(partial(self._on_timed, n))
        else:
            self._note(n, None, built)

    def _request_of_time(self, n: int, built: Built) -> Request:
        return tasks.time(built, self._of.best(), self._rest(n), self._of.prepared)

    def _on_timed(self, n: int, future: Future[Answer]) -> None:
        answer = self._answer(n, future)
        if answer is not None:
            self._of.heard(answer)
            self._note(n, tasks.timed(self._schedules[n], answer))

    def _note(self, n: int, trial: Trial | None, built: Built | None = None) -> None:
        """A trial, or a kernel that is to be timed in turns."""
        with self._changed:
            self._trials[n] = trial
            self._unjudged -= 1
            if built is not None:
                self._sound.append((n, built))
            else:
                self._left -= 1
            is_time_for_turns = self._unjudged == 0 and self._rounds is not None and self._sound
            self._changed.notify_all()
        if is_time_for_turns:
            self._take_turns()

    def _take_turns(self) -> None:
        self._sound.sort(key=lambda row: row[0])
        assert self._rounds is not None
        seconds = self._of.seconds * len(self._sound)
        request = tasks.turns([b for _, b in self._sound], self._rounds, seconds, self._of.prepared)
        self._here.time(lambda: request, self._of.place).add_done_callback(self._on_turns)

    def _on_turns(self, future: Future[Answer]) -> None:
        answer = self._answer(self._sound[0][0], future)
        if answer is None:
            return
        with self._changed:
            for place, (n, _) in enumerate(self._sound):
                self._trials[n] = tasks.of_turns(self._schedules[n], answer, place)
                self._left -= 1
            self._changed.notify_all()
