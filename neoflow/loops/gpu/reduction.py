"""The `gpu_reduction` template: any reducer over any body, a team of threads an output.

    for block in groups x splits: for thread in threads:
        member, place = of the thread;  o = outputs[group * teams + place]
        for r in rounds: acc[0..unroll-1] += term(o, (r * unroll + 0..unroll-1) * team + member)
        merge acc of the team: shuffles inside of a warp, shared memory across warps;  the first member writes o

`lane` is "reduced": neighbouring threads are members of one team, vectors lie along the last reduced axis; or
"output": neighbours are teams of neighbouring outputs, vectors lie along the last axis of these. `splits` > 1 divides
the terms into parts reduced by different blocks, combined in order by a second launch. The order of operations
depends on the schedule alone, so results are reproducible.

With `tile_rows` > 1 a team takes several neighbours of one axis of the outputs, along which a read of the body stays as
it is: that is read once for all of them. Beyond the end of the axis the last one is computed again, and not written.
"""

from __future__ import annotations

import math

from neoflow.architectures import WARP, architecture
from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.functions import ARG_REDUCERS
from neoflow.expr.ir import Axis, Expr, Read
from neoflow.loops import costs
from neoflow.loops.gpu import blocks
from neoflow.loops.gpu.limits import SPARE, STATIC_BYTES, held
from neoflow.loops.gpu.occupancy import Block
from neoflow.loops.knob import NUMBER, WORD, Chosen, Knob, Range, one
from neoflow.loops.nest import Nest, input_reads, is_data_dependent, reduced
from neoflow.loops.problem import FUSE, Measures, NestProblem, nbytes
from neoflow.loops.reduction import LANES, lane_axis, lane_range, usual_lane, written
from neoflow.loops.schedule import KnobValue
from neoflow.target import Target

MOST_UNROLLED = 8
"""Accumulators of a thread, at most."""
USUAL_STEPS = 8
"""Vectors of terms that are left for a thread when more threads share an output, where there are outputs enough."""
LEAST_STEPS = 4
"""The same where there are not."""
MOST_SPLITS = 1024
MOST_ROWS, USUAL_ROWS = 8, 4
"""Outputs of a team; four of one read leave five loads of eight."""
SPLIT_STEPS = 16
"""Steps of a thread that a part is worth: the second launch takes as long as some hundred loads."""


def _along_output(k: Chosen) -> bool:
    return k["lane"] == "output"


def _expressions(nest: Nest, k: Chosen) -> tuple[Expr, ...]:
    """What is computed in vectors."""
    return nest.expressions if _along_output(k) else (reduced(nest).body,)


def _lanes(p: NestProblem, target: Target, k: Chosen) -> Range:
    nest = p.fused(k)
    key = ("gpu_reduction lanes", target, k["fuse"], k["lane"])
    expressions = _expressions(nest, k)
    return p.memo.once(key, lambda: blocks.whole_lanes(lane_axis(nest, k), expressions, _along_output(k)))


def _usual_lanes(p: NestProblem, target: Target, k: Chosen) -> int:
    """The widest that leaves a warp its work, along the terms or along outputs enough."""
    nest, axis = p.fused(k), lane_axis(p.fused(k), k)
    values = _lanes(p, target, k).values
    if axis is None:
        return 1
    least = blocks.waves(target) if _along_output(k) else WARP
    points = costs.points(nest.axes) if _along_output(k) else axis.extent
    return max((int(n) for n in values if points // int(n) >= least), default=1)


# --- rows


def kept_reads(nest: Nest, axis: Axis) -> tuple[Read, ...]:
    """Reads of the body that stay as they are along the axis of the outputs, and need no guard."""

    def is_inside(r: Read) -> bool:
        low, high = affine.bounds(r.indices[0])
        return low >= 0 and high < math.prod(r.source.shape)

    reads = dict.fromkeys(input_reads(reduced(nest).body))
    return tuple(r for r in reads if axis not in r.free and not is_data_dependent(r) and is_inside(r))


def row_axis(nest: Nest, k: Chosen) -> Axis | None:
    """The axis of the outputs that the rows of a team are of: that along which most stays as it is, if anything."""
    axes = nest.axes[:-1] if _along_output(k) else nest.axes
    counts = {a: sum(bool(r.free) for r in kept_reads(nest, a)) for a in axes if a.extent > 1}
    best = max(counts, key=lambda a: counts[a], default=None)
    return best if best is not None and counts[best] else None


def _rows_axis(p: NestProblem, k: Chosen) -> Axis | None:
    return p.memo.once(("row axis", k["fuse"], k["lane"]), lambda: row_axis(p.fused(k), k))


def _tile_rows(p: NestProblem, _: Target, k: Chosen) -> Range:
    axis = _rows_axis(p, k)
    if axis is None:
        return one(1, "nothing that is read stays as it is along an axis of the outputs, but that of the lanes")
    most = min(MOST_ROWS, blocks.ceil_power(axis.extent))
    return Range(
        blocks.powers(most), f"powers of two up to {MOST_ROWS}, of {axis.extent} neighbours that read the same"
    )


def _usual_tile_rows(p: NestProblem, target: Target, k: Chosen) -> int:
    """So many that teams are left for the whole device, and few outputs are computed twice."""
    nest, axis = p.fused(k), _rows_axis(p, k)
    team = 1 if _along_output(k) else min(WARP, blocks.ceil_power(steps(nest, k)))

    def is_usual(rows: int) -> bool:
        whole = axis is None or 4 * math.ceil(axis.extent / rows) * rows <= 5 * axis.extent
        found = {**{name: k[name] for name in ("fuse", "lane", "lanes")}, "tile_rows": rows}
        return rows <= USUAL_ROWS and whole and blocks.WAVES * places(nest, found) * team >= blocks.waves(target)

    return max((int(n) for n in _tile_rows(p, target, k).values if is_usual(int(n))), default=1)


def output_extents(nest: Nest, k: Chosen) -> list[int]:
    """Of the axes that number the places of teams: rows and vectors are one step of theirs."""
    rows = int(k["tile_rows"])
    axis = row_axis(nest, k) if rows > 1 else None
    extents = [math.ceil(a.extent / rows) if a is axis else a.extent for a in nest.axes]
    if extents and _along_output(k):
        extents[-1] //= int(k["lanes"])
    return extents


def places(nest: Nest, k: Chosen) -> int:
    """Groups of outputs: what a team takes."""
    return math.prod(output_extents(nest, k))


def steps(nest: Nest, k: Chosen) -> int:
    """Vectors of terms of an output, or terms."""
    return costs.points(reduced(nest).axes) // (1 if _along_output(k) else int(k["lanes"]))


def term_axes(nest: Nest, k: Chosen) -> list[Axis]:
    """The axes that number the steps."""
    axes = list(reduced(nest).axes)
    if axes and not _along_output(k):
        axes[-1] = Axis(-1, axes[-1].extent // int(k["lanes"]), "vector")
    return axes


# --- threads


def block(p: NestProblem, _: Target, k: Chosen) -> Block:
    """What a block takes; accumulators stay in registers."""
    return Block(int(k["threads"]), SPARE + _accumulators(k) * _words(p, k), shared_bytes(p, k))


def _accumulators(k: Chosen) -> int:
    """Of a thread."""
    return int(k["tile_rows"]) * int(k["lanes"]) * int(k["unroll"])


def _words(p: NestProblem, k: Chosen) -> int:
    """Registers of an accumulator."""
    return _piece_bytes(p, k) // 4


def _piece_bytes(p: NestProblem, k: Chosen) -> int:
    node = reduced(p.fused(k))
    return max(4, dt.itemsize(node.body.dtype)) + (4 if node.op in ARG_REDUCERS else 0)


def _with(k: Chosen, names: tuple[str, ...], **more: int) -> dict[str, KnobValue]:
    return {**{name: k[name] for name in names}, **more}


_FIRST = ("fuse", "lane", "lanes", "tile_rows")


def _threads(p: NestProblem, target: Target, k: Chosen) -> Range:
    every = blocks.threads()

    def of(n: int) -> Block:
        return block(p, target, _with(k, _FIRST, threads=n, team=1, unroll=1))

    return held((int(n) for n in every.values), of, target, every.reason)


def _usual_threads(p: NestProblem, target: Target, k: Chosen) -> int:
    work = places(p.fused(k), k) * steps(p.fused(k), k)
    return max(WARP, min(blocks.USUAL_THREADS, blocks.ceil_power(work)))


def _team(p: NestProblem, target: Target, k: Chosen) -> Range:
    count = steps(p.fused(k), k)
    most = min(int(k["threads"]), blocks.ceil_power(count))

    def of(n: int) -> Block:
        return block(p, target, _with(k, (*_FIRST, "threads"), team=n, unroll=1))

    reason = f"powers of two up to the threads of a block, and {count} steps to share"
    return held(blocks.powers(most), of, target, reason, STATIC_BYTES)


def _usual_team(p: NestProblem, target: Target, k: Chosen) -> int:
    allowed = [int(t) for t in _team(p, target, k).values]
    wanted = _wanted_team(p.fused(k), target, k, max(allowed, default=1))
    return max((t for t in allowed if t <= wanted), default=1)


def _wanted_team(nest: Nest, target: Target, k: Chosen, most: int) -> int:
    count = steps(nest, k)
    outputs = places(nest, k)
    missing = blocks.ceil_power(math.ceil(architecture(target).processors * architecture(target).threads / outputs))
    if _along_output(k):
        neighbours = min(WARP, blocks.ceil_power(outputs))
        return max(1, min(most, missing, blocks.floor_power(count / LEAST_STEPS), int(k["threads"]) // neighbours))
    close = min(WARP, blocks.ceil_power(count))
    enough = blocks.floor_power(count / USUAL_STEPS)
    wanted = min(missing, blocks.floor_power(count / LEAST_STEPS))
    return min(most, max(close, enough, wanted))


def shared_bytes(p: NestProblem, k: Chosen) -> int:
    """Shared memory of a block: what the warps of its teams have of each accumulator; none for teams inside of one."""
    threads, team = int(k["threads"]), int(k["team"])
    near = max(1, min(team, WARP * team // threads if _along_output(k) else WARP))
    if team == near:
        return 0
    each = _piece_bytes(p, k) * int(k["tile_rows"]) * (int(k["lanes"]) if _along_output(k) else 1)
    return threads // near * each


def _splits(p: NestProblem, _: Target, k: Chosen) -> Range:
    count = steps(p.fused(k), k) // int(k["team"])
    most = min(MOST_SPLITS, count)
    return Range(range(1, max(1, most) + 1), f"{MOST_SPLITS} at most, and each thread has {count} steps to share")


def _usual_splits(p: NestProblem, target: Target, k: Chosen) -> int:
    """Parts that fill the device, each long enough to be worth the second launch."""
    nest = p.fused(k)
    found = architecture(target)
    busy = places(nest, k) * int(k["team"])
    left = steps(nest, k) // int(k["team"])
    wanted = min(found.processors * found.threads // max(1, busy), left // SPLIT_STEPS)
    return wanted if wanted > 1 and wanted in _splits(p, target, k) else 1


def _unroll(p: NestProblem, target: Target, k: Chosen) -> Range:
    left = steps(p.fused(k), k) // (int(k["team"]) * int(k["splits"]))
    most = min(MOST_UNROLLED, left)

    def of(n: int) -> Block:
        return block(p, target, _with(k, (*_FIRST, "threads", "team"), unroll=n))

    reason = f"powers of two up to {MOST_UNROLLED}, and a thread has {left} steps"
    return held(blocks.powers(most), of, target, reason, STATIC_BYTES)


def _usual_unroll(p: NestProblem, target: Target, k: Chosen) -> int:
    if len(reduced(p.fused(k)).axes) > 1 and k["team"] == 1 and k["splits"] == 1:
        return 1
    most = max(1, costs.UNROLLED_VECTORS // int(k["tile_rows"]))
    return min(most, max((int(n) for n in _unroll(p, target, k).values), default=1))


def measures(p: NestProblem, _: Target, k: Chosen) -> Measures:
    nest = p.fused(k)
    points, terms = costs.points(nest.axes), costs.points(reduced(nest).axes)
    outputs = written(nest)
    work = points * (terms * costs.operations((reduced(nest).body,)) + costs.operations(outputs))
    read = nbytes(r for e in (reduced(nest).body, *outputs) for r in input_reads(e))
    stored = points * sum(dt.itemsize(e.dtype) for e in outputs)
    count = math.ceil(places(nest, k) * int(k["team"]) / int(k["threads"])) * int(k["splits"])
    held_there = int(k["unroll"]) * int(k["tile_rows"])
    return Measures(points, terms, work, read, stored, count, held_there, (read + stored) / count)


KNOBS: tuple[Knob[NestProblem], ...] = (
    FUSE,
    Knob("lane", WORD, "whether neighbours are outputs or terms of one", lane_range, usual_lane, LANES),
    Knob("lanes", NUMBER, "points in a vector", _lanes, _usual_lanes),
    Knob("tile_rows", NUMBER, "neighbouring outputs that a team takes", _tile_rows, _usual_tile_rows),
    Knob("threads", NUMBER, "threads of a block", _threads, _usual_threads),
    Knob("team", NUMBER, "threads that share an output", _team, _usual_team),
    Knob("splits", NUMBER, "parts of the terms, by blocks of their own", _splits, _usual_splits),
    Knob("unroll", NUMBER, "accumulators of a thread", _unroll, _usual_unroll),
)
