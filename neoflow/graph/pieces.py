"""Tensors that are others side by side, each a run of memory: `stack` and `concat` along the first dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr.close import build
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Select, Slot, substitute
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph.facts import address, flat


@dataclass(frozen=True)
class Piece:
    """All of what a slot reads, in order, from element `offset` of the whole on."""

    slot: int
    offset: int


@remembered
def pieces(definition: Definition) -> tuple[Piece, ...] | None:
    """What a body is put together of along its first axis, in the order of memory; None for another body.

    select(i < 2, a[i, j], b[i - 2, j]), select(i == 0, a[j], b[j])
    """
    shape = definition.shape
    first = next((d for d, n in enumerate(shape) if n > 1), None)
    if first is None or not isinstance(definition.body, Select):
        return None
    axis, row = Axis(first, shape[first]), math.prod(shape[first + 1 :])
    found: list[Piece] = []
    body: Expr = definition.body
    low = 0
    while low < axis.extent:
        high, then = axis.extent, body
        if isinstance(body, Select):
            end = _end(body.cond, axis, low)
            if end is None:
                return None
            high, then, body = end, body.then, body.other
        if not isinstance(then, Read) or not _is_run(then, definition, axis, low, high):
            return None
        found.append(Piece(then.slot, low * row))
        low = high
    return tuple(found) if len({p.slot for p in found}) == len(found) > 1 else None


def _end(condition: Expr, axis: Axis, low: int) -> int | None:
    """Where the points end that a condition takes of those from `low` on; None where it takes others."""
    if not (isinstance(condition, Apply) and condition.args[0] is axis and isinstance(condition.args[1], Const)):
        return None
    value = int(condition.args[1].value)
    end = {"lt": value, "le": value + 1}.get(condition.fn, value + 1 if value == low else None)
    return end if condition.fn in ("lt", "le", "eq") and end is not None and low < end < axis.extent else None


def _is_run(read: Read, definition: Definition, axis: Axis, low: int, high: int) -> bool:
    """Whether a read of the points from `low` to `high` is of all of a tensor, in order."""
    row = math.prod(definition.shape[axis.ident + 1 :])
    if math.prod(read.source.shape) != (high - low) * row:
        return False
    fixed: dict[Expr, Expr] = {axis: affine.integer(low)} if high - low == 1 else {}
    there, here = (
        affine.linear(affine.simplify(substitute(affine.from_linear(form), fixed)))
        for form in (address(read), flat(definition.axes, definition.shape))
    )
    difference = affine.simplify(affine.from_linear(affine.combine(here, there, -1)))
    return isinstance(difference, Const) and int(difference.value) == low * row


def stacked(parts: Sequence[Tensor], name: str) -> Compute:
    """Tensors of one shape side by side along a new first dimension."""
    shape, axis = parts[0].shape, Axis(0, len(parts))
    own = tuple(affine.integer(0) if n == 1 else Axis(d, n) for d, n in enumerate(shape, 1))
    reads = [Read(Slot(n, t.shape, t.dtype), own) for n, t in enumerate(parts)]
    body: Expr = reads[-1]
    for n in range(len(parts) - 2, -1, -1):
        body = Select(Apply("eq", (axis, affine.integer(n))), reads[n], body)
    return build((len(parts), *shape), body, tuple(parts), name)
