"""The `gpu_scatter` template: a block owns some rows and columns of the output, and adds what falls there, in order.

    for block in rows x columns x splits:
        sums = 0
        for chunk of points: the threads find each the target of one point; the block's are listed in order
            for point in list: sums[row(point), own column] += value(point, own column)
        out = sums

A row of the output is one index of each dimension but that of the columns; without columns every element is a row. An
element belongs to one thread, which adds in the order of the points: results are the same at every run, without
atomics. `splits` > 1 divides the points; a second launch adds the parts in order.

With `atomics`, which nobody chooses unasked, each point goes to its row at once: results differ in their last bits from
run to run.

    out = 0
    for block in points x columns: for thread: atomically out[row(point), own column] += value(point, own column)
"""

from __future__ import annotations

import math

from neoflow.architectures import WARP, architecture
from neoflow.expr import dtype as dt
from neoflow.loops import costs
from neoflow.loops.gpu import blocks
from neoflow.loops.gpu.limits import SPARE, STATIC_BYTES, held
from neoflow.loops.gpu.occupancy import Block
from neoflow.loops.knob import FLAG, NUMBER, Chosen, Knob, Range, flags, one, up_to
from neoflow.loops.nest import ScatterNest, input_reads
from neoflow.loops.problem import Measures, nbytes
from neoflow.target import Target

MOST_SPLITS = 64
LEAST_CHUNKS = 4
"""Chunks of points that a part is worth."""
ATOMIC = ("float32", "float64", "int32", "int64")
"""Types that every architecture adds atomically where they lie."""


def columns(p: ScatterNest) -> int:
    """Length of a row of the output."""
    return p.shape[-1] if p.columns is not None else 1


def filled(p: ScatterNest) -> int:
    """How many of them points are added to: the others stay 0."""
    return p.columns.extent if p.columns is not None else 1


def rows(p: ScatterNest) -> int:
    return math.prod(p.shape) // columns(p)


def points(p: ScatterNest) -> int:
    """Points that are added, each to a row."""
    return costs.points(tuple(a for a in p.axes if a is not p.columns))


def sum_bytes(p: ScatterNest) -> int:
    """Bytes of an element that is summed up."""
    return max(4, dt.itemsize(p.value.dtype))


def list_bytes(threads: int) -> int:
    """Shared memory for a chunk of points and their rows, and how many each warp has."""
    return 4 * (2 * threads + threads // WARP)


def shared_bytes(p: ScatterNest, k: Chosen) -> int:
    """Of a block: its sums, and what it lists."""
    if k["atomics"]:
        return 0
    return list_bytes(int(k["threads"])) + int(k["rows"]) * int(k["width"]) * sum_bytes(p)


def block(p: ScatterNest, _: Target, k: Chosen) -> Block:
    """What a block takes; the value of a point stays in registers."""
    return Block(int(k["threads"]), SPARE + sum_bytes(p) // 4, shared_bytes(p, k))


def _atomics(p: ScatterNest, _: Target, __: Chosen) -> Range:
    dtype = p.value.dtype
    return flags(dtype in ATOMIC, f"{dtype} is not added atomically where it lies; {', '.join(ATOMIC)} are")


def _threads(p: ScatterNest, target: Target, k: Chosen) -> Range:
    every = blocks.threads()
    least = {"atomics": k["atomics"], "rows": 1, "width": 1}
    return held(
        (int(n) for n in every.values), lambda n: block(p, target, {**least, "threads": n}), target, every.reason
    )


def _usual_threads(p: ScatterNest, _: Target, __: Chosen) -> int:
    wanted = blocks.ceil_power(max(points(p), min(columns(p), blocks.USUAL_THREADS)))
    return max(WARP, min(blocks.USUAL_THREADS, wanted))


def _width(p: ScatterNest, _: Target, k: Chosen) -> Range:
    if p.columns is None:
        return one(1, "this scatter has no columns")
    most = min(int(k["threads"]), blocks.ceil_power(columns(p)))
    return Range(blocks.powers(most), f"powers of two up to the threads of a block, and there are {columns(p)} columns")


def _usual_width(p: ScatterNest, target: Target, k: Chosen) -> int:
    return max(int(n) for n in _width(p, target, k).values)


def _rows(p: ScatterNest, _: Target, k: Chosen) -> Range:
    if k["atomics"]:
        return one(1, "with atomics a block owns no rows")
    left = STATIC_BYTES - list_bytes(int(k["threads"]))
    fitting = left // (int(k["width"]) * sum_bytes(p))
    return up_to(min(rows(p), fitting), f"shared memory has room for {fitting} rows, and there are {rows(p)}")


def _usual_rows(p: ScatterNest, target: Target, k: Chosen) -> int:
    """Blocks enough for every processor, each with a row for each of its threads at least."""
    across = math.ceil(columns(p) / int(k["width"]))
    wanted = math.ceil(rows(p) * across / (2 * architecture(target).processors))
    least = int(k["threads"]) // int(k["width"])
    return min(max(wanted, least), len(_rows(p, target, k).values))


def blocks_of(p: ScatterNest, k: Chosen) -> tuple[int, int]:
    """Blocks along the rows, or with atomics the points, and along the columns."""
    if k["atomics"]:
        return math.ceil(points(p) * int(k["width"]) / int(k["threads"])), math.ceil(filled(p) / int(k["width"]))
    return math.ceil(rows(p) / int(k["rows"])), math.ceil(columns(p) / int(k["width"]))


def _splits(p: ScatterNest, _: Target, k: Chosen) -> Range:
    if k["atomics"]:
        return one(1, "with atomics there are no parts to add in order")
    chunks = math.ceil(points(p) / int(k["threads"]))
    return up_to(min(MOST_SPLITS, chunks), f"{MOST_SPLITS} at most, and the points are {chunks} chunks")


def _usual_splits(p: ScatterNest, target: Target, k: Chosen) -> int:
    """Parts that fill the device, of some chunks each."""
    busy = math.prod(blocks_of(p, k))
    chunks = math.ceil(points(p) / int(k["threads"]))
    wanted = min(architecture(target).processors // busy, chunks // LEAST_CHUNKS)
    return max(1, min(wanted, len(_splits(p, target, k).values)))


def measures(p: ScatterNest, _: Target, k: Chosen) -> Measures:
    size, found = math.prod(p.shape), dt.itemsize(p.value.dtype)
    work = costs.points(p.axes) * costs.operations((p.value,))
    read, written = nbytes(r for e in (*p.targets, p.value) for r in input_reads(e)), size * found
    tasks = math.prod(blocks_of(p, k)) * int(k["splits"])
    return Measures(size, costs.points(p.axes) / size, work, read, written, tasks, 1, (read + written) / tasks)


KNOBS: tuple[Knob[ScatterNest], ...] = (
    Knob("atomics", FLAG, "whether points are added in any order", _atomics, lambda *_: False),
    Knob("threads", NUMBER, "threads of a block", _threads, _usual_threads),
    Knob("width", NUMBER, "columns of a block", _width, _usual_width),
    Knob("rows", NUMBER, "rows of a block", _rows, _usual_rows),
    Knob("splits", NUMBER, "parts of the points, by blocks of their own", _splits, _usual_splits),
)
