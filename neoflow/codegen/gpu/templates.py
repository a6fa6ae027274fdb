"""How each template becomes launches on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neoflow.codegen.gpu.contraction import lower_contraction
from neoflow.codegen.gpu.grid import Grids
from neoflow.codegen.gpu.map import lower_map
from neoflow.codegen.gpu.reduction import lower_reduction
from neoflow.codegen.gpu.rows import lower_rows
from neoflow.codegen.gpu.scatter import lower_scatter
from neoflow.codegen.gpu.tensor_core import lower_tensor_core
from neoflow.codegen.gpu.wgmma import lower_wgmma
from neoflow.codegen.tir.frame import Buffers, Frame
from neoflow.loops import Schedule
from neoflow.loops.problem import NestProblem

Lowering = Callable[[Any, Schedule, Buffers], Grids]
"""Takes a problem of the template's type and a schedule that is legal for it."""


def _of_nest(lower: Callable[[Frame, Schedule], Grids]) -> Lowering:
    def lowered(problem: NestProblem, schedule: Schedule, buffers: Buffers) -> Grids:
        return lower(buffers.frame(problem.fused(schedule)), schedule)

    return lowered


LOWERINGS: dict[str, Lowering] = {
    "gpu_rows": lower_rows,
    "gpu_scatter": lower_scatter,
    "gpu_map": _of_nest(lower_map),
    "gpu_tensor_core": lower_tensor_core,
    "gpu_wgmma": lower_wgmma,
    "gpu_contraction": lower_contraction,
    "gpu_reduction": _of_nest(lower_reduction),
}
