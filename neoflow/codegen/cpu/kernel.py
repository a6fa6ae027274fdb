"""From a subgraph and a schedule to a TIR function."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm import tirx

from neoflow.codegen.cpu.contraction import lower_contraction
from neoflow.codegen.cpu.map import lower_map
from neoflow.codegen.cpu.reduction import lower_reduction
from neoflow.codegen.cpu.rows import lower_rows
from neoflow.codegen.cpu.scatter import lower_scatter
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.frame import Frame
from neoflow.errors import ScheduleError
from neoflow.loops.nest import nest_of, scatter_of
from neoflow.loops.rows import rows_of
from neoflow.loops.schedule import Schedule
from neoflow.partition.overwrite import is_shared
from neoflow.partition.subgraph import Subgraph
from neoflow.target import Target

_TEMPLATES = {"map": lower_map, "reduction": lower_reduction, "contraction": lower_contraction}


@dataclass(frozen=True, eq=False)
class Lowered:
    """A kernel before compilation: a TIR function of flat buffers, inputs then outputs, called by `name`."""

    name: str
    func: tirx.PrimFunc

    @property
    def is_shared(self) -> bool:
        """Whether an output may be the memory of an input that another output needs."""
        return not bool(self.func.attrs["tirx.noalias"])

    def text(self) -> str:
        """TIR script."""
        return self.func.script()


def lower(subgraph: Subgraph, schedule: Schedule, target: Target, name: str) -> Lowered:
    """The kernel of `subgraph` by `schedule`; `ScheduleError` when the schedule does not fit it.

    Arguments are dense arrays flattened to one dimension (`runtime.native.as_argument` gives them), aligned to an
    element at least.  An output may be the memory of an input, where `partition.overwrite` allows it.
    """
    scattered, by_rows = scatter_of(subgraph), rows_of(subgraph)
    inputs = {n: emit.buffer(math.prod(v.shape), v.dtype, f"in{n}") for n, v in enumerate(subgraph.inputs)}
    values = [subgraph.value(o) for o in subgraph.outputs]
    outputs = tuple(emit.buffer(math.prod(v.shape), v.dtype, f"out{n}") for n, v in enumerate(values))
    faults = emit.Faults()
    try:
        if by_rows is not None:
            written = dict(zip(subgraph.outputs, outputs, strict=True))
            statements = lower_rows(by_rows, target, inputs, written, schedule, faults)
        elif scattered is not None:
            statements = lower_scatter(scattered, inputs, outputs[0], schedule, faults)
        else:
            statements = _nest_statements(Frame(nest_of(subgraph).fused(), target, inputs, outputs, faults), schedule)
    except KeyError as missing:
        raise ScheduleError(f"{schedule} lacks the knob {missing}") from None
    func = tirx.PrimFunc([*inputs.values(), *outputs], emit.sequence(faults.around(statements)))
    func = func.with_attr(
        "tirx.noalias", not is_shared(subgraph)
    )  # without it LLVM loads inputs after stores over them
    return Lowered(name, func.with_attr("global_symbol", name))


def _nest_statements(frame: Frame, schedule: Schedule) -> list:
    template, is_map = _TEMPLATES.get(schedule.template), frame.nest.reduction is None
    if template is None or (schedule.template == "map") != is_map:
        raise ScheduleError(f"template {schedule.template!r} does not fit {'a map' if is_map else 'it'}")
    return template(frame, schedule)
