"""Loops of the `rows` template; see `loops.rows`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from tvm import tirx

from neoflow.codegen.cpu.map import lower_map
from neoflow.codegen.cpu.reduction import Lowering, in_parts, lower_reduction
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.frame import Buffers
from neoflow.codegen.tir.phases import Phase, Phases, Scratch
from neoflow.expr.ir import Axis
from neoflow.loops.nest import reduced
from neoflow.loops.reduction import usual_parts
from neoflow.loops.rows import RowProblem, following, loops, nests, summed, summing
from neoflow.loops.schedule import Schedule

Value = emit.Value


def lower_rows(problem: RowProblem, schedule: Schedule, buffers: Buffers) -> Phases:
    """One phase, or two where parts of the terms of sums go through all rows."""
    stored, across, beside = loops(problem, schedule), int(schedule["across"]), int(schedule["beside"])
    # a masked vector may start at the last element: LLVM 22 miscompiles one that passes the end of a stack array
    spare = buffers.target.vector_bytes
    kept = [nest for nest in nests(problem, schedule) if not nest.is_output]
    apart = {**buffers.inputs, **dict(zip(problem.outputs, buffers.outputs, strict=True))}

    def with_locals(row: int) -> dict[int, tirx.Buffer]:
        local = {s.number: emit.buffer(s.size + spare, s.dtype, f"row{row}_{s.number}", 64) for s in kept}
        return {**apart, **local}

    fetched = following(problem, schedule)
    summed_up = with_locals(0)
    sums = _sums(problem, schedule, buffers, summed_up) if across > 1 else {}

    def rows(envs: list[dict[Axis, Value]]) -> list:
        """Some rows, one nest of all before the next."""
        places = [summed_up] if sums else [with_locals(n) for n in range(len(envs))]
        held = [place[s.number] for place in places for s in kept]
        statements = [s for b in held for s in emit.aligned_on_stack(b, buffers.target.vector_bytes)]
        for nest, inner, further in zip(stored, schedule.inner, fetched, strict=True):
            for env, place in zip(envs, places, strict=True):
                if nest.number in sums:
                    statements += sums[nest.number].total(env)
                    continue
                inside = Buffers(buffers.target, place, tuple(place[n] for n in nest.numbers), buffers.faults)
                along = tuple(place[n] for n in nest.along)
                frame = replace(inside.frame(nest.problem.fused(inner), env), further=further, terms=along)
                lowered = (lower_map if inner.template == "map" else lower_reduction)(frame, inner)
                assert not lowered.scratch, f"{inner}: a nest of a row is for one thread"
                statements += [s for phase in lowered.phases for s in phase.serial()]
        return statements

    total = math.prod(a.extent for a in problem.axes)
    streams = any(inner.template == "map" and inner["stream"] for inner in schedule.inner)
    parallel = bool(schedule["parallel"])
    phase = Phase(math.ceil(total / beside), lambda t: _side_by_side(problem.axes, t, beside, rows), parallel, streams)
    if not sums:
        return Phases((phase,))
    scratch = [Scratch(b, is_shared=True) for one in sums.values() for b in one.scratch]
    return Phases((in_parts([*sums.values()], across, parallel), phase), tuple(scratch))


def _side_by_side(
    axes: Sequence[Axis], task: Value, beside: int, rows: Callable[[list[dict[Axis, Value]]], list]
) -> list:
    """So many rows of a task, those that are left of the last one."""
    whole, left = divmod(math.prod(a.extent for a in axes), beside)

    def of(count: int) -> list:
        statements: list = []
        envs = []
        for n in range(count):
            flat = emit.bind(statements, task * emit.integer(beside) + emit.integer(n), "row")
            values = emit.digits(statements, flat, [a.extent for a in axes])
            envs.append(dict(zip(axes, values, strict=True)))
        return statements + rows(envs)

    if not left:
        return of(beside)
    return emit.when(task < emit.integer(whole), of(beside), of(left)) if whole else of(left)


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
