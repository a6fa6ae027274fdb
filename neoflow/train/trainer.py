"""`Trainer`: runs a loss's training step over batches: epochs, metrics, validation, checkpoints, and a clean stop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np

from neoflow import pipeline
from neoflow.errors import CheckpointError, ConfigError
from neoflow.expr import dsl
from neoflow.expr.tensor import Parameter, Placeholder, Tensor
from neoflow.nn.form import inference
from neoflow.nn.optim import SGD, Optimizer
from neoflow.nn.summary import Summary, summary
from neoflow.precision import check_precision
from neoflow.recompute import bytes_of
from neoflow.rewriting.asked import seconds_of
from neoflow.runtime.files import refuse_unwritable
from neoflow.runtime.function import Function
from neoflow.runtime.store import STORE
from neoflow.train.checkpoint import Position, check_folder, checkpoints, load_checkpoint, save_checkpoint
from neoflow.train.evaluation import Outputs, judge
from neoflow.train.feed import Batch, Data, make_feed, training_batches
from neoflow.train.kernels import SHARE, Kernels, SwapRecord
from neoflow.train.loop import Loop, go_on
from neoflow.train.objective import Objective, Program, checked_loss, checked_metrics
from neoflow.train.progress import Silent, compiling, reporter
from neoflow.train.rates import Rates, Schedule
from neoflow.train.records import EpochRecord, History, StepRecord
from neoflow.train.run import Run
from neoflow.train.samples import MixedSamples
from neoflow.train.scaling import METRIC, refuse_lost
from neoflow.train.steps import Begun, Stepped, run_step, step_arrays
from neoflow.train.stopping import EarlyStopping, Watch
from neoflow.tune import Limits
from neoflow.tuning import limits_of


class Trainer:
    """Trains `parameters` to lower `loss`.

    loss: rank 0, in training form: from it follow what layers keep (running statistics, the steps of dropout), which a
    step then sets, and the form in inference, which is evaluated. inputs: the placeholders that a batch feeds, in its
    order; batch_axis: the dimension that counts samples, of all of them or of each. optimizer: `nf.optim`; its learning
    rate, when a number, becomes an input of the step, so that a schedule changes it without compiling anew.
    metrics: by name, tensors computed beside the loss: rank 0, or one value a sample; in a step in the form they are
    written in, in an evaluation in inference form. evaluation: more of them, for `evaluate` alone.
    state: what a step changes besides the parameters and what layers keep, with its new values.
    accumulate: a step is made from so many batches, as if they were one.
    precision: "fp32", "bf16", "fp16" or, on a GPU, "tf32": of contractions, as `nf.mixed_precision` has it, in steps
    and evaluations; parameters and their updates are float32. With "fp16" the loss is scaled; a step with a gradient
    beyond float16 halves the scale and changes nothing else. The values of a step have it as "loss scale".
    mode: "static" has all schedules before the first step; "dynamic" begins at once, while another process searches
    with `tune_share` of the cores' time: what is better is swapped in between two steps, and losses change by rounding
    alone. tune: so many seconds or `nf.tune.Limits` for the search; in mode "static" there is none without it. The
    roundings that it allows are allowed in all programs of the run.
    pin: a file that the schedules are written to when a run ends; where it is there they are read from it, and a run
    repeats to the bit.
    memory: the most bytes that a step may take, or "2GiB", see `nf.compile`; what that costs is said before it runs.
    optimize: seconds of a search for a faster step of the same values but for rounding, see `nf.compile`.
    seed: for the first values of parameters that have none yet. checkpoint: a folder; written to after every epoch, at
    Ctrl-C and at the end, and every `checkpoint_every` steps where given. progress: False shows nothing.
    A batch may have fewer samples than the inputs have room for, the last of an epoch say: sums over samples, so the
    loss and its gradients, are then weighted to be those of the samples there are.
    A step whose loss is not finite leaves every parameter as it was. Parameters of one name get a number.
    """

    compile = staticmethod(pipeline.compile)

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
        batch_axis: int | Mapping[Placeholder, int] = 0,
        accumulate: int = 1,
        precision: str = "fp32",
        tune: float | Limits | None = None,
        tune_share: float = SHARE,
        pin: str | os.PathLike | None = None,
        memory: str | int | None = None,
        optimize: float | None = None,
    ):
        if isinstance(accumulate, bool) or not isinstance(accumulate, int) or accumulate < 1:
            raise ConfigError(f"a step accumulates at least 1 batch, not {accumulate!r}")
        self.loss, self.parameters, self.inputs = checked_loss(loss), tuple(parameters), tuple(inputs)
        if not self.inputs or not self.parameters:
            raise ConfigError("a trainer has one input at least, which batches feed, and one parameter", loss.where)
        self.metrics = checked_metrics(metrics or {})
        self.evaluation = {**self.metrics, **checked_metrics(evaluation or {})}
        sizes = [m.shape[0] for m in self.evaluation.values() if m.rank]
        self.batch = sizes[0] if sizes else _samples(self.inputs[0], batch_axis)
        self.target, self.seed, self.progress, self.accumulate = target, seed, progress, accumulate
        self.precision = check_precision(precision, target)
        limits = limits_of(tune)
        self.memory, self.optimize = None if memory is None else bytes_of(memory), seconds_of(optimize)
        self.kernels = Kernels(mode, tune_share, limits, pin, seed)
        self.tune, self._known = limits if mode == "static" else None, limits and limits.without_search
        self.checkpoint = None if checkpoint is None else Path(checkpoint)
        if checkpoint_every is not None and (checkpoint_every < 1 or checkpoint is None):
            raise ConfigError("checkpoint_every needs a checkpoint folder, and at least 1 step in between")
        self.checkpoint_every = checkpoint_every
        self.optimizer = SGD() if optimizer is None else optimizer
        self.rate = self.optimizer.lr if not isinstance(self.optimizer.lr, Tensor) else None
        fed = self.optimizer if self.rate is None else self.optimizer.fed_by(dsl.placeholder((), "float64", "lr"))
        self.feed = make_feed(self.inputs, self.batch, batch_axis)
        self.objective = Objective(
            self.loss,
            self.parameters,
            self.feed,
            fed,
            self.metrics,
            self.evaluation,
            state or {},
            accumulate,
            precision,
        )
        self.all_parameters = self.objective.all_parameters
        self.position = Position()
        self.functions: dict[str, Function] = {}
        self._predicted: dict[tuple[Tensor, ...], tuple[Outputs, Function]] = {}
        self._saved = self.position
        self._has_claimed = False
        self.begun = Begun()
        self.swaps: list[SwapRecord] = []
        self._show: Silent | None = None

    def __repr__(self) -> str:
        count = sum(p.size for p in self.parameters)
        return (
            f"<Trainer of {self.loss.name}: {len(self.parameters)} parameters ({count:,} values), {self.optimizer!r}, "
            f"batches of {self.batch}, after {self.position.step} steps, {self.position.epoch} epochs>"
        )

    def summary(self) -> Summary:
        """Layers, shapes, parameters and bytes of what is trained; print it."""
        return summary(self.loss, self.parameters)

    # ---- programs --------------------------------------------------------------------------------------------------

    def step_function(self) -> Function:
        """The compiled training step: loss and metrics, then the updates."""
        return self._function("step", self.objective.step)

    def step_arrays(self, batch: Batch, lr: float) -> list[Any]:
        """What `step_function` is called with for a whole batch."""
        return step_arrays(self.objective, self.step_function(), self.feed.prepare(batch), lr)

    def _judged(self, training: bool) -> Function:
        name = "evaluation in training form" if training else "evaluation"

        def make() -> Program:
            try:
                return self.objective.judge(True, training)
            except MixedSamples:  # then an incomplete batch is left out of what is a mean over a batch
                return self.objective.judge(False, training)

        return self._function(name, make)

    def _function(self, name: str, make: Callable[[], Program]) -> Function:
        """The function of a program, compiled when it is first asked for."""
        if name not in self.functions:
            self._initialize()
            program = make()
            with compiling(self._show or reporter(self.progress), name):
                limits = self.tune if name == "step" and self.tune is not None else self._known
                asked = (program.outputs, program.inputs, program.updates)
                memory = self.memory if name == "step" else None
                is_optimized = self.optimize is not None and name == "step"
                compile = partial(self.compile, optimize=self.optimize) if is_optimized else partial(self.compile)
                found = compile(*asked, self.target, self.precision, limits, memory)
            self.functions[name] = found
            if memory is not None:
                (self._show or reporter(self.progress)).line(found.explain("memory").partition("\n")[0])
            if name == "step":
                self._say_of(found)
        return self.functions[name]

    def _say_of(self, step: Function) -> None:
        """What it takes by the schedules that were searched for and before, timed as a whole; and algorithms that an
        earlier search has chosen for it, and that round more than is allowed."""
        compiled = getattr(step, "compiled", None)  # one that is only like a function has none
        if not isinstance(compiled, pipeline.Compiled):
            return
        timed = [f"a step, {r.summary}" for r in compiled.trace.records if r.name == "in the step"]
        for text in [*timed, *(a.left for a in compiled.algorithms if a.left)]:
            (self._show or reporter(self.progress)).line(text)

    def _initialize(self) -> None:
        for p in self.all_parameters:
            STORE.initialize(p, self.seed)

    # ---- training --------------------------------------------------------------------------------------------------

    def fit(
        self,
        batches: Data,
        epochs: int = 1,
        *,
        steps: int | None = None,
        validation: Data | None = None,
        schedule: Schedule | None = None,
        on_step: Callable[[StepRecord], None] | None = None,
        on_epoch: Callable[[EpochRecord], None] | None = None,
        early_stopping: EarlyStopping | None = None,
        report: str | os.PathLike | None = None,
    ) -> History:
        """Train until `epochs` epochs (or `steps` steps) are behind this trainer, those before a resume included.

        batches: gives one epoch each time it is iterated, or called; one with a `state` (`neoflow.data.Batches`)
        continues exactly where it was; a `Dataset` is shuffled anew each epoch, with `seed`.
        validation: evaluated after each epoch. schedule: the learning rate at step n = 0, 1, ...
        on_step, on_epoch: called with what each step, each epoch gave, before it is saved.
        early_stopping: `nf.EarlyStopping`. report: write the run there as one HTML file when it has ended.
        At Ctrl-C the step in progress is finished and a checkpoint saved; `stopped` says so. A second stops at once.
        Raises `RuntimeFault` when the loss is not finite, with the step and the first tensor that went bad.
        """
        rates = self._rates(schedule)
        place = self._place(report)
        self._claim_folder()
        watch = self._watch(early_stopping, validation)
        given = training_batches(batches, self.batch, self.seed)
        go_on(given, self.position)
        run = Run(place)
        self._show = reporter(self.progress)
        try:
            self.kernels.begin(self.step_function())
            Loop(self, given, epochs, steps, validation, rates, watch, run, self._show, on_step, on_epoch)()
        finally:
            self._show = None
            self.kernels.end()
        self.save()
        if watch is not None and run.history.stopped != "interrupted":
            watch.restore()
        run.history.seconds = time.perf_counter() - run.start
        if report is not None:
            self.write_report(run)
        return run.history

    @property
    def looks_ahead(self) -> bool:
        """Whether the next batch is asked for, and brought to the device, while a step runs there."""
        return self.target != "cpu"

    @property
    def search(self) -> str:
        """How far the search for better kernels is that goes on beside a run; "" where there is none."""
        return self.kernels.told

    def run_step(
        self,
        batches: Sequence[Batch],
        lr: float | None,
        count: Callable[[Stepped], None],
        coming: Callable[[], Sequence[Batch]] | None = None,
    ) -> Stepped:
        """One step, made from these batches and counted; `coming` gives those of the next one meanwhile."""
        step = self.position.step
        for record in self.kernels.between(step):
            self.swaps.append(record)
            (self._show or Silent()).line(str(record))
        done = run_step(self.objective, self._function, batches, lr, step, self.begun, count, coming)
        if self.objective.scaling is not None:
            refuse_lost(done.values[METRIC], step)
        return done

    def _rates(self, schedule: Schedule | None) -> Rates:
        fed = self.objective.rates
        if schedule is None and fed and self.rate is None:
            raise ConfigError(f"the optimizer's learning rate is the placeholder {fed[0].name}: give a schedule")
        if schedule is not None and not fed:
            raise ConfigError("the optimizer's learning rate is an expression: there is nothing for a schedule to set")
        return Rates(schedule, self.rate, self.position.step)

    def _watch(self, rule: EarlyStopping | None, validation: Data | None) -> Watch | None:
        if rule is None:
            return None
        judged = ("loss", *self.evaluation) if validation is not None else ()
        rule.check(["loss", *self.metrics, *(f"validation {n}" for n in judged)])
        self._initialize()
        return Watch(rule, self.all_parameters, self.checkpoint, self.position)

    def report_path(self, report: str | os.PathLike) -> Path:
        """The path of a report as it is asked for; `nf.Trainer` writes there, this class alone knows no report."""
        raise ConfigError("reports are written by nf.Trainer: import it from neoflow")

    def write_report(self, run: Run) -> None:
        """Write the report of a run that has ended."""

    # ---- evaluation ------------------------------------------------------------------------------------------------

    def evaluate(self, batches: Data, *, training: bool = False) -> dict[str, float]:
        """Means over all samples of the loss and of every metric, without updates.

        In inference form: nothing is dropped, and running statistics normalise; `training` evaluates what is written.
        batches: a `Dataset`, or batches, or a function that makes them. A batch may have one item more than `inputs`:
        how many of its samples count. Where samples are mixed in another way than by sums (a maximum over the batch),
        values of rank 0 are means over whole batches, and an incomplete one counts only where there is no other.
        """
        return judge(self._judged(training), ("loss", *self.evaluation), self.feed, batches, self.looks_ahead)

    @overload
    def predict(self, outputs: Tensor, data: Any) -> np.ndarray: ...
    @overload
    def predict(self, outputs: Sequence[Tensor], data: Any) -> list[np.ndarray]: ...
    def predict(self, outputs: Tensor | Sequence[Tensor], data: Any) -> np.ndarray | list[np.ndarray]:
        """Tensors for any number of samples, in inference form: `trainer.predict(scores, images)`.

        outputs: one tensor or several, each with a value for every sample. data: an array (a tuple of arrays where
        several inputs are needed) with any number of samples; or a `Dataset`, or batches, or a function that makes
        them, as `evaluate` takes them or with those inputs alone that the outputs need. Gives an array a tensor, all
        samples in order. Raises `ConfigError` for a tensor that has no value for each sample.
        """
        wanted = (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)
        if wanted not in self._predicted:
            asked = Outputs(inference(wanted), self.feed)
            names = ", ".join(t.name for t in wanted)
            made = Program(asked.outputs, asked.feed.inputs)
            self._predicted[wanted] = asked, self._function(f"prediction {len(self._predicted)}: {names}", lambda: made)
        results = Outputs.run(*self._predicted[wanted], data, self.looks_ahead)
        return results[0] if isinstance(outputs, Tensor) else results

    # ---- checkpoints -----------------------------------------------------------------------------------------------

    def save(self) -> Path | None:
        """Write a checkpoint, where a folder is given and something happened since the last one.

        Raises `CheckpointError` when a second interrupt came while the first one's step was counted.
        """
        if self.checkpoint is None or self.position == self._saved:
            return None
        if self.begun.is_made:
            raise CheckpointError(
                f"the parameters are a step ahead of step {self.position.step}, since the run was stopped twice in it: "
                "resume the last checkpoint"
            )
        path = save_checkpoint(self.checkpoint, self.all_parameters, self.position, type(self.optimizer).__name__)
        self._saved = self.position
        return path

    def resume(self, path: str | os.PathLike | None = None) -> Position:
        """Continue from a checkpoint: a folder's newest (by default the trainer's own folder), or a JSON file.

        Raises `CheckpointError` when there is none or it does not fit; nothing is changed then.
        """
        path = self.checkpoint if path is None else path
        if path is None:
            raise CheckpointError("there is nothing to resume from: the trainer has no checkpoint folder")
        self.position = load_checkpoint(path, self.all_parameters, type(self.optimizer).__name__)
        self.begun.function = None
        self._saved = self.position
        return self.position

    def _place(self, report: str | os.PathLike | None) -> Path | None:
        """Where a report goes. Raises `ConfigError`, before anything is computed, when it cannot be written there."""
        if report is None:
            return None
        path = self.report_path(report)
        try:
            refuse_unwritable(path)
        except OSError as error:
            raise ConfigError(f"the report cannot be written to {path}: {error}; give another path") from None
        return path

    def _claim_folder(self) -> None:
        """A new run does not write between the checkpoints of another, and none begins that could not save."""
        if self.checkpoint is None:
            return
        check_folder(self.checkpoint)
        if self._saved.step or self._has_claimed:
            return
        if found := checkpoints(self.checkpoint):
            raise CheckpointError(
                f"{self.checkpoint} has checkpoints of another run (up to {found[-1].name}): resume it, or choose "
                "another folder"
            )
        self._has_claimed = (
            True  # also when the first checkpoint is there and an interrupt comes before `_saved` says so
        )


def _samples(t: Placeholder, axis: int | Mapping[Placeholder, int]) -> int:
    dim = axis if isinstance(axis, int) else axis.get(t, 0)
    return t.shape[dim] if 0 <= dim < t.rank else 1
