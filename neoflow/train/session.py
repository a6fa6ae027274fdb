"""A training run of a model file: its data, Adam with a warmed-up rate, a judgement by the test set."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

import neoflow as nf
from neoflow import data, devices
from neoflow.errors import ConfigError
from neoflow.models import build_model
from neoflow.nn import optim
from neoflow.train.arrange import Arranged, load_data
from neoflow.train.feed import Batch
from neoflow.train.kernels import SHARE
from neoflow.train.records import History, StepRecord
from neoflow.train.trainer import Trainer
from neoflow.tune import Limits


@dataclass(frozen=True)
class Session:
    """A run that has ended. seconds, to_first_step: from the start of the process, or what `since` says; NaN where no
    step was made.

    judged: loss and accuracy of the test set, where it was judged. floor: the loss of the best predictor there can be,
    where the data are known that well. sample: a batch as the step takes it. epoch: steps in one. lr: the highest
    learning rate.
    """

    model: str
    data: str
    floor: float | None
    trainer: Trainer
    history: History
    records: tuple[StepRecord, ...]
    judged: dict[str, float]
    seconds: float
    to_first_step: float
    sample: Batch
    epoch: int
    lr: float
    checkpoint: Path | None
    since: str = "the start of the process"


def warmup_and_decay(lr: float, steps: int, warmup: int = 50) -> Callable[[int], float]:
    """From lr/warmup up to lr in `warmup` steps, times a line from 1 down to 0 over all `steps`."""
    return lambda n: lr * min(1.0, (n + 1) / warmup) * max(0.0, 1.0 - n / steps)


def run_session(
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
    target: str = "cpu",
    precision: str = "fp32",
    tune: float | Limits | None = None,
    mode: str = "static",
    tune_share: float = SHARE,
    pin: Path | None = None,
    text: bool = False,
    memory: str | None = None,
) -> Session:
    """Train with Adam, the rate warmed up over 50 steps and brought down to 0 in a line; judge by the test set.

    text: of words, learn the characters of Python's documentation. Raises `RuntimeFault` at once when the target's
    device is not here.
    """
    begun = psutil.Process().create_time()
    devices.device(devices.resolve_target(target))
    if resume and checkpoint is None:
        raise ConfigError("--resume needs --checkpoint FOLDER, where the checkpoints are")
    if epochs < 1 or not lr > 0:
        raise ConfigError(f"training takes at least 1 epoch and a learning rate above 0, not {epochs} and {lr}")
    model = build_model(name, batch, small=True)
    split, arrange = load_data(folder, model, text)
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
        target=target,
        seed=seed,
        checkpoint=checkpoint,
        progress=progress,
        precision=precision,
        tune=tune,
        mode=mode,
        tune_share=tune_share,
        pin=pin,
        memory=memory,
        batch_axis={t: model.batch_axis if t.rank > 1 else 0 for t in model.inputs},
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
    return Session(
        model=model.name,
        data=split.name,
        floor=split.floor,
        trainer=trainer,
        history=history,
        records=tuple(records),
        judged=judged,
        seconds=time.time() - begun,
        to_first_step=first[0] if first else float("nan"),
        sample=arrange(split.train.inputs[:batch], split.train.labels[:batch]),
        epoch=len(batches),
        lr=lr,
        checkpoint=checkpoint,
    )
