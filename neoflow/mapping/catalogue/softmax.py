"""Softmax along the last dimension: as it is defined, and shifted, with the largest element a constant or not."""

from __future__ import annotations

from neoflow.expr import dsl
from neoflow.expr.tensor import Tensor
from neoflow.mapping.cell import Pattern
from neoflow.nn import functional as F


def naive(x: Tensor) -> tuple[Tensor]:
    """exp(x) / sum(exp(x))"""
    e = dsl.exp(x)
    return (e / dsl.sum(e, axis=-1, keepdims=True),)


def shifted(x: Tensor) -> tuple[Tensor]:
    """The same of x - max(x), through which gradients go."""
    return naive(x - dsl.max(x, axis=-1, keepdims=True))


def constant(x: Tensor) -> tuple[Tensor]:
    """The same, the shift a constant to derivatives."""
    return naive(x - dsl.stop_gradient(dsl.max(x, axis=-1, keepdims=True)))


def implementation(x: Tensor) -> tuple[Tensor]:
    return (F.softmax(x),)


PATTERNS = tuple(
    Pattern("softmax", {"x": letters}, naive, {}, implementation, forms=(constant, shifted))
    for letters in ("K", "NK", "MNK", "LMNK")
)
