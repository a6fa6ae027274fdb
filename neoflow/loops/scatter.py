"""The `scatter` template: zeros, then every point added where its targets say, in order.

    for chunk in parallel: for row: for block in chunk: out[targets(row), block*L + 0..L-1] += value(row, block)

With `zeros` > 1 the zeros are a pass of their own, shared along the whole output; else each task writes those of its
columns.  Two points may meet at one element, so only the columns (the axis that is the last target, if there is one)
are divided among tasks: each element is touched by one task, in the order of the rows, and the sums are reproducible.
"""

from __future__ import annotations

import math

from neoflow.expr import dtype as dt
from neoflow.loops import costs
from neoflow.loops.knob import NUMBER, Chosen, Knob, Range, one, up_to
from neoflow.loops.nest import ScatterNest, input_reads
from neoflow.loops.problem import Measures, lanes_along, nbytes, usual_lanes
from neoflow.target import Target
from neoflow.verdict import Verdict

ZERO_BLOCK = 256
"""Zeros of a task at least, or of each that follows another: whole lines of memory."""
ZERO_TASKS = 16
"""Tasks of the zeros at most, by threads."""


def fits(_: ScatterNest) -> Verdict:
    return Verdict(True, "every point is added where its targets say")


def _lanes(p: ScatterNest, target: Target, _: Chosen) -> Range:
    if p.columns is None:
        return one(1, "this scatter has no columns: it takes one lane and one chunk")
    return lanes_along(p.columns, (*p.targets, p.value), False, target)


def _usual_lanes(p: ScatterNest, target: Target, k: Chosen) -> int:
    return usual_lanes(p.columns, _lanes(p, target, k), (p.value,), target)


def _chunks(p: ScatterNest, target: Target, k: Chosen) -> Range:
    if p.columns is None:
        return one(1, "this scatter has no columns: it takes one lane and one chunk")
    if target.threads == 1:
        return one(1, "chunks are shared by threads, and there is one")
    blocks = p.columns.extent // int(k["lanes"])
    return up_to(blocks, f"the columns are shared in whole vectors, of which there are {blocks}")


def _usual_chunks(p: ScatterNest, target: Target, k: Chosen) -> int:
    work = costs.points(p.axes) * costs.operations((p.value,)) + math.prod(p.shape)
    if p.columns is None or k["lanes"] == 1 or work < costs.PARALLEL_WORK:
        return 1
    return max(1, min(target.threads, p.columns.extent // int(k["lanes"])))


def _zeros(p: ScatterNest, target: Target, _: Chosen) -> Range:
    if target.threads == 1:
        return one(1, "a pass over zeros is shared by threads, and there is one")
    blocks = math.prod(p.shape) // ZERO_BLOCK
    most = min(blocks, ZERO_TASKS * target.threads)
    return up_to(
        most, f"the output has {blocks} whole blocks of {ZERO_BLOCK} zeros, which {target.threads} threads share"
    )


def _usual_zeros(p: ScatterNest, target: Target, k: Chosen) -> int:
    if math.prod(p.shape) < costs.PARALLEL_WORK:
        return 1
    return min(costs.MAP_TASKS * target.threads, len(_zeros(p, target, k).values))


def measures(p: ScatterNest, _: Target, k: Chosen) -> Measures:
    points, size = math.prod(p.shape), dt.itemsize(p.value.dtype)
    work = costs.points(p.axes) * costs.operations((p.value,))
    read, written = nbytes(r for e in (*p.targets, p.value) for r in input_reads(e)), points * size
    tasks = int(k["chunks"])
    return Measures(points, costs.points(p.axes) / points, work, read, written, tasks, 1, (read + written) / tasks)


KNOBS: tuple[Knob[ScatterNest], ...] = (
    Knob("lanes", NUMBER, "columns in a vector", _lanes, _usual_lanes),
    Knob("chunks", NUMBER, "tasks that share the columns", _chunks, _usual_chunks),
    Knob("zeros", NUMBER, "tasks that share the zeros", _zeros, _usual_zeros),
)
