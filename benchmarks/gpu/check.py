"""Piece a: every template and model against `evaluate`, and whole steps against the CPU's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.gpu.forms import FORMS, Form
from benchmarks.gpu.ours import TARGET, by_template, compiled, verify_kernels
from benchmarks.gpu.rows import Outcome, Setting, Task
from neoflow.autodiff import grad
from neoflow.expr.tensor import Placeholder, topological
from neoflow.models import build_model
from neoflow.pipeline import compile
from neoflow.runtime.function import Function
from neoflow.train.step import reset, sgd_updates

VERIFIED: dict[str, tuple[int, dict[str, Any] | None]] = {
    "capsnet": (1, None),
    "mi_lstm_mnist": (3, {"steps": 1, "inputs": 3, "hidden": 4, "classes": 3}),
    "mi_lstm_ptb": (3, None),
    "ptb_lstm": (3, None),
    "bert_layer": (2, None),
    "shufflenet": (2, None),
    "resnet18": (1, None),
    "resnet50": (1, None),
}
"""Models whose kernels are compared with NumPy, in their small sizes: the batch, and sizes of a dry run if any."""
WHOLE = {
    "capsnet": 16,
    "mi_lstm_mnist": 64,
    "mi_lstm_ptb": 64,
    "ptb_lstm": 20,
    "bert_layer": 8,
    "shufflenet": 16,
    "resnet50": 4,
}
"""Models whose gradients are compared with the CPU's, in their own sizes, and batches."""
LOSS, GRADIENT = 1e-4, 0.05
"""Allowed between devices: of the loss; of a gradient's norm, relus that round to their other side allowed for."""
NOT_DRY = "not in a dry run"


def form(form: Form, setting: Setting) -> Outcome:
    """Every kernel of a small program."""
    roots, _ = form.program(setting.dry)
    inputs = [t for t in topological(list(roots)) if isinstance(t, Placeholder)]
    return verify_kernels(by_template(compiled(roots, inputs, precision=form.precision), form.template))


def model(name: str, setting: Setting) -> Outcome:
    """Every kernel of a model's training step."""
    batch, sizes = VERIFIED[name]
    if setting.dry and sizes is None:
        return Outcome(said=NOT_DRY)
    found = build_model(name, batch, small=True, **(sizes or {} if setting.dry else {}))
    gradients = grad(found.loss, list(found.parameters.values()))
    return verify_kernels(compiled([found.loss], found.inputs, sgd_updates(found, gradients)))


def whole(name: str, setting: Setting) -> Outcome:
    """Loss and gradients of a model in its own size, beside the CPU's."""
    sizes = VERIFIED[name][1]
    if setting.dry and sizes is None:
        return Outcome(said=NOT_DRY)
    found = build_model(name, 2, **(sizes or {})) if setting.dry else build_model(name, WHOLE[name])
    roots = [found.loss, *grad(found.loss, list(found.parameters.values()))]
    arrays = found.example()
    reset(found)
    (there, moved), (here, shaken) = (twice(compile(roots, found.inputs, target=t), arrays) for t in (TARGET, "cpu"))
    loss = abs(float(there[0]) - float(here[0])) / abs(float(here[0]))
    gradient = apart(there[1:], here[1:])
    is_close = loss <= LOSS and gradient <= GRADIENT
    losses = f"its loss {float(there[0]):.7g}, the CPU's {float(here[0]):.7g}"
    said = [] if is_close else [f"WRONG: another network, {losses}"]
    said += [f"WRONG: two runs on the {where} differ by {d:.1e}" for where, d in (("GPU", moved), ("CPU", shaken)) if d]
    return Outcome({"loss": loss, "gradient": gradient}, "; ".join(said))


def twice(function: Function, arrays: Sequence[np.ndarray]) -> tuple[list[np.ndarray], float]:
    """What it returns, and how far apart two runs of it are: nothing it computes is in an order of its own."""
    first, second = ([np.array(a) for a in function(*arrays)] for _ in range(2))
    return first, apart(second, first)


def apart(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """The largest difference of two arrays, by their norm or by a little of the largest norm of all."""
    norms = [float(np.linalg.norm(w)) for w in wanted]
    least = 1e-5 * max(norms)
    errors = [float(np.linalg.norm(f - w)) / max(n, least, 1e-30) for f, w, n in zip(found, wanted, norms, strict=True)]
    return max(errors)


TASKS = (
    *(Task(f"a/{f.title()}", partial(form, f)) for f in FORMS),
    *(Task(f"a/{name} b{batch}, its kernels", partial(model, name)) for name, (batch, _) in VERIFIED.items()),
    *(Task(f"a/{name} b{batch}, beside the CPU", partial(whole, name)) for name, batch in WHOLE.items()),
)
