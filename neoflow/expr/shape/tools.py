"""What the functions share: arguments checked, a compute made of a body over its axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neoflow import dtype as dt
from neoflow.caller import caller
from neoflow.errors import shown
from neoflow.expr import dsl, typed
from neoflow.expr.close import define
from neoflow.expr.ir import Const, Expr
from neoflow.expr.tensor import Compute, Tensor
from neoflow.expr.typed import Operand, fail


def make(shape: Sequence[int], body: Callable[[tuple[Expr, ...]], Operand], name: str) -> Compute:
    """The compute whose element at the tuple of axes `ix` is `body(ix)`."""
    where = caller()
    axes = dsl.unnamed_axes(shape, where)
    return define(tuple(shape), axes, typed.as_expr(body(axes), "float32"), name, where)


def checked_tensor(x: Any, fn: str) -> Tensor:
    """A tensor, or the constant that stands for an array."""
    x = typed.operand(x)
    if not isinstance(x, Tensor):
        raise fail(f"{fn} takes a tensor, not {x!r} of type {type(x).__name__}")
    return x


def checked_tensors(xs: Any, fn: str) -> list[Tensor]:
    if isinstance(xs, Tensor) or not isinstance(xs, Sequence) or not len(xs):
        raise fail(f"{fn} takes a list of one or more tensors, not {xs!r}")
    return [checked_tensor(x, fn) for x in xs]


def checked_dim(x: Tensor, axis: Any, fn: str, rank: int | None = None) -> int:
    """One dimension number of `x` (or of a result of `rank`), made non-negative."""
    n = x.rank if rank is None else rank
    if not isinstance(axis, (int, np.integer)) or isinstance(axis, bool):
        raise fail(f"{fn} takes one dimension number as axis, not {axis!r}")
    if not -n <= axis < n:
        raise fail(f"{fn}: {x.name} has shape {x.shape}; axis {shown(axis)} is not in [{-n}, {n})")
    return int(axis) % n


def checked_int(value: Any, what: str) -> int:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise fail(f"{what} is {value!r}; it is an integer")
    return int(value)


def checked_constant(value: float, dtype: str, fn: str) -> Const:
    """`value` as a constant of exactly `dtype`."""
    if isinstance(value, (float, np.floating)) and not dt.is_float(dtype):
        raise fail(f"{fn} fills a tensor of type {dtype} with the float {value!r}; give a value of type {dtype}")
    return Const(value, dtype, caller())


def replaced(ix: Sequence[Any], axis: int, *new: Any) -> tuple[Any, ...]:
    """`ix` with the index at `axis` replaced by `new`."""
    return (*ix[:axis], *new, *ix[axis + 1 :])
