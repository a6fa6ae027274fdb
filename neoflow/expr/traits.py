"""What the rows of the scalar functions say of a whole expression."""

from __future__ import annotations

from neoflow.expr import dtype as dt
from neoflow.expr.functions import FUNCTIONS, REDUCERS
from neoflow.expr.ir import Apply, Expr, Reduce, postorder


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
