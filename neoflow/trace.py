"""What the compiler did, stage by stage: name, text, seconds; and a word to whoever waits long for it."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from neoflow.text import notebook

T = TypeVar("T")
Listener = Callable[[str, int, int, str], None]
"""Told of a stage as it begins, of `done` of `total` of its parts, where it has any, and what there is to say of it."""
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)
_trace: ContextVar[Trace | None] = ContextVar("trace", default=None)
"""Whose stage runs in this thread."""


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Within, `listener` is told what is being compiled in this thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def shown(what: str) -> Iterator[None]:
    """Within, a notebook shows what is being compiled, unless somebody listens already; elsewhere nothing."""
    place = notebook.place() if _listener.get() is None else None
    if place is None:
        yield
        return

    def show(stage: str, done: int, total: int, note: str) -> None:
        place.show(notebook.bar(f"compiling the {what}: {stage}", done, total or None, note), done == total > 0)

    try:
        with listening(show):
            yield
    finally:
        place.clear()


def tell(stage: str, done: int = 0, total: int = 0, note: str = "") -> None:
    """Tell whoever listens how far a stage has come; a `tick` as well."""
    listener = _listener.get()
    if listener is not None:
        listener(stage, done, total, note)
    tick()


def tick() -> None:
    """Called by long stages now and then: the trace they run in warns when compiling has taken long."""
    trace = _trace.get()
    if trace is not None:
        trace.tick()


@contextmanager
def collected_seldom() -> Iterator[None]:
    """Within, Python looks through young objects once there are `YOUNG` of them: nearly all that a compiler makes stay,
    and to look through them again and again took a sixth of the stages before the code."""
    before = gc.get_threshold()
    if 0 < before[0] < YOUNG:
        gc.set_threshold(YOUNG, *before[1:])
    try:
        yield
    finally:
        if gc.get_threshold()[0] == YOUNG:  # of stages in several threads the first that ends sets it back
            gc.set_threshold(*before)


YOUNG = 50_000
"""Objects from which Python collects while a stage runs: some 10 MB. Chosen, not measured."""

PATIENCE = 60.0
"""Seconds of compiling after which it is said what takes so long. Chosen, not measured."""


class SlowCompileWarning(UserWarning):
    """Compiling takes longer than `PATIENCE`; the text says in which stage, and of how much."""


@dataclass(frozen=True)
class StageRecord:
    """One stage of one compilation. `summary` is a line, `text()` prints the whole result."""

    name: str
    seconds: float
    summary: str
    text: Callable[[], str]


@dataclass
class Trace:
    """The stages run so far, in order. clock: seconds, from any beginning."""

    records: list[StageRecord] = field(default_factory=list)
    clock: Callable[[], float] = time.perf_counter
    _running: str = ""
    _is_warned: bool = False

    def __post_init__(self) -> None:
        self._started = self.clock()

    def run(
        self,
        name: str,
        work: Callable[[], T],
        summary: Callable[[T], str],
        text: Callable[[T], str] = str,
        of: str = "",
        is_asked_for: bool = False,
    ) -> T:
        """Run one stage and record it. of: how much it has to do, for who waits. is_asked_for: nobody is warned of how
        long it takes."""
        tell(name)
        self._running = f"`{name}`" + (f", {of}" if of else "")
        start, warned = self.clock(), self._is_warned
        self._is_warned |= is_asked_for
        token = _trace.set(self)
        try:
            with collected_seldom():
                result = work()
        finally:
            _trace.reset(token)
        seconds = self.clock() - start
        if is_asked_for:
            self._is_warned, self._started = warned, self._started + seconds
        self.records.append(StageRecord(name, seconds, summary(result), lambda: text(result)))
        self.tick()
        return result

    def take(self, parts: Sequence[Trace]) -> None:
        """The stages of parts of a program, each stage as one record of all parts."""
        names = dict.fromkeys(r.name for part in parts for r in part.records)
        for name in names:
            records = [r for part in parts for r in part.records if r.name == name]
            summary = records[0].summary if len(records) == 1 else f"{len(records)} parts: {records[0].summary}; ..."
            self.records.append(StageRecord(name, sum(r.seconds for r in records), summary, partial(_texts, records)))

    def tick(self) -> None:
        """Warn, once, when compiling has taken longer than `PATIENCE`."""
        seconds = self.clock() - self._started
        if self._is_warned or seconds <= PATIENCE:
            return
        self._is_warned = True
        done = sorted(self.records, key=lambda r: -r.seconds)[:2]
        before = ", ".join(f"{r.name} {r.seconds:.0f} s ({r.summary})" for r in done if r.seconds >= 1)
        warnings.warn(
            f"compiling has taken {seconds:.0f} s so far and is in stage {self._running}"
            + (f"; before that: {before}" if before else "")
            + ". Fewer or more equal steps of what is unrolled compile faster",
            SlowCompileWarning,
            stacklevel=2,
        )


def _texts(records: Sequence[StageRecord]) -> str:
    """Of one stage in several parts of a program."""
    if len(records) == 1:
        return records[0].text()
    return "\n\n".join(f"part {n}: {r.summary}\n{r.text()}" for n, r in enumerate(records, 1))
