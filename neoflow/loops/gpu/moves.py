"""Knobs of what a block of a contraction loads and stores, whatever its tiles are; and the numbers of a schedule."""

from __future__ import annotations

import math

from neoflow.expr import dtype as dt
from neoflow.expr.ir import Axis, Expr
from neoflow.loops import costs
from neoflow.loops.gpu import choose, operands
from neoflow.loops.gpu.blocks import access_lanes
from neoflow.loops.gpu.family import Family, extents
from neoflow.loops.gpu.operands import ALONG
from neoflow.loops.knob import FLAG, NUMBER, WORD, Chosen, Knob, Range, flags, one
from neoflow.loops.nest import input_reads
from neoflow.loops.problem import Measures, NestProblem, nbytes
from neoflow.loops.tile import Sides
from neoflow.target import Target

COPIED_BYTES = (4, 8, 16)
STORES = ("registers", "stack")
SWIZZLES = (1, 2, 4, 8, 16)
USUAL_SWIZZLE = 8
"""Row blocks that go through the column blocks together: their operands stay in the level-2 cache."""


def operand_knobs(f: Family) -> tuple[Knob[NestProblem], ...]:
    """How each side gets into shared memory."""
    return tuple(make(f, side) for side in ("left", "right") for make in (_along, _lanes, _copy))


def _along(f: Family, side: str) -> Knob[NestProblem]:
    def usual(p: NestProblem, _: Target, k: Chosen) -> str:
        c = f.sides(p, k).c
        own, rows = (c.left, c.m) if side == "left" else (c.right, c.n)
        return operands.usual_along(own, rows[-1], c.k[-1])

    meaning = f"what neighbouring threads load of the {side} side goes along"
    return Knob(f"{side}_along", WORD, meaning, lambda *_: Range(ALONG, "K, or the side's own axis"), usual, ALONG)


def _lanes(f: Family, side: str) -> Knob[NestProblem]:
    def allowed(p: NestProblem, target: Target, k: Chosen) -> Range:
        s = f.sides(p, k)
        element, (own, axis) = f.element(p, k), loaded(s, side, str(k[f"{side}_along"]))
        is_plain = operands.plain_read(own, element) is not None
        is_copied = is_plain and operands.can_copy(target) and k["stages"] != 1
        return operands.lanes(own, axis, element, is_copied and f.is_in_lines)

    def usual(p: NestProblem, target: Target, k: Chosen) -> int:
        own, axis = loaded(f.sides(p, k), side, str(k[f"{side}_along"]))
        return max(int(n) for n in allowed(p, target, k).values if n == 1 or operands.is_dense(own, axis, int(n)))

    return Knob(f"{side}_lanes", NUMBER, f"elements of the {side} side in an access", allowed, usual)


def loaded(s: Sides, side: str, along: str) -> tuple[Expr, Axis]:
    """A side and the axis that its lanes go along."""
    own, rows = (s.c.left, s.c.m) if side == "left" else (s.c.right, s.c.n)
    return own, s.c.k[-1] if along == "k" else rows[-1]


def _copy(f: Family, side: str) -> Knob[NestProblem]:
    """What is read as it is multiplied may go past the registers, a stage ahead."""

    def allowed(p: NestProblem, target: Target, k: Chosen) -> Range:
        s, along, lanes = f.sides(p, k), str(k[f"{side}_along"]), int(k[f"{side}_lanes"])
        own, axis = loaded(s, side, along)
        if lanes > operands.MOST_LANES:
            return one(True, f"{lanes} elements go at once only where they are copied")
        if not operands.can_copy(target):
            return one(False, f"{target} has no asynchronous copies")
        if k["stages"] == 1:
            return one(False, "with one stage there is nothing to be ahead of")
        if operands.plain_read(own, f.element(p, k)) is None:
            return one(False, f"the {side} side is not one read at linear addresses of what is multiplied")
        if along == "k" and lanes > 1 and not f.is_in_lines:
            return one(False, "neighbours along K do not lie side by side in shared memory")
        nbytes = lanes * dt.itemsize(f.element(p, k))
        if nbytes not in COPIED_BYTES:
            return one(False, f"copies are of {', '.join(map(str, COPIED_BYTES))} bytes")
        return flags(lanes == 1 or operands.is_dense(own, axis, lanes), f"{lanes} elements are not one access")

    def usual(p: NestProblem, target: Target, k: Chosen) -> bool:
        is_wide = k[f"{side}_lanes"] != 1 or k[f"{side}_along"] == "rows"
        return is_wide and bool(allowed(p, target, k).values[-1])

    return Knob(f"{side}_copy", FLAG, f"the {side} side is copied asynchronously", allowed, usual)


# --- results


def result_knobs(f: Family) -> tuple[Knob[NestProblem], ...]:
    """Who computes which results, and how these are stored."""

    def splits(p: NestProblem, target: Target, k: Chosen) -> Range:
        steps = choose.most_splits(extents(f.sides(p, k).c), f.tile(p, target, k))
        return Range(
            tuple(n for n in choose.SPLITS if n <= steps), f"K has {steps} steps, or a buffer room for so many sums"
        )

    def usual_splits(p: NestProblem, target: Target, k: Chosen) -> int:
        return choose.usual_splits(extents(f.sides(p, k).c), f.tile(p, target, k), target)

    def swizzle(p: NestProblem, target: Target, k: Chosen) -> Range:
        count = math.ceil(extents(f.sides(p, k).c).m / f.tile(p, target, k).block_m)
        return Range(tuple(n for n in SWIZZLES if n <= count), f"there are {count} row blocks")

    def usual_swizzle(p: NestProblem, target: Target, k: Chosen) -> int:
        return max(int(n) for n in swizzle(p, target, k).values if int(n) <= USUAL_SWIZZLE)

    def lanes(p: NestProblem, target: Target, k: Chosen) -> Range:
        s, each = f.sides(p, k), f.width(f.tile(p, target, k))
        axis = s.c.n[-1]
        if s.one_lane is not None:
            return one(1, s.one_lane)
        most = min(access_lanes(s.written), each)
        return Range(
            tuple(n for n in (1, each) if n <= most and axis.extent % n == 0),
            f"a thread has {each} columns in a row, the last axis {axis.extent} points, an access {most} elements",
        )

    def usual_lanes(p: NestProblem, target: Target, k: Chosen) -> int:
        found = int(lanes(p, target, k).values[-1])
        return found if f.sides(p, k).is_written_along_n else 1

    def stores(*_: object) -> Range:
        return Range(STORES, "written out, or in a loop over a copy")

    def usual_store(p: NestProblem, _: Target, k: Chosen) -> str:
        return "registers" if f.sides(p, k).written_nodes <= costs.SHORT else "stack"

    return (
        Knob("splits", NUMBER, "parts of K, by blocks of their own", splits, usual_splits),
        Knob("swizzle", NUMBER, "row blocks that go through the columns together", swizzle, usual_swizzle),
        Knob("store_lanes", NUMBER, "results in an access", lanes, usual_lanes),
        Knob("store", WORD, "how a tile gets from the registers to the outputs", stores, usual_store, STORES),
    )


def measures_by(f: Family, p: NestProblem, target: Target, k: Chosen) -> Measures:
    """The working set is what a block has in shared memory."""
    s, tile = f.sides(p, k), f.tile(p, target, k)
    e, splits = extents(s.c), int(k["splits"])
    points = e.batch * e.m * e.n
    work = s.c.flops + points * s.work[2]
    read = nbytes(r for x in (s.c.left, s.c.right, *s.written) for r in input_reads(x))
    written = points * sum(dt.itemsize(x.dtype) for x in s.written)
    count = e.batch * math.ceil(e.m / tile.block_m) * math.ceil(e.n / tile.block_n) * splits
    return Measures(points, e.k, work, read, written, count, tile.accumulators, tile.shared_bytes)
