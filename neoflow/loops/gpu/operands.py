"""The sides of a contraction as a GPU's threads load them: along which axis they go, how many elements at a time."""

from __future__ import annotations

import math

from neoflow.architectures import ACCESS_BYTES, architecture
from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.functions import BLOCK
from neoflow.expr.ir import Axis, Expr, Read
from neoflow.loops.gpu.blocks import access_lanes
from neoflow.loops.knob import Chosen, Range, one
from neoflow.loops.nest import input_reads, is_data_dependent, stride
from neoflow.loops.problem import NestProblem, one_lane
from neoflow.loops.sides import Contraction, ordered, size
from neoflow.loops.tile import Sides, element_of, sided
from neoflow.target import Target

ALONG = ("k", "rows")


def sides(p: NestProblem, k: Chosen) -> Sides:
    """The contraction that the knobs fuse, split, side, last_m, last_n and last_k say."""
    nest = p.fused(k)
    names = ("last_m", "last_n", "last_k")
    last_m, last_n, last_k = (int(k[name]) for name in names)
    address = nest.outputs[0][1]

    def make() -> Sides:
        c = ordered(sided(p, k), address, last_n, last_k)
        c = ordered(c.swapped(), address, last_m, len(c.k) - 1).swapped()
        return Sides(nest, c, element_of(p))

    return p.memo.once(("gpu sides", k["fuse"], k["split"], k["side"], last_m, last_n, last_k), make)


def is_deep(c: Contraction) -> bool:
    """Whether the sums are of more than one level of blocks."""
    return size(c.k) > BLOCK


def contiguous(side: Expr, axes: tuple[Axis, ...]) -> list[int]:
    """How many reads of the side are contiguous along each axis."""
    reads = input_reads(side)
    return [sum(stride(r.indices[0], a) == 1 for r in reads) for a in axes]


def nearest(side: Expr, axes: tuple[Axis, ...]) -> int:
    """The least step that a move along one of the axes makes in a read of the side; a large number for none."""
    steps = [stride(r.indices[0], a) for r in input_reads(side) for a in axes if a in r.free]
    return min((s if s and s > 0 else 1 << 30 for s in steps), default=1 << 30)


def usual_along(side: Expr, rows: Axis, k: Axis) -> str:
    """The axis along which neighbours lie closest in memory."""
    return "k" if nearest(side, (k,)) < nearest(side, (rows,)) else "rows"


MOST_LANES = 4
"""Elements that are computed at a time; more go at once only where they are copied."""


def lanes(side: Expr, axis: Axis, element: str, is_copied: bool) -> Range:
    """So many elements along the axis may be loaded at a time."""
    most = min(MOST_LANES, ACCESS_BYTES // dt.itemsize(element))
    reason = one_lane((side,), axis, False)
    if reason is not None:
        return one(1, reason)
    allowed = [n for n in (1, 2, 4) if n <= min(most, access_lanes((side,))) and axis.extent % n == 0]
    whole = ACCESS_BYTES // dt.itemsize(element)
    if is_copied and whole > most and axis.extent % whole == 0 and is_dense(side, axis, whole):
        allowed.append(whole)
    return Range(tuple(allowed), f"the last axis has {axis.extent} points, and an access {ACCESS_BYTES} bytes")


def is_dense(side: Expr, axis: Axis, count: int) -> bool:
    """Whether every read of so many points along the axis is one access: contiguous, and at multiples of it."""
    return all(axis not in r.free or _is_whole(r.indices[0], axis, count) for r in input_reads(side))


def _is_whole(address: Expr, axis: Axis, count: int) -> bool:
    terms, constant = affine.linear(address)
    others = [c for atom, c in terms.items() if atom is not axis]
    return stride(address, axis) == 1 and all(c % count == 0 for c in (*others, constant))


def plain_read(side: Expr, dtype: str) -> Read | None:
    """The side itself, when it is one read of what is in memory as it is multiplied, in bounds, at a linear address."""
    if not isinstance(side, Read) or side.dtype != dtype or is_data_dependent(side):
        return None
    address = side.indices[0]
    low, high = affine.bounds(address)
    linear = all(isinstance(atom, Axis) for atom in affine.linear(address)[0])
    return side if linear and low >= 0 and high < math.prod(side.source.shape) else None


def can_copy(target: Target) -> bool:
    """Whether its threads may leave copies to shared memory to the hardware."""
    return target.kind == "cuda" and architecture(target).has_async_copy
