"""What is noted of a run while it runs: its history, and for a report every step of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from neoflow.train.feed import Batch
from neoflow.train.records import History, StepRecord


@dataclass
class Run:
    """A call of `fit`. report: where its report goes; without one steps and sample are not noted.

    steps: every step of it, in order. sample: the first batch. start: when the call began.
    """

    report: Path | None
    history: History = field(default_factory=History)
    steps: list[StepRecord] = field(default_factory=list)
    sample: Batch | None = None
    start: float = field(default_factory=time.perf_counter)

    def begin(self, batch: Batch) -> None:
        """A step begins with this batch."""
        if self.report is not None and self.sample is None:
            self.sample = batch

    def note(self, record: StepRecord) -> None:
        """A step is done."""
        self.history.losses.append(record.values["loss"])
        self.history.first_step = self.history.first_step or time.perf_counter() - self.start
        if self.report is not None:
            self.steps.append(record)

    @property
    def epoch(self) -> int:
        """Steps in an epoch; 0 where none was made whole."""
        counts = [sum(r.epoch == e.epoch - 1 for r in self.steps) for e in self.history.epochs]
        return max(counts, default=0)
