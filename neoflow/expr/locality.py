"""In which order axes go through memory: that which goes furthest with each step first.

What is computed apart from where it was written has axes of no order of its own. In this one it is stored nearly as it
is read, its vectors lie along memory, and it is the same tensor wherever it comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from neoflow.expr import affine
from neoflow.expr.ir import Axis, Expr, Read, postorder

Place = tuple[tuple[int, ...], tuple[Expr, ...]]
"""The shape of a tensor, and indices into it."""


def axes_met(expressions: Sequence[Expr]) -> list[Axis]:
    """The axes that are used, in the order in which a reader meets them."""
    found: dict[Axis, None] = {}
    seen: set[Expr] = set()
    stack = [*reversed(expressions)]
    while stack:
        e = stack.pop()
        if e not in seen:
            seen.add(e)
            found.update({e: None} if isinstance(e, Axis) else {})
            stack += reversed(e.children)
    return list(found)


def memory_order(axes: Iterable[Axis], expressions: Sequence[Expr], places: Iterable[Place] = ()) -> tuple[Axis, ...]:
    """The axes by how far each moves what the expressions read, and other `places`; those that move nothing last.

    Axes that move as far as each other stay in their order.
    """
    reads = {n for e in expressions for n in postorder(e) if isinstance(n, Read)}
    steps: dict[Axis, int] = {}
    for shape, indices in (*((r.source.shape, r.indices) for r in reads), *places):
        step = 1
        for extent, index in zip(reversed(shape), reversed(indices), strict=True):
            for a in index.free:
                steps[a] = max(steps.get(a, 0), step)
            step *= extent
    return tuple(sorted(axes, key=lambda a: -steps.get(a, 0)))


def stays_inside(e: Expr) -> bool:
    """Whether everything an expression reads is there, whatever conditions it stands under."""
    reads = [n for n in postorder(e) if isinstance(n, Read)]
    inside = [(affine.bounds(i), n) for r in reads for i, n in zip(r.indices, r.source.shape, strict=True)]
    return all(low >= 0 and high < n for (low, high), n in inside)
