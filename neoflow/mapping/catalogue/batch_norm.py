"""Batch norm in training, of images [B, C, H, W] and of rows [B, C]: mean and variance of a batch by channels.

The running statistics, which nothing else follows from, stay as they are written. Source: Ioffe and Szegedy, 2015.
"""

from __future__ import annotations

from neoflow.expr import dsl
from neoflow.expr.shape.rearrange import reshape
from neoflow.expr.tensor import Tensor
from neoflow.mapping.cell import Pattern
from neoflow.nn import functional as F

EPS = 1e-5


def _over(x: Tensor) -> tuple[int, ...]:
    return (0, *range(2, x.rank))


def _by_channel(t: Tensor, x: Tensor) -> Tensor:
    return reshape(t, (1, -1, *[1] * (x.rank - 2)))


def centred(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> tuple[Tensor]:
    """(x - m) / sqrt(mean((x - m)^2) + eps) * gamma + beta"""
    z = x - dsl.mean(x, axis=_over(x), keepdims=True)
    z = z / dsl.sqrt(dsl.mean(z * z, axis=_over(x), keepdims=True) + eps)
    return (z * _by_channel(gamma, x) + _by_channel(beta, x),)


def by_squares(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> tuple[Tensor]:
    """The variance as mean(x^2) - m^2."""
    m = dsl.mean(x, axis=_over(x), keepdims=True)
    variance = dsl.mean(x * x, axis=_over(x), keepdims=True) - m * m
    return ((x - m) / dsl.sqrt(variance + eps) * _by_channel(gamma, x) + _by_channel(beta, x),)


def implementation(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> tuple[Tensor]:
    return (F.batch_norm(x, gamma, beta, gamma, beta, eps=eps).y,)


PATTERNS = tuple(
    Pattern(
        "batch norm",
        {"x": letters, "gamma": "C", "beta": "C"},
        centred,
        {},
        implementation,
        {"eps": EPS},
        (by_squares,),
    )
    for letters in ("BC", "BCHW")
)
