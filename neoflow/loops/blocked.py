"""Axes along which a packed tensor is read in blocks, as two axes each: every address is linear again.

y[i, n] = sum[k](x[i, k] * p[n // 32, k, n % 32])    ->    y[i, 32 * o + l] = sum[k](x[i, k] * p[o, k, l])
"""

from __future__ import annotations

from dataclasses import replace

from neoflow.expr import affine
from neoflow.expr.ir import Apply, Axis, Const, Expr, Reduce
from neoflow.loops.nest import Nest, fresh, index_roots, input_reads, is_data_dependent, is_smooth


def blocked(nest: Nest) -> Nest:
    """The same kernel, of a sum that reads in blocks along an axis; any other one as it is."""
    if nest.reduction is None or nest.reduction.op != "sum":
        return nest
    for axis in (*nest.axes, *nest.reduction.axes):
        if (width := _width(nest, axis)) is not None:
            nest = _split(nest, axis, width)
    return nest


def _width(nest: Nest, axis: Axis) -> int | None:
    """The width of the blocks in which a tensor is read along an axis; None where there are none, or of several."""
    assert nest.reduction is not None
    found: set[int] = set()
    for read in input_reads(nest.reduction.body):
        if axis not in read.free or is_data_dependent(read):
            continue
        terms = affine.linear(read.indices[0])[0]
        blocks = {w for e in terms if (w := _divided(e, axis, "floordiv")) is not None}
        places = {w for e in terms if (w := _divided(e, axis, "mod")) is not None}
        found |= blocks & places
    width = found.pop() if len(found) == 1 else None
    return width if width is not None and axis.extent % width == 0 and width < axis.extent else None


def _divided(e: Expr, axis: Axis, fn: str) -> int | None:
    """What an axis is divided by."""
    is_one = isinstance(e, Apply) and e.fn == fn and e.args[0] is axis and isinstance(e.args[1], Const)
    return int(e.args[1].value) if is_one and isinstance(e, Apply) and isinstance(e.args[1], Const) else None


def _split(nest: Nest, axis: Axis, width: int) -> Nest:
    """The axis as blocks of that width and the places in them, where no address divides either."""
    assert nest.reduction is not None
    outer = fresh(nest, axis.extent // width)
    inner = Axis(outer.ident + 1, width)
    at = Apply("add", (Apply("mul", (outer, affine.integer(width))), inner))
    split = nest.substituted({axis: at})
    assert split.reduction is not None
    if not all(is_smooth(e, a) for e in index_roots(split.expressions) for a in (outer, inner)):
        return nest

    def pieces(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(b for a in axes for b in ((outer, inner) if a is axis else (a,)))

    reduction = Reduce("sum", pieces(nest.reduction.axes), split.reduction.body)
    return replace(split, axes=pieces(nest.axes), reduction=reduction)
