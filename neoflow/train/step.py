"""A model's step of plain SGD, as it is measured and explained: p -= 0.01 dp."""

from __future__ import annotations

from collections.abc import Sequence

from neoflow.autodiff import grad
from neoflow.expr.tensor import Placeholder, Tensor
from neoflow.nn import Model
from neoflow.pipeline import compile
from neoflow.runtime.function import Function
from neoflow.runtime.parameters import set_value

RATE = 0.01
"""The learning rate of a measured step: SGD, without momentum or decay."""


def reset(model: Model) -> None:
    """Give every parameter its first value."""
    for p, value in model.initial().items():
        set_value(p, value)


def sgd_updates(model: Model, gradients: Sequence[Tensor]) -> dict[Tensor, Tensor]:
    """p -= 0.01 dp where the model is one that is trained, and its own state."""
    pairs = zip(model.parameters.values(), gradients, strict=True)
    updates: dict[Tensor, Tensor] = {p: p - RATE * g for p, g in pairs} if model.trained else {}
    updates.update(model.state.items())
    return updates


def program(model: Model, mode: str = "train") -> tuple[list[Tensor], list[Placeholder], dict[Tensor, Tensor]]:
    """Outputs, inputs and updates: (x, labels) -> [loss], then the updates; of mode "infer" (x) -> [scores]."""
    if mode == "infer":
        return [model.scores], [model.x], {}
    gradients = grad(model.loss, list(model.parameters.values()))
    return [model.loss], list(model.inputs), sgd_updates(model, gradients)


def train_step(model: Model, memory: str | int | None = None) -> Function:
    """A step of training, compiled. memory: see `nf.compile`."""
    return compile(*program(model), memory=memory)
