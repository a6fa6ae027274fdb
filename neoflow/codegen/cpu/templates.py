"""How each template becomes phases on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neoflow.codegen.cpu.contraction import lower_contraction
from neoflow.codegen.cpu.map import lower_map
from neoflow.codegen.cpu.reduction import lower_reduction
from neoflow.codegen.cpu.rows import lower_rows
from neoflow.codegen.cpu.scatter import lower_scatter
from neoflow.codegen.tir.frame import Buffers, Frame
from neoflow.codegen.tir.phases import Phases
from neoflow.loops import Schedule
from neoflow.loops.problem import NestProblem

Lowering = Callable[[Any, Schedule, Buffers], Phases]
"""Takes a problem of the template's type and a schedule that is legal for it."""


def _of_nest(lower: Callable[[Frame, Schedule], Phases]) -> Lowering:
    def lowered(problem: NestProblem, schedule: Schedule, buffers: Buffers) -> Phases:
        return lower(buffers.frame(problem.fused(schedule)), schedule)

    return lowered


LOWERINGS: dict[str, Lowering] = {
    "map": _of_nest(lower_map),
    "reduction": _of_nest(lower_reduction),
    "contraction": lower_contraction,
    "scatter": lower_scatter,
    "rows": lower_rows,
}
