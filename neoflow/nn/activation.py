"""Elementwise activations and the row-wise family of softmax."""

from __future__ import annotations

import math

from neoflow.expr import dsl
from neoflow.expr.dsl import relu, sigmoid, tanh
from neoflow.expr.tensor import Tensor

__all__ = [
    "elu", "gelu", "leaky_relu", "log_softmax", "logsumexp", "relu", "sigmoid", "silu", "softmax", "softplus", "squash",
    "tanh",
]  # fmt: skip


def gelu(x: Tensor) -> Tensor:
    """x/2 (1 + erf(x / sqrt 2)), element by element (Hendrycks and Gimpel, 2016)."""
    return 0.5 * x * (1.0 + dsl.erf(x * math.sqrt(0.5)))


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha (e^x - 1) (Clevert et al., 2015)."""
    return dsl.lift(lambda e: dsl.select(e > 0.0, e, alpha * (dsl.exp(e) - 1.0)), (x,), "elu")


def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    """x where x > 0, else slope * x (Maas et al., 2013)."""
    return dsl.lift(lambda e: dsl.select(e > 0.0, e, slope * e), (x,), "leaky_relu")


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x), without overflow: the e^-|x| in it is at most 1."""

    def smooth(e):
        return dsl.select(e > 0.0, e + dsl.log(1.0 + dsl.exp(-e)), dsl.log(1.0 + dsl.exp(e)))

    return dsl.lift(smooth, (x,), "softplus")


def silu(x: Tensor) -> Tensor:
    """x sigmoid(x) (Elfwing et al., 2017; also named swish)."""
    return x * dsl.sigmoid(x)


def _shift(x: Tensor, axis: int) -> Tensor:
    """A whole number in [max, max + 1) along `axis`, kept as extent 1.

    Any shift near the largest element keeps exp in range; a whole one is constant to the derivative (ceil' = 0), so
    that no gradient flows through the maximum, where it would cancel anyway.
    """
    return dsl.ceil(dsl.max(x, axis, keepdims=True))


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along `axis`, in the shape of x; exact for elements of any size."""
    e = dsl.exp(x - _shift(x, axis))
    return e / dsl.sum(e, axis, keepdims=True)


def logsumexp(x: Tensor, axis: int = -1, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) along `axis`, for elements of any size."""
    shift = _shift(x, axis)
    total = dsl.log(dsl.sum(dsl.exp(x - shift), axis, keepdims=True)) + shift
    if keepdims:
        return total
    at = axis % x.rank
    return total[tuple(0 if d == at else slice(None) for d in range(x.rank))]


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """x - logsumexp(x) along `axis`, in the shape of x."""
    shifted = x - _shift(x, axis)
    return shifted - dsl.log(dsl.sum(dsl.exp(shifted), axis, keepdims=True))


def squash(m: Tensor, axis: int | tuple[int, ...] = -1, eps: float = 1e-9) -> Tensor:
    """m |m| / (1 + |m|^2), |m| = sqrt(n2 + eps): the length of each capsule (dimensions `axis`) brought into [0, 1).

    Source: Sabour et al., Dynamic Routing Between Capsules, 2017, equation 1.
    """
    n2 = dsl.sum(m * m, axis, keepdims=True)
    return m * (dsl.sqrt(n2 + eps) / (1.0 + n2))
