"""Piece c: training steps beside PyTorch's."""

from __future__ import annotations

from functools import partial

from benchmarks.gpu import theirs
from benchmarks.gpu.check import NOT_DRY, VERIFIED
from benchmarks.gpu.ours import Resident, compiled
from benchmarks.gpu.rows import Outcome, Setting, Task
from neoflow.autodiff import grad
from neoflow.models import build_model
from neoflow.train.step import reset, sgd_updates

MODELS = (
    ("capsnet", 16),
    ("capsnet", 1),
    ("capsnet", 64),
    ("mi_lstm_mnist", 64),
    ("mi_lstm_ptb", 64),
    ("bert_layer", 8),
    ("shufflenet", 16),
    ("resnet50", 16),
)
"""Names and batches."""
OURS = "neoflow"
OF_EAGER, OF_BEST = 3.16, 1.5
"""To reach in the end, as geometric means: the time of eager, and of the best peer, over ours."""


def ours(name: str, batch: int, setting: Setting) -> Outcome:
    """Seconds of a step of SGD, and the first loss."""
    sizes = VERIFIED[name][1]
    if setting.dry and sizes is None:
        return Outcome(said=NOT_DRY)
    model = build_model(name, 2, **(sizes or {})) if setting.dry else build_model(name, batch)
    gradients = grad(model.loss, list(model.parameters.values()))
    reset(model)
    step = Resident(compiled([model.loss], model.inputs, sgd_updates(model, gradients)), model.example())
    step.run()
    [loss] = step.results()
    return Outcome({"loss": float(loss), "seconds": step.seconds(setting)})


def peer(name: str, batch: int, contender: str, setting: Setting) -> Outcome:
    """The same of PyTorch."""
    if setting.dry:
        return Outcome(said=NOT_DRY)
    try:
        loss, step = theirs.step_of(build_model(name, batch), name, contender)
    except theirs.Absent as absent:
        return Outcome(said=str(absent))
    return Outcome({"loss": loss, "seconds": theirs.seconds_of(step, setting)})


TASKS = tuple(
    Task(f"c/{name} b{batch}/{who}", partial(ours, name, batch) if who == OURS else partial(peer, name, batch, who))
    for name, batch in MODELS
    for who in (OURS, *theirs.CONTENDERS)
)
