"""Elementwise activations and the row-wise family of softmax."""

from __future__ import annotations

import math

from neoflow.expr import dsl
from neoflow.expr.dsl import relu, sigmoid, tanh
from neoflow.expr.ir import Expr
from neoflow.expr.tensor import Tensor

__all__ = [
    "elu", "gelu", "leaky_relu", "log_sigmoid", "log_softmax", "log_total", "logsumexp", "mish", "relu", "selu",
    "sigmoid", "silu", "softmax", "softplus", "squash", "tanh",
]  # fmt: skip

_SELU_SCALE, _SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717


def gelu(x: Tensor) -> Tensor:
    """x/2 (1 + erf(x / sqrt 2)), element by element (Hendrycks and Gimpel, 2016)."""
    return 0.5 * x * (1.0 + dsl.erf(x * math.sqrt(0.5)))


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha (e^x - 1) (Clevert et al., 2015)."""
    return dsl.lift(lambda e: dsl.select(e > 0.0, e, alpha * dsl.expm1(e)), (x,), "elu")


def selu(x: Tensor) -> Tensor:
    """s (x where x > 0, else a (e^x - 1)): layers keep mean 0 and variance 1 (Klambauer et al., 2017)."""

    def scaled(e: Expr) -> Expr:
        return dsl.select(e > 0.0, _SELU_SCALE * e, (_SELU_SCALE * _SELU_ALPHA) * dsl.expm1(e))

    return dsl.lift(scaled, (x,), "selu")


def leaky_relu(x: Tensor, slope: float = 0.01) -> Tensor:
    """x where x > 0, else slope * x (Maas et al., 2013)."""
    return dsl.lift(lambda e: dsl.select(e > 0.0, e, slope * e), (x,), "leaky_relu")


def _softplus(e: Expr) -> Expr:
    return dsl.select(e > 0.0, e + dsl.log1p(dsl.exp(-e)), dsl.log1p(dsl.exp(e)))


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x), without overflow and to the last digits of a small one: the e^-|x| in it is at most 1."""
    return dsl.lift(_softplus, (x,), "softplus")


def log_sigmoid(x: Tensor) -> Tensor:
    """log(sigmoid(x)) = -softplus(-x)."""
    return dsl.lift(lambda e: -_softplus(-e), (x,), "log_sigmoid")


def mish(x: Tensor) -> Tensor:
    """x tanh(softplus(x)) (Misra, 2019)."""
    return x * dsl.tanh(softplus(x))


def silu(x: Tensor) -> Tensor:
    """x sigmoid(x) (Elfwing et al., 2017; also named swish)."""
    return x * dsl.sigmoid(x)


def _largest(x: Tensor, axis: int) -> Tensor:
    """The largest element along `axis`, kept as extent 1.

    It is constant to the derivative, since any shift gives the same and its cotangents cancel.
    """
    return dsl.stop_gradient(dsl.max(x, axis, keepdims=True))


def log_total(x: Tensor, axis: int = -1) -> tuple[Tensor, Tensor]:
    """max(x) along `axis`, and log(sum(exp(x - max(x)))), both kept as extent 1; their sum is the logsumexp.

    The second is at least 0 and at most the logarithm of the extent: beside x - max(x) nothing large cancels.
    """
    largest = _largest(x, axis)
    return largest, dsl.log(dsl.sum(dsl.exp(x - largest), axis, keepdims=True))


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along `axis`, in the shape of x; exact for elements of any size.

    Divided once a row: the sum is from 1 to the extent, its reciprocal as good a number as it is.
    """
    e = dsl.exp(x - _largest(x, axis))
    return e * (1.0 / dsl.sum(e, axis, keepdims=True))


def logsumexp(x: Tensor, axis: int = -1, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) along `axis`, for elements of any size; -inf of nothing but -inf, inf of one that is."""
    largest = _largest(x, axis)
    shift = dsl.lift(lambda m: dsl.select(dsl.abs(m) < math.inf, m, 0.0), (largest,), "shift")
    total = dsl.log(dsl.sum(dsl.exp(x - shift), axis, keepdims=True)) + shift
    if keepdims:
        return total
    at = axis % x.rank
    return total[tuple(0 if d == at else slice(None) for d in range(x.rank))]


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """x - logsumexp(x) along `axis`, in the shape of x; never above 0."""
    largest, total = log_total(x, axis)
    return (x - largest) - total


def squash(m: Tensor, axis: int | tuple[int, ...] = -1, eps: float = 1e-9) -> Tensor:
    """m |m| / (1 + |m|^2), |m| = sqrt(n2 + eps): the length of each capsule (dimensions `axis`) brought into [0, 1).

    Source: Sabour et al., Dynamic Routing Between Capsules, 2017, equation 1.
    """
    n2 = dsl.sum(m * m, axis, keepdims=True)
    return m * (dsl.sqrt(n2 + eps) / (1.0 + n2))
