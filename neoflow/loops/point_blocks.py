"""Knobs of the `contraction` template: how many points of K lie side by side in what is packed.

They pay nowhere yet: on Zen 3 products and 1x1 convolutions took 1.01 to 1.03 of the time with 8 points of a row side
by side, products by a transposed matrix and weight gradients 1.01 to 1.06 with 8 of a vector.
"""

from __future__ import annotations

from neoflow.loops.knob import NUMBER, Chosen, Knob, Range, one
from neoflow.loops.problem import NestProblem
from neoflow.loops.sides import contiguous_run, size
from neoflow.loops.tile import Sides, sides
from neoflow.target import Target

POINTS = (1, 4, 8, 16)
"""Points of K that may lie side by side: of 16, a row has a line of a cache."""


def _row_points(p: NestProblem, _: Target, k: Chosen) -> Range:
    if not k["pack"]:
        return one(1, "the side with M is not packed")
    if k["turn_rows"]:
        return one(1, "squares turned in registers are one point of K after another")
    s = sides(p, k)
    if not k["run"]:
        return _blocks_of(s)
    axes = s.left_joined.axes
    if contiguous_run(s.left_joined.side, axes[-1:], 1) is None:
        return one(1, "the side with M is packed in vectors along another axis of K than the innermost one")
    extent = axes[-1].extent
    allowed = tuple(n for n in _blocks_of(s).values if len(axes) == 1 or extent % int(n) == 0)
    return Range(allowed, f"packed in vectors along {extent} points of K, which are no whole blocks of so many")


def _blocks_of(s: Sides) -> Range:
    """Points of K that may be a block."""
    k = size(s.c.k)
    allowed = tuple(n for n in POINTS if n <= k)
    return Range(allowed, f"K has {k} points, and blocks are of 1, 4, 8 or 16")


def _vector_points(p: NestProblem, _: Target, k: Chosen) -> Range:
    lanes = int(k["lanes"])
    if not k["pack_panels"]:
        return one(1, "the side with N is not packed")
    if int(k["vectors"]) == 1:
        return one(1, "points of K of a panel of one vector lie side by side as it is")
    if lanes & (lanes - 1):
        return one(1, f"vectors of {lanes} lanes are no power of two, and squares would cross their ends")
    return _blocks_of(sides(p, k))


ROW_POINTS: Knob[NestProblem] = Knob(
    "row_points", NUMBER, "points of K of a packed row that lie side by side", _row_points, lambda _, __, ___: 1
)
VECTOR_POINTS: Knob[NestProblem] = Knob(
    "vector_points",
    NUMBER,
    "points of K of a packed vector that lie side by side",
    _vector_points,
    lambda _, __, ___: 1,
)
