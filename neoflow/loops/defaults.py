"""`default_schedule`: a schedule by structure, without search.  Pure; the numbers are from measurements in
`tests/codegen` and `docs`, and a tuner may vary every knob."""

from __future__ import annotations

import math
from dataclasses import dataclass

from neoflow.expr.functions import FUNCTIONS
from neoflow.expr.ir import Apply, Axis, Expr, Read, Reduce, Select, postorder
from neoflow.loops.contraction import (
    Contraction,
    arranged,
    chunk_lanes,
    direct_read,
    find_contraction,
    row_box,
    size,
    vector_read,
)
from neoflow.loops.nest import (
    Nest,
    ScatterNest,
    input_reads,
    is_data_dependent,
    is_index,
    nest_of,
    scatter_of,
    stride,
)
from neoflow.loops.rows import rows_of, rows_schedule
from neoflow.loops.schedule import Knob, Schedule
from neoflow.partition.subgraph import Subgraph
from neoflow.target import Target

PARALLEL_WORK = 32_768
"""Elementary operations below which a parallel region (1-2 us) costs more than it saves."""
IN_PLACE_BYTES, IN_PLACE_TILES = 1 << 21, 200
"""A side that all tasks share is read in place, where it can be, up to so many bytes a batch and passes over it."""


def _schedule(template: str, **knobs: Knob) -> Schedule:
    return Schedule(template, tuple(sorted(knobs.items())))


def default_schedule(subgraph: Subgraph, target: Target) -> Schedule:
    """The schedule of a subgraph by its structure alone."""
    by_rows = rows_of(subgraph)
    if by_rows is not None:
        work = _points(by_rows.axes) * sum(s.size * _cost(s.nest.expressions) for s in by_rows.stages)
        return rows_schedule(by_rows, target, _one_stage, target.threads > 1 and work >= PARALLEL_WORK)
    scattered = scatter_of(subgraph)
    if scattered is not None:
        return _scatter(scattered, target)
    nest = nest_of(subgraph).fused()
    if nest.reduction is None:
        return _map(nest, target)
    found = find_contraction(nest)
    return _contraction(nest, found, target) if found is not None else _reduction(nest, target)


def _one_stage(nest: Nest, target: Target) -> Schedule:
    return _map(nest, target) if nest.reduction is None else _reduction(nest, target)


def _scatter(nest: ScatterNest, target: Target) -> Schedule:
    columns = nest.columns
    if columns is None or _must_be_scalar((nest.value,), columns):
        return _schedule("scatter", lanes=1, chunks=1)
    lanes = _lanes((nest.value,), columns, target)
    work = _points(nest.axes) * _cost((nest.value,)) + math.prod(nest.shape)
    chunks = target.threads if work >= PARALLEL_WORK else 1
    return _schedule("scatter", lanes=lanes, chunks=max(1, min(chunks, columns.extent // lanes)))


def _points(axes: tuple[Axis, ...]) -> int:
    return math.prod(a.extent for a in axes)


def _cost(expressions: tuple[Expr, ...]) -> int:
    """Elementary operations of a point, roughly."""
    nodes = {n for e in expressions for n in postorder(e)}
    return sum(FUNCTIONS[n.fn].instructions if isinstance(n, Apply) else 1 for n in nodes)


def _must_be_scalar(expressions: tuple[Expr, ...], lane_axis: Axis) -> bool:
    """Whether something in the body exists for one lane only."""
    nodes = {n for e in expressions for n in postorder(e)}
    one_lane = any(isinstance(n, Apply) and n.dtype in FUNCTIONS[n.fn].one_lane for n in nodes)
    return one_lane or _looks_up_by_lane(expressions, lane_axis)


def _looks_up_by_lane(expressions: tuple[Expr, ...], lane_axis: Axis) -> bool:
    """Whether an index that is data, or the condition it is read under, differs along the axis."""
    nodes = {n for e in expressions for n in postorder(e)}
    data = [n for n in nodes if isinstance(n, Read) and n.indices and is_data_dependent(n)]
    if any(not is_index(i) and lane_axis in i.free for read in data for i in read.indices):
        return True
    chosen_by = [n.cond for n in nodes if isinstance(n, Select)]
    chosen_by += [n.args[0] for n in nodes if isinstance(n, Apply) and n.fn in ("and", "or")]
    return bool(data) and any(lane_axis in condition.free for condition in chosen_by)


def _widest(expressions: tuple[Expr, ...]) -> str:
    """An element type of the largest size that is computed with: it gives the lanes."""
    wide = any(n.dtype in ("float64", "int64") and not is_index(n) for e in expressions for n in postorder(e))
    return "float64" if wide else "float32"


def _lanes(expressions: tuple[Expr, ...], axis: Axis, target: Target) -> int:
    """A vector register, or less for a short axis."""
    if _must_be_scalar(expressions, axis):
        return 1
    return min(target.lanes(_widest(expressions)), 1 << (axis.extent - 1).bit_length())


def _map(nest: Nest, target: Target) -> Schedule:
    expressions = tuple(value for _, _, value in nest.outputs)
    work = _points(nest.axes) * _cost(expressions)
    parallel = target.threads > 1 and work >= PARALLEL_WORK
    if not nest.axes:
        return _schedule("map", lanes=1, inner=-1, chunks=1, parallel=False)
    lane_axis = nest.axes[-1]
    lanes = _lanes(expressions, lane_axis, target)
    inner = _transposed_axis(nest, expressions, lane_axis)
    rows = _points(tuple(a for n, a in enumerate(nest.axes[:-1]) if n != inner))
    chunks = 1
    if parallel and rows < 8 * target.threads:
        chunks = max(1, min(lane_axis.extent // lanes, math.ceil(8 * target.threads / rows)))
    return _schedule("map", lanes=lanes, inner=inner, chunks=chunks, parallel=parallel)


def _transposed_axis(nest: Nest, expressions: tuple[Expr, ...], lane_axis: Axis) -> int:
    """Position of the axis along which a read that strides along the lanes is contiguous, or -1."""
    for e in expressions:
        for read in input_reads(e):
            if is_data_dependent(read) or stride(read.indices[0], lane_axis) in (0, 1):
                continue
            for n, a in enumerate(nest.axes[:-1]):
                if stride(read.indices[0], a) == 1 and a.extent > 1:
                    return n
    return -1


def _reduction(nest: Nest, target: Target) -> Schedule:
    reduction = nest.reduction
    assert isinstance(reduction, Reduce)
    expressions = nest.expressions
    outputs, reduced = _points(nest.axes), _points(reduction.axes)
    parallel = target.threads > 1 and outputs * reduced * _cost((reduction.body,)) >= PARALLEL_WORK
    lane, rows = _reduction_lane(nest, reduction), 1
    if lane == "output":
        lanes = _lanes(expressions, nest.axes[-1], target)
        blocks = nest.axes[-1].extent // lanes
        unroll = max(1, min(4, blocks))
        if len(nest.axes) > 1:  # a short row leaves registers for its neighbours
            extent, most = nest.axes[-2].extent, max(1, 12 // max(1, math.ceil(nest.axes[-1].extent / lanes)))
            rows = math.ceil(extent / math.ceil(extent / most))
        tasks = math.ceil(_points(nest.axes[:-1]) / rows) * math.ceil(blocks / unroll)
    else:
        axis = reduction.axes[-1] if reduction.axes else None
        lanes = _lanes(expressions, axis, target) if axis is not None else 1
        blocks = axis.extent // lanes if axis is not None else 1
        unroll, tasks = max(1, min(4, blocks)), outputs
    splits = 1
    if parallel and tasks < 2 * target.threads and reduced >= 1024:
        splits = min(2 * target.threads, reduction.axes[0].extent)
    return _schedule("reduction", lane=lane, lanes=lanes, unroll=unroll, rows=rows, splits=splits, parallel=parallel)


def _reduction_lane(nest: Nest, reduction: Reduce) -> str:
    """Vectors along the output or the reduced axis, whichever the large reads are contiguous along."""
    if not nest.axes:
        return "reduced"
    if not reduction.axes:
        return "output"
    score = {"output": 0.0, "reduced": 0.0}
    for read in input_reads(reduction.body):
        if is_data_dependent(read):
            continue
        weight = math.log2(1 + math.prod(a.extent for a in read.free))
        for name, axis in (("output", nest.axes[-1]), ("reduced", reduction.axes[-1])):
            step = stride(read.indices[0], axis)
            width = min(16, axis.extent) / 16
            score[name] += weight * width * (1.0 if step == 1 else 0.5 if step == 0 else 0.0)
    return "output" if score["output"] >= score["reduced"] else "reduced"


@dataclass(frozen=True)
class _Choice:
    """A way to lower a contraction and its estimated cycles of one core."""

    cycles: float
    schedule: Schedule


def _contraction(nest: Nest, found: Contraction, target: Target) -> Schedule:
    assert nest.reduction is not None
    element = "float64" if nest.reduction.body.dtype == "float64" else "float32"
    written = tuple(value for _, _, value in nest.outputs)
    choices = []
    for side in ("right", "left"):
        sided = found if side == "right" else found.swapped()
        sided = arranged(sided, nest.outputs[0][1], element)
        if _looks_up_by_lane(written, sided.n[-1]):
            continue
        for vectors in (1, 2, 3, 4, 5):
            choices.append(_with_vectors(nest, sided, side, element, vectors, target))
    return min(choices, key=lambda c: c.cycles).schedule if choices else _reduction(nest, target)


def _with_vectors(nest: Nest, c: Contraction, side: str, element: str, vectors: int, target: Target) -> _Choice:
    n, k, m, batch = size(c.n), size(c.k), size(c.m), size(c.batch)
    lanes = min(target.lanes(element), 1 << (n - 1).bit_length())
    rows = max(1, (target.registers - 2 - vectors) // vectors)
    rows = min(rows, 14)
    position, count = row_box(c.m, rows)
    tile_rows = count * size(c.m[position + 1 :])
    tiles = size(c.m[:position]) * math.ceil(c.m[position].extent / count)
    panels = math.ceil(n / (lanes * vectors))
    width = lanes * vectors

    direct = direct_read(c.left, element) is not None
    chunk = chunk_lanes(c.n, lanes)
    pack = not direct or (panels >= 6 and tiles > 1)

    parallel = target.threads > 1 and c.flops >= 8 * PARALLEL_WORK
    wanted = 4 * target.threads if parallel else 1
    # panels packed by the task that owns them when there are enough tasks, or too much to pack to keep it all
    by_panels = batch * panels >= wanted and (not pack or tiles <= 64 or batch * k * n > 1 << 22)
    # a batch inside the rows: tasks by rows write one region after the other
    address = nest.outputs[0][1]
    inner_batch = max((stride(address, a) or 0 for a in c.batch), default=0)
    if c.batch and inner_batch < max(stride(address, a) or 0 for a in c.m) and batch * n * k <= 1 << 23:
        by_panels = False
    tasks = batch * (panels if by_panels else tiles)
    if not by_panels and parallel and tasks < wanted:
        by_panels = panels > tiles
        tasks = batch * max(panels, tiles)
    in_place = vector_read(c.right, c.n, lanes, element) is not None and not by_panels
    pack_panels = not (in_place and 4 * k * n <= IN_PLACE_BYTES and tiles <= IN_PLACE_TILES)

    # multiply-adds, or what limits them: loading the operands, the latency of few accumulators; then the loops
    registers = tile_rows * vectors
    limit = max(1.0, target.fma_units * max((tile_rows + vectors) / 2, 4.0) / registers)
    multiply = batch * k * m * math.ceil(n / lanes) / target.fma_units * limit
    multiply += batch * tiles * panels * (3 * k + 50 + 4 * registers)
    right_contiguous = _is_contiguous(c.right, c.n[-1])
    right_work = 0 if direct_read(c.right, element) is not None else _cost((c.right,))
    left_work = 0 if direct else _cost((c.left,))
    pack_right = batch * k * n * ((2.0 + right_work) / chunk if right_contiguous else 1.5 + right_work)
    if not pack_panels:
        pack_right = 0.0
    pack_left = batch * k * m * (1.5 + left_work / 4) if pack else 0.0
    contiguous_out = stride(nest.outputs[0][1], c.n[-1]) == 1
    write = batch * m * n * (2.0 / chunk if contiguous_out else 2.0) * _cost(tuple(v for _, _, v in nest.outputs))
    write += batch * m * panels * 12.0  # a piece of a row each: short ones far apart are slow
    cycles = multiply + pack_right + pack_left + write

    part_bytes = 4 * k * width
    splits = 1
    if parallel and tasks < wanted and k >= 512:
        splits = math.ceil(wanted / tasks)
    splits = max(splits, math.ceil(part_bytes / (target.l2_bytes // 2)))
    splits = min(splits, c.k[0].extent)
    block = 1
    if not by_panels and not c.batch and tiles > 4 * wanted:
        block = max(1, min(8, tiles // (4 * wanted)))
    return _Choice(
        cycles,
        _schedule(
            "contraction",
            side=side,
            lanes=lanes,
            vectors=vectors,
            rows=rows,
            order="panels" if by_panels else "tiles",
            tiles=block,
            pack=pack,
            pack_panels=pack_panels,
            splits=splits,
            unroll=4,
            parallel=parallel,
        ),
    )


def _is_contiguous(side: Expr, axis: Axis) -> bool:
    reads = [r for r in input_reads(side) if axis in r.free]
    return bool(reads) and all(stride(r.indices[0], axis) == 1 for r in reads)
