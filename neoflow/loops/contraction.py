"""The `contraction` template: a register tile of `rows` x `vectors` accumulators over packed or direct operands.

    pack what is packed globally
    for task in parallel(batch x splits x blocks of row tiles of M x groups of panels of N):
        for each pass over a block of K:
            pack what this task owns of it
            for each panel of N, each row tile of M:
                acc = 0; for k in the block: acc[r][v] += left[r, k] * right[k, v]
                outputs at the tile = epilogue(acc)       after the last pass; in partial sums first when splits > 1

The side with N lies in panels [K][vectors * lanes], or is read in place where it is contiguous along N; the side with
M is read in place where its address is linear, or packed in tiles [K][rows]. Of what is packed a few points of K may
lie side by side, [K / f][rows][f] and [K / f][vectors][f][lanes]; what is neither is computed in each tile.

The default takes the side and the vectors whose estimated cycles are fewest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from neoflow.expr import dtype as dt
from neoflow.loops import costs, operands, point_blocks, tasks
from neoflow.loops.knob import FLAG, INDEX, NUMBER, WORD, Chosen, Knob, Range, completed, flags, up_to
from neoflow.loops.nest import input_reads, is_data_dependent, stride
from neoflow.loops.problem import FUSE, NestProblem, looks_up_beside_choices, nbytes
from neoflow.loops.riding import rides
from neoflow.loops.sides import contractions_of, near_last_k, row_box, size, usual_last_k, usual_last_n, with_last
from neoflow.loops.tile import Sides, element_of, estimated_cycles, sided, sides, splits_of
from neoflow.target import Target
from neoflow.verdict import Verdict

SIDES = ("right", "left")
CUT = ("fuse", "split", "side", "last_m", "last_n", "last_k")
"""Knobs that say which axes there are, and in which order."""
MOST_ACCUMULATORS, MOST_VECTORS = 64, 16
"""Vectors of the largest register tile, and of one of its rows: beyond, each step spills most of them."""
MOST_ODD = 8
"""The same of vectors whose lanes are no power of two: LLVM takes them to pieces, for a minute where they are many."""
UNROLLS = (1, 2, 4, 8)


def fits(p: NestProblem) -> Verdict:
    if splits_of(p, {"fuse": p.all_fused}):
        return Verdict(True, "a sum of products with two sides")
    for c in contractions_of(p.fused({"fuse": p.all_fused})):
        return rides(c, p.fused({"fuse": p.all_fused}))
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
    """Lanes and vectors for one side, whether panels end with lines of N, and the estimated cycles of one core."""

    cycles: float
    lanes: int
    vectors: int
    in_lines: bool
    is_usable: bool


def _best(p: NestProblem, target: Target, given: dict) -> _Choice:
    def choose() -> _Choice:
        few = size(sided(p, given).m) <= costs.FEW_ROWS
        vectors = costs.TILE_VECTORS + (costs.LONG_TILE if few else ())
        cut = completed(KNOBS[: KNOBS.index(LANES)], p, target, given)
        widths = (given["lanes"],) if "lanes" in given else _widths(p, target, cut)
        tried = [completed(KNOBS, p, target, {**given, "lanes": w, "vectors": v}) for w in widths for v in vectors]
        found = [(estimated_cycles(p, target, k), k) for k in tried]
        cycles, best = min(found, key=lambda f: f[0])
        s = sides(p, tried[0])
        is_usable = s.one_lane is None and not looks_up_beside_choices(s.written, s.c.n[-1])
        return _Choice(cycles, int(best["lanes"]), int(best["vectors"]), bool(best["in_lines"]), is_usable)

    return p.memo.once(("best", target, *sorted(given.items())), choose)


def most_lanes(p: NestProblem, target: Target) -> int:
    """Of the sides along which lanes can go by default; 0 where there is none."""
    before = completed(KNOBS[:2], p, target, {})
    found = [_best(p, target, {**before, "side": side}) for side in SIDES]
    return max((choice.lanes for choice in found if choice.is_usable), default=0)


def _most_rows(target: Target, vectors: int) -> int:
    """Rows of so many vectors whose sums stay in registers beside the operands."""
    return (target.registers - costs.SPARE_REGISTERS - vectors) // vectors


def _last_m(p: NestProblem, _: Target, k: Chosen) -> Range:
    count = len(sided(p, k).m)
    return Range(range(count), f"the place of one of {count} axes of M")


def _usual_last_m(p: NestProblem, target: Target, k: Chosen) -> int:
    """The last one in the nest; or the nearest one along which tiles have more rows, where they would have few sums
    else, and where rows are no neighbours in the outputs, nor a vector of the side with M."""

    def choose() -> int:
        c = sided(p, k)
        last, most = len(c.m) - 1, _most_rows(target, costs.FEW_VECTORS)

        def rows(n: int) -> float:
            """Of a tile, on average."""
            position, steps = row_box(m := with_last(c.m, n), most)
            return size(c.m) / (size(m[:position]) * math.ceil(m[position].extent / steps))

        reads = [r.indices[0] for r in input_reads(c.left) if not is_data_dependent(r)]
        is_vector = c.m[last].extent >= target.lanes(element_of(p)) and any(stride(a, c.m[last]) == 1 for a in reads)
        is_line = stride(p.fused(k).outputs[0][1], c.m[last]) == 1
        if is_line or is_vector or rows(last) * costs.FEW_VECTORS >= costs.ENOUGH_SUMS:
            return last
        return next((n for n in reversed(range(last)) if rows(n) >= costs.MORE_ROWS * rows(last)), last)

    return p.memo.once(("last m", target, k["fuse"], k["split"], k["side"]), choose)


def _last_n(p: NestProblem, _: Target, k: Chosen) -> Range:
    count = len(sided(p, k).n)
    return Range(range(count), f"the place of one of {count} axes of N")


def _last_k(p: NestProblem, _: Target, k: Chosen) -> Range:
    count = len(sided(p, k).k)
    return Range(range(count), f"the place of one of {count} axes of K")


def _usual_last_n(p: NestProblem, _: Target, k: Chosen) -> int:
    key = ("last n", k["fuse"], k["split"], k["side"])
    return p.memo.once(key, lambda: usual_last_n(sided(p, k), p.fused(k).outputs[0][1]))


def _usual_last_k(p: NestProblem, target: Target, k: Chosen) -> int:
    """That with which tiles are best read in place; of packed ones, that along which panels lie in memory, or which
    packs them in whole squares."""

    def choose() -> int:
        c = sided(p, k)
        c = replace(c, m=with_last(c.m, int(k["last_m"])))  # rows of a tile are as that knob says
        usual = usual_last_k(c, element_of(p))
        if nbytes(input_reads(c.left)) > target.l2_bytes * target.threads:
            usual = near_last_k(c, element_of(p), usual)
        given = {name: k[name] for name in CUT[:-1]} | {"in_lines": False}
        given |= {"last_k": usual, "vectors": 2}
        given["lanes"] = _full_lanes(p, target, given)
        tried = completed(KNOBS[: KNOBS.index(operands.PACK) + 1], p, target, given)
        if not tried["pack"]:
            return usual
        if (along := operands.along_panels(p, tried)) is not None:
            return along
        parts = [sides(p, {**given, "last_k": n}).turned_part(int(tried["lanes"])) for n in range(len(sided(p, k).k))]
        return parts.index(1.0) if 1.0 in parts and parts[usual] < 1.0 else usual

    return p.memo.once(("last k", target, *(k[name] for name in CUT[:-1])), choose)


def _anyhow(p: NestProblem, k: Chosen) -> Sides:
    """The sides where panels go from line to line."""
    return sides(p, {name: k[name] for name in CUT} | {"in_lines": False})


def _in_lines(p: NestProblem, _: Target, k: Chosen) -> Range:
    s = _anyhow(p, k)
    can = len(s.c.n) > 1 and s.one_lane is None
    return flags(can, "N has one axis, or is gone through one point at a time")


def _usual_in_lines(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Where vectors would cross the ends of lines, and lanes that are left empty there cost less than short pieces; or
    where none would and few rows go over what is far away, so that a panel is fetched once, and stays for all rows."""
    s = _anyhow(p, k)
    lanes = min(target.lanes(s.element), _filled(s))
    if not _in_lines(p, target, k).values[-1]:
        return False
    if s.chunk(lanes) == lanes:
        return operands.is_thin(s, target, lanes)
    given = {name: k[name] for name in CUT}
    plain, cut = (_best(p, target, {**given, "in_lines": way}).cycles for way in (False, True))
    return cut < plain


# --- the register tile


def _lanes(p: NestProblem, target: Target, k: Chosen) -> Range:
    s = sides(p, k)
    most = min(2 * target.lanes(s.element), _filled(s))
    values = tuple(v for v in (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64) if v <= most)
    if s.one_lane is None:
        return Range(values, f"so many of the {s.stretch} points of N, in two registers at most")
    return Range(tuple(v for v in values if s.chunk(v) == 1), s.one_lane)


def _filled(s: Sides) -> int:
    return 1 << (s.stretch - 1).bit_length()


def _widths(p: NestProblem, target: Target, k: Chosen) -> tuple[int, ...]:
    """Lanes to choose from: of a vector; and of half of one, where a processor multiplies as many of these in the same
    time, and fewer of them stay empty at the end of N."""
    usual, s = _full_lanes(p, target, k), sides(p, k)
    half = usual // 2
    is_as_fast = usual == target.lanes(s.element) and target.fmas(s.element, half) > target.fmas(s.element, usual)
    return (usual, half) if is_as_fast and s.cuts(half) < 2 * s.cuts(usual) else (usual,)


def _tile_of(k: Chosen) -> dict:
    return {**_before(k), "side": k["side"], "last_m": k["last_m"], "in_lines": k["in_lines"]}


def _usual_lanes(p: NestProblem, target: Target, k: Chosen) -> int:
    widths = _widths(p, target, k)
    return widths[0] if len(widths) == 1 else _best(p, target, _tile_of(k)).lanes


def _usual_vectors(p: NestProblem, target: Target, k: Chosen) -> int:
    widths, lanes = _widths(p, target, k), int(k["lanes"])
    return _best(p, target, {**_tile_of(k), "lanes": lanes if lanes in widths else widths[0]}).vectors


def _full_lanes(p: NestProblem, target: Target, k: Chosen) -> int:
    s = sides(p, k)
    usual = min(target.lanes(s.element), _filled(s))
    if size(s.c.m) <= costs.FEW_ROWS and s.in_place(usual) is None and s.in_place(usual // 2) is not None:
        usual //= 2  # shorter vectors in place: few rows would not make good for packing
    return usual if s.one_lane is None or s.chunk(usual) == 1 else 1


def _most(k: Chosen) -> int:
    """Accumulators at most."""
    return MOST_ACCUMULATORS if int(k["lanes"]).bit_count() == 1 else MOST_ODD


def _vectors(_: NestProblem, __: Target, k: Chosen) -> Range:
    most = min(MOST_VECTORS, _most(k))
    return up_to(most, f"a row has at most {most} vectors: more are no register tile")


def _rows(p: NestProblem, _: Target, k: Chosen) -> Range:
    m = size(sides(p, k).c.m)
    reason = f"a register tile has at most {_most(k)} accumulators, and M {m} points: more is no register tile"
    return up_to(min(m, _most(k) // int(k["vectors"])), reason)


def _usual_rows(p: NestProblem, target: Target, k: Chosen) -> int:
    vectors = int(k["vectors"])
    rows = max(1, _most_rows(target, vectors))
    s, c = sides(p, k), sides(p, k).c
    most = min(rows, costs.TILE_ROWS, size(c.m), _most(k) // vectors)
    is_shared = c.flops >= costs.PARALLEL_FLOPS and size(c.k) < costs.SPLIT_K and not c.batch and len(c.m) == 1
    is_near = dt.itemsize(s.element) * size(c.k) * (size(c.m) + size(c.n)) <= target.l2_bytes
    fair = _fair_rows(size(c.m), most, target) if is_shared and is_near else most
    return c.m[-1].extent if _is_crowded(p, target, k, fair) else fair


def _is_crowded(p: NestProblem, target: Target, k: Chosen, rows: int) -> bool:
    """Whether rows are a few windows that slide over K, in place: two points of K share what all but one of a window
    read, and it stays in registers, where a multiply-add cannot spread it itself, with sums in memory if these are too
    few. One window leaves room."""
    s, c, vectors = sides(p, k), sides(p, k).c, int(k["vectors"])
    if target.spreads_operands or not c.m or not c.k or s.left_read is None:
        return False
    address, window = s.left_read.indices[0], c.m[-1].extent
    moved = stride(address, c.m[-1])
    if not moved or stride(address, c.k[-1]) != moved or window * vectors < costs.FEWEST_SUMS:
        return False
    position, count = row_box(c.m, rows)
    windows = count * size(c.m[position + 1 :]) // window
    held = (windows * window + 1) * vectors + windows * (window + 1)
    chosen = {name: k[name] for name in ("last_n", "last_k", "lanes", "vectors")}
    kept = {**_tile_of(k), **chosen, "tile_rows": window, "unroll": _usual_unroll(p, target, k)}
    return windows > 1 and held > target.registers and not operands.PACK.default(p, target, kept)


def _fair_rows(m: int, most: int, target: Target) -> int:
    """Rows of which threads have as many each, where their tiles are few: three tiles of 11 rows, not 14, 14 and 14
    beside 14 and 8."""
    if not 1 < math.ceil(m / most) <= costs.FEW_TILES * target.threads:
        return most

    def load(rows: int) -> float:
        return math.ceil(math.ceil(m / rows) / target.threads) * (rows + costs.ROWLESS)

    return min(range(most, max(1, most - costs.FEWER_ROWS) - 1, -1), key=load)


def _last_points(p: NestProblem, k: Chosen) -> int:
    """Of the innermost axis of K."""
    return sides(p, k).c.k[-1].extent


def _unroll(p: NestProblem, _: Target, k: Chosen) -> Range:
    """One by one, or so many at a time; of a short axis all."""
    extent = _last_points(p, k)
    most = next((n for n in UNROLLS if n >= extent), UNROLLS[-1])
    return Range(UNROLLS[: UNROLLS.index(most) + 1], f"of {extent} points of K; more written out only make code longer")


def _usual_unroll(p: NestProblem, target: Target, k: Chosen) -> int:
    """All of a few; of many a few, where tiles have few sums beside the steps of their loop."""
    if target.spreads_operands and _last_points(p, k) > costs.UNROLLED_K:
        return 1
    return min(costs.UNROLLED_K, int(_unroll(p, target, k).values[-1]))


LANES: Knob[NestProblem] = Knob("lanes", NUMBER, "points of N in a vector", _lanes, _usual_lanes)
KNOBS: tuple[Knob[NestProblem], ...] = (
    FUSE,
    Knob("split", INDEX, "which factors are the left side", _split, lambda _, __, ___: 0),
    Knob("side", WORD, "the side with the lanes", lambda _, __, ___: Range(SIDES, "there are two"), _usual_side, SIDES),
    Knob("last_m", INDEX, "the axis of M along which rows of a tile are", _last_m, _usual_last_m),
    Knob("last_n", INDEX, "the axis of N with the lanes", _last_n, _usual_last_n),
    Knob("last_k", INDEX, "the innermost axis of K", _last_k, _usual_last_k),
    Knob("in_lines", FLAG, "panels end where the last axis of N does", _in_lines, _usual_in_lines),
    LANES,
    Knob("vectors", NUMBER, "vectors of a row of the register tile", _vectors, _usual_vectors),
    Knob("tile_rows", NUMBER, "rows of the register tile at most", _rows, _usual_rows),
    Knob("unroll", NUMBER, "points of the innermost K written out", _unroll, _usual_unroll),
    operands.PACK,
    operands.RUN,
    operands.TURN_ROWS,
    point_blocks.ROW_POINTS,
    tasks.PARALLEL,
    tasks.ORDER,
    operands.PACK_PANELS,
    operands.TURN,
    operands.PACK_LOOP,
    point_blocks.VECTOR_POINTS,
    operands.AHEAD,
    operands.PACK_PARTS,
    operands.PREFETCH,
    tasks.SPLITS,
    tasks.PASSES,
    tasks.TILES,
    tasks.PANELS,
    tasks.INNERMOST,
    tasks.STORE,
    tasks.STREAM,
    tasks.FETCH,
    tasks.NEXT_PANEL,
)
