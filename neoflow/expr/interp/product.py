"""Two arrays multiplied and summed over some of their dimensions, by batched matrix products of the library.

The larger array is put in order piece by piece, in the order in which it lies in memory as far as that can be, so that
what is read through windows, each element many times, is never there as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neoflow.expr.interp.infinite import amended

LONG = 1 << 14
"""Terms from which float32 products are summed in float64: the library adds its blocks one after the other."""
PIECE = 1 << 19
"""Elements of the larger array that are put in order at once: they stay in a core's cache."""
NARROW = 64
"""Columns that a matrix has at least, where there are so many: the library is slow on fewer."""


def total(array: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """The sum over `dims`, which stay with extent 1; float32 accumulates in float64."""
    wide = np.float64 if array.dtype == np.float32 else array.dtype
    return np.add.reduce(array, axis=dims, keepdims=True, dtype=wide).astype(array.dtype, copy=False)


@dataclass(frozen=True)
class _Layout:
    """Dimensions of both arrays, summed over (`inner`) or not (`batch`); of the larger one alone, outside of what is
    summed (`ahead`) or not (`rest`); of the smaller one alone (`other`)."""

    batch: list[int]
    ahead: list[int]
    inner: list[int]
    rest: list[int]
    other: list[int]
    is_across: bool
    """whether elements side by side in the larger array are of one row, not of one column: those of `rest`"""

    @property
    def kept(self) -> list[int]:
        return [*self.batch, *self.ahead, *self.other, *self.rest]


def _layout(large: np.ndarray, small: np.ndarray, dropped: Sequence[int]) -> _Layout:
    order, behind = _by_stride(large), _by_stride(small)
    both = [d for d in order if small.shape[d] > 1]
    inner, batch = [d for d in both if d in dropped], [d for d in both if d not in dropped]
    own = [d for d in order if d not in both]
    is_across = bool(own) and bool(inner) and own[-1] == order[-1]
    ahead = [d for d in own if is_across and order.index(d) < order.index(inner[0])]
    other = [d for d in behind if d not in both]
    return _Layout(batch, ahead, inner, [d for d in own if d not in ahead], other, is_across)


def _by_stride(x: np.ndarray) -> list[int]:
    """The dimensions it has, those furthest apart in memory first."""
    return sorted((d for d in range(x.ndim) if x.shape[d] > 1), key=lambda d: -abs(x.strides[d]))


def contract(a: np.ndarray, b: np.ndarray, dropped: Sequence[int], is_last: bool = False) -> np.ndarray | None:
    """a * b summed over the dimensions `dropped`; operands have one rank and broadcast.

    is_last: nothing more is multiplied with it, so infinities and NaN have to be right; None where that takes as long
    as the sum itself.
    """
    a, b = (
        total(x, own) if (own := tuple(d for d in dropped if x.shape[d] > 1 and y.shape[d] == 1)) else x
        for x, y in ((a, b), (b, a))
    )
    small, large = (a, b) if a.size <= b.size else (b, a)
    where = _layout(large, small, dropped)
    if not where.inner:
        return a * b
    shape = [1 if d in dropped else max(n, m) for d, (n, m) in enumerate(zip(a.shape, b.shape, strict=True))]
    result = np.empty([shape[d] for d in where.kept], np.result_type(a, b))
    for at in _pieces(large, where):
        place: tuple[Any, ...] = (*(at[d] for d in where.kept), ...)
        near = small[tuple(s if small.shape[d] > 1 else slice(None) for d, s in enumerate(at))]
        product = _multiplied(_left(near, where), _right(large[at], where), is_last)
        if product is None:
            return None
        part = result[place]
        part[...] = product.reshape(part.shape)
    order = where.kept + [d for d in range(a.ndim) if d not in where.kept]
    return result.reshape([shape[d] for d in order]).transpose(np.argsort(order))


def _pieces(large: np.ndarray, where: _Layout) -> Iterator[tuple[slice, ...]]:
    """Parts along the dimension furthest apart in memory that stays."""
    whole, own = [slice(None)] * large.ndim, [*where.batch, *where.ahead, *where.rest]
    count = -(-large.size // PIECE)
    if count == 1 or not own:
        yield tuple(whole)
        return
    dim = own[0]
    step = max(1, large.shape[dim] // count)
    if dim in where.rest:
        step = max(step, NARROW * large.shape[dim] // math.prod(large.shape[d] for d in where.rest))
    for low in range(0, large.shape[dim], step):
        yield tuple(slice(low, low + step) if d == dim else s for d, s in enumerate(whole))


def _matrices(x: np.ndarray, *groups: Sequence[int]) -> np.ndarray:
    """The array with each of these groups of dimensions as one, in order in memory."""
    rest = [d for d in range(x.ndim) if all(d not in g for g in groups)]
    shape = [math.prod(x.shape[d] for d in g) for g in groups]
    return x.transpose([d for g in groups for d in g] + rest).reshape(shape)


def _left(small: np.ndarray, where: _Layout) -> np.ndarray:
    """[batch, 1, other, inner]"""
    if not where.other or _by_stride(small)[-1:] != where.other[-1:]:
        return _matrices(small, where.batch, [], where.other, where.inner)
    return _matrices(small, where.batch, [], where.inner, where.other).swapaxes(-1, -2)


def _right(large: np.ndarray, where: _Layout) -> np.ndarray:
    """[batch, ahead, inner, rest]"""
    if where.is_across:
        return _matrices(large, where.batch, where.ahead, where.inner, where.rest)
    return _matrices(large, where.batch, where.ahead, where.rest, where.inner).swapaxes(-1, -2)


def _multiplied(left: np.ndarray, right: np.ndarray, is_last: bool) -> np.ndarray | None:
    if left.dtype == np.float32 and left.shape[-1] > LONG:
        product = np.matmul(left.astype(np.float64), right.astype(np.float64)).astype(np.float32)
    else:
        product = np.matmul(left, right)
    if is_last and product.dtype.kind == "f" and not np.isfinite(product).all():
        return amended(left, right, product)
    return product
