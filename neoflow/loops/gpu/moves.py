"""Knobs of what a block of a contraction loads and stores, whatever its tiles are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from neoflow.expr import dtype as dt
from neoflow.expr.ir import Axis, Expr
from neoflow.loops import costs
from neoflow.loops.gpu import choose, operands
from neoflow.loops.gpu.blocks import access_lanes
from neoflow.loops.gpu.family import Family, extents, side_knobs, tile_knobs
from neoflow.loops.gpu.operands import ALONG
from neoflow.loops.knob import FLAG, NUMBER, WORD, Chosen, Knob, Range, flags, one
from neoflow.loops.problem import NestProblem
from neoflow.loops.tile import Sides
from neoflow.target import Target

COPIED_BYTES = (4, 8, 16)
STORES = ("registers", "stack")
SWIZZLES = (1, 2, 4, 8, 16)
USUAL_SWIZZLE = 8
"""Row blocks that go through the column blocks together: their operands stay in the level-2 cache."""


def knobs_of(
    f: Family[Any], splits: Callable[[NestProblem, Chosen], tuple[int, ...]], *own: Knob[NestProblem]
) -> tuple[Knob[NestProblem], ...]:
    """All knobs of a template; `splits`: the ways to divide the factors, `own`: what no other has."""
    return (*side_knobs(splits), *tile_knobs(f), *own, *operand_knobs(f), *result_knobs(f))


def operand_knobs(f: Family[Any]) -> tuple[Knob[NestProblem], ...]:
    """How each side gets into shared memory."""
    return tuple(make(f, side) for side in ("left", "right") for make in _moves(f))


def _moves(f: Family[Any]) -> tuple[Callable[[Family[Any], str], Knob[NestProblem]], ...]:
    """What is decided of each side."""
    return (_along, *((_bulk,) if f.boxes is not None else ()), _lanes, _copy)


def _along(f: Family[Any], side: str) -> Knob[NestProblem]:
    def usual(p: NestProblem, _: Target, k: Chosen) -> str:
        c = f.sides(p, k).c
        own, rows = (c.left, c.m) if side == "left" else (c.right, c.n)
        return operands.usual_along(own, rows[-1], c.k[-1])

    meaning = f"what neighbouring threads load of the {side} side goes along"
    return Knob(f"{side}_along", WORD, meaning, lambda *_: Range(ALONG, "K, or the side's own axis"), usual, ALONG)


def _bulk(f: Family[Any], side: str) -> Knob[NestProblem]:
    """Boxes of a tensor may come without any thread that loads them."""

    def allowed(p: NestProblem, target: Target, k: Chosen) -> Range:
        if k["stages"] == 1:
            return one(False, "with one stage there is nothing to be ahead of")
        assert f.boxes is not None
        found = f.boxes(p, target, k, side)
        return one(False, found) if isinstance(found, str) else flags(True, "a box of a tensor in memory")

    def usual(p: NestProblem, target: Target, k: Chosen) -> bool:
        return bool(allowed(p, target, k).values[-1])

    return Knob(f"{side}_bulk", FLAG, f"boxes of the {side} side are copied by the hardware", allowed, usual)


def _is_bulk(f: Family[Any], side: str, k: Chosen) -> bool:
    return f.boxes is not None and bool(k[f"{side}_bulk"])


NO_THREADS = "bulk copies are by no threads"


def _lanes(f: Family[Any], side: str) -> Knob[NestProblem]:
    def allowed(p: NestProblem, target: Target, k: Chosen) -> Range:
        if _is_bulk(f, side, k):
            return one(1, NO_THREADS)
        s = f.sides(p, k)
        element, (own, axis) = f.element(p, k), loaded(s, side, str(k[f"{side}_along"]))
        is_plain = operands.plain_read(own, element) is not None
        is_copied = is_plain and operands.can_copy(target) and k["stages"] != 1
        return operands.lanes(own, axis, element, is_copied and f.is_in_lines)

    def usual(p: NestProblem, target: Target, k: Chosen) -> int:
        if _is_bulk(f, side, k):
            return 1
        own, axis = loaded(f.sides(p, k), side, str(k[f"{side}_along"]))
        return max(int(n) for n in allowed(p, target, k).values if n == 1 or operands.is_dense(own, axis, int(n)))

    return Knob(f"{side}_lanes", NUMBER, f"elements of the {side} side in an access", allowed, usual)


def loaded(s: Sides, side: str, along: str) -> tuple[Expr, Axis]:
    """A side and the axis that its lanes go along."""
    own, rows = (s.c.left, s.c.m) if side == "left" else (s.c.right, s.c.n)
    return own, s.c.k[-1] if along == "k" else rows[-1]


def _copy(f: Family[Any], side: str) -> Knob[NestProblem]:
    """What is read as it is multiplied may go past the registers, a stage ahead."""

    def allowed(p: NestProblem, target: Target, k: Chosen) -> Range:
        if _is_bulk(f, side, k):
            return one(False, NO_THREADS)
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


def result_knobs(f: Family[Any]) -> tuple[Knob[NestProblem], ...]:
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
