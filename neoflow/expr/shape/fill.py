"""Tensors made of no other."""

from __future__ import annotations

from collections.abc import Sequence

from neoflow import dtype as dt
from neoflow.expr import dsl
from neoflow.expr.given import checked_dtype, checked_shape
from neoflow.expr.ir import Const
from neoflow.expr.shape.tools import checked_constant, checked_tensor, make
from neoflow.expr.tensor import Tensor


def full(shape: Sequence[int] | int, value: float, dtype: object = "float32") -> Tensor:
    """A tensor of one value."""
    fill = checked_constant(value, checked_dtype(dtype), "full")
    return make(checked_shape(shape), lambda ix: fill, "full")


def zeros(shape: Sequence[int] | int, dtype: object = "float32") -> Tensor:
    """A tensor of zeros."""
    return full(shape, 0, dtype)


def ones(shape: Sequence[int] | int, dtype: object = "float32") -> Tensor:
    """A tensor of ones."""
    return full(shape, 1, dtype)


def full_like(x: Tensor, value: float) -> Tensor:
    """A tensor of one value, of x's shape and dtype."""
    return full(checked_tensor(x, "full_like").shape, value, x.dtype)


def zeros_like(x: Tensor) -> Tensor:
    """Zeros of x's shape and dtype."""
    return full_like(x, 0)


def ones_like(x: Tensor) -> Tensor:
    """Ones of x's shape and dtype."""
    return full_like(x, 1)


def arange(n: int, dtype: object = dt.INDEX) -> Tensor:
    """0, 1, ..., n - 1."""
    return make(checked_shape(n), lambda ix: dsl.cast(ix[0], dtype), "arange")


def eye(n: int, m: int | None = None, k: int = 0, dtype: object = "float32") -> Tensor:
    """n x m (m: n): ones on the k-th diagonal, else zeros."""
    target = checked_dtype(dtype)
    one, zero = Const(1, target), Const(0, target)
    rows, columns = checked_shape((n, n if m is None else m))
    return make((rows, columns), lambda ix: dsl.select(dsl.equal(ix[1], ix[0] + k), one, zero), "eye")
