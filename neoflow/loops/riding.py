"""Sums that ride along with a contraction: of which sides of it they keep the points, and how many tiles add to one.

    y[m, n] = sum[k](a[m, k] * b[k, n]);  s[n] = sum[m](f(y[m, n]))    keeps N, adds up M

What a task adds up goes to a partial sum of its own; a second pass adds these in order, so that results do not depend
on who was first.
"""

from __future__ import annotations

from neoflow.expr.functions import BLOCK
from neoflow.expr.ir import Axis, Expr
from neoflow.loops.nest import Nest
from neoflow.loops.sides import Contraction
from neoflow.verdict import Verdict

FLOATS = ("float32", "float64")


def keeps(axes: tuple[Axis, ...], address: Expr) -> bool:
    """Whether a sum to this address keeps all of some axes apart."""
    return bool(axes) and all(a in address.free for a in axes)


def rides(c: Contraction, nest: Nest) -> Verdict:
    """Whether each sum of a nest adds up all of M or of N, whose tiles are then added as a whole, and keeps all of a
    side that it does not add up."""
    for _, address, value in nest.sums:
        if value.dtype not in FLOATS or (nest.reduction is not None and nest.reduction.body.dtype != value.dtype):
            return Verdict(False, f"it adds up {value.dtype}, which tiles are not summed in")
        kept = [{a for a in side if a in address.free} for side in (c.m, c.n)]
        if any(0 < len(found) < len(side) for found, side in zip(kept, (c.m, c.n), strict=True)):
            return Verdict(False, "it adds up some of the axes of a side, which tiles go along together")
        if all(kept):
            return Verdict(False, "it keeps both sides apart: its partial sums would be as large as what it adds")
    return Verdict(True, "tiles are added as a whole")


def adds_up(axes: tuple[Axis, ...], nest: Nest) -> bool:
    """Whether a sum that rides along adds up what lies along these axes."""
    return any(not keeps(axes, address) for _, address, _ in nest.sums)


def pieces_added(points: int) -> int:
    """Row tiles or panels of so many points that are added to one partial sum: no number takes more than `BLOCK`
    additions."""
    return max(1, BLOCK // points)
