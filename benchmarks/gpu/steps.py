"""Piece c: training steps beside PyTorch's."""

from __future__ import annotations

from functools import partial

from benchmarks.gpu import theirs
from benchmarks.gpu.check import NOT_DRY, VERIFIED
from benchmarks.gpu.ours import Resident, compiled
from benchmarks.gpu.rows import Outcome, Setting, Task
from neoflow.autodiff import grad
from neoflow.models import build_model
from neoflow.precision import PRECISIONS
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
NARROW = (("capsnet", 16), ("mi_lstm_ptb", 64), ("bert_layer", 8), ("resnet50", 16))
"""The same of those that also run in other precisions."""
STEPS = (
    *((name, batch, "fp32") for name, batch in MODELS),
    *((name, batch, p) for p in ("bf16", "tf32") if p in PRECISIONS for name, batch in NARROW),
)
"""Names, batches and precisions: PyTorch computes bf16 in autocast."""
OURS = "neoflow"
OF_EAGER, OF_BEST = 3.16, 1.5
"""To reach in the end, as geometric means: the time of eager, and of the best peer, over ours."""


def title(name: str, batch: int, precision: str) -> str:
    """What a row is called."""
    return f"{name} b{batch}" + (f" {precision}" if precision != "fp32" else "")


def ours(name: str, batch: int, precision: str, setting: Setting) -> Outcome:
    """Seconds of a step of SGD, and the first loss."""
    sizes = VERIFIED[name][1]
    if setting.dry and sizes is None:
        return Outcome(said=NOT_DRY)
    model = build_model(name, 2, **(sizes or {})) if setting.dry else build_model(name, batch)
    gradients = grad(model.loss, list(model.parameters.values()))
    reset(model)
    program = compiled([model.loss], model.inputs, sgd_updates(model, gradients), precision)
    step = Resident(program, model.example())
    step.run()
    [loss] = step.results()
    return Outcome({"loss": float(loss), "seconds": step.seconds(setting)})


def peer(name: str, batch: int, precision: str, contender: str, setting: Setting) -> Outcome:
    """The same of PyTorch."""
    if setting.dry:
        return Outcome(said=NOT_DRY)
    try:
        loss, step = theirs.step_of(build_model(name, batch), name, contender, precision)
    except theirs.Absent as absent:
        return Outcome(said=str(absent))
    return Outcome({"loss": loss, "seconds": theirs.seconds_of(step, setting)})


TASKS = tuple(
    Task(f"c/{title(*step)}/{who}", partial(ours, *step) if who == OURS else partial(peer, *step, who))
    for step in STEPS
    for who in (OURS, *theirs.CONTENDERS)
)
