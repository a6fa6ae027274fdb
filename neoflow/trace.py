"""What the compiler did, stage by stage: name, text, seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


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
        start = time.perf_counter()
        result = work()
        seconds = time.perf_counter() - start
        self.records.append(StageRecord(name, seconds, summary(result), lambda: text(result)))
        return result
