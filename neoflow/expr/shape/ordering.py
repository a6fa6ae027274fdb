"""Elements in the order of their values: each one's rank is counted, then everything moves to its rank."""

from __future__ import annotations

from typing import Any

from neoflow import dtype as dt
from neoflow.expr import dsl
from neoflow.expr.dsl import read, scatter
from neoflow.expr.ir import Expr
from neoflow.expr.shape.indexing import gather
from neoflow.expr.shape.tools import checked_dim, checked_int, checked_tensor, make, replaced
from neoflow.expr.tensor import Tensor
from neoflow.expr.typed import Operand, fail

MOST = 4096
"""Longest dimension that is sorted: ranks are counted with n^2 comparisons, 17 million for a slice of this length."""


def argsort(x: Tensor, axis: int = -1, descending: bool = False) -> Tensor:
    """The positions, int64, of x's elements in ascending order along dimension `axis`; of equal ones the first first.

    NaN counts as the largest. Costs n^2 comparisons for each slice of n elements, n at most 4096. It has no gradient.
    """
    x = checked_tensor(x, "argsort")
    d = checked_dim(x, axis, "argsort")
    n = x.shape[d]
    if n > MOST:
        raise fail(
            f"dimension {d} of {x.name} {x.shape} has {n} elements; sorting compares each with each and takes at most "
            f"{MOST}"
        )
    k = dsl.axis(n, "k")

    def rank(ix: tuple[Expr, ...]) -> Operand:
        own, other = read(x, ix), read(x, replaced(ix, d, k))
        a, b = (own, other) if descending else (other, own)
        before = dsl.select(k < ix[d], dsl.logical_not(_less(b, a)), _less(a, b))
        return dsl.sum(dsl.cast(before, "int32"), axis=[k])

    ranks = make(x.shape, rank, "rank")
    own = [dsl.axis(m) for m in x.shape]
    return scatter(x.shape, own, replaced(own, d, read(ranks, own)), own[d], "argsort")


def _less(a: Expr, b: Expr) -> Any:
    """Whether a comes before b; NaN is above all."""
    if not dt.is_float(a.dtype):
        return dsl.cast(a, "int32") < dsl.cast(b, "int32") if a.dtype == "bool" else a < b
    return (a < b) | (dsl.equal(a, a) & dsl.not_equal(b, b))


def sort(x: Tensor, axis: int = -1, descending: bool = False) -> Tensor:
    """x in ascending order along dimension `axis`. Order and cost are those of `argsort`; a cotangent goes back to
    where its element came from."""
    return gather(checked_tensor(x, "sort"), argsort(x, axis, descending), axis)


def top_k(x: Tensor, k: int, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The k largest (or smallest) elements along dimension `axis`, the best first, and their positions (int64).

    Order and cost are those of `argsort`; of equal elements the first comes first. NaN counts as the largest.
    """
    x = checked_tensor(x, "top_k")
    d = checked_dim(x, axis, "top_k")
    if not 1 <= checked_int(k, "k of top_k") <= x.shape[d]:
        raise fail(f"top_k of {x.name} {x.shape}: dimension {d} has {x.shape[d]} elements, not {k}")
    order = argsort(x, d, descending=largest)
    best = make(replaced(x.shape, d, int(k)), lambda ix: read(order, ix), "top_k")
    return gather(x, best, d), best
