"""`neoflow train`: a model of images on handwritten digits, or of words on text, and what the run was like."""

from __future__ import annotations

import logging
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

import neoflow as nf
from neoflow import data
from neoflow.commands.kernels import kernel_rows, measure_roofs, profile
from neoflow.commands.models import build_model
from neoflow.errors import ConfigError, NeoflowError
from neoflow.nn import Model, optim
from neoflow.pipeline import Compiled
from neoflow.report.html import Fact, Report, write_report
from neoflow.train import Trainer
from neoflow.train.trainer import Batch, StepRecord

log = logging.getLogger("neoflow")


@dataclass(frozen=True)
class Summary:
    """A run's end. Times in seconds, memory in bytes; to_first_step counts from the start of the process.

    built and cached: kernels compiled in this run, and kernels that came from the cache. report: the file written.
    floor: the loss of the best predictor there can be, where the data are known that well.
    """

    model: str
    data: str
    stopped: str
    epochs: int
    steps: int
    accuracy: float
    loss: float
    test_loss: float
    seconds: float
    to_first_step: float
    steps_per_second: float
    built: int
    cached: int
    parameter_bytes: int
    temporary_bytes: int
    peak_bytes: int
    checkpoint: str | None
    report: str | None = None
    floor: float | None = None

    @property
    def floor_note(self) -> str:
        return "" if self.floor is None else f" (at best {self.floor:.4g})"

    def __str__(self) -> str:
        mib = 1 << 20
        lines = [
            f"{self.model} on {self.data}: test accuracy {self.accuracy:.2%} after {self.epochs} epochs "
            f"({self.steps} steps), loss {self.loss:.4g}, test loss {self.test_loss:.4g}{self.floor_note}",
            f"time {self.seconds:.1f} s in all, {self.to_first_step:.1f} s to the first step, "
            f"{self.steps_per_second:.1f} steps/s",
            f"kernels: {self.built} compiled, {self.cached} from the cache",
            f"memory: {self.parameter_bytes / mib:.1f} MiB parameters and optimizer state, "
            f"{self.temporary_bytes / mib:.1f} MiB temporaries, {self.peak_bytes / mib:.0f} MiB the process at most",
        ]
        if self.report is not None:
            lines.append(f"report: {self.report}")
        if self.stopped == "interrupted":
            kept = (
                f"saved in {self.checkpoint}; --resume continues"
                if self.checkpoint
                else "nothing saved: no --checkpoint"
            )
            lines.insert(0, f"interrupted after step {self.steps}: {kept}")
        return "\n".join(lines)


def warmup_and_decay(lr: float, steps: int, warmup: int = 50) -> Callable[[int], float]:
    """From lr/warmup up to lr in `warmup` steps, times a line from 1 down to 0 over all `steps`."""
    return lambda n: lr * min(1.0, (n + 1) / warmup) * max(0.0, 1.0 - n / steps)


Arrange = Callable[[NDArray, data.Labels], tuple[NDArray, data.Labels]]
"""From inputs and labels, samples first, to what a model takes."""


class Arranged(data.Batches):
    """Batches as a model takes them."""

    arrange: Arrange

    def __iter__(self) -> Iterator[tuple[NDArray, data.Labels]]:
        for inputs, labels in super().__iter__():
            yield self.arrange(inputs, labels)


def load_data(folder: Path | None, model: Model) -> tuple[data.Split, Arrange]:
    """What a model can learn, and how it takes it: MNIST from its folder, else scikit-learn's digits, or text."""
    axis, shape = model.batch_axis, list(model.x.shape)
    batch = shape.pop(axis)
    if model.vocabulary is not None and model.labels.shape == model.x.shape and len(shape) == 1:
        if folder is not None:
            raise ConfigError(f"{model.name} learns words, and in {folder} there are images: leave out --data")
        return data.chain(model.vocabulary, shape[0], 100 * 16, 20 * 16), partial(arrange_text, axis=axis)
    if model.vocabulary is not None or len(shape) not in (2, 3) or model.labels.shape != (batch,) or model.classes < 10:
        raise ConfigError(
            "there are images [B, C, H, W] or their rows [B, H, W] of 10 classes to train on, and words [B, T] with a "
            f"label each; {model.name} takes {list(model.x.shape)} and has {model.classes} classes"
        )
    split = data.load_digits(size=8) if folder is None else data.load_mnist(folder)
    return split, partial(arrange_images, shape=tuple(shape), axis=axis)


def arrange_images(
    images: data.Images, labels: data.Labels, shape: tuple[int, ...], axis: int
) -> tuple[NDArray, data.Labels]:
    """Images [B, 1, h, w] resized to `shape`: [C, H, W], all channels alike, or [H, W]; samples counted by `axis`."""
    resized = data.resize_bilinear(images, (shape[-2], shape[-1]))
    channels = resized[:, 0] if len(shape) == 2 else np.broadcast_to(resized, (len(images), *shape))
    return np.ascontiguousarray(np.moveaxis(channels, 0, axis)), labels


def arrange_text(words: NDArray, following: data.Labels, axis: int) -> tuple[NDArray, data.Labels]:
    """Words and their labels [B, T] with samples counted by `axis`."""
    return np.ascontiguousarray(np.moveaxis(words, 0, axis)), np.ascontiguousarray(np.moveaxis(following, 0, axis))


def train(
    name: str,
    *,
    folder: Path | None = None,
    epochs: int = 8,
    batch: int = 16,
    lr: float = 2e-3,
    seed: int = 0,
    checkpoint: Path | None = None,
    resume: bool = False,
    progress: bool = True,
    report: Path | None = None,
) -> Summary:
    """Train with Adam, the rate warmed up over 50 steps and brought down to 0 in a line; judge by the test set.

    report: the HTML file to write at the end, `{model}` in it standing for the model's name.
    """
    begun = psutil.Process().create_time()
    if resume and checkpoint is None:
        raise ConfigError("--resume needs --checkpoint FOLDER, where the checkpoints are")
    if epochs < 1 or not lr > 0:
        raise ConfigError(f"training takes at least 1 epoch and a learning rate above 0, not {epochs} and {lr}")
    model = build_model(name, batch, small=True)
    split, arrange = load_data(folder, model)
    batches = Arranged(split.train, batch, seed=seed)
    batches.arrange = arrange
    hit = nf.cast(nf.equal(nf.argmax(model.scores, axis=-1), model.labels), "float32")
    hit = nf.mean(hit, axis=1 - model.batch_axis) if hit.rank == 2 else hit
    trainer = Trainer(
        model.loss,
        model.parameters.values(),
        inputs=model.inputs,
        optimizer=optim.Adam(lr=lr),
        metrics={} if model.state else {"accuracy": hit},
        evaluation={"accuracy": hit},
        state=model.state,
        seed=seed,
        checkpoint=checkpoint,
        progress=progress,
    )
    if resume:
        trainer.resume()
    first: list[float] = []
    records: list[StepRecord] = []

    def note(record: StepRecord) -> None:
        if not first:
            first.append(time.time() - begun)
        records.append(record)

    history = trainer.fit(
        batches,
        epochs,
        schedule=warmup_and_decay(lr, epochs * len(batches)),
        on_step=note,
    )
    judged = trainer.evaluate((*arrange(x, y), count) for x, y, count in data.padded_batches(split.test, batch))
    plan = trainer.step_program().plan
    programs = [f.program for f in trainer.programs.values()]
    done = len(history.losses)
    stepping = history.seconds - history.first_step
    summary = Summary(
        model=model.name,
        data=split.name,
        stopped=history.stopped,
        epochs=trainer.position.epoch,
        steps=trainer.position.step,
        accuracy=judged["accuracy"],
        loss=history.epochs[-1].training["loss"] if history.epochs else history.losses[-1] if done else float("nan"),
        test_loss=judged["loss"],
        seconds=time.time() - begun,
        to_first_step=first[0] if first else float("nan"),
        steps_per_second=(done - 1) / stepping if done > 1 else float("nan"),
        built=sum(p.built for p in programs),
        cached=sum(p.cached for p in programs),
        parameter_bytes=sum(p.nbytes for p in trainer.all_parameters),
        temporary_bytes=plan.arena_bytes,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        checkpoint=None if checkpoint is None else str(checkpoint),
        floor=split.floor,
    )
    if report is None:
        return summary
    path = Path(str(report).replace("{model}", model.name))
    sample = arrange(split.train.inputs[:batch], split.train.labels[:batch])
    try:
        write_report(path, make_report(summary, trainer, records, sample, len(batches), lr))
    except (OSError, NeoflowError) as error:  # a run is not lost for want of its report
        log.warning("the report %s was not written: %s", path, error)
        return summary
    return replace(summary, report=str(path))


def make_report(
    summary: Summary, trainer: Trainer, records: list[StepRecord], sample: Batch, epoch: int, lr: float
) -> Report:
    """What `neoflow.report.html` shows of a run: its step is profiled on `sample`, the machine measured.

    epoch: steps in one.
    """
    step = trainer.step_program()
    program = step.program
    assert isinstance(program, Compiled)
    rates = [np.float64(lr)] if len(step.inputs) > len(sample) else []
    times = profile(step, [*sample, *rates])
    mib = 1 << 20
    held = f"{summary.parameter_bytes / mib:.1f} MiB parameters, {summary.temporary_bytes / mib:.1f} temporaries"
    facts = (
        Fact(
            "Test accuracy",
            f"{100 * summary.accuracy:.2f} %",
            f"loss {summary.loss:.3g}, test loss {summary.test_loss:.3g}{summary.floor_note}",
        ),
        Fact("Time", f"{summary.seconds:.1f} s", f"{summary.epochs} epochs, {summary.steps:,} steps"),
        Fact("First step after", f"{summary.to_first_step:.1f} s", "from the start of the process"),
        Fact("Steps a second", f"{summary.steps_per_second:.1f}", f"batches of {trainer.batch}"),
        Fact(
            "Kernels",
            f"{summary.built + summary.cached}",
            f"{summary.built} compiled, {summary.cached} cached; {len(program.kernels)} in a step",
        ),
        Fact("Memory", f"{summary.peak_bytes / mib:.0f} MiB", held),
    )
    return Report(
        model=summary.model,
        data=summary.data,
        facts=facts,
        losses=[(r.step + 1, r.values["loss"]) for r in records],
        accuracies=[(r.step + 1, r.values["accuracy"]) for r in records if "accuracy" in r.values],
        test_accuracy=summary.accuracy,
        epoch=epoch,
        kernels=kernel_rows(program, times),
        roofs=measure_roofs(program.target),
        compiled=program,
    )
