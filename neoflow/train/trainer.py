"""`Trainer`: runs a loss's training step over batches: epochs, metrics, validation, checkpoints, and a clean stop."""

from __future__ import annotations

import copy
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from neoflow.autodiff import grad
from neoflow.data import Dataset, padded_batches
from neoflow.errors import CheckpointError, ConfigError, RuntimeFault
from neoflow.expr import dsl
from neoflow.expr import dtype as dt
from neoflow.expr.interp import evaluate
from neoflow.expr.tensor import Parameter, Placeholder, Tensor, topological
from neoflow.nn.optim import SGD, Optimizer
from neoflow.pipeline import compile
from neoflow.runtime.function import Function
from neoflow.runtime.parameters import STORE
from neoflow.train.checkpoint import Position, check_folder, checkpoints, load_checkpoint, save_checkpoint
from neoflow.train.progress import reporter

Batch = Sequence[Any]
"""The arrays of one step, in the order of `inputs`; in an evaluation, also how many of its samples count."""
Data = Dataset | Iterable[Batch] | Callable[[], Iterable[Batch]]
_LARGEST = 3.0e38
"""A loss beyond it counts as infinite."""


@dataclass(frozen=True)
class StepRecord:
    """One step: `step` and `epoch` count from 0; `values` has "loss", before the update, and the metrics."""

    step: int
    epoch: int
    values: Mapping[str, float]
    lr: float | None
    seconds: float


@dataclass(frozen=True)
class EpochRecord:
    """Means over one epoch, `epoch` counting from 1; `validation` is empty where there was none."""

    epoch: int
    training: Mapping[str, float]
    validation: Mapping[str, float]
    seconds: float


@dataclass
class History:
    """What one call of `fit` did. stopped: "finished", "interrupted" (Ctrl-C) or "steps" (the limit of steps).

    losses: of each step. first_step: seconds from the start of the call to the end of its first step.
    """

    epochs: list[EpochRecord] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    stopped: str = "finished"
    seconds: float = 0.0
    first_step: float = 0.0


class Trainer:
    """Trains `parameters` to lower `loss`.

    loss: rank 0. inputs: the placeholders that a batch feeds, in its order. optimizer: `nf.optim`; its learning rate,
    when a number, becomes an input of the step, so that a schedule changes it without compiling anew.
    metrics: by name, tensors computed beside the loss: rank 0, or one value a sample. evaluation: more of them, for
    `evaluate` alone. state: what a step changes besides the parameters (running statistics), with its new values.
    seed: for the first values of parameters that have none yet. checkpoint: a folder; written to after every epoch, at
    Ctrl-C and at the end, and every `checkpoint_every` steps where given. progress: False shows nothing.
    A step whose loss is not finite leaves every parameter as it was.
    """

    def __init__(
        self,
        loss: Tensor,
        parameters: Iterable[Parameter],
        *,
        inputs: Sequence[Placeholder],
        optimizer: Optimizer | None = None,
        metrics: Mapping[str, Tensor] | None = None,
        evaluation: Mapping[str, Tensor] | None = None,
        state: Mapping[Parameter, Tensor] | None = None,
        target: str = "cpu",
        mode: str = "static",
        seed: int = 0,
        checkpoint: str | os.PathLike | None = None,
        checkpoint_every: int | None = None,
        progress: bool = True,
    ):
        if mode != "static":
            raise ConfigError(f"Trainer mode {mode!r} is not there yet; there is 'static'")
        if loss.rank or not dt.is_float(loss.dtype):
            raise ConfigError(f"the loss is one float, but {loss.name} is {loss.dtype}{list(loss.shape)}", loss.where)
        self.loss, self.parameters, self.inputs = loss, tuple(parameters), tuple(inputs)
        if not self.inputs or not self.parameters:
            raise ConfigError("a trainer has one input at least, which batches feed, and one parameter", loss.where)
        self.metrics = _checked_metrics({**(metrics or {})}, loss)
        self.evaluation = {**self.metrics, **_checked_metrics({**(evaluation or {})}, loss)}
        sizes = [m.shape[0] for m in self.evaluation.values() if m.rank]
        self.batch = sizes[0] if sizes else self.inputs[0].shape[0] if self.inputs[0].rank else 1
        self.target, self.seed, self.progress = target, seed, progress
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        if checkpoint_every is not None and (checkpoint_every < 1 or checkpoint is None):
            raise ConfigError("checkpoint_every needs a checkpoint folder, and at least 1 step in between")
        self.checkpoint_every = checkpoint_every
        optimizer = SGD() if optimizer is None else optimizer
        self.optimizer = type(optimizer).__name__
        self.rate = optimizer.lr if not isinstance(optimizer.lr, Tensor) else None
        optimizer = copy.copy(optimizer)
        if self.rate is not None:
            optimizer.lr = dsl.placeholder((), "float64", "lr")
        updates = optimizer.updates(self.parameters, grad(loss, self.parameters))
        updates.update((state or {}).items())
        finite = dsl.abs(loss) <= _LARGEST
        self._updates = {p: dsl.select(finite, value, p) for p, value in updates.items()}
        self._rates = optimizer.inputs
        self.all_parameters: tuple[Parameter, ...] = tuple(p for p in updates if isinstance(p, Parameter))
        self.position = Position()
        self.functions: dict[str, Function] = {}
        self._saved = self.position
        self._begun: int | None = None
        """how often the step had run when the one began that `position` does not count yet"""

    # ---- programs --------------------------------------------------------------------------------------------------

    def step_function(self) -> Function:
        """The compiled training step: loss and metrics, then the updates."""
        if "step" not in self.functions:
            for p in self.all_parameters:
                STORE.initialize(p, self.seed)
            outputs = [self.loss, *self.metrics.values()]
            inputs = [*self.inputs, *self._rates]
            self.functions["step"] = compile(outputs, inputs, self._updates, target=self.target)
        return self.functions["step"]

    def evaluation_function(self) -> Function:
        """The compiled evaluation: loss and all metrics, no updates."""
        if "evaluation" not in self.functions:
            for p in self.all_parameters:
                STORE.initialize(p, self.seed)
            outputs = [self.loss, *self.evaluation.values()]
            self.functions["evaluation"] = compile(outputs, self.inputs, target=self.target)
        return self.functions["evaluation"]

    # ---- training --------------------------------------------------------------------------------------------------

    def fit(
        self,
        batches: Iterable[Batch],
        epochs: int = 1,
        *,
        steps: int | None = None,
        validation: Data | None = None,
        schedule: Callable[[int], float] | None = None,
        on_step: Callable[[StepRecord], None] | None = None,
    ) -> History:
        """Train until `epochs` epochs (or `steps` steps) are behind this trainer, those before a resume included.

        batches: gives one epoch each time it is iterated; one with a `state` (`neoflow.data.Batches`) continues exactly
        where it was. validation: evaluated after each epoch. schedule: the learning rate at step n = 0, 1, ...
        At Ctrl-C the step in progress is finished and a checkpoint saved; `stopped` says so. A second stops at once.
        Raises `RuntimeFault` when the loss is not finite, with the step and the first tensor that went bad.
        """
        if schedule is None and self._rates and self.rate is None:
            raise ConfigError(
                f"the optimizer's learning rate is the placeholder {self._rates[0].name}: give a schedule"
            )
        if schedule is not None and not self._rates:
            raise ConfigError("the optimizer's learning rate is an expression: there is nothing for a schedule to set")
        self._claim_folder()
        if self.position.data is not None and hasattr(batches, "state"):
            batches.state = _restored(batches.state, self.position.data)
        history, start = History(), time.perf_counter()
        show = reporter(self.progress)
        length = len(batches) if isinstance(batches, Sized) else None
        step = self.step_function()
        interrupted = threading.Event()
        try:
            show.start(epochs, length, self.position.epoch, self.position.taken)
            with _interruptible(interrupted):
                while self.position.epoch < epochs and history.stopped == "finished":
                    began = time.perf_counter()
                    for record in self._epoch(step, batches, schedule):
                        history.losses.append(record.values["loss"])
                        history.first_step = history.first_step or time.perf_counter() - start
                        show.step(record.values["loss"])
                        if on_step is not None:
                            on_step(record)
                        if interrupted.is_set():
                            history.stopped = "interrupted"
                        elif steps is not None and self.position.step >= steps:
                            history.stopped = "steps"
                        if history.stopped != "finished":
                            break
                        if self.checkpoint_every and self.position.step % self.checkpoint_every == 0:
                            self.save()
                    else:
                        done = self._end_epoch(batches, validation, began)
                        history.epochs.append(done)
                        shown = {**done.training, **{f"validation {k}": v for k, v in done.validation.items()}}
                        show.epoch(done.epoch, shown, done.seconds)
                        self.save()
                        if interrupted.is_set():
                            history.stopped = "interrupted"
        except KeyboardInterrupt:
            if interrupted.is_set():  # the second one: what it stopped may be half done
                raise
            history.stopped = "interrupted"  # from the data or from on_step, between two steps
        finally:
            show.stop()
        self.save()
        history.seconds = time.perf_counter() - start
        return history

    def _epoch(
        self, step: Function, batches: Iterable[Batch], schedule: Callable[[int], float] | None
    ) -> Iterator[StepRecord]:
        """The steps left in this epoch; `position` is up to date whenever one is given."""
        skipped = 0 if self.position.data is not None and hasattr(batches, "state") else self.position.taken
        for batch in batches:
            if skipped:
                skipped -= 1
                continue
            began = time.perf_counter()
            at = self.position
            lr = schedule(at.step) if schedule is not None else self.rate
            self._check_batch(batch)
            self._begun = step.runs
            try:
                results = step(*batch, *([] if not self._rates else [np.float64(lr)]))
                values = self._count(batches, batch, results)
            except RuntimeFault:
                raise
            except (
                BaseException
            ):  # from outside: a step that was made is counted, so that parameters and position agree
                if self._is_behind():
                    self._count(batches, batch, step.results())
                raise
            yield StepRecord(at.step, at.epoch, values, lr, time.perf_counter() - began)

    def _count(self, batches: Iterable[Batch], batch: Batch, results: Sequence[np.ndarray]) -> dict[str, float]:
        """Move the position past a step; its loss and metrics. Raises `RuntimeFault` for a loss that is not finite."""
        at = self.position
        values = {n: float(r.mean()) for n, r in zip(("loss", *self.metrics), results, strict=True)}
        if not abs(values["loss"]) <= _LARGEST:
            self._begun = None  # such a step changes nothing
            raise RuntimeFault(self._diagnosis(at.step, values["loss"], batch))
        totals = {n: (at.totals.get(n, 0.0) + v) for n, v in values.items()}
        after = Position(at.step + 1, at.epoch, at.taken + 1, _state(batches), totals)
        self.position, self._begun = after, None  # no call in between, and so no exception from outside
        return values

    def _is_behind(self) -> bool:
        """Whether a step was made that `position` does not count."""
        return self._begun is not None and self.step_function().runs != self._begun

    def _end_epoch(self, batches: Iterable[Batch], validation: Data | None, began: float) -> EpochRecord:
        at = self.position
        if not at.totals:
            raise RuntimeFault(
                "an epoch gave no batch: `batches` is empty, or an iterator that is used up; give a list"
            )
        self.position = Position(at.step, at.epoch + 1, 0, _state(batches), {})
        means = {n: total / at.taken for n, total in at.totals.items()}
        judged = self.evaluate(validation) if validation is not None else {}
        return EpochRecord(at.epoch + 1, means, judged, time.perf_counter() - began)

    def _check_batch(self, batch: Batch) -> None:
        names = ", ".join(t.name for t in self.inputs)
        if isinstance(batch, Mapping):
            raise RuntimeFault(
                f"a batch is a list of arrays, one for each input ({names}), not a {type(batch).__name__}"
            )
        if len(batch) != len(self.inputs):
            raise RuntimeFault(f"a batch has {len(batch)} arrays for {len(self.inputs)} inputs ({names})")

    # ---- evaluation ------------------------------------------------------------------------------------------------

    def evaluate(self, batches: Data) -> dict[str, float]:
        """Means of the loss and of every metric, without updates.

        batches: a `Dataset`, or batches, or a function that makes them. A batch may have one item more than `inputs`:
        how many of its samples count. Values of rank 0 are means over a whole batch, so an incomplete one does not
        count for them, unless there is no other; metrics of one value a sample are exact.
        """
        evaluation = self.evaluation_function()
        if isinstance(batches, Dataset):
            batches = padded_batches(batches, self.batch)
        elif callable(batches):
            batches = batches()
        names = ("loss", *self.evaluation)
        totals = {n: [0.0, 0.0] for n in names}
        partial: dict[str, float] = {}
        for batch in batches:
            valid = int(batch[-1]) if len(batch) == len(self.inputs) + 1 else None
            arrays = batch if valid is None else batch[:-1]
            self._check_batch(arrays)
            results = evaluation(*arrays)
            for name, result in zip(names, results, strict=True):
                if result.ndim:
                    counted = result[:valid]
                    totals[name][0] += float(counted.sum(dtype=np.float64))
                    totals[name][1] += len(counted)
                elif valid is None or valid == self.batch:
                    totals[name][0] += float(result)
                    totals[name][1] += 1
                else:
                    partial[name] = float(result)
        return {n: t / w if w else partial.get(n, math.nan) for n, (t, w) in totals.items()}

    # ---- checkpoints -----------------------------------------------------------------------------------------------

    def save(self) -> Path | None:
        """Write a checkpoint, where a folder is given and something happened since the last one.

        Raises `CheckpointError` when a second interrupt came while the first one's step was counted.
        """
        if self.checkpoint is None or self.position == self._saved:
            return None
        if self._is_behind():
            raise CheckpointError(
                f"the parameters are a step ahead of step {self.position.step}, since the run was stopped twice in it: "
                "resume the last checkpoint"
            )
        path = save_checkpoint(self.checkpoint, self.all_parameters, self.position, self.optimizer)
        self._saved = self.position
        return path

    def resume(self, path: str | os.PathLike | None = None) -> Position:
        """Continue from a checkpoint: a folder's newest (by default the trainer's own folder), or a JSON file.

        Raises `CheckpointError` when there is none or it does not fit; nothing is changed then.
        """
        path = self.checkpoint if path is None else path
        if path is None:
            raise CheckpointError("there is nothing to resume from: the trainer has no checkpoint folder")
        self.position = load_checkpoint(path, self.all_parameters, self.optimizer)
        self._begun = None
        self._saved = self.position
        return self.position

    def _claim_folder(self) -> None:
        """A new run does not write between the checkpoints of another, and none begins that could not save."""
        if self.checkpoint is None:
            return
        check_folder(self.checkpoint)
        if self._saved.step:
            return
        if found := checkpoints(self.checkpoint):
            raise CheckpointError(
                f"{self.checkpoint} has checkpoints of another run (up to {found[-1].name}): resume it, or choose "
                "another folder"
            )

    # ---- what went bad ---------------------------------------------------------------------------------------------

    def _diagnosis(self, step: int, loss: float, arrays: Sequence[Any]) -> str:
        """The first tensor, in order of computation, that is not finite; found with NumPy."""
        head = f"step {step}: the loss is {loss}"
        feeds: dict[Tensor, Any] = dict(zip(self.inputs, map(np.asarray, arrays), strict=True))
        order = topological([self.loss])
        feeds.update({p: STORE.get(p) for p in order if isinstance(p, Parameter)})
        given = [t for t in order if t in feeds]
        computed = [t for t in order if t not in feeds]
        with np.errstate(all="ignore"):
            values = [*(feeds[t] for t in given), *evaluate(computed, feeds)]
        for t, value in zip((*given, *computed), values, strict=True):
            bad = ~np.isfinite(np.asarray(value, np.float64))
            if not bad.any():
                continue
            at = [int(n) for n in np.argwhere(bad)[0]]
            what = "parameter" if isinstance(t, Parameter) else "input" if t in feeds else "tensor"
            line = f" ({os.path.relpath(t.where[0])}:{t.where[1]})" if t.where else ""
            text = f"{head}; the first to go bad is {what} {t.name}{at} = {value[tuple(at)]}{line}, {bad.sum()} of its "
            text += f"{bad.size} elements"
            return text + (", since the step before" if what == "parameter" else "")
        return f"{head}, but NumPy finds every tensor finite: a kernel is wrong; NEOFLOW_CHECK=1 finds it"


def _checked_metrics(metrics: dict[str, Tensor], loss: Tensor) -> dict[str, Tensor]:
    for name, t in metrics.items():
        if t.rank > 1 or name == "loss":
            raise ConfigError(
                f"metric {name!r} has shape {t.shape}: a metric has rank 0 or one value a sample; 'loss' is taken",
                t.where,
            )
    return {n: t if dt.is_float(t.dtype) else dsl.cast(t, "float32") for n, t in metrics.items()}


def _state(batches: Iterable[Batch]) -> dict[str, int] | None:
    state = getattr(batches, "state", None)
    return None if state is None else asdict(state)


def _restored(state: Any, data: Mapping[str, int]) -> Any:
    """A state of batches from its numbers."""
    try:
        return type(state)(**data)
    except TypeError as error:
        raise CheckpointError(f"the checkpoint's place in the data does not fit these batches: {error}") from None


@contextmanager
def _interruptible(event: threading.Event) -> Iterator[None]:
    """Within, the first Ctrl-C sets the event and the second raises KeyboardInterrupt as ever (main thread only)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def note(number: int, frame: Any) -> None:
        event.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
