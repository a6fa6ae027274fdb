"""Sums of products of several factors, two factors at a time: in which order is chosen by what it takes.

    y[o] = sum[r](f(..) g(..) h(..))    ->    s[..] = sum[r'](f g),  y[o] = sum[r''](s h)

An axis is summed as soon as nothing else has it. All ways to split a product in two are compared, by dynamic
programming over its subsets. Equal over real numbers: every term is one product of the same factors.

Source: Lam, Sadayappan and Wenger, On Optimizing a Class of Multi-Dimensional Loops with Reduction for Parallel
Execution, 1997: operation minimization of such sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neoflow.expr.close import define
from neoflow.expr.dsl import unnamed_axes
from neoflow.expr.ir import Apply, Axis, Expr, Read, Reduce, substitute
from neoflow.graph.work import size

MOST_FACTORS = 9
"""Factors of one product: the ways to split one grow threefold with each."""
APART, STORED = 6.0, 4.0
"""Multiply-adds of a contraction that take as long as one product of other sums, and as an element that is stored."""


@dataclass(frozen=True)
class _Best:
    """The least that a subset takes; of which two it is made, unless it is one factor."""

    takes: float
    axes: frozenset[Axis]
    left: int = 0
    right: int = 0


def summed(factors: Sequence[Expr], axes: Sequence[Axis], name: str) -> Expr:
    """The sum over all other axes of a product, at these; an element of a tensor that has them in this order.

    factors: at most `MOST_FACTORS`, without sums.
    """
    parts = list(factors)
    whole = (1 << len(parts)) - 1
    best: dict[int, _Best] = {1 << n: _Best(0.0, e.free) for n, e in enumerate(parts)}
    for subset in range(1, whole + 1):
        if subset in best:
            continue
        others = [e.free for n, e in enumerate(parts) if not subset >> n & 1]
        outside = frozenset(axes).union(*others)
        left = (subset - 1) & subset
        while left:
            right = subset ^ left
            if left > right:
                a, b = best[left], best[right]
                kept = (a.axes | b.axes) & outside
                takes = a.takes + b.takes + _takes(a.axes, b.axes, kept)
                if subset not in best or takes < best[subset].takes:
                    best[subset] = _Best(takes, kept, left, right)
            left = (left - 1) & subset

    def made(subset: int) -> Expr:
        plan = best[subset]
        if not plan.left:
            return parts[subset.bit_length() - 1]
        body = Apply("mul", (made(plan.left), made(plan.right)))
        if subset == whole:
            return _stored(body, axes, name)
        if not body.free - plan.axes and _is_cheap(plan, best):
            return body
        return _stored(body, _ordered(plan.axes, best[plan.left].axes, axes), name)

    return made(whole) if best[whole].left else _stored(parts[0], axes, name)


def _takes(a: frozenset[Axis], b: frozenset[Axis], kept: frozenset[Axis]) -> float:
    is_contraction = bool((a | b) - kept) and bool(a - b & kept) and bool(b - a & kept)
    return size(a | b) * (1.0 if is_contraction else APART) + STORED * size(kept)


def _is_cheap(plan: _Best, best: dict[int, _Best]) -> bool:
    """Whether a product of two factors is left to what reads it: one of them has all of its axes."""
    return not best[plan.left].left and not best[plan.right].left


def _ordered(axes: frozenset[Axis], left: frozenset[Axis], wanted: Sequence[Axis]) -> list[Axis]:
    """As the result has them; others behind these, first those of the left factor."""
    place = {a: n for n, a in enumerate(wanted)}
    return sorted(axes, key=lambda a: (place.get(a, len(place)), a not in left, a.ident))


def _stored(body: Expr, axes: Sequence[Axis], name: str) -> Expr:
    over = tuple(sorted(body.free.difference(axes), key=lambda a: a.ident))
    own = unnamed_axes([a.extent for a in (*axes, *over)], None)
    body = substitute(body, dict(zip((*axes, *over), own, strict=True)))
    if over:
        body = Reduce("sum", own[len(axes) :], body)
    t = define(tuple(a.extent for a in axes), own[: len(axes)], body, name)
    return Read(t, tuple(axes))
