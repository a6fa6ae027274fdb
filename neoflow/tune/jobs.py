"""Jobs for workers: who does which when, and what may run beside what.

A thread for each place takes what is for its place alone, the oldest first, then what any may do. A job that is to run
*alone* waits until nobody thinks and nobody starts; whatever the other workers do meanwhile is stopped and goes on
afterwards, so that no half of a build is lost to a timing and none runs beside it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from neoflow.tune.process import Answer, Request, Worker


@dataclass(eq=False)
class Job:
    """A request, made when its turn has come. places: of the workers that may do it (None: all). alone: what to hold
    while it runs and no other worker does."""

    request: Callable[[], Request]
    places: Collection[int] | None = None
    alone: Callable[[], AbstractContextManager[object]] | None = None
    answer: Future[Answer] = field(default_factory=Future)


class Desk:
    """The jobs of some workers. taken: a worker for a place that needs one, given the one that died there; gone: told
    of one that died of its request; settle: waits for those in reserve."""

    def __init__(
        self,
        count: int,
        taken: Callable[[Worker | None], Worker],
        gone: Callable[[Worker], None],
        settle: Callable[[], None],
    ):
        self._taken, self._gone, self._settle = taken, gone, settle
        self._workers: list[Worker | None] = [None] * count
        self._own: list[deque[Job]] = [deque() for _ in range(count)]
        self._open: deque[Job] = deque()
        self._asked: dict[int, Worker] = {}
        """by place, those that do a job"""
        self._starting: set[int] = set()
        self._thinking = 0
        self._is_alone = self._is_closed = False
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []

    def submit(self, job: Job) -> Future[Answer]:
        """Its answer, to come; a job that is for one place goes before those that any may do."""
        with self._changed:
            if not self._threads:
                self._threads = [
                    threading.Thread(target=self._work, args=(n,), name=f"neoflow-place-{n}", daemon=True)
                    for n in range(len(self._workers))
                ]
                for thread in self._threads:
                    thread.start()
            if job.places is not None and len(job.places) == 1:
                self._own[next(iter(job.places))].append(job)
            else:
                self._open.append(job)
            self._changed.notify_all()
        return job.answer

    @contextmanager
    def thinking(self) -> Iterator[None]:
        """Within, the caller needs a core: nothing runs alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_alone)
            self._thinking += 1
        try:
            yield
        finally:
            with self._changed:
                self._thinking -= 1
                self._changed.notify_all()

    def drop(self) -> None:
        """Cancel what waits."""
        with self._changed:
            waiting = [*self._open, *(job for own in self._own for job in own)]
            for jobs in (self._open, *self._own):
                jobs.clear()
        for job in waiting:
            job.answer.cancel()

    def close(self) -> None:
        """End the threads, once they have answered."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self.drop()

    def _work(self, place: int) -> None:
        while True:
            with self._changed:
                job = None
                while job is None:
                    if self._is_closed:
                        return
                    job = self._next(place)
                    if job is None:
                        self._changed.wait()
            if job.answer.set_running_or_notify_cancel():
                try:
                    answer = self._done(place, job)
                except BaseException as error:
                    job.answer.set_exception(error)
                else:
                    job.answer.set_result(answer)

    def _next(self, place: int) -> Job | None:
        """The job that a place takes now: what is to run alone lets builds go first while it may not."""
        may_be_alone = not (self._is_alone or self._thinking or self._starting)
        for jobs in (self._own[place], self._open):
            for job in jobs:
                if (job.places is None or place in job.places) and (job.alone is None or may_be_alone):
                    jobs.remove(job)
                    return job
        return None

    def _done(self, place: int, job: Job) -> Answer:
        worker = self._workers[place]
        if worker is None or not worker.is_alive:
            worker = self._workers[place] = self._started(place, worker)
        if job.alone is None:
            with self._changed:
                self._changed.wait_for(lambda: not self._is_alone)
                self._asked[place] = worker
            answer = self._answer(place, worker, job)
        else:
            self._settle()
            with self._alone(), job.alone(), self._others_paused(place, worker):
                answer = self._answer(place, worker, job)
        if not worker.is_alive:
            self._workers[place] = None
            self._gone(worker)
        return answer

    def _started(self, place: int, last: Worker | None) -> Worker:
        with self._changed:
            self._starting.add(place)
        try:
            return self._taken(last)
        finally:
            with self._changed:
                self._starting.discard(place)
                self._changed.notify_all()

    def _answer(self, place: int, worker: Worker, job: Job) -> Answer:
        try:
            return worker.ask(job.request())
        finally:
            with self._changed:
                self._asked.pop(place, None)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not (self._is_alone or self._thinking or self._starting))
            self._is_alone = True
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()

    @contextmanager
    def _others_paused(self, place: int, worker: Worker) -> Iterator[None]:
        with self._changed:
            paused = list(self._asked.values())
            self._asked[place] = worker
        for other in paused:
            other.pause()
        try:
            yield
        finally:
            for other in paused:
                other.resume()
