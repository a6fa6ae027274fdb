"""The `gpu_contraction` template: a block of threads computes a block of results, each thread a register tile of them.

    for block in batch x splits x row blocks x column blocks:
        for k in steps of block_k:
            shared left[k][m], right[k][n] = the operands at these points, whatever their expressions;  barrier
            for kk in block_k:  acc[thread_m][thread_n] += left[kk][m] * right[kk][n]
        outputs at the block = epilogue(acc)        in partial sums first when splits > 1, which a second launch adds

Operands are computed where they are loaded, so that convolutions read their windows from memory, which are never stored
there. Only blocks at the edges are guarded.
"""

from __future__ import annotations

import math

from neoflow.architectures import architecture
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Axis, Expr
from neoflow.loops import costs
from neoflow.loops.gpu import choose, operands
from neoflow.loops.gpu.blocks import access_lanes
from neoflow.loops.gpu.choose import Extents
from neoflow.loops.gpu.operands import ALONG, sides
from neoflow.loops.gpu.tile import Tile, room, tiles, vector
from neoflow.loops.knob import FLAG, INDEX, NUMBER, WORD, Chosen, Knob, Range, flags, one
from neoflow.loops.nest import input_reads, stride
from neoflow.loops.problem import FUSE, Measures, NestProblem, nbytes
from neoflow.loops.schedule import KnobValue
from neoflow.loops.sides import Contraction, size
from neoflow.loops.tile import Sides, element_of, sided, splits_of
from neoflow.target import Target

SIDES, STORES = ("right", "left"), ("registers", "stack")
UNROLLS, SWIZZLES = (1, 2, 4, 8), (1, 2, 4, 8, 16)
USUAL_UNROLL = 4
"""Enough for the next operands to be on their way; nvcc writes out the rest where it is worth it."""
USUAL_SWIZZLE = 8
"""Row blocks that go through the column blocks together: their operands stay in the level-2 cache."""


# --- the sides


def _split(p: NestProblem, _: Target, k: Chosen) -> Range:
    count = len(splits_of(p, k))
    return Range(range(count), f"{count} ways to divide the factors among two sides, that which reuses most first")


def _usual_side(p: NestProblem, _: Target, k: Chosen) -> str:
    """Columns are the side along which the outputs are most nearly contiguous."""
    address = p.fused(k).outputs[0][1]
    found = {side: sided(p, {**_before(k), "side": side}) for side in SIDES}
    return min(SIDES, key=lambda side: min(stride(address, a) or 1 << 40 for a in found[side].n))


def _before(k: Chosen) -> dict[str, KnobValue]:
    return {name: k[name] for name in ("fuse", "split")}


def _last(group: str, what: str) -> Knob[NestProblem]:
    """Which axis of a group is its innermost."""

    def allowed(p: NestProblem, _: Target, k: Chosen) -> Range:
        count = len(getattr(sided(p, k), group))
        return Range(range(count), f"the place of one of {count} axes of {group.upper()}")

    return Knob(f"last_{group}", INDEX, what, allowed, lambda p, _, k: _usual_last(p, k, group))


def _usual_last(p: NestProblem, k: Chosen, group: str) -> int:
    """The axis along which most reads are contiguous; without one, that along which the outputs are most nearly so."""
    c, address = sided(p, k), p.fused(k).outputs[0][1]
    axes = getattr(c, group)
    read = {"m": (c.left,), "n": (c.right,), "k": (c.left, c.right)}[group]
    found = [sum(counts) for counts in zip(*(operands.contiguous(e, axes) for e in read), strict=True)]

    def merit(place: int) -> tuple[int, int, int]:
        step = stride(address, axes[place]) or 1 << 40
        if group == "n":
            return (-step, found[place], place)
        return (found[place], -step if group == "m" else 0, place)

    return max(range(len(axes)), key=merit)


def extents(c: Contraction) -> Extents:
    return Extents(size(c.batch), size(c.m), size(c.n), size(c.k))


# --- the tile


def _fitting(p: NestProblem, target: Target, k: Chosen, before: tuple[str, ...]) -> tuple[Tile, ...]:
    """The tiles that agree with the knobs chosen so far."""
    deep = operands.is_deep(sides(p, k).c)
    chosen = [(name, k[name]) for name in before]
    found = tiles(dt.itemsize(element_of(p)), deep, target.mcpu, room(target))
    key = ("gpu tiles", target.mcpu, deep, *chosen)
    return p.memo.once(key, lambda: tuple(t for t in found if all(getattr(t, n) == v for n, v in chosen)))


def tile_of(p: NestProblem, target: Target, k: Chosen) -> Tile:
    """The tile that the knobs say."""
    (found,) = _fitting(p, target, k, TILE)
    return found


def _tile_knob(place: int, meaning: str) -> Knob[NestProblem]:
    name, before = TILE[place], TILE[:place]

    def allowed(p: NestProblem, target: Target, k: Chosen) -> Range:
        values = tuple(sorted({int(getattr(t, name)) for t in _fitting(p, target, k, before)}))
        return Range(values, _room(p, target, k))

    def usual(p: NestProblem, target: Target, k: Chosen) -> int:
        fitting, e = _fitting(p, target, k, before), extents(sides(p, k).c)
        key = ("gpu best", target, e, *(k[n] for n in before))
        return int(getattr(p.memo.once(key, lambda: choose.best(e, fitting, target)), name))

    return Knob(name, NUMBER, meaning, allowed, usual)


def _room(p: NestProblem, target: Target, k: Chosen) -> str:
    a, levels = architecture(target), "two levels of sums" if operands.is_deep(sides(p, k).c) else "its sums"
    return (
        f"a block has 32 to 1024 threads, a thread keeps {levels} in 255 registers, a processor of {a.name} has "
        f"{a.registers}, and a block {room(target) >> 10} KiB of shared memory"
    )


TILE = ("block_k", "block_m", "block_n", "thread_m", "thread_n", "stages")
_TILE_KNOBS = (
    _tile_knob(0, "terms that a block loads at a time"),
    _tile_knob(1, "rows of a block"),
    _tile_knob(2, "columns of a block"),
    _tile_knob(3, "rows of a thread"),
    _tile_knob(4, "columns of a thread"),
    _tile_knob(5, "steps of K in shared memory: with two, one is loaded while the other is multiplied"),
)


def _warp_n(p: NestProblem, target: Target, k: Chosen) -> Range:
    t = tile_of(p, target, k)
    across, down = t.block_n // t.thread_n, t.block_m // t.thread_m
    fitting = tuple(n for n in (1, 2, 4, 8, 16, 32) if across % n == 0 and down % (32 // n) == 0)
    return Range(fitting, f"a warp is 32 of a block's {down} x {across} threads")


def _usual_warp_n(p: NestProblem, target: Target, k: Chosen) -> int:
    """Nearly as many rows as columns: a warp then reads the fewest words."""
    t = tile_of(p, target, k)

    def words(n: KnobValue) -> int:
        return int(n) * t.thread_n + 32 // int(n) * t.thread_m

    return int(min(reversed(_warp_n(p, target, k).values), key=words))


# --- operands


def _along(side: str) -> Knob[NestProblem]:
    def usual(p: NestProblem, _: Target, k: Chosen) -> str:
        c = sides(p, k).c
        own, rows = (c.left, c.m) if side == "left" else (c.right, c.n)
        return operands.usual_along(own, rows[-1], c.k[-1])

    meaning = f"what neighbouring threads load of the {side} side goes along"
    return Knob(f"{side}_along", WORD, meaning, lambda *_: Range(ALONG, "K, or the side's own axis"), usual, ALONG)


def _lanes(side: str) -> Knob[NestProblem]:
    def allowed(p: NestProblem, _: Target, k: Chosen) -> Range:
        s = sides(p, k)
        values, reason = operands.lanes(*loaded(s, side, str(k[f"{side}_along"])))
        most = 16 // dt.itemsize(s.element)
        return Range(tuple(v for v in values if v <= most), reason)

    def usual(p: NestProblem, target: Target, k: Chosen) -> int:
        own, axis = loaded(sides(p, k), side, str(k[f"{side}_along"]))
        return max(int(n) for n in allowed(p, target, k).values if n == 1 or operands.is_dense(own, axis, int(n)))

    return Knob(f"{side}_lanes", NUMBER, f"elements of the {side} side in an access", allowed, usual)


def loaded(s: Sides, side: str, along: str) -> tuple[Expr, Axis]:
    """A side and the axis that its lanes go along."""
    own, rows = (s.c.left, s.c.m) if side == "left" else (s.c.right, s.c.n)
    return own, s.c.k[-1] if along == "k" else rows[-1]


def _copy(side: str) -> Knob[NestProblem]:
    """What is read as it is multiplied may go past the registers, a stage ahead."""

    def allowed(p: NestProblem, target: Target, k: Chosen) -> Range:
        s, along, lanes = sides(p, k), str(k[f"{side}_along"]), int(k[f"{side}_lanes"])
        own, axis = loaded(s, side, along)
        if not operands.can_copy(target):
            return one(False, f"{target} has no asynchronous copies")
        if k["stages"] == 1:
            return one(False, "with one stage there is nothing to be ahead of")
        if operands.plain_read(own, s.element) is None:
            return one(False, f"the {side} side is not one read at linear addresses of what is multiplied")
        if along == "k" and lanes > 1:
            return one(False, "neighbours along K do not lie side by side in shared memory")
        return flags(lanes == 1 or operands.is_dense(own, axis, lanes), f"{lanes} elements are not one access")

    def usual(p: NestProblem, target: Target, k: Chosen) -> bool:
        is_wide = k[f"{side}_lanes"] != 1 or k[f"{side}_along"] == "rows"
        return is_wide and bool(allowed(p, target, k).values[-1])

    return Knob(f"{side}_copy", FLAG, f"the {side} side is copied asynchronously", allowed, usual)


# --- results


def _splits(p: NestProblem, target: Target, k: Chosen) -> Range:
    e = extents(sides(p, k).c)
    steps = choose.most_splits(e, tile_of(p, target, k))
    return Range(tuple(n for n in choose.SPLITS if n <= steps), f"K has {steps} steps")


def _usual_splits(p: NestProblem, target: Target, k: Chosen) -> int:
    return choose.usual_splits(extents(sides(p, k).c), tile_of(p, target, k), target)


def row_blocks(e: Extents, tile: Tile) -> int:
    return math.ceil(e.m / tile.block_m)


def _swizzle(p: NestProblem, target: Target, k: Chosen) -> Range:
    count = row_blocks(extents(sides(p, k).c), tile_of(p, target, k))
    return Range(tuple(n for n in SWIZZLES if n <= count), f"there are {count} row blocks")


def _usual_swizzle(p: NestProblem, target: Target, k: Chosen) -> int:
    return max(int(n) for n in _swizzle(p, target, k).values if int(n) <= USUAL_SWIZZLE)


def _store_lanes(p: NestProblem, target: Target, k: Chosen) -> Range:
    s, t = sides(p, k), tile_of(p, target, k)
    axis, each = s.c.n[-1], vector(t.thread_n, t.element_bytes)
    if s.one_lane is not None:
        return one(1, s.one_lane)
    most = min(access_lanes(s.written), each)
    return Range(
        tuple(n for n in (1, each) if n <= most and axis.extent % n == 0),
        f"a thread has {each} columns in a row, the last axis {axis.extent} points, an access {most} elements",
    )


def _usual_store_lanes(p: NestProblem, target: Target, k: Chosen) -> int:
    found = int(_store_lanes(p, target, k).values[-1])
    return found if sides(p, k).is_written_along_n else 1


def _usual_store(p: NestProblem, _: Target, k: Chosen) -> str:
    return "registers" if sides(p, k).written_nodes <= costs.SHORT else "stack"


def measures(p: NestProblem, target: Target, k: Chosen) -> Measures:
    """The working set is what a block has in shared memory."""
    s, tile = sides(p, k), tile_of(p, target, k)
    e, splits = extents(s.c), int(k["splits"])
    points = e.batch * e.m * e.n
    work = s.c.flops + points * s.work[2]
    read = nbytes(r for x in (s.c.left, s.c.right, *s.written) for r in input_reads(x))
    written = points * sum(dt.itemsize(x.dtype) for x in s.written)
    count = e.batch * row_blocks(e, tile) * math.ceil(e.n / tile.block_n) * splits
    return Measures(points, e.k, work, read, written, count, tile.thread_m * tile.thread_n, tile.shared_bytes)


KNOBS: tuple[Knob[NestProblem], ...] = (
    FUSE,
    Knob("split", INDEX, "which factors are the left side", _split, lambda *_: 0),
    Knob("side", WORD, "the side with the columns", lambda *_: Range(SIDES, "there are two"), _usual_side, SIDES),
    _last("m", "the innermost axis of the rows"),
    _last("n", "the innermost axis of the columns"),
    _last("k", "the innermost axis of K"),
    *_TILE_KNOBS,
    Knob("warp_n", NUMBER, "threads of a warp along the columns", _warp_n, _usual_warp_n),
    Knob(
        "unroll",
        NUMBER,
        "terms written out",
        lambda *_: Range(UNROLLS, "more terms written out only make the code longer"),
        lambda *_: USUAL_UNROLL,
    ),
    _along("left"),
    _lanes("left"),
    _copy("left"),
    _along("right"),
    _lanes("right"),
    _copy("right"),
    Knob("splits", NUMBER, "parts of K, by blocks of their own", _splits, _usual_splits),
    Knob("swizzle", NUMBER, "row blocks that go through the columns together", _swizzle, _usual_swizzle),
    Knob("store_lanes", NUMBER, "results in an access", _store_lanes, _usual_store_lanes),
    Knob(
        "store",
        WORD,
        "how a tile gets from the registers to the outputs",
        lambda *_: Range(STORES, "written out, or in a loop over a copy"),
        _usual_store,
        STORES,
    ),
)
