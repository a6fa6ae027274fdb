"""Loops of the `rows` template; see `rows`."""

from __future__ import annotations

import math

from tvm import tirx

from neoflow.codegen.cpu.map import lower_map
from neoflow.codegen.cpu.reduction import lower_reduction
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.frame import Frame, points
from neoflow.codegen.tir.phases import Phase, Phases
from neoflow.errors import ScheduleError
from neoflow.expr.ir import Axis
from neoflow.loops.rows import RowNest, stage_schedule
from neoflow.loops.schedule import Schedule
from neoflow.target import Target

Value = emit.Value


def lower_rows(
    nest: RowNest,
    target: Target,
    inputs: dict[int, tirx.Buffer],
    outputs: dict[int, tirx.Buffer],
    schedule: Schedule,
    faults: emit.Faults,
) -> Phases:
    """One phase; inputs and outputs by value number."""
    if schedule.template != "rows":
        raise ScheduleError(f"template {schedule.template!r} does not fit a row kernel")
    # a masked vector may start at the last element: LLVM 22 miscompiles one that passes the end of a stack array
    spare = target.vector_bytes
    local = {
        s.number: emit.buffer(s.size + spare, s.dtype, f"row{s.number}", 64) for s in nest.stages if not s.is_output
    }
    buffers = {**inputs, **outputs, **local}

    def row(env: dict[Axis, Value]) -> list:
        statements: list = [emit.on_stack(b) for b in local.values()]
        for n, stage in enumerate(nest.stages):
            inner = stage_schedule(schedule, n)
            if (inner.template == "map") != (stage.nest.reduction is None):
                raise ScheduleError(f"template {inner.template!r} does not fit stage {n}")
            frame = Frame(stage.nest, target, buffers, (buffers[stage.number],), faults, env)
            lowered = (lower_map if stage.nest.reduction is None else lower_reduction)(frame, inner)
            if lowered.scratch:
                raise ScheduleError(f"{inner}: a stage of a row is reduced in one part")
            statements += [s for phase in lowered.phases for s in phase.serial()]
        return statements

    total = math.prod(a.extent for a in nest.axes)
    return Phases((Phase(total, lambda t: points(nest.axes, t, row), bool(schedule["parallel"])),))
