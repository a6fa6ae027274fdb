"""The `map` template: every output at every point, vectors along the last axis.

    for task in parallel(rows x parts x chunks): for group in chunk: for inner in part: for block in group:
        out[row, inner, block*L + 0..L-1] = ...

A group has `vectors` blocks, written out.  `inner` is the axis along which a transposed read is contiguous: run inside
a block, each line of memory that is fetched is used up; and `turn` loads squares of lanes x lanes there and turns them
in registers.  `chunks` of a row and `parts` of the inner axis differ by one step at most.  An axis may be written out
(`unroll`): its points are outputs of their own, which share what they read and compute.  With `fetch` a row fetches
what a later one reads: an expression may be so long that a core does not come to the next loads before it waits for
these.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Axis, Expr, Read
from neoflow.expr.traits import MOST_FORMS, form_axes
from neoflow.loops import costs
from neoflow.loops.cuts import Bounds, cuts, piece, work
from neoflow.loops.knob import FLAG, INDEX, MASK, NUMBER, Chosen, Knob, Range, flags, one, up_to
from neoflow.loops.nest import Nest, input_reads, is_data_dependent, stride
from neoflow.loops.problem import (
    FUSE,
    Measures,
    NestProblem,
    begins_registers,
    is_turnable,
    lanes_along,
    nbytes,
    usual_lanes,
)
from neoflow.loops.residues import split
from neoflow.target import Target
from neoflow.verdict import Verdict

MOST_VECTORS = 8
"""Vectors of a row side by side, at most: 512 bytes, or as many independent chains as hide any latency."""
PARTS_A_THREAD = 8
"""Parts of an inner axis at most, by threads."""


def fits(p: NestProblem) -> Verdict:
    if p.nest.reduction is not None:
        return Verdict(False, "a map does not fit a kernel that reduces")
    return Verdict(True, "nothing is reduced")


def written(nest: Nest) -> tuple[Expr, ...]:
    """What the outputs are."""
    return tuple(value for _, _, value in nest.outputs)


# --- what is written out


def _residues(p: NestProblem, _: Target, k: Chosen) -> Range:
    return flags(_whole(p, k, True) is not p.fused(k), "nothing depends on the remainder of a short division")


def _whole(p: NestProblem, k: Chosen, by_remainder: bool) -> Nest:
    """With its axes fused, and written out by their remainders or not."""
    nest = p.fused(k)
    return p.memo.once(("residues", k["fuse"]), lambda: split(nest)[0].nest) if by_remainder else nest


def _cut(p: NestProblem, _: Target, k: Chosen) -> Range:
    if k["residues"]:
        return one(False, "what is written out by remainders is not cut")
    return flags(len(_cuts(p, k)) > 1, "no part of an axis has less to compute than the others")


def _cuts(p: NestProblem, k: Chosen) -> tuple[Bounds, ...]:
    """The boxes its points are cut into, if they are."""
    return p.memo.once(("cuts", k["fuse"]), lambda: cuts(p.fused(k)))


def _unroll(p: NestProblem, _: Target, k: Chosen) -> Range:
    short = [n for n, a in enumerate(_whole(p, k, bool(k["residues"])).axes[:-1]) if a.extent <= MOST_FORMS]
    masks = [0, *(1 << n for n in short), *(1 << n | 1 << o for n, o in itertools.combinations(short, 2))]
    return Range(tuple(masks), f"a bit for each axis, none for the last; two of {MOST_FORMS} points each at most")


def _usual_unroll(p: NestProblem, _: Target, k: Chosen) -> int:
    """Axes at whose points something else is computed each: written out, nothing is chosen."""
    nest = _whole(p, k, bool(k["residues"]))
    chosen = frozenset[Axis]().union(*map(form_axes, written(nest)))
    return sum([1 << n for n, a in enumerate(nest.axes[:-1]) if a in chosen][:2])


def written_out(nest: Nest, mask: int) -> Nest:
    """The nest without the axes of a mask's bits: each output once for each of their points, in their order."""
    axes = [a for n, a in enumerate(nest.axes) if mask >> n & 1]
    if not axes:
        return nest
    points = [
        nest.substituted(dict(zip(axes, map(affine.integer, point), strict=True)))
        for point in itertools.product(*(range(a.extent) for a in axes))
    ]
    outputs = tuple((n, address, affine.simplify(value)) for p in points for n, address, value in p.outputs)
    left = tuple(a for n, a in enumerate(nest.axes) if not mask >> n & 1)
    return replace(nest, axes=left, outputs=outputs)


def _nest(p: NestProblem, k: Chosen) -> Nest:
    """With its axes fused and written out as the knobs say."""
    mask, by_remainder = int(k["unroll"]), bool(k["residues"])
    nest = _whole(p, k, by_remainder)
    return p.memo.once(("written out", k["fuse"], by_remainder, mask), lambda: written_out(nest, mask))


# --- vectors


def _last(nest: Nest) -> Axis | None:
    return nest.axes[-1] if nest.axes else None


def _lanes(p: NestProblem, target: Target, k: Chosen) -> Range:
    nest = _nest(p, k)
    return p.memo.once(
        ("map lanes", target, k["fuse"], k["residues"], k["unroll"]),
        lambda: lanes_along(_last(nest), nest.expressions, False, target),
    )


def _usual_lanes(p: NestProblem, target: Target, k: Chosen) -> int:
    """A register, or two whose operations are taken in turns, where a long expression is waited for."""
    nest, allowed = _nest(p, k), _lanes(p, target, k)
    one_register = usual_lanes(_last(nest), allowed, written(nest), target)
    two, axis = 2 * one_register, _last(nest)
    if axis is None or one_register == 1 or two not in allowed or axis.extent % two or axis.extent < costs.PAIRS * two:
        return one_register
    if k["unroll"]:  # many outputs hold many registers
        return one_register
    return two if costs.operations(written(nest)) >= costs.WAITED_FOR else one_register


# --- the inner axis


def _inner(p: NestProblem, _: Target, k: Chosen) -> Range:
    axes = _nest(p, k).axes
    return Range(range(-1, max(0, len(axes) - 1)), f"the position of an axis before the last of {len(axes)}, or -1")


def _transposed_axis(p: NestProblem, _: Target, k: Chosen) -> int:
    """Position of the axis along which a read that strides along the lanes is contiguous, or -1."""
    nest = _nest(p, k)
    for e in written(nest) if nest.axes else ():
        for read in input_reads(e):
            if is_data_dependent(read) or stride(read.indices[0], nest.axes[-1]) in (0, 1):
                continue
            for n, a in enumerate(nest.axes[:-1]):
                if stride(read.indices[0], a) == 1 and a.extent > 1:
                    return n
    return -1


def turned_reads(nest: Nest, inner: int) -> list[Read]:
    """Reads that are contiguous along the axis at position `inner` and stride along the lanes."""
    reads = dict.fromkeys(r for value in written(nest) for r in input_reads(value))
    return [r for r in reads if is_turnable(r, nest.axes[-1], nest.axes[inner])]


def _turn(p: NestProblem, _: Target, k: Chosen) -> Range:
    nest, inner, lanes = _nest(p, k), int(k["inner"]), int(k["lanes"])
    if inner < 0 or lanes == 1:
        return one(False, "a square is turned along an inner axis, with lanes")
    if nest.axes[inner].extent < lanes:
        return one(False, f"the inner axis has {nest.axes[inner].extent} points, a square {lanes}")
    return flags(
        bool(turned_reads(nest, inner)), "no read is contiguous along the inner axis and strides along the lanes"
    )


# --- tasks


def rows_of(nest: Nest, inner: int) -> list[Axis]:
    """The axes that number the tasks."""
    return [a for n, a in enumerate(nest.axes[:-1]) if n != inner]


def _parallel(p: NestProblem, target: Target, k: Chosen) -> Range:
    return flags(target.threads > 1 and bool(_nest(p, k).axes), "several threads share several points")


def _is_worth_sharing(p: NestProblem, target: Target, k: Chosen) -> bool:
    nest, work = _nest(p, k), _work(p, k)
    return target.threads > 1 and work >= costs.PARALLEL_WORK and bool(nest.axes)


def _work(p: NestProblem, k: Chosen) -> int:
    """Operations at all points."""
    if k["cut"]:
        boxes = _cuts(p, k)
        return p.memo.once(("work", k["fuse"]), lambda: sum(work(piece(p.fused(k), at)) for at in boxes))
    return work(_nest(p, k))


def _chunks(p: NestProblem, _: Target, k: Chosen) -> Range:
    if not k["parallel"]:
        return one(1, "chunks are shared by threads, and there is one")
    blocks = _nest(p, k).axes[-1].extent // int(k["lanes"])
    return up_to(blocks, f"a row is shared in whole vectors, of which it has {blocks}")


def _usual_chunks(p: NestProblem, target: Target, k: Chosen) -> int:
    nest, tasks = _nest(p, k), costs.MAP_TASKS * target.threads
    count = costs.points(tuple(rows_of(nest, int(k["inner"]))))
    if not k["parallel"] or count >= tasks:
        return 1
    return max(1, min(nest.axes[-1].extent // int(k["lanes"]), math.ceil(tasks / count)))


def _parts(p: NestProblem, target: Target, k: Chosen) -> Range:
    inner = int(k["inner"])
    if not k["parallel"] or inner < 0:
        return one(1, "parts are of an inner axis, shared by threads")
    most = min(_nest(p, k).axes[inner].extent, PARTS_A_THREAD * target.threads)
    return up_to(
        most, f"the inner axis has {_nest(p, k).axes[inner].extent} points, which {target.threads} threads share"
    )


def _vectors(p: NestProblem, _: Target, k: Chosen) -> Range:
    blocks = _nest(p, k).axes[-1].extent // int(k["lanes"]) if _nest(p, k).axes else 1
    most = min(MOST_VECTORS, math.ceil(blocks / int(k["chunks"])))
    return up_to(
        most, f"a chunk has {math.ceil(blocks / int(k['chunks']))} whole vectors, a group {MOST_VECTORS} at most"
    )


def _stream(p: NestProblem, target: Target, k: Chosen) -> Range:
    return flags(
        p.apart != 0 and _is_in_registers(p, target, k), "what is written is no whole registers, or it is read again"
    )


def _is_in_registers(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Whether every vector that is stored begins a whole number of registers behind the begin of its output."""
    nest, lanes = _nest(p, k), int(k["lanes"])
    together = p.memo.once(("together", k["fuse"]), lambda: split(p.fused(k))[0].together) if k["residues"] else 1
    for _, address, value in nest.outputs[::together] if nest.axes else ():
        if not begins_registers(address, value.dtype, nest.axes[-1], lanes, target, together):
            return False
        register = target.vector_bytes // dt.itemsize(value.dtype)
        if k["cut"] and any(at[-1][0] * together % register for at in _cuts(p, k)):
            return False
    return bool(nest.axes)


def _usual_stream(p: NestProblem, target: Target, k: Chosen) -> bool:
    nest = _nest(p, k)
    own = costs.points(nest.axes) * sum(dt.itemsize(e.dtype) for e in written(nest))
    is_long = (own if p.apart is None else p.apart) >= costs.STREAMED_BYTES
    return is_long and bool(_stream(p, target, k).values[-1])


# --- what is fetched


def further(nest: Nest) -> dict[int, int]:
    """By the number of an input, how many elements further what is fetched lies: in a later row, of what is read side
    by side along the lanes, and at each point something else."""
    found: dict[int, int] = {}
    for read in dict.fromkeys(r for e in written(nest) for r in input_reads(e)) if len(nest.axes) > 1 else ():
        steps = [stride(read.indices[0], a) or 0 for a in nest.axes] if not is_data_dependent(read) else [0]
        if min(steps) > 0 and steps[-1] == 1:
            rows = math.ceil(costs.FETCHED_ROWS_BYTES / (steps[-2] * dt.itemsize(read.dtype)))
            found[read.slot] = max(found.get(read.slot, 0), rows * steps[-2])
    return found


def _fetch(p: NestProblem, _: Target, k: Chosen) -> Range:
    if int(k["inner"]) >= 0 or int(k["lanes"]) == 1:
        return one(False, "rows are gone through one after the other, in vectors")
    return flags(bool(further(_nest(p, k))), "no read goes along a row and on with the next one")


def _usual_fetch(p: NestProblem, target: Target, k: Chosen) -> bool:
    """Where operations keep a core from what comes next. In a row of a kernel it is the row that fetches."""
    is_long = bool(k["parallel"]) and costs.of_data(written(_nest(p, k))) >= costs.HIDES_LOADS
    return is_long and bool(_fetch(p, target, k).values[-1])


def measures(p: NestProblem, _: Target, k: Chosen) -> Measures:
    nest = _nest(p, k)
    points = costs.points(nest.axes)
    tasks = costs.points(tuple(rows_of(nest, int(k["inner"])))) * int(k["chunks"]) * int(k["parts"])
    read = nbytes(r for e in written(nest) for r in input_reads(e))
    stored = points * sum(dt.itemsize(e.dtype) for e in written(nest))
    held = int(k["vectors"]) * (int(k["lanes"]) if k["turn"] else 1)
    return Measures(points, 1, _work(p, k), read, stored, tasks, held, (read + stored) / tasks)


KNOBS: tuple[Knob[NestProblem], ...] = (
    FUSE,
    Knob(
        "residues",
        FLAG,
        "axes are written out by their remainders",
        _residues,
        lambda p, t, k: _residues(p, t, k).values[-1],
    ),
    Knob(
        "cut",
        FLAG,
        "axes are cut where conditions on them change",
        _cut,
        lambda p, t, k: _cut(p, t, k).values[-1],
    ),
    Knob("unroll", MASK, "which axes are written out", _unroll, _usual_unroll),
    Knob("lanes", NUMBER, "points of the last axis in a vector", _lanes, _usual_lanes),
    Knob("inner", INDEX, "the axis run inside a block, or -1", _inner, _transposed_axis),
    Knob("turn", FLAG, "transposed reads are turned in registers", _turn, lambda p, t, k: _turn(p, t, k).values[-1]),
    Knob("parallel", FLAG, "threads share the tasks", _parallel, _is_worth_sharing),
    Knob("chunks", NUMBER, "tasks that share a row", _chunks, _usual_chunks),
    Knob("parts", NUMBER, "tasks that share the inner axis", _parts, lambda _, __, ___: 1),
    Knob("vectors", NUMBER, "vectors of a row side by side", _vectors, lambda _, __, ___: 1),
    Knob("stream", FLAG, "what is written goes past the caches", _stream, _usual_stream),
    Knob("fetch", FLAG, "what later rows read is fetched", _fetch, _usual_fetch),
)
