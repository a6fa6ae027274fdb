"""The `rows` template: one row after the other goes through all stages of a row kernel; rows are shared among tasks.

    for row in parallel: stage 0 of the row -> local buffer; stage 1 of the row -> local buffer or output; ...

A stage is lowered by the `map` or the `reduction` template over the axes inside the row. It is stored where it reduces,
is an output, or is read more often than it has elements; otherwise it is computed where it is read.
Knobs: parallel, and those of each stored stage, prefixed by its number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from neoflow.errors import ScheduleError
from neoflow.expr.ir import Axis, Expr, Read, Reduce, Slot, rewrite
from neoflow.loops.nest import Nest, flat_address, kernel_read, replaced, rounded, simplified
from neoflow.loops.schedule import Knob, Schedule
from neoflow.partition.subgraph import Subgraph
from neoflow.target import Target


@dataclass(frozen=True)
class RowStage:
    """A stored stage: its value number, and its nest over the axes inside a row; row axes are free in it."""

    number: int
    nest: Nest
    is_output: bool
    size: int
    dtype: str


@dataclass(frozen=True)
class RowNest:
    """A row kernel: `axes` number the rows, `stages` are stored in order."""

    axes: tuple[Axis, ...]
    stages: tuple[RowStage, ...]


def rows_of(subgraph: Subgraph) -> RowNest | None:
    """The stages of a row kernel; None for any other subgraph."""
    if subgraph.rows is None:
        return None
    first, rows = len(subgraph.inputs), subgraph.rows
    stored = _stored(subgraph)
    bodies: dict[int, Expr] = {}
    stages: list[RowStage] = []
    for number, stage in enumerate(subgraph.stages, first):
        definition = stage.definition

        def rule(node: Expr, inputs: tuple[int, ...] = stage.inputs) -> Expr | None:
            if not isinstance(node, Read):
                return None
            source = inputs[node.slot]
            if source < first:
                return kernel_read(source, node)
            if source in stored:
                return _local_read(subgraph, source, node)
            producer = subgraph.stages[source - first].definition
            return rounded(replaced(bodies[source], dict(zip(producer.axes, node.indices, strict=True))))

        body = bodies[number] = simplified(rewrite(definition.body, rule))
        if number not in stored:
            continue
        own = Read(Slot(number, (), definition.body.dtype), ())
        is_output = number in subgraph.outputs
        shape, axes = definition.shape, definition.axes
        address = flat_address(shape, axes) if is_output else flat_address(shape[rows:], axes[rows:])
        reduction = body if isinstance(body, Reduce) else None
        value = body if reduction is None else own
        nest = Nest(axes[rows:], reduction, None if reduction is None else own, ((number, address, value),))
        size = math.prod(shape[rows:])
        stages.append(RowStage(number, nest.fused(), is_output, size, definition.body.dtype))
    row_axes = tuple(Axis(d, n) for d, n in enumerate(subgraph.row_shape))
    return RowNest(row_axes, tuple(stages))


def _local_read(subgraph: Subgraph, source: int, read: Read) -> Read:
    """A read of a stored stage: of its output, or of the row's local buffer."""
    shape, indices = read.source.shape, read.indices
    if source not in subgraph.outputs:
        shape, indices = shape[subgraph.rows :], indices[subgraph.rows :]
    return Read(Slot(source, (math.prod(shape),), read.dtype), (flat_address(shape, indices),))


def _stored(subgraph: Subgraph) -> set[int]:
    """Stages that reduce, are outputs, or would be computed again and again."""
    first, rows = len(subgraph.inputs), subgraph.rows or 0
    found: set[int] = set()
    for number, stage in enumerate(subgraph.stages, first):
        definition = stage.definition
        if not subgraph.depends(number):
            continue
        readers = [s for s in subgraph.stages if number in s.inputs]
        points = [math.prod(s.definition.shape[rows:]) * _trips(s.definition.body) for s in readers]
        again = sum(points) > math.prod(definition.shape[rows:]) and not isinstance(definition.body, Read)
        if definition.has_reduction or number in subgraph.outputs or again:
            found.add(number)
    return found


def _trips(body: Expr) -> int:
    return math.prod(a.extent for a in body.axes) if isinstance(body, Reduce) else 1


def rows_schedule(nest: RowNest, target: Target, inner: Callable[[Nest, Target], Schedule], parallel: bool) -> Schedule:
    """`inner` chooses the schedule of a stage for one thread."""
    alone = replace(target, threads=1)
    knobs: dict[str, Knob] = {"parallel": parallel}
    for n, stage in enumerate(nest.stages):
        chosen = inner(stage.nest, alone)
        knobs[f"{n}.template"] = chosen.template
        knobs.update({f"{n}.{name}": value for name, value in chosen.knobs})
    return Schedule("rows", tuple(sorted(knobs.items())))


def stage_schedule(schedule: Schedule, n: int) -> Schedule:
    """The schedule of the n-th stored stage."""
    prefix = f"{n}."
    knobs = {name[len(prefix) :]: value for name, value in schedule.knobs if name.startswith(prefix)}
    template = knobs.pop("template", None)
    if not isinstance(template, str):
        raise ScheduleError(f"{schedule} lacks the knob '{prefix}template'")
    return Schedule(template, tuple(sorted(knobs.items())))
