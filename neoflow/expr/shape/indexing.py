"""Some of a tensor's elements: those at given indices, on a diagonal, in a triangle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from neoflow import dtype as dt
from neoflow.errors import shown
from neoflow.expr import dsl
from neoflow.expr.dsl import read
from neoflow.expr.given import checked_dtype, checked_shape
from neoflow.expr.ir import Const, Expr
from neoflow.expr.shape.rearrange import ravel
from neoflow.expr.shape.tools import checked_dim, checked_int, checked_tensor, make, replaced
from neoflow.expr.tensor import Tensor
from neoflow.expr.typed import Operand, fail


def take(x: Tensor, ids: Tensor | int, axis: int | None = 0) -> Tensor:
    """x at the positions `ids` along dimension `axis` (None: of the flattened x); ids's dimensions replace it.

    An index outside [0, extent) is an error at run time.
    """
    x = checked_tensor(x, "take")
    if axis is None:
        x, axis = ravel(x), 0
    d = checked_dim(x, axis, "take")
    if isinstance(ids, (int, np.integer)):
        if not -x.shape[d] <= ids < x.shape[d]:
            raise fail(f"take: index {shown(ids)} leaves dimension {d} of {x.name} {x.shape}")
        n = int(ids) % x.shape[d]
        return make(replaced(x.shape, d), lambda ix: read(x, (*ix[:d], n, *ix[d:])), "take")
    ids = _ids(ids, "take")

    def body(ix: tuple[Expr, ...]) -> Operand:
        return read(x, (*ix[:d], read(ids, ix[d : d + ids.rank]), *ix[d + ids.rank :]))

    return make(replaced(x.shape, d, *ids.shape), body, "take")


def gather(x: Tensor, ids: Tensor, axis: int = -1) -> Tensor:
    """y[i, ..., j, ...] = x[i, ..., ids[i, ..., j, ...], ...] with the data-dependent index at `axis`.

    NumPy's take_along_axis: ids has x's rank, and x's extents everywhere but at `axis` (or 1, which stretches).
    """
    x, ids = checked_tensor(x, "gather"), _ids(ids, "gather")
    d = checked_dim(x, axis, "gather")
    others = zip(replaced(ids.shape, d), replaced(x.shape, d), strict=False)
    fits = ids.rank == x.rank and all(1 in (a, b) or a == b for a, b in others)
    if not fits:
        raise fail(
            f"gather along dimension {d}: ids {ids.name} {ids.shape} must have the shape of {x.name} {x.shape} in all "
            "other dimensions"
        )
    shape = [max(a, b) if n != d else b for n, (a, b) in enumerate(zip(x.shape, ids.shape, strict=True))]

    def body(ix: tuple[Expr, ...]) -> Operand:
        place = read(ids, [0 if n == 1 else i for n, i in zip(ids.shape, ix, strict=True)])
        own = [0 if n == 1 else i for n, i in zip(x.shape, ix, strict=True)]
        return read(x, replaced(own, d, place))

    return make(shape, body, "gather")


take_along_axis = gather


def _ids(ids: Any, fn: str) -> Tensor:
    ids = checked_tensor(ids, fn)
    if not dt.is_int(ids.dtype):
        raise fail(f"{fn} is indexed by {ids.name} of type {ids.dtype}; indices are integers")
    return ids


def one_hot(ids: Tensor, depth: int, dtype: object = "float32") -> Tensor:
    """1 at position ids[...] of a new last dimension of extent `depth`, else 0."""
    ids = _ids(ids, "one_hot")
    target = checked_dtype(dtype)
    (n,) = checked_shape(depth)
    one, zero = Const(1, target), Const(0, target)
    return make((*ids.shape, n), lambda ix: dsl.select(dsl.equal(read(ids, ix[:-1]), ix[-1]), one, zero), "one_hot")


def diagonal(x: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The elements x[..., i, i + offset, ...], their dimension last."""
    a, b = checked_dim(checked_tensor(x, "diagonal"), axis1, "diagonal"), checked_dim(x, axis2, "diagonal")
    if a == b:
        raise fail(f"diagonal of {x.name} takes two different dimensions, not {axis1} and {axis2}")
    down, right = max(0, -checked_int(offset, "offset of diagonal")), max(0, offset)
    n = min(x.shape[a] - down, x.shape[b] - right)
    if n <= 0:
        raise fail(f"diagonal {offset} of {x.name} {x.shape} is empty")
    kept = [d for d in range(x.rank) if d not in (a, b)]

    def body(ix: tuple[Expr, ...]) -> Operand:
        index = {a: ix[-1] + down, b: ix[-1] + right, **dict(zip(kept, ix, strict=False))}
        return read(x, [index[d] for d in range(x.rank)])

    return make([*(x.shape[d] for d in kept), n], body, "diagonal")


def tril(x: Tensor, k: int = 0) -> Tensor:
    """x with zeros above the k-th diagonal of its last two dimensions."""
    return _triangle(x, "tril", lambda i, j: j <= i + k)


def triu(x: Tensor, k: int = 0) -> Tensor:
    """x with zeros below the k-th diagonal of its last two dimensions."""
    return _triangle(x, "triu", lambda i, j: j >= i + k)


def _triangle(x: Tensor, name: str, keep: Callable[[Expr, Expr], Any]) -> Tensor:
    if checked_tensor(x, name).rank < 2:
        raise fail(f"{name} takes a tensor of rank 2 or more; {x.name} has shape {x.shape}")
    zero = Const(0, x.dtype)
    return make(x.shape, lambda ix: dsl.select(keep(ix[-2], ix[-1]), read(x, ix), zero), name)
