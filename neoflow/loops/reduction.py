"""The `reduction` template: any reducer over any body.

`lane` is "output": a vector of neighbouring outputs, the reduced axes as loops; or "reduced": one output, vectors
along the last reduced axis, the lanes combined as a tree at the end. `unroll` vectors hide the latency of the
operation, those of `rows` rows of outputs where a row is short, or of `rows` outputs that read the same. `splits` > 1
divides the first reduced axis into parts reduced side by side, combined in order by a second pass. With `steps` so
many points of the reduced axis before the lanes' are taken together, which share what windows read. With `terms` a few
terms are written out: guards are then decided before. With `across` each part goes through all outputs for so many
terms at once, and adds them to sums in memory: columns are summed while memory is read from one end to the other. The
order of operations depends on the schedule alone, so results are reproducible.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.functions import ARG_REDUCERS, BLOCK
from neoflow.expr.ir import Apply, Axis, Expr, Read, Reduce
from neoflow.loops import costs, windows
from neoflow.loops.knob import FLAG, NUMBER, WORD, Chosen, Knob, Range, flags, one, up_to
from neoflow.loops.nest import Nest, input_reads, is_data_dependent, reduced, replaced, stride
from neoflow.loops.problem import FUSE, Measures, NestProblem, lanes_along, nbytes, one_lane, usual_lanes
from neoflow.target import Target
from neoflow.verdict import Verdict

LANES = ("output", "reduced")
MOST_UNROLLED = 16
"""Vectors of accumulators along the lanes, at most."""
MOST_ACCUMULATORS = 32
"""Vectors of accumulators at most: the registers of the larger instruction set."""
MOST_STEPS = 16
"""Points of a reduced axis that may be written out inside of those of another one."""
MOST_TERMS = 32
"""Terms of a sum that may be written out: windows of five by five, not more code than LLVM is quick with."""
MOST_ACROSS = 16
"""Terms that may be added to all outputs at once."""
PARTS_A_THREAD = 8
"""Parts of a reduced axis at most, by threads: more only add passes over partial results."""


def fits(p: NestProblem) -> Verdict:
    if p.nest.reduction is None:
        return Verdict(False, "a reduction does not fit a map: nothing is reduced")
    if p.nest.sums:
        return Verdict(False, "a reduction does not fit: sums ride along with tiles of a contraction alone")
    return Verdict(True, "the kernel reduces")


def written(nest: Nest) -> tuple[Expr, ...]:
    """What the outputs are."""
    return tuple(value for _, _, value in nest.outputs)


def _reads(nest: Nest) -> dict[Read, None]:
    """What is read by all that is reduced."""
    return dict.fromkeys(r for e in nest.in_loop for r in input_reads(e))


def ascending(nest: Nest) -> Nest:
    """A sum whose largest read goes up in memory from term to term: an axis along which it goes down is turned round.

    sum[r](x[k - r + 2] * w[r])    ->    sum[r](x[k + r] * w[2 - r])

    LLVM adds the address anew for each term of a read that goes down.
    """
    reduction = reduced(nest)
    if reduction.op != "sum":
        return nest
    mapping: dict[Expr, Expr] = {}
    for axis in reduction.axes:
        moved = [r for r in _reads(nest) if axis in r.free and not is_data_dependent(r)]
        largest = max(moved, key=lambda r: nbytes([r]), default=None)
        if largest is not None and (stride(largest.indices[0], axis) or 0) < 0:
            mapping[axis] = Apply("sub", (affine.integer(axis.extent - 1), axis))
    return nest.substituted(mapping) if mapping else nest


# --- lanes


def lane_range(p: NestProblem, _: Target, k: Chosen) -> Range:
    nest = p.fused(k)
    if not nest.axes:
        return one("reduced", "there is no such axis of the output")
    if not reduced(nest).axes:
        return one("output", "there is no such axis that is reduced")
    return Range(LANES, "vectors go along an axis")


def usual_lane(p: NestProblem, target: Target, k: Chosen) -> str:
    """Vectors along the output or the reduced axis, whichever the large reads are contiguous along."""
    nest = p.fused(k)
    allowed = lane_range(p, target, k).values
    if len(allowed) == 1:
        return str(allowed[0])
    reduction = reduced(nest)
    score = {"output": 0.0, "reduced": 0.0}
    for read in _reads(nest):
        if is_data_dependent(read):
            continue
        weight = math.log2(1 + math.prod(a.extent for a in read.free))
        for name, axis in (("output", nest.axes[-1]), ("reduced", reduction.axes[-1])):
            step = stride(read.indices[0], axis)
            width = min(16, axis.extent) / 16
            score[name] += weight * width * (1.0 if step == 1 else 0.5 if step in (0, 2, 3, 4) else 0.0)
    return "output" if score["output"] >= score["reduced"] else "reduced"


def fills(p: NestProblem, target: Target) -> bool:
    """Whether vectors of terms are the default, and full."""
    k = {"fuse": p.all_fused}
    reduction = reduced(p.fused(k))
    is_long = all(a.extent >= target.lanes(reduction.body.dtype) for a in reduction.axes[-1:])
    return is_long and usual_lane(p, target, k) == LANES[1]


def lane_axis(nest: Nest, k: Chosen) -> Axis | None:
    """The axis of the lanes: there is none when all that is reduced has length 1 and nothing else is left."""
    axes = nest.axes if k["lane"] == "output" else reduced(nest).axes
    return axes[-1] if axes else None


def _vectorised(nest: Nest, k: Chosen) -> tuple[Expr, ...]:
    """What is computed in vectors."""
    return nest.expressions if k["lane"] == "output" else nest.in_loop


def _lanes(p: NestProblem, target: Target, k: Chosen) -> Range:
    nest, along_output = p.fused(k), k["lane"] == "output"
    expressions = _vectorised(nest, k)
    key = ("reduction lanes", target, k["fuse"], k["lane"])
    return p.memo.once(key, lambda: lanes_along(lane_axis(nest, k), expressions, along_output, target))


def _usual_lanes(p: NestProblem, target: Target, k: Chosen) -> int:
    nest = p.fused(k)
    axis = lane_axis(nest, k)
    allowed = lanes_along(axis, nest.expressions, k["lane"] == "output", target)
    return usual_lanes(axis, allowed, nest.expressions, target)


# --- registers


def blocks(nest: Nest, k: Chosen) -> int:
    """Whole vectors along the lanes."""
    axis = lane_axis(nest, k)
    return axis.extent // int(k["lanes"]) if axis is not None else 1


def _unroll(p: NestProblem, _: Target, k: Chosen) -> Range:
    nest = p.fused(k)
    most = min(MOST_UNROLLED, MOST_ACCUMULATORS // len(nest.bodies), blocks(nest, k))
    return up_to(most, f"the axis of the lanes has {most} vectors that may be reduced side by side")


def _usual_unroll(p: NestProblem, target: Target, k: Chosen) -> int:
    """More of a wide row where a task would read only a piece of it, over and over; of terms as many as registers hold
    for all outputs that slide over them, a little more where rows are a few vectors; fewer where each vector is put
    together in registers that sums would take."""
    nest, whole = p.fused(k), blocks(p.fused(k), k)
    is_long = costs.points(reduced(nest).axes) >= costs.WIDE_SUM
    is_read = costs.of_data(nest.in_loop) <= costs.LONG
    shares = costs.REDUCTION_TASKS * target.threads if target.threads > 1 else 1
    if k["lane"] == "output" and is_long and is_read:
        for vectors in costs.WIDE_VECTORS:
            is_wide = whole >= vectors * shares
            if is_wide and 2 * vectors * len(nest.bodies) <= target.registers:
                return vectors
    if _ends_in_vectors(nest, target, k):
        return 1
    free = target.registers - costs.SPARE_REGISTERS
    most = min(costs.UNROLLED_VECTORS, whole, free // len(nest.bodies))
    if k["lane"] == "reduced":
        outputs = windows.side_by_side(nest, target)
        if outputs > 1:
            is_short = whole <= costs.UNROLLED_VECTORS and not windows.is_gathered(nest, reduced(nest).axes[-1])
            most = min(most, round(free / outputs) if is_short else free // outputs)
    elif reduced(nest).op == "sum" and target.registers < costs.GATHERED_REGISTERS and nest.axes:
        most = min(most, costs.GATHERED_VECTORS) if windows.is_gathered(nest, nest.axes[-1]) else most
    return max(1, most)


def _ends_in_vectors(nest: Nest, target: Target, k: Chosen) -> bool:
    """Whether as many outputs as there are lanes are summed in lanes side by side: lanes are combined, and what follows
    is computed, for all of them at once. It is where that is more than their terms, or a few terms are read by all."""
    lanes, terms = int(k["lanes"]), costs.points(reduced(nest).axes)
    if k["lane"] != "reduced" or costs.points(nest.axes) < costs.REDUCTION_TASKS * target.threads * lanes:
        return False
    if lanes == 1 or windows.side_by_side(nest, target) > 1:
        return False
    is_shared = any(not r.free.intersection(nest.axes) for r in _reads(nest))
    return terms <= lanes * costs.arithmetic(written(nest)) or (is_shared and terms <= costs.FEW_IN_LANES)


def _rows(p: NestProblem, _: Target, k: Chosen) -> Range:
    nest = p.fused(k)
    if k["lane"] == "reduced" and nest.axes:
        points = costs.points(nest.axes)
        most = min(points, _most_rows(nest, k))
        return up_to(most, f"{MOST_ACCUMULATORS} vectors of accumulators at most, and {points} outputs")
    if k["lane"] != "output" or len(nest.axes) < 2:
        return one(1, "there is no axis for rows of outputs side by side")
    most = min(nest.axes[-2].extent, _most_rows(nest, k))
    return up_to(most, f"{MOST_ACCUMULATORS} vectors of accumulators at most, and {nest.axes[-2].extent} rows")


def _usual_rows(p: NestProblem, target: Target, k: Chosen) -> int:
    """A short row leaves registers for its neighbours; the largest of a few terms has nothing to wait for. Terms that
    are a vector go to all outputs that read one side of them alike."""
    nest = p.fused(k)
    if k["lane"] == "reduced" and nest.axes:
        outputs = int(k["lanes"]) if _ends_in_vectors(nest, target, k) else windows.side_by_side(nest, target)
        return min(outputs, _most_rows(nest, k))
    if k["lane"] != "output" or len(nest.axes) < 2:
        return 1
    vectors = max(1, math.ceil(nest.axes[-1].extent / int(k["lanes"])))
    if costs.points(reduced(nest).axes) <= costs.FEW_TERMS and not windows.is_shared(nest, target):
        return 1
    extent, most = nest.axes[-2].extent, max(1, costs.SHORT_ROW_VECTORS // vectors)
    return min(math.ceil(extent / math.ceil(extent / most)), _most_rows(nest, k))


def _most_rows(nest: Nest, k: Chosen) -> int:
    """Outputs, or rows of outputs, whose accumulators of all reductions are not too many."""
    return max(1, MOST_ACCUMULATORS // (int(k["unroll"]) * len(nest.bodies)))


# --- tasks


def _parallel(_: NestProblem, target: Target, __: Chosen) -> Range:
    return flags(target.threads > 1, "there is one thread")


def _is_worth_sharing(p: NestProblem, target: Target, k: Chosen) -> bool:
    nest = p.fused(k)
    work = costs.points(nest.axes) * costs.points(reduced(nest).axes) * costs.operations(nest.in_loop)
    return target.threads > 1 and work >= costs.PARALLEL_WORK


def tasks(nest: Nest, k: Chosen) -> int:
    """Tasks over the outputs, for one part."""
    if int(k["across"]) > 1:
        return 1
    if k["lane"] != "output":
        return math.ceil(costs.points(nest.axes) / int(k["tile_rows"]))
    groups = math.ceil(blocks(nest, k) / int(k["unroll"]))
    return math.ceil(costs.points(nest.axes[:-1]) / int(k["tile_rows"])) * groups


def _across(p: NestProblem, target: Target, k: Chosen) -> Range:
    nest = p.fused(k)
    axes = reduced(nest).axes
    is_sum = reduced(nest).op == "sum" and k["lane"] == "output" and int(k["tile_rows"]) == 1
    if not is_sum or not k["parallel"] or not axes or _one_pass(nest, k) is not None:
        return one(1, "sums of outputs side by side, by threads, may go through all of them for a few terms at once")
    counts = [n for n in range(2, MOST_ACROSS + 1) if n <= axes[-1].extent and parts_across(axes, n, target)]
    return Range((1, *counts), f"a sum takes {BLOCK} additions in a row, {MOST_ACROSS} terms at once at most")


def parts_across(axes: tuple[Axis, ...], across: int, target: Target) -> list[int]:
    """In how many parts terms may be added to all outputs, so many at once."""
    return [n for n in range(1, 1 + _most_parts(axes, target)) if _adds(axes, across, n)]


def usual_parts(axes: tuple[Axis, ...], across: int, target: Target) -> int:
    """A few for each thread."""
    allowed = parts_across(axes, across, target)
    return next((n for n in allowed if n >= 2 * costs.REDUCTION_TASKS * target.threads), allowed[-1])


def _usual_across(p: NestProblem, target: Target, k: Chosen) -> int:
    """Where each task would go down a strip of long columns that come from memory, or from a cache of all cores: as far
    apart as rows lie, a core does not foresee them. The sums of all columns stay in the first-level cache."""
    nest = p.fused(k)
    points = costs.points(nest.axes)
    is_wide = int(k["unroll"]) * int(k["lanes"]) < points <= costs.NEAR_BYTES // dt.itemsize(reduced(nest).body.dtype)
    return usual_across(_across(p, target, k), (nest,), target) if is_wide and is_along_memory(nest) else 1


def usual_across(allowed: Range, sums: Sequence[Nest], target: Target) -> int:
    """How many terms are added at once to sums over the same axes that stay in the first-level cache: one, where what
    is added comes from a core's own cache or is short."""
    read = nbytes({r for nest in sums for r in input_reads(reduced(nest).body)})
    is_far = read > target.l2_bytes * target.threads and costs.points(reduced(sums[0]).axes) >= costs.LONG_SUM
    return max(n for n in map(int, allowed.values) if n <= costs.TERMS_ACROSS) if is_far else 1


def is_along_memory(nest: Nest, around: tuple[Axis, ...] = ()) -> bool:
    """Whether what is reduced goes along memory with all outputs, and with axes around them, and on with the terms of
    each."""
    reads = [r for r in input_reads(reduced(nest).body) if not is_data_dependent(r)]
    largest = max(reads, key=lambda r: nbytes([r]), default=None)
    axes = (*reduced(nest).axes, *around, *nest.axes)
    address = None if largest is None else largest.indices[0]
    expected = 1
    for axis in reversed(axes):
        if address is None or stride(address, axis) != expected:
            return False
        expected *= axis.extent
    return bool(axes)


def _adds(axes: tuple[Axis, ...], across: int, splits: int) -> bool:
    """Whether no sum of a part takes more than `BLOCK` additions in a row."""
    part = math.ceil(axes[0].extent / splits)
    last = part if len(axes) == 1 else axes[-1].extent
    rows = 1 if len(axes) == 1 else part * math.prod(a.extent for a in axes[1:-1])
    return rows * (last // across + last % across) <= BLOCK


def _one_pass(nest: Nest, k: Chosen) -> str | None:
    """Why the outputs cannot be written by a second pass, which has lanes along them."""
    return one_lane(written(nest), nest.axes[-1], True) if nest.axes and int(k["lanes"]) > 1 else None


def _most_parts(axes: tuple[Axis, ...], target: Target) -> int:
    return min(axes[0].extent, PARTS_A_THREAD * target.threads)


def _splits(p: NestProblem, target: Target, k: Chosen) -> Range:
    nest = p.fused(k)
    axes = reduced(nest).axes
    if not k["parallel"] or not axes:
        return one(1, "parts are reduced side by side, by threads, along a reduced axis")
    if (reason := _one_pass(nest, k)) is not None:
        return one(1, reason)
    reason = f"the first reduced axis has {axes[0].extent} points, and {target.threads} threads share it"
    if int(k["across"]) == 1:
        return up_to(_most_parts(axes, target), reason)
    return Range(tuple(parts_across(axes, int(k["across"]), target)), reason)


def _usual_splits(p: NestProblem, target: Target, k: Chosen) -> int:
    nest, wanted = p.fused(k), costs.REDUCTION_TASKS * target.threads
    axes = reduced(nest).axes
    if int(k["across"]) > 1:
        return usual_parts(axes, int(k["across"]), target)
    if not k["parallel"] or tasks(nest, k) >= wanted or costs.points(axes) < costs.SPLIT_REDUCED:
        return 1
    return min(wanted, len(_splits(p, target, k).values))


# --- terms


def _steps(p: NestProblem, _: Target, k: Chosen) -> Range:
    axes = reduced(p.fused(k)).axes
    if k["lane"] != "reduced" or len(axes) < 2:
        return one(1, "there is no reduced axis beside that of the lanes")
    if len(axes) == 2 and k["splits"] != 1:
        return one(1, "the reduced axis before that of the lanes is in parts")
    extent = axes[-2].extent
    return Range(
        tuple(n for n in range(1, min(MOST_STEPS, extent) + 1) if extent % n == 0),
        f"the reduced axis before that of the lanes has {extent} points, and {MOST_STEPS} are written out at most",
    )


def _usual_steps(p: NestProblem, target: Target, k: Chosen) -> int:
    """A few that share what windows of outputs side by side read; a short axis whole, so that guards are decided."""
    nest, allowed = p.fused(k), _steps(p, target, k).values
    if len(allowed) == 1 or windows.sharing(nest, MOST_ACCUMULATORS) == 1:
        return 1
    axis = reduced(nest).axes[-2]
    if not windows.slides(nest, axis, nest.axes):
        return axis.extent if axis.extent <= costs.SHORT_AXIS else 1
    if allowed[-1] == axis.extent:
        return axis.extent
    return max(n for n in map(int, allowed) if n <= costs.SHARED_STEPS)


def _terms(p: NestProblem, _: Target, k: Chosen) -> Range:
    nest = p.fused(k)
    reduction = reduced(nest)
    if nest.terms or k["lane"] != "output" or k["splits"] != 1 or int(k["across"]) > 1 or not reduction.axes:
        return one(False, "terms of outputs side by side are written out, all of them")
    if reduction.op in ARG_REDUCERS:
        return one(False, "an extreme's position is counted in a loop")
    count = costs.points(reduction.axes)
    return flags(count <= MOST_TERMS, f"there are {count} terms, {MOST_TERMS} are written out at most")


def _usual_terms(p: NestProblem, target: Target, k: Chosen) -> bool:
    """A few: what depends on which it is, a guard above all, is then decided."""
    copies = costs.points(reduced(p.fused(k)).axes) * int(k["unroll"]) * int(k["tile_rows"])
    is_little = copies <= costs.WRITTEN_TERMS and copies * p.reductions <= costs.WRITTEN_IN_ALL
    return True in _terms(p, target, k) and is_little


def further(nest: Nest, k: Chosen) -> dict[int, int]:
    """By the number of an input, how many elements further what is fetched lies: some terms later, of what is read side
    by side along the lanes and far apart from term to term; or where the terms of one output go on elsewhere."""
    axes = reduced(nest).axes
    axis = lane_axis(nest, k)
    if k["lane"] == "reduced":
        return _pieces_ahead(nest)
    if k["terms"] or int(k["across"]) > 1 or not axes or axis is None or int(k["lanes"]) == 1:
        return {}
    found: dict[int, int] = {}
    reads = _reads(nest)
    for read in reads:
        is_alone = all(r is read or r.slot != read.slot for r in reads) and not is_data_dependent(read)
        step = stride(read.indices[0], axes[-1]) if is_alone and stride(read.indices[0], axis) == 1 else None
        if step is not None and step * dt.itemsize(read.dtype) >= costs.LINE_BYTES:
            found[read.slot] = costs.FETCHED_TERMS * step
    return found


def _pieces_ahead(nest: Nest) -> dict[int, int]:
    """The same of terms that lie in pieces far apart, as a channel of the planes of a batch: the piece after this one,
    which a core does not foresee."""
    axes, found = reduced(nest).axes, dict[int, int]()
    for read in _reads(nest):
        if is_data_dependent(read) or read.slot in found or not axes or stride(read.indices[0], axes[-1]) != 1:
            continue
        steps = [stride(read.indices[0], a) or 0 for a in axes]
        reach = [abs(step) * (a.extent - 1) for step, a in zip(steps, axes, strict=True)]
        ends = [n for n in range(len(axes) - 1) if steps[n] >= 2 * (1 + sum(reach[n + 1 :]))]
        bytes_of = dt.itemsize(read.dtype) * (1 + sum(reach[ends[-1] + 1 :])) if ends else 0
        if ends and axes[ends[-1]].extent >= costs.LEAST_PIECES and bytes_of <= costs.PIECE_BYTES:
            found[read.slot] = steps[ends[-1]]
    return found


def _fetch(p: NestProblem, _: Target, k: Chosen) -> Range:
    reason = "no read goes side by side along the lanes and apart from term to term, or on in a piece far away"
    return flags(bool(further(p.fused(k), k)), reason)


def _usual_fetch(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Of long sums of what lies in no core's own cache: pages are left too soon for a core to see where it goes on. In
    a row it is the row that fetches, but for sums down columns whose terms are a page apart."""
    nest = p.fused(k)
    axes, read, found = reduced(nest).axes, nbytes(_reads(nest)), further(nest, k)
    if target.threads == 1 and k["lane"] == "output" and costs.points(axes) >= costs.WIDE_SUM:
        pages = costs.FETCHED_TERMS * costs.SET_BYTES // dt.itemsize(reduced(nest).body.dtype)
        if any(apart >= pages for apart in found.values()):
            return True
    is_long = p.apart is None if k["lane"] == "reduced" else bool(axes) and axes[-1].extent >= costs.LONG_SUM
    is_far = is_long and read > target.l2_bytes * target.threads
    return is_far and bool(found)


def terms_of(reduction: Reduce) -> list[Reduce]:
    """The reduction of each term by itself: the body at every point of the reduced axes, in order."""
    points = itertools.product(*(range(a.extent) for a in reduction.axes))
    mappings = [dict[Expr, Expr](zip(reduction.axes, map(affine.integer, at), strict=True)) for at in points]
    return [Reduce(reduction.op, (), affine.simplify(replaced(reduction.body, m))) for m in mappings]


def _totals(nest: Nest) -> tuple[int, int, int, int, int]:
    """Points, terms of each, operations, bytes read and written: what no knob but `fuse` changes."""
    points, terms, outputs = costs.points(nest.axes), costs.points(reduced(nest).axes), written(nest)
    work = points * (terms * costs.operations(nest.in_loop) + costs.operations(outputs))
    read = nbytes(r for e in (*nest.in_loop, *outputs) for r in input_reads(e))
    stored, along = (sum(dt.itemsize(e.dtype) for e in each) for each in (outputs, [e for *_, e in nest.terms]))
    return points, terms, work, read, points * (stored + terms * along)


def measures(p: NestProblem, _: Target, k: Chosen) -> Measures:
    nest, splits = p.fused(k), int(k["splits"])
    points, terms, work, read, stored = p.memo.once(("measures", k["fuse"]), lambda: _totals(nest))
    count, held = max(1, tasks(nest, k)) * splits, int(k["unroll"]) * int(k["tile_rows"])
    return Measures(points, terms, work, read, stored, count, held, (read + stored) / count)


KNOBS: tuple[Knob[NestProblem], ...] = (
    FUSE,
    Knob("lane", WORD, "whether lanes are outputs or terms of one", lane_range, usual_lane, LANES),
    Knob("lanes", NUMBER, "points in a vector", _lanes, _usual_lanes),
    Knob(
        "unroll",
        NUMBER,
        "vectors side by side along the lanes",
        _unroll,
        _usual_unroll,
    ),
    Knob("tile_rows", NUMBER, "rows of outputs, or outputs, side by side", _rows, _usual_rows),
    Knob("parallel", FLAG, "threads share the tasks", _parallel, _is_worth_sharing),
    Knob("across", NUMBER, "terms added at once to all outputs, one after the other", _across, _usual_across),
    Knob("splits", NUMBER, "parts of the first reduced axis", _splits, _usual_splits),
    Knob("steps", NUMBER, "points of the reduced axis before that of the lanes, side by side", _steps, _usual_steps),
    Knob("terms", FLAG, "the terms are written out", _terms, _usual_terms),
    Knob("fetch", FLAG, "what later terms read is fetched", _fetch, _usual_fetch),
)
