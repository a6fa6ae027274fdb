"""Normalisation: elements brought to mean 0 and variance 1 over some dimensions, then scaled and shifted.

Variances are biased (divided by the count) and taken of centred elements, so that nothing cancels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from neoflow.expr import dsl
from neoflow.expr.ir import Expr
from neoflow.expr.shape.rearrange import reshape
from neoflow.expr.tensor import Parameter, Tensor
from neoflow.nn.form import training_form
from neoflow.nn.tools import SPACE, compute, describe, expect

__all__ = [
    "BatchNormalized", "batch_norm", "batch_norm_inference", "group_norm", "instance_norm", "layer_norm",
]  # fmt: skip


def _standardized(x: Tensor, dims: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(x - mean) / sqrt(variance + eps) over `dims`; also mean and variance, with those extents 1."""
    mean = dsl.mean(x, dims, keepdims=True)
    centred = x - mean
    variance = dsl.mean(centred * centred, dims, keepdims=True)
    return centred * dsl.rsqrt(variance + eps), mean, variance


def _by_channel(x: Tensor, gamma: Tensor | None, beta: Tensor | None, name: str) -> Tensor:
    """x * gamma[c] + beta[c], c the second dimension of x."""
    if gamma is None and beta is None:
        return x
    for t in (gamma, beta):
        expect(
            t is None or (x.rank >= 2 and t.shape == (x.shape[1],)),
            f"{name}: gamma and beta of {describe(x)} have one value a channel",
        )

    def body(ix: tuple[Expr, ...]) -> Expr:
        y = x[ix] if gamma is None else x[ix] * gamma[ix[1],]
        return y if beta is None else y + beta[ix[1],]

    return compute(x.shape, ("b", "c", *SPACE[: x.rank - 2]), body, name)


def layer_norm(x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """x normalised over the last dimension, times gamma [D] plus beta [D]; x [..., D]. Source: Ba et al., 2016."""
    y = _standardized(x, (x.rank - 1,), eps)[0]
    y = y if gamma is None else y * gamma
    return y if beta is None else y + beta


def group_norm(
    x: Tensor, groups: int, gamma: Tensor | None = None, beta: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """x [B, C, ...] normalised over each of `groups` groups of channels and all of space. Source: Wu and He, 2018."""
    groups = int(groups)
    fits = x.rank >= 2 and groups >= 1 and x.shape[1] % groups == 0
    expect(fits, f"group_norm: {groups} groups do not divide {describe(x)}")
    grouped = reshape(x, (x.shape[0], groups, -1))
    y = reshape(_standardized(grouped, (2,), eps)[0], x.shape)
    return _by_channel(y, gamma, beta, "group_norm")


def instance_norm(x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """x [B, C, ...] normalised over space, each channel of each sample by itself. Source: Ulyanov et al., 2016."""
    expect(x.rank >= 3, f"instance_norm takes x[B, C, ...] with space dimensions, not {describe(x)}")
    return _by_channel(_standardized(x, tuple(range(2, x.rank)), eps)[0], gamma, beta, "instance_norm")


@dataclass(frozen=True)
class BatchNormalized:
    """What batch normalisation gives in training: the output, and the new values of the running statistics [C]."""

    y: Tensor
    mean: Tensor
    variance: Tensor


def batch_norm(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    running_mean: Tensor,
    running_variance: Tensor,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> BatchNormalized:
    """In training: x [B, C, ...] normalised over everything but channels, gamma (x - m) / sqrt(v + eps) + beta.

    running = (1 - momentum) running + momentum * that of the batch, with the unbiased variance; all [C]. Its inference
    form (`nn.inference`) is `batch_norm_inference`; running statistics that are parameters are its state (`nn.state`).
    Source: Ioffe and Szegedy, 2015.
    """
    expect(x.rank >= 2, f"batch_norm takes x[B, C, ...], not {describe(x)}")
    dims = (0, *range(2, x.rank))
    count = math.prod(x.shape[d] for d in dims)
    expect(count > 1, f"batch_norm in training needs more than one element a channel, not {describe(x)}")
    z, mean, variance = _standardized(x, dims, eps)

    def blend(running: Tensor, batch: Tensor, scale: float, name: str) -> Tensor:
        at = (0,) * (x.rank - 2)
        return dsl.compute(
            running.shape, lambda c: (1.0 - momentum) * running[c] + (momentum * scale) * batch[(0, c, *at)], name
        )

    result = BatchNormalized(
        _by_channel(z, gamma, beta, "batch_norm"),
        blend(running_mean, mean, 1.0, "running_mean"),
        blend(running_variance, variance, count / (count - 1), "running_variance"),
    )
    blended = ((running_mean, result.mean), (running_variance, result.variance))
    training_form(
        result.y,
        lambda: batch_norm_inference(x, gamma, beta, running_mean, running_variance, eps),
        {p: new for p, new in blended if isinstance(p, Parameter)},
    )
    return result


def batch_norm_inference(
    x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor, eps: float = 1e-5
) -> Tensor:
    """gamma (x - mean) / sqrt(variance + eps) + beta with given statistics [C]; x [B, C, ...]."""
    scale = dsl.compute(gamma.shape, lambda c: gamma[c] * dsl.rsqrt(variance[c] + eps), "scale")
    offset = dsl.compute(gamma.shape, lambda c: beta[c] - mean[c] * scale[c], "offset")
    return _by_channel(x, scale, offset, "batch_norm")
