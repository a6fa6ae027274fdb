"""Matrix products of infinities and NaN, which few elements are, as a sum of single products has them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

SHARE = 4
"""Of a product's multiplications, at most one in so many is made one by one."""
BLOCK = 1 << 20
"""Products at once."""


def amended(left: np.ndarray, right: np.ndarray, product: np.ndarray) -> np.ndarray | None:
    """left @ right where `product`, the library's, is infinite or NaN somewhere.

    Operands that are no numbers are taken out of the product and multiplied one by one. What then still overflows is
    summed again as it stands. None where that is too much work.
    """
    left, right = (np.broadcast_to(x, (*product.shape[:-2], *x.shape[-2:])) for x in (left, right))
    is_left, is_right = np.isfinite(left), np.isfinite(right)
    rows, columns, terms = product.shape[-2], product.shape[-1], left.shape[-1]
    work = math.prod(product.shape) * terms // SHARE
    odd = (left.size - np.count_nonzero(is_left)) * columns + (right.size - np.count_nonzero(is_right)) * rows
    if odd > work:
        return None
    result: np.ndarray = np.matmul(np.where(is_left, left, 0), np.where(is_right, right, 0))
    over = np.nonzero(~np.isfinite(result))
    if odd + over[0].size * terms > work:
        return None
    for at in _blocks(over, terms):
        *outer, row, column = at
        a, b = left[(*outer, row)], right.swapaxes(-1, -2)[(*outer, column)]
        both = np.isfinite(a) & np.isfinite(b)
        values = np.where(both, a, 0) * np.where(both, b, 0)
        wide = np.float64 if values.dtype == np.float32 else values.dtype
        result[at] = np.add.reduce(values, axis=-1, dtype=wide)
    _add(result, left, right, is_left, np.ones_like(is_right))
    _add(*(x.swapaxes(-1, -2) for x in (result, right, left, is_right, is_left)))
    return result


def _add(
    result: np.ndarray, left: np.ndarray, right: np.ndarray, is_number: np.ndarray, is_counted: np.ndarray
) -> None:
    """To `result` the products of what in `left` is no number with what is counted of `right`."""
    for *outer, row, term in _blocks(np.nonzero(~is_number), right.shape[-1]):
        place = (*outer, term)
        products = np.where(is_counted[place], left[(*outer, row, term)][:, None] * right[place], 0)
        np.add.at(result, (*outer, row), products)


def _blocks(places: tuple[np.ndarray, ...], length: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Places a few at a time, each of which needs `length` elements."""
    step = max(1, BLOCK // length)
    for start in range(0, places[0].size, step):
        yield tuple(p[start : start + step] for p in places)
