"""Axes of a map at whose points it depends on a remainder what is computed, written out: nothing is chosen any more.

y[i] = select(i % 2 == 0, a[i // 2], b[i // 2])    ->    y[2 o] = a[o],  y[2 o + 1] = b[o]

That is what the adjoint of anything that strides ends in: of pooling, of a convolution.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Apply, Axis, Const, Expr, postorder
from neoflow.loops.nest import Nest, fresh, stride

MOST_WIDTH, MOST_COPIES = 4, 9
"""Remainders of an axis at most, and of all axes together: each is code of its own."""


@dataclass(frozen=True)
class Region:
    """Some of the points of a map, with the axes that are written out gone or by their quotients.

    nest: each output once for every remainder, the last axis' next to each other. together: how many of these lie
    interleaved, element by element. has_last: whether it has the last axis; without it neighbours lie far apart.
    """

    nest: Nest
    together: int = 1
    has_last: bool = True


def widths(nest: Nest) -> dict[Axis, int]:
    """What the index of an axis is divided by, for those that are written out, the last ones first of all."""
    divided: dict[Axis, set[int]] = {}
    chosen: set[Axis] = set()
    for node in dict.fromkeys(n for _, _, value in nest.outputs for n in postorder(value)):
        if not (isinstance(node, Apply) and node.fn in ("floordiv", "mod") and node.dtype == dt.INDEX):
            continue
        inside, divisor = node.args
        for axis in node.free:
            is_plain = node.free == {axis} and stride(inside, axis) == 1 and isinstance(divisor, Const)
            divided.setdefault(axis, set()).add(int(divisor.value) if is_plain and isinstance(divisor, Const) else 0)
            chosen |= {axis} if node.fn == "mod" else set()
    found: dict[Axis, int] = {}
    for axis in reversed(nest.axes):
        width = next(iter(divided[axis])) if axis in chosen and len(divided[axis]) == 1 else 0
        if 2 <= width <= min(MOST_WIDTH, axis.extent):
            found |= {axis: width} if math.prod(found.values()) * width <= MOST_COPIES else {}
    return found


def split(nest: Nest) -> tuple[Region, ...]:
    """The map with what `widths` finds written out: the region with all whole groups of remainders first, then those
    with the points that are left at the end of an axis."""
    by = widths(nest)
    if not by:
        return (Region(nest),)
    first = fresh(nest, 1).ident
    quotients = {a: Axis(first + n, a.extent // width) for n, (a, width) in enumerate(by.items())}
    ends = [(False, True) if a in by and a.extent % by[a] else (False,) for a in nest.axes]
    return tuple(_region(nest, by, quotients, at_end) for at_end in itertools.product(*ends))


def _region(nest: Nest, by: dict[Axis, int], quotients: dict[Axis, Axis], at_end: tuple[bool, ...]) -> Region:
    """at_end: for each axis, whether it is what is left of it."""
    points: list[list[Expr]] = []
    for axis, is_end in zip(nest.axes, at_end, strict=True):
        if axis not in by:
            points.append([axis])
        elif is_end:
            points.append([affine.integer(n) for n in range(axis.extent - axis.extent % by[axis], axis.extent)])
        else:
            points.append([_point(quotients[axis], by[axis], r) for r in range(by[axis])])
    copies = [nest.substituted(dict(zip(nest.axes, at, strict=True))) for at in itertools.product(*points)]
    outputs = tuple(
        (number, address, affine.simplify(value))
        for each in zip(*(c.outputs for c in copies), strict=True)
        for number, address, value in each
    )
    left = tuple(quotients.get(a, a) for a, is_end in zip(nest.axes, at_end, strict=True) if not is_end)
    together = 1 if at_end[-1] else by.get(nest.axes[-1], 1)
    return Region(replace(nest, axes=left, outputs=outputs), together, not at_end[-1])


def _point(quotient: Axis, width: int, remainder: int) -> Expr:
    at = Apply("add", (Apply("mul", (quotient, affine.integer(width))), affine.integer(remainder)))
    return affine.simplify(at)
