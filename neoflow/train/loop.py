"""The loop of a run: epochs of steps, what is told and saved between them, and how it ends."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from neoflow.errors import CheckpointError, RuntimeFault
from neoflow.train.checkpoint import Position
from neoflow.train.coming import Coming, Window
from neoflow.train.feed import Batch, Data, begun
from neoflow.train.interrupt import interruptible
from neoflow.train.progress import Pace, Silent
from neoflow.train.rates import Rates
from neoflow.train.records import EpochRecord, History, StepRecord
from neoflow.train.run import Run
from neoflow.train.steps import Begun, Stepped
from neoflow.train.stopping import Watch


class Trained(Protocol):
    """What a loop asks of a trainer."""

    position: Position
    batch: int
    accumulate: int
    checkpoint_every: int | None
    begun: Begun

    @property
    def looks_ahead(self) -> bool: ...

    @property
    def search(self) -> str: ...

    def run_step(
        self,
        batches: Sequence[Batch],
        lr: float | None,
        count: Callable[[Stepped], None],
        coming: Callable[[], Sequence[Batch]] | None,
    ) -> Stepped: ...

    def evaluate(self, batches: Data) -> dict[str, float]: ...

    def save(self) -> Path | None: ...


@dataclass
class Loop:
    """One call of `fit`: what it was given, and its history. epochs and steps count those before it too."""

    trainer: Trained
    batches: Iterable[Batch] | Callable[[], Iterable[Batch]]
    epochs: int
    steps: int | None
    validation: Data | None
    rates: Rates
    watch: Watch | None
    run: Run
    show: Silent
    on_step: Callable[[StepRecord], None] | None
    on_epoch: Callable[[EpochRecord], None] | None
    pace: Pace = field(default_factory=Pace)

    def __call__(self) -> None:
        """Run to the end, which `history.stopped` says; the parameters are then as after the last step."""
        at, history = self.trainer.position, self.history
        interrupted = threading.Event()
        try:
            self.show.start(self.epochs, self.length, at.epoch, at.taken // self.trainer.accumulate)
            with interruptible(interrupted):
                while self.trainer.position.epoch < self.epochs and history.stopped == "finished":
                    self._epoch(interrupted)
        except KeyboardInterrupt:
            if interrupted.is_set():  # the second one: what it stopped may be half done
                raise
            history.stopped = "interrupted"  # from the data or from a callback, between two steps
        finally:
            self.show.stop()

    @property
    def history(self) -> History:
        return self.run.history

    @property
    def length(self) -> int | None:
        """Steps in an epoch, where that is known."""
        return -(-len(self.batches) // self.trainer.accumulate) if isinstance(self.batches, Sized) else None

    def _epoch(self, interrupted: threading.Event) -> None:
        history, began = self.history, time.perf_counter()
        for record in self._steps():
            self._note(record)
            if interrupted.is_set():
                history.stopped = "interrupted"
            elif self.steps is not None and self.trainer.position.step >= self.steps:
                history.stopped = "steps"
            if history.stopped != "finished":
                return
            every = self.trainer.checkpoint_every
            if every and self.trainer.position.step % every == 0:
                self.trainer.save()
        self._end_epoch(began)
        self.trainer.save()
        if interrupted.is_set():
            history.stopped = "interrupted"

    def _steps(self) -> Iterator[StepRecord]:
        """The steps left in this epoch; the position is up to date whenever one is given."""
        at = self.trainer.position
        skipped = 0 if at.data is not None and hasattr(self.batches, "state") else at.taken
        left = itertools.islice(begun(self.batches), skipped, None)
        coming = Coming(left, self.trainer.accumulate, lambda: _state(self.batches))
        while (window := coming.take()).batches:
            began, at = time.perf_counter(), self.trainer.position
            lr = self.rates.at(at.step)
            self.run.begin(window.batches[0])
            goes_on = self.trainer.looks_ahead and at.step + 1 != self.steps
            look = coming.look if goes_on else None
            done = self.trainer.run_step(window.batches, lr, partial(self._count, window), look)
            yield StepRecord(at.step, at.epoch, done.values, lr, time.perf_counter() - began, done.samples)

    def _count(self, window: Window[Batch], done: Stepped) -> None:
        """Move the position past a step that was made from these batches."""
        at, weight = self.trainer.position, done.samples / self.trainer.batch
        after = replace(
            at,
            step=at.step + 1,
            taken=at.taken + len(window.batches),
            data=window.place,
            totals={n: at.totals.get(n, 0.0) + weight * v for n, v in done.values.items()},
            weight=at.weight + weight,
        )
        begun = self.trainer.begun
        self.trainer.position, begun.function = after, None  # no call in between, so no exception from outside

    def _note(self, record: StepRecord) -> None:
        self.run.note(record)
        self.pace.note(record.seconds)
        search = self.trainer.search
        self.show.step(record.values["loss"], f"{search}; {self.pace}" if search else "")
        if self.on_step is not None:
            self.on_step(record)

    def _end_epoch(self, began: float) -> None:
        at = self.trainer.position
        if not at.totals:
            raise RuntimeFault(
                "an epoch gave no batch: `batches` is empty, or an iterator that is used up; give a list"
            )
        means = {n: total / at.weight for n, total in at.totals.items()}
        ended = replace(at, epoch=at.epoch + 1, taken=0, data=_state(self.batches), totals={}, weight=0.0)
        self.trainer.position = ended
        judged = self.trainer.evaluate(self.validation) if self.validation is not None else {}
        done = EpochRecord(at.epoch + 1, means, judged, time.perf_counter() - began)
        self.history.epochs.append(done)
        self.show.epoch(done.epoch, done.values, done.seconds)
        if self.on_epoch is not None:
            self.on_epoch(done)
        if self.watch is not None:
            self.trainer.position = self.watch.judge(done, self.trainer.position)
            self.history.best = self.watch.best.epoch or None
            self.history.stopped = "early" if self.watch.is_over else self.history.stopped


def go_on(batches: Any, position: Position) -> None:
    """Set batches that have a state to where a run stood."""
    if position.data is not None and hasattr(batches, "state"):
        try:
            batches.state = type(batches.state)(**position.data)
        except TypeError as error:
            raise CheckpointError(f"the checkpoint's place in the data does not fit these batches: {error}") from None


def _state(batches: Any) -> dict[str, int] | None:
    state = getattr(batches, "state", None)
    return None if state is None else asdict(state)
