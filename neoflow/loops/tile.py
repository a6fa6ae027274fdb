"""A contraction as its knobs cut it: the sides in the order of the loops, how many pieces, the cycles they take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from neoflow.expr import dtype as dt
from neoflow.expr.ir import Axis, Expr, Read, postorder
from neoflow.loops import costs
from neoflow.loops.joined import Joined, Output, joined, joined_outputs
from neoflow.loops.knob import Chosen
from neoflow.loops.nest import Nest, input_reads, is_index, pitch, stride
from neoflow.loops.problem import (
    Measures,
    NestProblem,
    is_turnable,
    looks_up_beside_choices,
    nbytes,
    one_lane,
)
from neoflow.loops.riding import rides
from neoflow.loops.sides import (
    Contraction,
    block_lanes,
    chunk_lanes,
    contiguous_run,
    contractions_of,
    direct_read,
    ordered,
    overlap,
    row_box,
    size,
    tile_axes,
    vector_read,
)
from neoflow.target import Target


@dataclass(frozen=True, eq=False)
class Sides:
    """A contraction in the order of its loops, and what its knobs ask of it. in_lines: panels end where the last axis
    of N does."""

    nest: Nest
    c: Contraction
    element: str
    in_lines: bool = False

    @cached_property
    def written(self) -> tuple[Expr, ...]:
        """The values of the outputs, and of what is added up of them."""
        return tuple(value for _, _, value in self.nest.outputs + self.nest.sums)

    @cached_property
    def left_read(self) -> Read | None:
        """The side with M, where it can be read in place."""
        return direct_read(self.c.left, self.element)

    @cached_property
    def right_read(self) -> Read | None:
        """The side with N, where its address is linear."""
        return direct_read(self.c.right, self.element)

    @cached_property
    def left_joined(self) -> Joined:
        """The side with M over as few axes of K as it alone allows: as it is packed."""
        return joined(self.c.left, self.c.k)

    @cached_property
    def right_joined(self) -> Joined:
        """The same of the side with N."""
        return joined(self.c.right, self.c.k)

    @cached_property
    def lines(self) -> tuple[tuple[Axis, ...], tuple[Output, ...]]:
        """N and the outputs as they are written, and what is added up of them: over axes joined wherever that keeps
        their lanes."""
        formulas = self.nest.outputs + self.nest.sums
        axes, outputs = joined_outputs(formulas, self.c.n)
        values = tuple(value for _, _, value in outputs)
        if self.one_lane is not None or one_lane(values, axes[-1], True) is not None:
            return self.c.n, formulas
        if looks_up_beside_choices(values, axes[-1]):
            return self.c.n, formulas
        return axes, outputs

    @cached_property
    def right_is_contiguous(self) -> bool:
        """Whether every read of the side with N is contiguous along N."""
        axis = self.c.n[-1]
        reads = [r for r in input_reads(self.c.right) if axis in r.free]
        return bool(reads) and all(stride(r.indices[0], axis) == 1 for r in reads)

    @cached_property
    def is_written_along_n(self) -> bool:
        """Whether every output is contiguous along N."""
        return all(stride(address, self.c.n[-1]) == 1 for _, address, _ in self.nest.outputs)

    @cached_property
    def has_lines(self) -> bool:
        """The same over axes that are joined."""
        axes, outputs = self.lines
        return all(stride(address, axes[-1]) == 1 for _, address, _ in outputs[: len(self.nest.outputs)])

    @cached_property
    def one_lane(self) -> str | None:
        """Why what lies along N is computed one point at a time."""
        return one_lane((*self.written, self.c.right), self.c.n[-1], True)

    @cached_property
    def left_lanes(self) -> str | None:
        """Why the side with M is computed one point at a time."""
        return one_lane((self.c.left,), self.c.k[-1], False)

    @cached_property
    def work(self) -> tuple[int, int, int]:
        """Elementary operations of a point of the left side, the right one, the outputs."""
        left = 0 if self.left_read is not None else costs.operations((self.c.left,))
        right = 0 if self.right_read is not None else costs.operations((self.c.right,))
        return left, right, costs.arithmetic(self.written)

    @cached_property
    def left_nodes(self) -> int:
        return sum(1 for _ in postorder(self.c.left))

    @cached_property
    def right_nodes(self) -> int:
        return sum(1 for _ in postorder(self.c.right))

    @cached_property
    def written_nodes(self) -> int:
        return sum(1 for value in self.written for _ in postorder(value))

    @cached_property
    def is_written_along_m(self) -> bool:
        """Whether every output is contiguous along the last axis of M and can be computed in lanes along it."""
        axis = self.c.m[-1]
        if one_lane(self.written, axis, True) is not None:
            return False
        return all(stride(address, axis) == 1 for _, address, _ in self.nest.outputs)

    def line_of_rows(self, tile_rows: int) -> int:
        """Rows of a tile along the last axis of M."""
        position, steps = row_box(self.c.m, tile_rows)
        return steps if position == len(self.c.m) - 1 else self.c.m[-1].extent

    def left_line(self, tile_rows: int) -> int:
        """Rows of a tile that are neighbours in the memory of the side with M, read in place."""
        read = self.left_read
        is_line = read is not None and stride(read.indices[0], self.c.m[-1]) == 1
        return self.line_of_rows(tile_rows) if is_line else 1

    @cached_property
    def shares_rows(self) -> bool:
        """Whether steps of the innermost K come to where other rows of a tile, read in place, are."""
        read, last = self.left_read, self.c.k[-1]
        return read is not None and any(overlap(read, last, row) for row in tile_axes(self.c.m, costs.TILE_ROWS))

    def turned_part(self, lanes: int) -> float:
        """The part of the side with N that is packed in squares which are turned; 0 where there are none."""
        read = direct_read(self.right_joined.side, self.element)
        if read is None:
            return 0.0
        axes = [a for a in self.right_joined.axes if is_turnable(read, self.c.n[-1], a)]
        longest, axis = max(
            ((block_lanes(a, self.chunk(lanes)), a) for a in axes), default=(1, None), key=lambda f: f[0]
        )
        if axis is None or longest < costs.LEAST_TURNED:
            return 0.0
        return 1 - axis.extent % longest / axis.extent

    def is_usually_turned(self, tile_rows: int) -> bool:
        """Whether the outputs lie along M, not N, and the lines of a tile there are long enough."""
        line = self.line_of_rows(tile_rows)
        return line >= costs.TURNED_LINE and self.is_written_along_m and not self.has_lines

    def in_place(self, lanes: int) -> Read | None:
        """The side with N, where vectors of it lie in its memory as they are."""
        return vector_read(self.c.right, self.c.n, lanes, self.element, self.in_lines)

    def chunk(self, lanes: int) -> int:
        return chunk_lanes(self.c.n, lanes, self.in_lines)

    @property
    def stretch(self) -> int:
        """Points of N that are cut into panels by themselves."""
        return self.c.n[-1].extent if self.in_lines else size(self.c.n)

    def cuts(self, width: int) -> int:
        """Pieces of so many points of N, or what is left of a stretch."""
        return size(self.c.n) // self.stretch * math.ceil(self.stretch / width)

    def line_chunk(self, lanes: int) -> int:
        """Lanes that never cross the end of a line of the outputs."""
        return chunk_lanes(self.lines[0], lanes, self.in_lines)


def element_of(p: NestProblem) -> str:
    """What the sums are kept in."""
    assert p.nest.reduction is not None
    return "float64" if p.nest.reduction.body.dtype == "float64" else "float32"


def splits_of(p: NestProblem, k: Chosen) -> tuple[Contraction, ...]:
    def found() -> tuple[Contraction, ...]:
        nest = p.fused(k)
        return tuple(c for c in contractions_of(nest) if rides(c, nest).ok)

    return p.memo.once(("contractions", k["fuse"]), found)


def sided(p: NestProblem, k: Chosen) -> Contraction:
    """The factors on the sides that the knobs say, in the order of the nest."""
    found = splits_of(p, k)[int(k["split"])]
    return found if k["side"] == "right" else found.swapped()


def sides(p: NestProblem, k: Chosen) -> Sides:
    """The contraction that the knobs fuse, split, side, last_m, last_n, last_k and in_lines say."""
    nest, in_lines = p.fused(k), bool(k["in_lines"])
    last_m, last_n, last_k = (int(k[name]) for name in ("last_m", "last_n", "last_k"))
    key = ("sides", k["fuse"], k["split"], k["side"], last_m, last_n, last_k, in_lines)
    address = nest.outputs[0][1]

    def found() -> Sides:
        return Sides(nest, ordered(sided(p, k), address, last_n, last_k, last_m), element_of(p), in_lines)

    return p.memo.once(key, found)


def places_beside(written: tuple[Expr, ...], m: tuple[Axis, ...], n: tuple[Axis, ...]) -> tuple[Read, ...]:
    """What the outputs read, beside the sums, at points that differ along M and along N."""
    found: dict[Read, None] = {}
    for read in (r for value in written for r in input_reads(value)):
        address = read.indices[0]
        is_plain = len(read.indices) == 1 and is_index(address)
        if is_plain and not address.free.isdisjoint(m) and not address.free.isdisjoint(n):
            found[read] = None
    return tuple(found)


@dataclass(frozen=True)
class Pieces:
    """How many there are: points of the batch, M, N and K; rows of a tile, tiles, panels."""

    batch: int
    m: int
    n: int
    k: int
    rows: int
    tiles: int
    panels: int

    def owners(self, by_panels: bool) -> int:
        """Tasks for one part of K that own a panel, or a row tile, each."""
        return self.batch * (self.panels if by_panels else self.tiles)

    def tasks(self, k: Chosen, threads: int) -> tuple[int, int]:
        """Blocks of row tiles and groups of panels, each of so many at most; of what tasks own, so many more blocks
        that no thread has a task more than another: 38 blocks of 74 tiles in twos, and not 37."""
        blocks, groups = math.ceil(self.tiles / int(k["tiles"])), math.ceil(self.panels / int(k["panels"]))
        others = self.batch * int(k["splits"])
        if k["order"] == "panels":
            return blocks, even(groups, self.panels, others * blocks, threads)
        return even(blocks, self.tiles, others * groups, threads), groups


def even(count: int, pieces: int, others: int, threads: int) -> int:
    """The least number of blocks from `count` on, of so many pieces, such that it times `others` is a multiple of the
    threads; `count` itself where there is none, or where threads have hardly a task each."""
    if count * others <= threads:
        return count
    return next((n for n in range(count, min(pieces, count + threads) + 1) if n * others % threads == 0), count)


def pieces(p: NestProblem, k: Chosen) -> Pieces:
    s = sides(p, k)
    c, n = s.c, size(s.c.n)
    position, count = row_box(c.m, int(k["tile_rows"]))
    tiles = size(c.m[:position]) * math.ceil(c.m[position].extent / count)
    panels = s.cuts(int(k["lanes"]) * int(k["vectors"]))
    return Pieces(size(c.batch), size(c.m), n, size(c.k), count * size(c.m[position + 1 :]), tiles, panels)


def wanted_tasks(target: Target, k: Chosen) -> int:
    """Tasks that keep every thread busy."""
    return costs.CONTRACTION_TASKS * target.threads if k["parallel"] else 1


def estimated_cycles(p: NestProblem, target: Target, k: Chosen) -> float:
    """Estimated cycles of one core: the register tiles, packing, writing."""
    s, cut = sides(p, k), pieces(p, k)
    lanes, vectors = int(k["lanes"]), int(k["vectors"])
    # multiply-adds, or what limits them: loading the operands, the latency of few accumulators; then the loops
    registers = cut.rows * vectors
    units = target.fmas(s.element, lanes)
    loads = (cut.rows + vectors) / 2 if target.spreads_operands else max(cut.rows, (cut.rows + vectors) / 2)
    limit = max(1.0, units * max(loads, costs.LATENCY) / registers)
    multiply = cut.batch * cut.k * cut.m * s.cuts(lanes) / units * limit
    each: float = costs.STEP_CYCLES * cut.k + costs.TILE_CYCLES + costs.REGISTER_CYCLES * registers
    if panel_bytes(p, k) > costs.NEAR_BYTES:
        each += costs.STREAMED_LINE * cut.k * vectors
    is_written_out = s.c.k[-1].extent <= int(k["unroll"])  # code shares what several steps read
    is_shared = not k["pack"] and is_written_out and s.shares_rows
    if is_shared and registers + vectors > target.registers - costs.SHARED_ROWS:
        multiply *= costs.SPILLED
    multiply += cut.batch * cut.tiles * cut.panels * each
    pack_right = cut.batch * cut.k * cut.n * _panel_cycles(s, lanes) if k["pack_panels"] else 0.0
    packed = cut.batch * cut.k * cut.n
    is_common = k["pack_panels"] and k["order"] == "tiles"
    if is_common and dt.itemsize(s.element) * packed > costs.SHARED_CACHES * target.l2_bytes * target.threads:
        pack_right += costs.SHARED_ELEMENT * packed
    # what rows gain that are not packed since tiles find them again is a wait that this does not count
    is_packed = k["pack"] or (cut.panels >= costs.REPACKED_PANELS and finds_rows_again(p, target, k))
    pack_left = cut.batch * cut.k * cut.m * _row_cycles(s, target, int(k["tile_rows"])) if is_packed else 0.0
    multiply += cut.batch * cut.k * sum(_inlined_cycles(p, k))
    write = cut.batch * cut.m * cut.n * _write_cycles(s, lanes, int(k["tile_rows"]))
    write += cut.batch * cut.m * cut.panels * costs.WRITE_PIECE  # a piece of a row each
    needed = dt.itemsize(s.element) * cut.k * (cut.rows + lanes * vectors)
    is_short = needed <= costs.NEAR_BYTES // 2  # else what a tile reads drives written lines out, wherever they lie
    if is_short and s.is_usually_turned(int(k["tile_rows"])) and scatters(s, lanes * vectors):
        write += cut.batch * cut.n * cut.m / s.line_of_rows(int(k["tile_rows"])) * costs.LOST_LINE
    if not k["pack"] and collides(p, k):
        lines = cut.k * cut.m * dt.itemsize(s.element) / costs.LINE_BYTES
        multiply += cut.batch * lines * cut.panels * costs.LOST_LINE
    if not k["pack"] and not target.spreads_operands and row_lines_a_place(p, k) > costs.MANY_LINES:
        multiply += cut.batch * cut.k * cut.tiles * cut.panels * costs.REREAD_LINE
    return multiply + pack_right + pack_left + write


def inlined(p: NestProblem, k: Chosen) -> tuple[int, int]:
    """How often each point of the two sides is computed in tiles: for each panel, or row tile; 0 where a side lies
    packed, or is read in place."""
    s, cut = sides(p, k), pieces(p, k)
    is_left = not k["pack"] and s.left_read is None
    is_right = not k["pack_panels"] and s.in_place(int(k["lanes"])) is None
    return cut.panels * is_left, cut.tiles * is_right


def _inlined_cycles(p: NestProblem, k: Chosen) -> tuple[float, float]:
    """Cycles of computing all points of M, and of N, at a point of K in tiles."""
    s, cut = sides(p, k), pieces(p, k)
    left, right = inlined(p, k)
    is_line = s.right_is_contiguous and int(k["lanes"]) > 1
    each = (1 + s.work[1]) / int(k["lanes"]) if is_line else costs.PACK_ELEMENT + s.work[1]
    return left * cut.m * s.work[0], right * cut.n * each


def _panel_cycles(s: Sides, lanes: int) -> float:
    """Cycles of packing an element of the side with N."""
    work, chunk = s.work[1], s.chunk(lanes)
    if s.right_is_contiguous and chunk > 1:
        return (costs.PACK_CHUNK + work) / chunk
    turned = s.turned_part(lanes)
    return turned * costs.PACK_TURNED + (1 - turned) * (costs.PACK_ELEMENT + work)


def _row_cycles(s: Sides, target: Target, tile_rows: int) -> float:
    """Cycles of packing an element of the side with M."""
    line, lanes = s.left_line(tile_rows), target.lanes(s.element)
    if s.left_read is not None and line > 1:
        step = pitch(s.left_read.indices[0], s.c.k[-1], s.element)
        is_far = nbytes([s.left_read]) > target.l2_bytes * target.threads and step >= costs.SET_BYTES
        lost = costs.LOST_LINE if is_far and step % costs.SET_BYTES == 0 else 0  # before the next tile reads its rest
        return (costs.PACK_CHUNK * math.ceil(line / lanes) + lost) / line
    if s.left_read is not None and contiguous_run(s.left_joined.side, s.left_joined.axes, lanes) is not None:
        return costs.PACK_TURNED
    return costs.PACK_ELEMENT + s.work[0] / costs.PACK_LANES


def _write_cycles(s: Sides, lanes: int, tile_rows: int) -> float:
    """Cycles of writing an element of the outputs."""
    axes, outputs = s.lines
    if stride(outputs[0][1], axes[-1]) == 1:
        return costs.WRITE_CHUNK * s.work[2] / s.line_chunk(lanes)
    if s.is_usually_turned(tile_rows):
        return costs.TURN_ELEMENT + costs.WRITE_CHUNK * s.work[2] / min(lanes, s.line_of_rows(tile_rows))
    return costs.WRITE_CHUNK * s.work[2]


def collides(p: NestProblem, k: Chosen) -> bool:
    """Whether rows of a tile, read in place along lines of memory, drive each other out of the first-level cache."""
    s = sides(p, k)
    position, rows = row_box(s.c.m, int(k["tile_rows"]))
    read = s.left_read
    if read is None or position != len(s.c.m) - 1 or stride(read.indices[0], s.c.k[-1]) != 1:
        return False
    step = pitch(read.indices[0], s.c.m[-1], s.element)
    return rows > costs.WAYS and step != 0 and step % costs.SET_BYTES == 0


def row_lines_a_place(p: NestProblem, k: Chosen) -> float:
    """Lines of the side with M that a tile, which reads it in place, comes to before it needs one of them again, for
    each place that they share in the first-level cache: of its rows where these lie along K, else of the points of the
    innermost K."""
    s = sides(p, k)
    if s.left_read is None:
        return 0.0
    address = s.left_read.indices[0]
    position, rows = row_box(s.c.m, int(k["tile_rows"]))
    is_along = abs(stride(address, s.c.k[-1]) or 0) == 1
    axis, count = (s.c.m[position], rows) if is_along else (s.c.k[-1], s.c.k[-1].extent)
    return lines_a_place(count, pitch(address, axis, s.element))


def finds_rows_again(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Whether rows are better read in place, where loads do not spread operands: the first-level cache keeps them as
    they are from one panel to the next, none is a window's, and there is little work, or few panels and a long K along
    which they lie."""
    s, cut = sides(p, k), pieces(p, k)
    if target.spreads_operands or s.left_read is None or s.shares_rows or row_lines_a_place(p, k) > costs.FEW_LINES:
        return False
    is_little = s.c.flops < costs.FEW_FLOPS and cut.tiles > costs.USED_SELDOM
    is_along = abs(stride(s.left_read.indices[0], s.c.k[-1]) or 0) == 1 and s.c.k[-1].extent >= costs.LONG_ROW
    return is_little or (is_along and cut.panels <= costs.FEW_PANELS)


def lines_a_place(count: int, step: int) -> float:
    """So many lines, so many bytes apart, for each place that they share in the first-level cache; 0 where they are one
    line."""
    places = costs.SET_BYTES // max(costs.LINE_BYTES, math.gcd(step, costs.SET_BYTES))
    return count / places if step else 0.0


def panel_bytes(p: NestProblem, k: Chosen) -> int:
    """Bytes of one panel, of all of K."""
    return dt.itemsize(element_of(p)) * pieces(p, k).k * int(k["lanes"]) * int(k["vectors"])


def scatters(s: Sides, width: int) -> bool:
    """Whether so many points of N, written a piece of a line each, drive each other out of the first-level cache before
    the next tile goes on with their lines."""
    axis, address = s.c.n[-1], s.nest.outputs[0][1]
    step = pitch(address, axis, s.element) or costs.SET_BYTES  # where it is not known, all share a place
    return lines_a_place(min(width, axis.extent), step) > costs.WAYS


def strides_far(target: Target, read: Read | None, element: str, k: tuple[Axis, ...]) -> bool:
    """Whether a side, read in place, is in another page at each point of K, of a tensor that no core's own cache
    holds."""
    if read is None or len(k) > 1 or nbytes([read]) <= target.l2_bytes * target.threads:
        return False
    return pitch(read.indices[0], k[0], element) >= costs.SET_BYTES


def measures(p: NestProblem, target: Target, k: Chosen) -> Measures:
    """The working set is what one row tile and one panel need of a part of K; operations are those of the sums, of the
    outputs, and of sides that tiles compute."""
    s, cut, splits = sides(p, k), pieces(p, k), int(k["splits"])
    points, size_each = cut.batch * cut.m * cut.n, dt.itemsize(s.element)
    written_work = s.work[2]
    read = nbytes(r for e in (s.c.left, s.c.right, *s.written) for r in input_reads(e))
    written = points * sum(dt.itemsize(value.dtype) for _, _, value in s.nest.outputs)
    tile = cut.rows + int(k["lanes"]) * int(k["vectors"])
    tasks = cut.batch * splits * math.prod(cut.tasks(k, target.threads))
    held = cut.rows * int(k["vectors"])
    left, right = inlined(p, k)
    again = cut.batch * cut.k * (left * cut.m * (1 + s.work[0]) + right * cut.n * (1 + s.work[1]))
    work = s.c.flops + points * written_work + again
    return Measures(
        points, cut.k, work, read, written, tasks, held, size_each * tile * cut.k / (splits * int(k["passes"]))
    )
