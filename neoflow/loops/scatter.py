"""The `scatter` template: zeros, then every point added where its targets say, in order.

    for chunk in parallel: for row: for block in chunk: out[targets(row), block*L + 0..L-1] += value(row, block)

Two points may meet at one element, so only the columns (the axis that is the last target, if there is one) are
divided among tasks: each element is touched by one task, in the order of the rows, and the sums are reproducible.
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


def measures(p: ScatterNest, _: Target, k: Chosen) -> Measures:
    points, size = math.prod(p.shape), dt.itemsize(p.value.dtype)
    work = costs.points(p.axes) * costs.operations((p.value,))
    read, written = nbytes(r for e in (*p.targets, p.value) for r in input_reads(e)), points * size
    tasks = int(k["chunks"])
    return Measures(points, costs.points(p.axes) / points, work, read, written, tasks, 1, (read + written) / tasks)


KNOBS: tuple[Knob[ScatterNest], ...] = (
    Knob("lanes", NUMBER, "columns in a vector", _lanes, _usual_lanes),
    Knob("chunks", NUMBER, "tasks that share the columns", _chunks, _usual_chunks),
)
