"""What the compiler did, stage by stage: name, text, seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")
Listener = Callable[[str, int, int], None]
"""Told of a stage as it begins, and of `done` of `total` of its parts, where it has any."""
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Within, `listener` is told what is being compiled in this thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell(stage: str, done: int = 0, total: int = 0) -> None:
    """Tell whoever listens how far a stage has come."""
    listener = _listener.get()
    if listener is not None:
        listener(stage, done, total)


@dataclass(frozen=True)
class StageRecord:
    """One stage of one compilation. `summary` is a line, `text()` prints the whole result."""

    name: str
    seconds: float
    summary: str
    text: Callable[[], str]


@dataclass
class Trace:
    """The stages run so far, in order."""

    records: list[StageRecord] = field(default_factory=list)

    def run(self, name: str, work: Callable[[], T], summary: Callable[[T], str], text: Callable[[T], str] = str) -> T:
        """Run one stage and record it."""
        tell(name)
        start = time.perf_counter()
        result = work()
        seconds = time.perf_counter() - start
        self.records.append(StageRecord(name, seconds, summary(result), lambda: text(result)))
        return result
