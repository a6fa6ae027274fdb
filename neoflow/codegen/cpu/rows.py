"""Loops of the `rows` template; see `rows`."""

from __future__ import annotations

import math
from dataclasses import replace

from tvm import tirx

from neoflow.codegen.cpu.map import lower_map
from neoflow.codegen.cpu.reduction import Lowering, in_parts, lower_reduction
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.frame import Buffers, points
from neoflow.codegen.tir.phases import Phase, Phases, Scratch
from neoflow.expr.ir import Axis
from neoflow.loops.nest import reduced
from neoflow.loops.reduction import usual_parts
from neoflow.loops.rows import RowProblem, following, nests, summed, summing
from neoflow.loops.schedule import Schedule

Value = emit.Value


def lower_rows(problem: RowProblem, schedule: Schedule, buffers: Buffers) -> Phases:
    """One phase, or two where parts of the terms of sums go through all rows."""
    stored, across = nests(problem, schedule), int(schedule["across"])
    # a masked vector may start at the last element: LLVM 22 miscompiles one that passes the end of a stack array
    spare = buffers.target.vector_bytes
    local = {s.number: emit.buffer(s.size + spare, s.dtype, f"row{s.number}", 64) for s in stored if not s.is_output}
    everything = {**buffers.inputs, **dict(zip(problem.outputs, buffers.outputs, strict=True)), **local}

    fetched = following(problem, schedule)
    sums = _sums(problem, schedule, buffers, everything) if across > 1 else {}

    def row(env: dict[Axis, Value]) -> list:
        statements = [s for b in local.values() for s in emit.aligned_on_stack(b, buffers.target.vector_bytes)]
        for nest, inner, further in zip(stored, schedule.inner, fetched, strict=True):
            if nest.number in sums:
                statements += sums[nest.number].total(env)
                continue
            inside = Buffers(buffers.target, everything, (everything[nest.number],), buffers.faults)
            frame = replace(inside.frame(nest.problem.fused(inner), env), further=further)
            lowered = (lower_map if inner.template == "map" else lower_reduction)(frame, inner)
            assert not lowered.scratch, f"{inner}: a nest of a row is for one thread"
            statements += [s for phase in lowered.phases for s in phase.serial()]
        return statements

    total = math.prod(a.extent for a in problem.axes)
    streams = any(inner.template == "map" and inner["stream"] for inner in schedule.inner)
    parallel = bool(schedule["parallel"])
    rows = Phase(total, lambda t: points(problem.axes, t, row), parallel, streams)
    if not sums:
        return Phases((rows,))
    scratch = [Scratch(b, is_shared=True) for one in sums.values() for b in one.scratch]
    return Phases((in_parts([*sums.values()], across, parallel), rows), tuple(scratch))


def _sums(
    problem: RowProblem, schedule: Schedule, buffers: Buffers, everything: dict[int, tirx.Buffer]
) -> dict[int, Lowering]:
    """By number, what is summed of all rows in parts of its terms."""
    found: dict[int, Lowering] = {}
    for nest in summed(problem, schedule):
        loops = summing(nest, buffers.target)
        inside = Buffers(buffers.target, everything, (everything[nest.number],), buffers.faults)
        parts = usual_parts(reduced(nest.problem.nest).axes, int(schedule["across"]), buffers.target)
        found[nest.number] = Lowering(inside.frame(nest.problem.fused(loops)), loops, parts, problem.axes)
    return found
