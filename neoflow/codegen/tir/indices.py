"""What is known of index expressions before they are computed: whether in 32 bits, inside of what, how deep."""

from __future__ import annotations

import math
from operator import attrgetter

from neoflow.expr import affine
from neoflow.expr.ir import Apply, Expr, Read
from neoflow.expr.memo import from_below
from neoflow.loops.nest import is_data_dependent

_ARITHMETIC = ("add", "sub", "neg", "mul", "floordiv", "mod")
"""What an index is made of, apart from choices: the larger, the smaller."""


@from_below(attrgetter("children"))
def levels(e: Expr) -> int:
    """How many choices of an index lie inside each other."""
    inside = max(map(levels, e.children), default=0)
    return inside + (isinstance(e, Apply) and e.fn not in _ARITHMETIC)


@from_below(attrgetter("children"))
def is_narrow(e: Expr) -> bool:
    """Whether index arithmetic never leaves int32 on the way; where it does it is done as on data, in int64."""
    low, high = affine.bounds(e)
    if isinstance(e, Apply) and e.fn in ("floordiv", "mod"):
        high = max(high, _shifted(e))
    return low > -(1 << 31) and high < 1 << 31 and all(map(is_narrow, e.children))


def _shifted(division: Apply) -> int:
    """What a dividend is at most once it is not negative any more."""
    (low, high), (_, divisor) = affine.bounds(division.args[0]), affine.bounds(division.args[1])
    return high - min(low, 0) + abs(divisor)


def is_inside(read: Read) -> bool:
    """Whether the address is inside the buffer for all values of the axes."""
    if not read.indices:
        return True
    if is_data_dependent(read):
        return False
    low, high = affine.bounds(read.indices[0])
    return low >= 0 and high < math.prod(read.source.shape)
