"""The `contraction` template: a register tile of `rows` x `vectors` accumulators over packed or direct operands.

    pack what is packed globally
    for task in parallel(batch x splits x owner):       owner: panels of N, or blocks of row tiles of M
        pack what this task owns
        for each panel of N, each row tile of M:
            acc = 0; for k in K: acc[r][v] += left[r, k] * right[k, v]
            outputs at the tile = epilogue(acc)           in partial sums first when splits > 1

The side with N lies in panels [K][vectors * lanes], or is read in place where it is contiguous along N; the side with
M is read in place where its address is linear, or packed in tiles [K][rows].

The default takes the side and the vectors whose estimated cycles are fewest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from neoflow.loops import costs
from neoflow.loops.knob import FLAG, INDEX, NUMBER, WORD, Chosen, Knob, Range, completed, flags, one, up_to
from neoflow.loops.nest import stride
from neoflow.loops.problem import FUSE, NestProblem, is_turnable, looks_up_beside_choices
from neoflow.loops.sides import block_lanes, contiguous_run, size, usual_last_k, usual_last_n
from neoflow.loops.tile import Sides, element_of, estimated_cycles, pieces, sided, sides, splits_of
from neoflow.target import Target
from neoflow.verdict import Verdict

SIDES, ORDERS, STORES = ("right", "left"), ("panels", "tiles"), ("registers", "stack")
MOST_ACCUMULATORS, MOST_VECTORS = 64, 16
"""Vectors of the largest register tile, and of one of its rows: beyond, each step spills most of them."""
UNROLLS = (1, 2, 4, 8)
LEAST_TURNED = 4
"""Lanes of a square from which turning it in registers takes fewer instructions than gathering."""


def fits(p: NestProblem) -> Verdict:
    if splits_of(p, {"fuse": p.all_fused}):
        return Verdict(True, "a sum of products with two sides")
    return Verdict(False, "a contraction does not fit: it is no sum of products with two sides")


# --- the sides


def _split(p: NestProblem, _: Target, k: Chosen) -> Range:
    count = len(splits_of(p, k))
    return Range(range(count), f"{count} ways to divide the factors among two sides, that which reuses most first")


def _usual_side(p: NestProblem, target: Target, k: Chosen) -> str:
    """The side of the fewest cycles; lanes go along a side only where all of it can be computed in lanes."""
    best = {side: _best(p, target, {**_before(k), "side": side}) for side in SIDES}
    usable = {side: choice for side, choice in best.items() if choice.is_usable}
    return min(usable or best, key=lambda side: best[side].cycles)


def _before(k: Chosen) -> dict:
    return {name: k[name] for name in ("fuse", "split")}


@dataclass(frozen=True)
class _Choice:
    """Vectors for one side and their estimated cycles of one core."""

    cycles: float
    vectors: int
    is_usable: bool


def _best(p: NestProblem, target: Target, given: dict) -> _Choice:
    def choose() -> _Choice:
        tried = [completed(KNOBS, p, target, {**given, "vectors": v}) for v in costs.TILE_VECTORS]
        found = [(estimated_cycles(p, target, k), int(k["vectors"])) for k in tried]
        cycles, vectors = min(found, key=lambda f: f[0])
        s = sides(p, tried[0])
        is_usable = s.one_lane is None and not looks_up_beside_choices(s.written, s.c.n[-1])
        return _Choice(cycles, vectors, is_usable)

    return p.memo.once(("best", target, *sorted(given.items())), choose)


def is_usable(p: NestProblem, target: Target) -> bool:
    """Whether lanes can go along one of the sides, so that the template is the default one."""
    before = completed(KNOBS[:2], p, target, {})
    return any(_best(p, target, {**before, "side": side}).is_usable for side in SIDES)


def _last_n(p: NestProblem, _: Target, k: Chosen) -> Range:
    count = len(sided(p, k).n)
    return Range(range(count), f"the place of one of {count} axes of N")


def _last_k(p: NestProblem, _: Target, k: Chosen) -> Range:
    count = len(sided(p, k).k)
    return Range(range(count), f"the place of one of {count} axes of K")


def _usual_last_n(p: NestProblem, _: Target, k: Chosen) -> int:
    key = ("last n", k["fuse"], k["split"], k["side"])
    return p.memo.once(key, lambda: usual_last_n(sided(p, k), p.fused(k).outputs[0][1]))


def _usual_last_k(p: NestProblem, _: Target, k: Chosen) -> int:
    key = ("last k", k["fuse"], k["split"], k["side"])
    return p.memo.once(key, lambda: usual_last_k(sided(p, k), element_of(p)))


# --- the register tile


def _lanes(p: NestProblem, target: Target, k: Chosen) -> Range:
    s = sides(p, k)
    most = min(2 * target.lanes(s.element), _filled(s))
    values = tuple(v for v in (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64) if v <= most)
    if s.one_lane is None:
        return Range(values, f"so many of the {size(s.c.n)} points of N, in two registers at most")
    return Range(tuple(v for v in values if s.chunk(v) == 1), s.one_lane)


def _filled(s: Sides) -> int:
    return 1 << (size(s.c.n) - 1).bit_length()


def _usual_lanes(p: NestProblem, target: Target, k: Chosen) -> int:
    s = sides(p, k)
    usual = min(target.lanes(s.element), _filled(s))
    return usual if s.one_lane is None or s.chunk(usual) == 1 else 1


def _vectors(_: NestProblem, __: Target, ___: Chosen) -> Range:
    return up_to(MOST_VECTORS, f"a row has at most {MOST_VECTORS} vectors: more are no register tile")


def _rows(p: NestProblem, _: Target, k: Chosen) -> Range:
    m = size(sides(p, k).c.m)
    reason = f"a register tile has at most {MOST_ACCUMULATORS} accumulators, and M {m} points: more is no register tile"
    return up_to(min(m, MOST_ACCUMULATORS // int(k["vectors"])), reason)


def _usual_rows(p: NestProblem, target: Target, k: Chosen) -> int:
    vectors = int(k["vectors"])
    rows = max(1, (target.registers - costs.SPARE_REGISTERS - vectors) // vectors)
    return min(rows, costs.TILE_ROWS, size(sides(p, k).c.m), MOST_ACCUMULATORS // vectors)


def _unroll(_: NestProblem, __: Target, ___: Chosen) -> Range:
    return Range(UNROLLS, "more points of K written out only make the code longer")


# --- operands and tasks


def _pack(p: NestProblem, _: Target, k: Chosen) -> Range:
    if sides(p, k).left_read is not None:
        return Range((False, True), "")
    return one(True, "the side with M is not one read at linear addresses of what is computed with")


def _usual_pack(p: NestProblem, _: Target, k: Chosen) -> bool:
    cut = pieces(p, k)
    return sides(p, k).left_read is None or (cut.panels >= costs.REPACKED_PANELS and cut.tiles > 1)


def _run(p: NestProblem, target: Target, k: Chosen) -> Range:
    s = sides(p, k)
    if not k["pack"]:
        return one(False, "the side with M is not packed")
    if s.left_lanes is not None:
        return one(False, s.left_lanes)
    along = contiguous_run(s.c.left, s.c.k, target.lanes(s.element))
    return flags(along is not None, "the side with M is not contiguous along an axis of K that fills half a vector")


def _parallel(_: NestProblem, target: Target, __: Chosen) -> Range:
    return flags(target.threads > 1, "there is one thread")


def _is_worth_sharing(p: NestProblem, target: Target, k: Chosen) -> bool:
    return target.threads > 1 and sides(p, k).c.flops >= costs.PARALLEL_FLOPS


def _wanted(target: Target, k: Chosen) -> int:
    """Tasks that keep every thread busy."""
    return costs.CONTRACTION_TASKS * target.threads if k["parallel"] else 1


def _usual_order(p: NestProblem, target: Target, k: Chosen) -> str:
    """Panels packed by the task that owns them when there are enough tasks, or too much to pack to keep it all."""
    c, address, cut, wanted = sides(p, k).c, p.fused(k).outputs[0][1], pieces(p, k), _wanted(target, k)
    few = not k["pack"] or cut.tiles <= costs.OWN_PANEL_TILES
    by_panels = cut.batch * cut.panels >= wanted and (few or cut.batch * cut.k * cut.n > costs.KEPT_ELEMENTS)
    # a batch inside the rows: tasks by rows write one region after the other
    inner_batch = max((stride(address, a) or 0 for a in c.batch), default=0)
    is_inside = bool(c.batch) and inner_batch < max(stride(address, a) or 0 for a in c.m)
    if is_inside and cut.batch * cut.n * cut.k <= costs.INNER_BATCH_ELEMENTS:
        by_panels = False
    if not by_panels and k["parallel"] and cut.owners("tiles") < wanted:
        by_panels = cut.panels > cut.tiles
    return "panels" if by_panels else "tiles"


def _pack_panels(p: NestProblem, _: Target, k: Chosen) -> Range:
    if sides(p, k).in_place(int(k["lanes"])) is not None:
        return Range((False, True), "")
    return one(True, "the side with N is not one read whose vectors lie in memory as they are")


def _usual_pack_panels(p: NestProblem, _: Target, k: Chosen) -> bool:
    cut = pieces(p, k)
    is_small = 4 * cut.k * cut.n <= costs.IN_PLACE_BYTES and cut.tiles <= costs.IN_PLACE_TILES
    return sides(p, k).in_place(int(k["lanes"])) is None or k["order"] == "panels" or not is_small


def _turn(p: NestProblem, _: Target, k: Chosen) -> Range:
    s, lanes = sides(p, k), int(k["lanes"])
    read, chunk, n = s.right_read, s.chunk(lanes), size(s.c.n)
    if not k["pack_panels"] or read is None:
        return one(False, "the side with N is not packed from one read")
    width = lanes * int(k["vectors"])
    valid = [v for v in (width if n >= width else 0, n % width) if v]
    for axis in s.c.k:
        block = block_lanes(axis, chunk)
        if block >= LEAST_TURNED and any(v % block == 0 for v in valid) and is_turnable(read, s.c.n[-1], axis):
            return flags(True, "")
    return one(False, "no axis of K has squares of points along which the side with N is contiguous")


def _pack_loop(p: NestProblem, _: Target, k: Chosen) -> Range:
    chunks = int(k["lanes"]) * int(k["vectors"]) // sides(p, k).chunk(int(k["lanes"]))
    if not k["pack_panels"] or k["turn"]:
        return one(False, "panels are not packed in chunks")
    return flags(chunks > costs.MANY_CHUNKS, f"a panel of {chunks} chunks is written out")


def _usual_pack_loop(p: NestProblem, target: Target, k: Chosen) -> bool:
    return bool(_pack_loop(p, target, k).values[-1]) and sides(p, k).right_nodes > costs.LONG


def _splits(p: NestProblem, _: Target, k: Chosen) -> Range:
    extent = sides(p, k).c.k[0].extent
    return up_to(extent, f"the first axis of K has {extent} points")


def _usual_splits(p: NestProblem, target: Target, k: Chosen) -> int:
    cut, wanted = pieces(p, k), _wanted(target, k)
    tasks = cut.owners(str(k["order"]))
    splits = math.ceil(wanted / tasks) if k["parallel"] and tasks < wanted and cut.k >= costs.SPLIT_K else 1
    part_bytes = 4 * cut.k * int(k["lanes"]) * int(k["vectors"])
    splits = max(splits, math.ceil(part_bytes / (target.l2_bytes // costs.PANEL_CACHE_SHARE)))
    return min(splits, sides(p, k).c.k[0].extent)


def _tiles(p: NestProblem, _: Target, k: Chosen) -> Range:
    if k["order"] == "panels":
        return one(1, "a task owns a panel, and no row tiles")
    return up_to(pieces(p, k).tiles, f"there are {pieces(p, k).tiles} row tiles")


def _usual_tiles(p: NestProblem, target: Target, k: Chosen) -> int:
    tiles, enough = pieces(p, k).tiles, costs.BLOCKS_A_TASK * _wanted(target, k)
    if k["order"] == "panels" or sides(p, k).c.batch or tiles <= enough:
        return 1
    return max(1, min(costs.MOST_TILES_A_BLOCK, tiles // enough))


def _store(p: NestProblem, _: Target, k: Chosen) -> Range:
    s, lanes = sides(p, k), int(k["lanes"])
    if int(k["splits"]) > 1:
        return one("stack", "partial sums are added row by row, through memory")
    if not s.is_written_along_n or s.chunk(lanes) != lanes:
        return one("stack", "a vector of N is not one of every output")
    return Range(STORES, "")


def _usual_store(p: NestProblem, target: Target, k: Chosen) -> str:
    is_short = sides(p, k).written_nodes <= costs.SHORT
    return "registers" if is_short and "registers" in _store(p, target, k) else "stack"


KNOBS: tuple[Knob[NestProblem], ...] = (
    FUSE,
    Knob("split", INDEX, "which factors are the left side", _split, lambda _, __, ___: 0),
    Knob("side", WORD, "the side with the lanes", lambda _, __, ___: Range(SIDES, "there are two"), _usual_side, SIDES),
    Knob("last_n", INDEX, "the axis of N with the lanes", _last_n, _usual_last_n),
    Knob("last_k", INDEX, "the innermost axis of K", _last_k, _usual_last_k),
    Knob("lanes", NUMBER, "points of N in a vector", _lanes, _usual_lanes),
    Knob(
        "vectors",
        NUMBER,
        "vectors of a row of the register tile",
        _vectors,
        lambda p, t, k: _best(p, t, {**_before(k), "side": k["side"]}).vectors,
    ),
    Knob("tile_rows", NUMBER, "rows of the register tile at most", _rows, _usual_rows),
    Knob("unroll", NUMBER, "points of the innermost K written out", _unroll, lambda _, __, ___: costs.UNROLLED_K),
    Knob("pack", FLAG, "the side with M is packed", _pack, _usual_pack),
    Knob("run", FLAG, "it is packed in vectors along K", _run, lambda p, t, k: _run(p, t, k).values[-1]),
    Knob("parallel", FLAG, "threads share the tasks", _parallel, _is_worth_sharing),
    Knob("order", WORD, "what a task owns", lambda _, __, ___: Range(ORDERS, "panels or tiles"), _usual_order, ORDERS),
    Knob("pack_panels", FLAG, "the side with N is packed", _pack_panels, _usual_pack_panels),
    Knob("turn", FLAG, "it is packed in squares turned in registers", _turn, lambda p, t, k: _turn(p, t, k).values[-1]),
    Knob("pack_loop", FLAG, "it is packed in a loop over chunks", _pack_loop, _usual_pack_loop),
    Knob("splits", NUMBER, "parts of K", _splits, _usual_splits),
    Knob("tiles", NUMBER, "row tiles that a task owns", _tiles, _usual_tiles),
    Knob("store", WORD, "how a tile gets from the registers to the outputs", _store, _usual_store, STORES),
)
