"""Neighbouring axes of one operand, or of the outputs, taken as one where its own addresses go along them as one.

    w[o, c, r, s], summed over c, r, s    ->    w[o, k]             in packing w, whatever the other operand does
    y[b, o, p, q]                         ->    y[b, o, line]       in writing y, whatever is read for it

A nest fuses axes where every address allows that; here an expression is asked alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neoflow.expr.ir import Axis, Expr, Reduce
from neoflow.loops.nest import Nest
from neoflow.loops.sides import size

FIRST_JOINED = 1 << 24
"""Idents of joined axes start here, above every axis that is fused for all operands."""

Output = tuple[int, Expr, Expr]
"""Number, address and value of an output."""


@dataclass(frozen=True)
class Joined:
    """An operand over fewer axes. Row-major, a point has the same number over them as over those that they replace."""

    axes: tuple[Axis, ...]
    side: Expr


def joined(side: Expr, axes: Sequence[Axis]) -> Joined:
    """A side over as few axes as its reads allow."""
    nest, _ = Nest((), Reduce("sum", tuple(axes), side), None, ()).fusing(frozenset(), FIRST_JOINED)
    assert nest.reduction is not None
    if size(nest.reduction.axes) != size(tuple(axes)) or not nest.reduction.axes:
        return Joined(tuple(axes), side)
    return Joined(nest.reduction.axes, nest.reduction.body)


def joined_outputs(outputs: tuple[Output, ...], axes: Sequence[Axis]) -> tuple[tuple[Axis, ...], tuple[Output, ...]]:
    """Axes, and addresses and values over them, as few as these allow."""
    nest, _ = Nest(tuple(axes), None, None, outputs).fusing(frozenset(), FIRST_JOINED)
    return (nest.axes, nest.outputs) if nest.axes else (tuple(axes), outputs)
