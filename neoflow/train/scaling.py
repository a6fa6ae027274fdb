"""Dynamic loss scaling: float16 gradients kept in range by a factor that follows what they do.

The loss is multiplied by `scale` before it is differentiated, its gradients by 1 / scale, in float32, before anything
else sees them. A step with a gradient that is not finite changes nothing but the scale, which it halves; after
`INTERVAL` steps without one the scale doubles. All of it is part of the compiled step: the host is not asked.

Source: Micikevicius et al., Mixed Precision Training, 2018, section 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neoflow.errors import ConfigError, RuntimeFault
from neoflow.expr import dsl
from neoflow.expr.tensor import Parameter, Tensor
from neoflow.train.diagnosis import LARGEST

INITIAL = 2.0**15
"""The first scale: float16 then holds gradients from 2^-39, its least being 2^-24, to 1, a bound of those of a loss."""
INTERVAL = 2000
"""Steps without overflow after which the scale doubles."""
LEAST = 2.0**-14
"""Below it a run is stopped: gradients are NaN, or beyond 10^9, whatever the scale."""
METRIC = "loss scale"
"""The scale of a step among its values."""


class LossScale:
    """The scale and its counts as parameters, so that they are kept and saved with the others.

    scale: float32. good: steps since the scale changed. skipped: steps that were skipped, in all. Raises `ConfigError`
    for a loss of another type than float32.
    """

    def __init__(self, loss: Tensor) -> None:
        if loss.dtype != "float32":
            raise ConfigError(
                f"precision 'fp16' scales a float32 loss, but {loss.name} is {loss.dtype}: nf.cast it, or take 'fp32'",
                loss.where,
            )
        self.scale = dsl.parameter((), "float32", "loss_scale", init=np.float32(INITIAL))
        self.good = dsl.parameter((), "int64", "loss_scale.good")
        self.skipped = dsl.parameter((), "int64", "loss_scale.skipped")

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return self.scale, self.good, self.skipped

    def scaled(self, loss: Tensor) -> Tensor:
        """What is to be differentiated in place of the loss."""
        return loss * self.scale

    def unscaled(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The gradients of the loss from those of the scaled one; the scale is a power of two: nothing is rounded."""
        factor = 1.0 / self.scale
        return [g * factor for g in gradients]

    def updates(self, finite: Tensor) -> dict[Tensor, Tensor]:
        """New values after a step; finite: rank 0, whether all of its gradients were."""
        ripe = self.good + 1 >= INTERVAL
        return {
            self.scale: dsl.select(finite, dsl.select(ripe, 2.0 * self.scale, self.scale), 0.5 * self.scale),
            self.good: dsl.select(finite & ~ripe, self.good + 1, 0),
            self.skipped: self.skipped + dsl.select(finite, 0, 1),
        }


def all_finite(tensors: Sequence[Tensor]) -> Tensor:
    """Whether every element of every tensor is finite: rank 0."""
    bad = [dsl.sum(dsl.select(dsl.abs(t) <= LARGEST, 0.0, 1.0)) for t in tensors]
    total = bad[0]
    for count in bad[1:]:
        total = total + count
    return dsl.equal(total, 0.0)


def refuse_lost(scale: float, step: int) -> None:
    """Raise `RuntimeFault` where no scale brings the gradients into the range of float16."""
    if scale < LEAST:
        raise RuntimeFault(
            f"step {step}: the gradients are not finite in float16, even with the loss scaled by {scale:.3g}: they are "
            "NaN, or too large; precision='bf16' has the range of float32, and precision='fp32' tells which it is"
        )
