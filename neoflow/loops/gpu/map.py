"""The `gpu_map` template: every output at every point, a vector of neighbours along the last axis at a time.

    for block in blocks: for thread in threads: for v in vectors:
        n = (block * vectors + v) * threads + thread;  out[row(n), column(n)*L + 0..L-1] = ...

Neighbouring threads write neighbouring vectors. Only the last block, and the last vector of a row, are guarded. What is
read across the lanes is turned in squares of shared memory: see `turn`.
"""

from __future__ import annotations

import math

from neoflow.architectures import ACCESS_BYTES, THREADS_A_BLOCK
from neoflow.expr import dtype as dt
from neoflow.loops import costs
from neoflow.loops.gpu import blocks
from neoflow.loops.gpu.limits import SPARE, held
from neoflow.loops.gpu.occupancy import Block
from neoflow.loops.gpu.turn import SIDE, TURN, shared_bytes, square, tile_axes, turned_lanes
from neoflow.loops.knob import NUMBER, Chosen, Knob, Range, one, up_to
from neoflow.loops.map import written
from neoflow.loops.nest import Nest, input_reads
from neoflow.loops.problem import FUSE, Measures, NestProblem, nbytes, one_lane
from neoflow.loops.schedule import KnobValue
from neoflow.target import Target

MOST_VECTORS = 16
"""Vectors that a thread computes, at most."""


def total(nest: Nest, lanes: int) -> int:
    """Vectors of all rows; the last one of a row may be a part of one."""
    if not nest.axes:
        return 1
    return costs.points(nest.axes[:-1]) * math.ceil(nest.axes[-1].extent / lanes)


def _lanes(p: NestProblem, _: Target, k: Chosen) -> Range:
    if k["turn"] != "no":
        return turned_lanes(p, k)
    nest = p.fused(k)
    if not nest.axes:
        return one(1, "there is no axis for the lanes")
    reason = one_lane(nest.expressions, nest.axes[-1], False)
    if reason is not None:
        return one(1, reason)
    most = min(blocks.access_lanes(nest.expressions), nest.axes[-1].extent)
    powers = tuple(1 << n for n in range(most.bit_length()))
    return Range(powers, f"powers of two up to {ACCESS_BYTES} bytes of the widest type, and to the axis")


def _usual_lanes(p: NestProblem, target: Target, k: Chosen) -> int:
    """The widest that leaves threads for the whole device, and no part of a vector in each short row."""
    nest = p.fused(k)
    enough = [
        int(n)
        for n in _lanes(p, target, k).values
        if (nest.axes[-1].extent % int(n) == 0 if nest.axes else True) and total(nest, int(n)) >= blocks.waves(target)
    ]
    return max(enough, default=1)


# --- threads


def block(p: NestProblem, _: Target, k: Chosen) -> Block:
    """What a block takes: each output's vector stays in registers."""
    outputs = written(p.fused(k))
    words = sum(max(1, dt.itemsize(e.dtype) // 4) for e in outputs)
    return Block(int(k["threads"]), SPARE + int(k["lanes"]) * words, shared_bytes(p, k))


def _threads(p: NestProblem, target: Target, k: Chosen) -> Range:
    every = blocks.threads()
    most = THREADS_A_BLOCK if k["turn"] == "no" else square(p.fused(k), k).accesses
    reason = every.reason if k["turn"] == "no" else f"{every.reason}, and a square has {most} accesses"
    values = (int(n) for n in every.values if int(n) <= most)
    return held(values, lambda n: block(p, target, {**_before(k), "threads": n}), target, reason)


def _before(k: Chosen) -> dict[str, KnobValue]:
    return {name: k[name] for name in ("fuse", "turn", "inner", "lanes", "side")}


def _usual_threads(p: NestProblem, target: Target, k: Chosen) -> int:
    return max(int(n) for n in _threads(p, target, k).values if int(n) <= blocks.USUAL_THREADS)


def _vectors(p: NestProblem, _: Target, k: Chosen) -> Range:
    if k["turn"] != "no":
        return one(1, "a block has one square of each kind")
    count = math.ceil(total(p.fused(k), int(k["lanes"])) / int(k["threads"]))
    return up_to(min(MOST_VECTORS, count), f"{MOST_VECTORS} at most, and there are {count} for each thread of a block")


def _usual_vectors(p: NestProblem, target: Target, k: Chosen) -> int:
    count = total(p.fused(k), int(k["lanes"])) // (blocks.WAVES * blocks.waves(target))
    return max(1, min(count, len(_vectors(p, target, k).values), 4))


def measures(p: NestProblem, _: Target, k: Chosen) -> Measures:
    nest = p.fused(k)
    points = costs.points(nest.axes)
    read = nbytes(r for e in written(nest) for r in input_reads(e))
    stored = points * sum(dt.itemsize(e.dtype) for e in written(nest))
    if k["turn"] == "no":
        count = math.ceil(total(nest, int(k["lanes"])) / (int(k["threads"]) * int(k["vectors"])))
    else:
        count = costs.points(tile_axes(nest, k))
    work = points * costs.operations(written(nest))
    return Measures(points, 1, work, read, stored, count, int(k["lanes"]), (read + stored) / count)


KNOBS: tuple[Knob[NestProblem], ...] = (
    FUSE,
    *TURN,
    Knob("lanes", NUMBER, "points of the last axis in a vector", _lanes, _usual_lanes),
    SIDE,
    Knob("threads", NUMBER, "threads of a block", _threads, _usual_threads),
    Knob("vectors", NUMBER, "vectors that a thread computes", _vectors, _usual_vectors),
)
