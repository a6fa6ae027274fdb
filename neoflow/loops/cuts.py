"""Axes of a map that conditions divide, cut where these change: in each piece nothing of it is chosen any more.

y[i] = select(i < 128, a[i], b[i - 128])    ->    y[i] = a[i] for i < 128,  y[i + 128] = b[i]

Vectors compute both sides of a choice. The gradient of what a cell's gates are cut out of is their concatenation, each
part with functions of its own: without cuts every point would compute those of all four.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Apply, Axis, Expr, Select, postorder
from neoflow.loops import costs
from neoflow.loops.nest import Nest, fresh

MOST_PIECES = 8
"""Of all axes together: each is code of its own."""
LEAST_LAST = 8
"""Points of the last axis in a piece: a vector or half of one."""
SAVING = 0.1
"""Share of a map's operations that a cut saves at least, or the axis stays whole."""

Bounds = tuple[tuple[int, int], ...]
"""Begin and end of the points of every axis of a nest."""


def cuts(nest: Nest) -> tuple[Bounds, ...]:
    """The boxes that a map's points are cut into, in their order; one where no cut pays."""
    ends = {a: found for a, found in _ends(nest).items() if len(found) < MOST_PIECES}
    best, least = _boxes(nest, {}), work(nest)
    chosen: dict[Axis, list[int]] = {}
    for axis in (a for a in reversed(nest.axes) if a in ends):
        more = {**chosen, axis: ends[axis]}
        boxes = _boxes(nest, more)
        if len(boxes) <= MOST_PIECES and _work(nest, boxes) <= (1 - SAVING) * least:
            chosen, best, least = more, boxes, _work(nest, boxes)
    return best


def piece(nest: Nest, bounds: Bounds) -> Nest:
    """The map at the points of a box alone, its axes counted from where it begins."""
    if all((0, a.extent) == at for a, at in zip(nest.axes, bounds, strict=True)):
        return nest
    first = fresh(nest, 1).ident
    axes = tuple(Axis(first + n, end - begin) for n, (begin, end) in enumerate(bounds))
    moved: dict[Expr, Expr] = {
        a: affine.simplify(Apply("add", (new, affine.integer(begin))))
        for a, new, (begin, _) in zip(nest.axes, axes, bounds, strict=True)
    }
    there = nest.substituted(moved)
    outputs = tuple((n, affine.simplify(address), affine.simplify(value)) for n, address, value in there.outputs)
    return replace(there, axes=axes, outputs=outputs)


def work(nest: Nest) -> int:
    """Operations at all points of a map, cut or not."""
    return costs.points(nest.axes) * costs.operations(tuple(value for _, _, value in nest.outputs))


def _work(nest: Nest, boxes: tuple[Bounds, ...]) -> int:
    return sum(work(piece(nest, bounds)) for bounds in boxes)


def _boxes(nest: Nest, ends: dict[Axis, list[int]]) -> tuple[Bounds, ...]:
    """All pieces of axes that end at `ends`."""
    parts = [list(itertools.pairwise([0, *ends.get(a, []), a.extent])) for a in nest.axes]
    return tuple(itertools.product(*parts))


def _ends(nest: Nest) -> dict[Axis, list[int]]:
    """Where along each axis a comparison of it alone changes; not where it is one point of an axis that may be
    written out (`unroll`)."""
    found: dict[Axis, set[int]] = {a: set() for a in nest.axes}
    conditions = {n.cond for _, _, value in nest.outputs for n in postorder(value) if isinstance(n, Select)}
    for node in {n for c in conditions for n in postorder(c)}:
        if isinstance(node, Apply) and node.fn in ("lt", "le", "gt", "ge") and _is_of_one_axis(node):
            (axis,) = node.free
            end = _change(node, axis) if axis in found else None
            if end is not None:
                found[axis].add(end)
    ends = {a: sorted(at) for a, at in found.items() if at}
    if nest.axes and (last := nest.axes[-1]) in ends:
        ends[last] = [n for n in ends[last] if n >= LEAST_LAST and last.extent - n >= LEAST_LAST]
        close = {b for a, b in itertools.pairwise(ends[last]) if b - a < LEAST_LAST}
        ends[last] = [n for n in ends[last] if n not in close]
    return ends


def _is_of_one_axis(comparison: Apply) -> bool:
    return len(comparison.free) == 1 and all(a.dtype == dt.INDEX for a in comparison.args)


def _change(condition: Apply, axis: Axis) -> int | None:
    """The first point of an axis at which a comparison is no longer what it is at 0; None where there is none, or it
    is not linear."""
    terms, constant = affine.linear(Apply("sub", condition.args))
    if set(terms) != {axis}:
        return None
    step = terms[axis]

    def holds(at: int) -> bool:
        value = step * at + constant
        return {"lt": value < 0, "le": value <= 0, "gt": value > 0, "ge": value >= 0}[condition.fn]

    middle = -constant // step
    near = [n for n in range(middle - 1, middle + 3) if 0 < n < axis.extent]
    return next((n for n in near if holds(n) != holds(n - 1)), None)
