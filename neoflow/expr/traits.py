"""What the rows of the scalar functions say of a whole expression."""

from __future__ import annotations

from neoflow import dtype as dt
from neoflow.expr.functions import FUNCTIONS, REDUCERS
from neoflow.expr.ir import Apply, Axis, Cast, Const, Expr, Reduce, Select, postorder
from neoflow.expr.memo import remembered


def is_exact(e: Expr) -> bool:
    """Whether the value has the same bits however `e` is compiled: it moves, compares, rounds, counts in integers."""
    return all(_is_exact_step(n) for n in postorder(e))


def _is_exact_step(e: Expr) -> bool:
    match e:
        case Apply():
            return FUNCTIONS[e.fn].exact or not dt.is_float(e.dtype)
        case Reduce():
            return not dt.is_float(e.dtype) or REDUCERS[e.op].exact
    return True


@remembered
def flops(e: Expr) -> int:
    """Rough cost of evaluating a body once: index arithmetic is free, a function costs what its row says."""
    total = 0
    for node in postorder(e):
        if isinstance(node, Apply) and node.dtype != dt.INDEX and not all(a.dtype == dt.INDEX for a in node.args):
            total += FUNCTIONS[node.fn].cost
        elif isinstance(node, (Select, Cast)):
            total += 1
    return total


MOST_FORMS = 8
"""Points of an axis that may each have an expression of their own."""


@remembered
def form_axes(e: Expr) -> frozenset[Axis]:
    """Short axes with another expression at each of their points: select(a == 0, ..., select(a == 1, ..., ...)).

    Where such an axis is written out, nothing is chosen, and its points share what they have in common.
    """
    conditions = {n.cond for n in postorder(e) if isinstance(n, Select)}
    equal = [c.args for c in conditions if isinstance(c, Apply) and c.fn == "eq"]
    return frozenset(a for a, b in equal if isinstance(a, Axis) and isinstance(b, Const) and a.extent <= MOST_FORMS)
