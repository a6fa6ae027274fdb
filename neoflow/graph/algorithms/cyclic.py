"""What a contraction is as a cyclic convolution: one that two operands go round in, along an axis of S points each.

    y[b, i, n] = sum[j, k](x[b, j, k] * w[i, j, (n - k) % S])        the circle (n, k), gone round by w

Found from the affine indices alone, up to signs and offsets, so that both gradients are cyclic convolutions too.
"""

from __future__ import annotations

from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Definition
from neoflow.graph.algorithms.form import two_reads

LEAST = 3
"""Points of a circle, of which fewer have one frequency."""


@dataclass(frozen=True)
class Turn:
    """The index (sign * out + tap_sign * tap + offset) % points of a dimension; out: 0 where it is not there."""

    dim: int
    sign: int
    tap_sign: int
    offset: int


@dataclass(frozen=True)
class Cyclic:
    """A sum over `tap` of turning * plain, both of which have it in one dimension, at `around` and `along`, and the
    result has `out` of the same extent."""

    turning: Read
    plain: Read
    out: Axis
    tap: Axis
    around: Turn
    along: Turn

    @property
    def points(self) -> int:
        return self.out.extent


@remembered
def cyclic(definition: Definition) -> Cyclic | str:
    """A sum of products as a cyclic convolution along the first axis of its result that is one; or why it is none."""
    found = two_reads(definition)
    if isinstance(found, str):
        return found
    a, b = found
    for out in definition.axes:
        for tap in definition.reduction_axes:
            for turning, plain in ((a, b), (b, a)):
                if circle := _circle(turning, plain, out, tap):
                    return circle
    return "no operand goes round"


def _circle(turning: Read, plain: Read, out: Axis, tap: Axis) -> Cyclic | None:
    if not out.extent == tap.extent >= LEAST or out in plain.free:
        return None
    around, along = _turn(turning, out, tap), _turn(plain, out, tap)
    if around is None or along is None or not around.sign:
        return None
    return Cyclic(turning, plain, out, tap, around, along)


def _turn(read: Read, out: Axis, tap: Axis) -> Turn | None:
    """The only index that has any of both axes, where it goes round a whole dimension."""
    dims = [d for d, i in enumerate(read.indices) if i.free & {out, tap}]
    if len(dims) != 1 or read.source.shape[dims[0]] != tap.extent:
        return None
    terms = _round(read.indices[dims[0]], tap.extent)
    if terms is None or not terms[0].keys() <= {out, tap}:
        return None
    signs = [_sign(terms[0].get(a, 0), tap.extent) for a in (out, tap)]
    if None in signs or not signs[1]:
        return None
    return Turn(dims[0], signs[0] or 0, signs[1], terms[1] % tap.extent)


def _round(index: Expr, points: int) -> affine.Linear | None:
    """A linear form that the index is modulo `points`."""
    if isinstance(index, Axis):
        return affine.linear(index)
    if not (isinstance(index, Apply) and index.fn == "mod" and index.dtype == dt.INDEX):
        return None
    inner, divisor = index.args
    return affine.linear(inner) if isinstance(divisor, Const) and divisor.value == points else None


def _sign(factor: int, points: int) -> int | None:
    """-1, 0 or 1, where a factor is that modulo `points`."""
    return {0: 0, 1: 1, points - 1: -1}.get(factor % points)
