"""What stands between the brackets of a tensor: axes (one element), or what NumPy takes: integers, slices, tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neoflow import dtype as dt
from neoflow.expr import typed
from neoflow.expr.constant import written
from neoflow.expr.dsl import broadcast_shapes, read
from neoflow.expr.ir import Expr
from neoflow.expr.shape.tools import make
from neoflow.expr.tensor import Constant, Tensor
from neoflow.expr.typed import Operand, fail

Index = Callable[[tuple[Expr, ...]], Operand]
"""An index of the tensor, from the axes of the result."""


def subscript(x: Tensor, key: Any) -> Any:
    """`x[i, 2*j + r]` is an element; `x[1:3, None, ..., -1]` and `x[ids]` (no axis inside) are tensors, as in NumPy.

    The dimensions of integer tensors, broadcast together, stand where the first of them does; an element of one that
    is no index of x is an error at run time. Arrays and lists of integers may be negative.
    """
    keys = key if isinstance(key, tuple) else (key,)
    if any(isinstance(k, Expr) for k in keys) or (not x.rank and not keys):
        if any(k is None or k is Ellipsis or isinstance(k, slice) for k in keys):
            raise fail(
                f"{x.name} is indexed with axes and with slices at once; slice it first, x[1:3][i, j], or give every "
                "dimension an index"
            )
        return read(x, keys)
    return _selected(x, _spelled(x, keys))


def _spelled(x: Tensor, keys: tuple[Any, ...]) -> list[Any]:
    """The keys without `...`, one for each dimension of x, and None."""
    keys = tuple(k if k is None or k is Ellipsis else _key(x, k) for k in keys)
    places = [n for n, k in enumerate(keys) if k is Ellipsis]
    if len(places) > 1:
        raise fail(f"{x.name} is indexed with `...` {len(places)} times; it may stand once")
    used = sum(k is not None and k is not Ellipsis for k in keys)
    if used > x.rank:
        raise fail(f"{x.name} has rank {x.rank} (shape {x.shape}) but is indexed with {used} indices")
    at = places[0] if places else len(keys)
    whole = (slice(None),) * (x.rank - used)
    found = [*keys[:at], *whole, *keys[at + 1 :]]
    dims = iter(x.shape)
    return [k if k is None else _inside(x, k, next(dims)) for k in found]


def _key(x: Tensor, k: Any) -> Any:
    """A slice, an integer, or an integer tensor."""
    if isinstance(k, (int, np.integer)) and not isinstance(k, bool):
        return int(k)
    if isinstance(k, list) and k:
        try:
            k = np.array(k)
        except ValueError:
            k = None
    if isinstance(k, np.ndarray):
        k = written(k)
    if isinstance(k, Tensor) and k.dtype == "bool":
        raise fail(
            f"{x.name} is indexed with the conditions {k.name}: how many hold is not known while the program is written"
            "; use nf.where(cond, x, 0)"
        )
    if isinstance(k, Tensor) and not dt.is_int(k.dtype):
        raise fail(f"{x.name} is indexed with {k.name} of type {k.dtype}; an index is an integer")
    if not isinstance(k, (slice, Tensor)):
        raise fail(f"{x.name} is indexed with {k!r}; use axes, integers, slices, None or ..., or integer tensors")
    return k


def _inside(x: Tensor, k: Any, extent: int) -> Any:
    """A range for a slice; an integer, or those of an array, from 0 on."""
    if isinstance(k, slice):
        span = range(*k.indices(extent))
        if not len(span):
            raise fail(f"slice {k} of {x.name} (extent {extent}) is empty")
        return span
    values = k.value if isinstance(k, Constant) else np.array([k]) if isinstance(k, int) else np.zeros(1)
    low, high = int(values.min()), int(values.max())
    if low < -extent or high >= extent:
        wrong = high if high >= extent else low
        raise fail(f"index {wrong} leaves dimension of extent {extent} of {x.name} (shape {x.shape})")
    if isinstance(k, int):
        return k % extent
    return written(k.value % extent) if low < 0 else k


def _selected(x: Tensor, keys: Sequence[Any]) -> Tensor:
    ids = [k for k in keys if isinstance(k, Tensor)]
    advanced = [n for n, k in enumerate(keys) if isinstance(k, (Tensor, int))] if ids else []
    if advanced and advanced[-1] - advanced[0] >= len(advanced):
        raise fail(
            f"{x.name} is indexed with integer tensors and integers that stand apart, whose dimensions NumPy moves to "
            "the front; index in two steps, or write the reads with nf.compute"
        )
    joined = broadcast_shapes(*ids) if ids else ()
    shape: list[int] = []
    indices: list[Index] = []
    first: int | None = None
    for k in keys:
        if isinstance(k, (Tensor, int)) and ids and first is None:
            first = len(shape)
            shape += joined
        match k:
            case None:
                shape.append(1)
            case range():
                indices.append(_strided(len(shape), k))
                shape.append(len(k))
            case Tensor():
                indices.append(_looked_up(k, (first or 0) + len(joined)))
            case _:
                indices.append(_fixed(k))
    return make(shape, lambda ix: read(x, [index(ix) for index in indices]), "take" if ids else "slice")


def _strided(at: int, span: range) -> Index:
    return lambda ix: ix[at] * span.step + span.start


def _looked_up(ids: Tensor, end: int) -> Index:
    """An element of `ids`, whose dimensions are those of the result before `end`; extent 1 stretches."""

    def index(ix: tuple[Expr, ...]) -> Operand:
        own = ix[end - ids.rank : end]
        return read(ids, [0 if n == 1 else i for n, i in zip(ids.shape, own, strict=True)])

    return index


def _fixed(k: int) -> Index:
    return lambda ix: typed.as_expr(k, dt.INDEX)
