"""How many instructions a body takes, roughly, counted in single elements: what rewrites of sums are judged by."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from operator import attrgetter

from neoflow.expr import dtype as dt
from neoflow.expr.functions import FUNCTIONS
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Reduce, Select, postorder
from neoflow.expr.memo import from_below, remembered
from neoflow.expr.tensor import Definition
from neoflow.graph.facts import contracts

MOST_FACTORS = 6
"""Factors of a product that are told apart; of more the rest is left as it is."""
LEAST_RESULTS = 16
"""Results for which a contraction has a register tile."""


def size(axes: Iterable[Axis]) -> int:
    """Points of a product of axes."""
    return math.prod(a.extent for a in axes)


def operands(e: Expr) -> list[Expr]:
    """The operands of a tree of products, in the order of the text, as often as they are there."""
    found: list[Expr] = []
    stack = [e]
    while stack:
        e = stack.pop()
        if isinstance(e, Apply) and e.fn == "mul" and len(found) + len(stack) + 2 <= MOST_FACTORS:
            stack += reversed(e.args)
        else:
            found.append(e)
    return found


def product(factors: Sequence[Expr]) -> Expr:
    """What has these operands."""
    result = factors[0]
    for e in factors[1:]:
        result = Apply("mul", (result, e))
    return result


@remembered
def work_of(definition: Definition) -> int:
    """`work` of a definition."""
    return work(definition.body, definition.shape)


def work(body: Expr, shape: tuple[int, ...]) -> int:
    """Instructions of a body in normal form over all points of `shape`, loads among them; a multiply-add is one.

    Where each point of an axis has an expression of its own, all of these are computed once for all points of it. What
    is the same all along the reduced axes is taken out of their loops by compilers. A contraction computes each
    element of its two sides once, and loads next to nothing in its register tile.
    """
    outer = math.prod(shape)
    if not isinstance(body, Reduce):
        return sum(map(_cost, postorder(body))) * outer // written_out(body)
    total = outer * size(body.axes)
    both = sides(body, shape) if contracts(body, total) else None
    if both is not None:
        return total + both
    added = 0 if _is_product(body.body) else total
    return added + sum(
        _cost(n) * (outer if n.free.isdisjoint(body.axes) else total) for n in postorder(body.body)
    )  # fmt: skip


def written_out(body: Expr) -> int:
    """Points of the axes of which conditions choose every point by itself: maps compute these beside each other."""
    found: dict[Axis, set[object]] = {}
    for e in postorder(body):
        if isinstance(e, Select) and isinstance(e.cond, Apply) and e.cond.fn == "eq":
            axis, value = e.cond.args
            if isinstance(axis, Axis) and isinstance(value, Const):
                found.setdefault(axis, set()).add(value.value)
    return size(axis for axis, values in found.items() if len(values) >= axis.extent - 1 > 1)


def _cost(e: Expr) -> int:
    """Of a node; arithmetic on axes is free, and so is an addition to a product."""
    if isinstance(e, (Axis, Const)) or not (_reads(e) or dt.is_float(e.dtype)):
        return 0
    if not isinstance(e, Apply):
        return 1
    return 0 if e.fn in ("add", "sub") and any(map(_is_product, e.args)) else FUNCTIONS[e.fn].cost


@from_below(attrgetter("children"))
def _reads(e: Expr) -> bool:
    return isinstance(e, Read) or any(_reads(c) for c in e.children)


def _is_product(e: Expr) -> bool:
    return isinstance(e, Apply) and e.fn == "mul" and dt.is_float(e.dtype)


def sides(body: Reduce, shape: tuple[int, ...]) -> int | None:
    """What the two sides of a contraction take, at best; None where no two sides share the axes of the result."""
    first, *others = operands(body.body)
    own = frozenset(Axis(d, n) for d, n in enumerate(shape) if n > 1)
    found: list[int] = []
    for places in itertools.product((False, True), repeat=len(others)):
        left = [first, *(e for e, is_right in zip(others, places, strict=True) if not is_right)]
        right = [e for e, is_right in zip(others, places, strict=True) if is_right]
        (a, left_work), (b, right_work) = _side(left), _side(right)
        rows, columns = size((a - b) & own), size((b - a) & own)
        if own <= a | b and min(rows, columns) >= 2 and rows * columns >= LEAST_RESULTS:
            found.append(left_work + right_work)
    return min(found, default=None)


def _side(factors: Sequence[Expr]) -> tuple[frozenset[Axis], int]:
    """The axes of a product of factors, and what it takes to compute each of its elements once."""
    axes = frozenset[Axis]().union(*(e.free for e in factors))
    nodes = {n for e in factors for n in postorder(e)}
    return axes, (len(factors) - 1) * size(axes) + sum(_cost(n) * size(n.free) for n in nodes)
