"""What is asked of expressions while they are written, and of conditions on axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

import numpy as np

from neoflow import dtype as dt
from neoflow.expr import affine
from neoflow.expr.close import define
from neoflow.expr.guards import conjuncts
from neoflow.expr.interp import evaluate
from neoflow.expr.ir import Axis, Expr, Read, rewrite
from neoflow.expr.memo import from_below

Span = tuple[int, int]
"""The first place along an axis, and the one behind the last."""


@from_below(attrgetter("children"))
def has_reads(e: Expr) -> bool:
    """Whether it depends on any tensor."""
    return isinstance(e, Read) or any(has_reads(c) for c in e.children)


@from_below(attrgetter("children"))
def can_fault(e: Expr) -> bool:
    """Whether it reads at places that are data."""
    return (isinstance(e, Read) and any(has_reads(i) for i in e.indices)) or any(can_fault(c) for c in e.children)


def own_axes(e: Expr) -> tuple[Axis, ...]:
    """The axes of more than one element that it depends on."""
    return tuple(sorted((a for a in e.free if a.extent > 1), key=lambda a: a.ident))


def table(e: Expr) -> np.ndarray:
    """The values of what depends on no tensor, with a dimension for each of its `own_axes`."""
    axes = tuple(sorted(e.free, key=lambda a: a.ident))
    (found,) = evaluate([define(tuple(a.extent for a in axes), axes, e, "table")], {})
    return found.reshape([a.extent for a in axes if a.extent > 1])


def truth(cond: Expr) -> np.ndarray | None:
    """A condition at the places of the one axis that it depends on; None when it depends on data or other axes."""
    axes = own_axes(cond)
    if len(axes) != 1 or has_reads(cond):
        return None
    return table(cond)


def span_of(there: np.ndarray) -> Span | None:
    """Places that are side by side; None where they are not, or there are none."""
    at = np.flatnonzero(there)
    if not at.size or at[-1] - at[0] + 1 != at.size:
        return None
    return int(at[0]), int(at[-1]) + 1


def box_of(cond: Expr, holds: bool) -> dict[Axis, Span] | None:
    """Where a condition holds, or does not, by axes; None when that is no box."""
    masks: dict[Axis, np.ndarray] = {}
    for part in conjuncts(cond, holds):
        found = truth(part)
        if found is None:
            return None
        (axis,) = own_axes(part)
        masks[axis] = masks[axis] & found if axis in masks else found
    spans = {a: span_of(m) for a, m in masks.items()}
    whole = {a: s for a, s in spans.items() if s is not None}
    return whole if whole and len(whole) == len(spans) else None


def within(e: Expr, box: Mapping[Axis, Span]) -> tuple[Expr, dict[Axis, Axis]]:
    """`e` over a part of its axes, and the axes of that part that have more than one place, by the whole ones."""
    shorter = {a: Axis(a.ident, high - low) for a, (low, high) in box.items()}
    places = {a: affine.moved(affine.simplify(shorter[a]), low) for a, (low, _) in box.items()}

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Axis):
            return places.get(node)
        return affine.simplify(node) if isinstance(node, Read) or node.dtype in (dt.INDEX, "bool") else None

    return rewrite(e, rule), {a: s for a, s in shorter.items() if s.extent > 1}


def renamed(axes: Sequence[Axis], shorter: Mapping[Axis, Axis]) -> tuple[Axis, ...]:
    """Axes of a part as those of the whole."""
    back = {s: a for a, s in shorter.items()}
    return tuple(back.get(a, a) for a in axes)
