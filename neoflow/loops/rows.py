"""The `rows` template: one row after the other goes through all nests of a row kernel; rows are shared among tasks.

    for row in parallel: nest 0 of the row -> local buffer; nest 1 of the row -> local buffer or output; ...

A nest that reduces or is an output is stored; of the others that go by rows `stored` says which, the rest are computed
where they are read.  Each stored nest is one over the axes inside the row, with a schedule of its own, for one thread.

Where all that is reduced is summed over the same axes, from inputs, parts of these may be tasks instead, which add a
few terms at once to the sums of all rows (`across`); a second pass adds the parts and does the rest, row by row.

Nests that go through the same points may have one loop (`together`), see `row_nests`.

A few rows may go through each nest before the next one (`beside`): what one waits for, others do meanwhile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from neoflow.expr import dtype as dt
from neoflow.expr.ir import Axis, Const, Expr, Read, Reduce, Slot, rewrite
from neoflow.loops import costs, reduction
from neoflow.loops.knob import FLAG, MASK, NUMBER, Chosen, Knob, Range, completed, flags, one, up_to
from neoflow.loops.nest import (
    Nest,
    flat,
    flat_address,
    input_read,
    input_reads,
    is_data_dependent,
    reduced,
    replaced,
    rounded,
    simplified,
    stride,
)
from neoflow.loops.problem import Measures, Memo, NestProblem, nbytes
from neoflow.loops.row_nests import RowNest, joined
from neoflow.loops.schedule import KnobValue, Schedule
from neoflow.partition.subgraph import Node, Subgraph
from neoflow.target import Target
from neoflow.verdict import Verdict

T = TypeVar("T")
MOST_BESIDE = 4
"""Rows that may go side by side: each is its own copy of all loops."""


@dataclass(frozen=True, eq=False)
class RowProblem:
    """A row kernel: `axes` number the rows; values are numbered as in its subgraph, `first` is the first nest's."""

    axes: tuple[Axis, ...]
    first: int
    definitions: tuple[Node, ...]
    outputs: tuple[int, ...]
    orders: tuple[tuple[int, ...], ...]
    """of each output its dimensions in the order in which they lie in memory"""
    required: frozenset[int]
    """nests that reduce or are outputs"""
    optional: tuple[int, ...]
    """nests of a row that may be stored, or computed where they are read: a bit each of the knob `stored`"""
    memo: Memo = field(default_factory=lambda: Memo(64), repr=False)

    def lying(self, number: int, dims: tuple[T, ...]) -> tuple[T, ...]:
        """What belongs to the dimensions of an output, in the order in which they lie in memory."""
        return tuple(dims[d] for d in self.orders[self.outputs.index(number)])

    def first_of_row(self, number: int) -> Expr:
        """Where in an output its row begins."""
        shape = self.definitions[number - self.first].definition.shape
        inside: tuple[Expr, ...] = (Const(0, dt.INDEX),) * (len(shape) - len(self.axes))
        return flat_address(self.lying(number, shape), self.lying(number, (*self.axes, *inside)))

    def nests(self, mask: int) -> tuple[RowNest, ...]:
        """The nests that are stored, in order, when those of `mask` are."""
        return self.memo.once(mask, lambda: _nests(self, mask))

    def joined(self, mask: int) -> tuple[RowNest, ...]:
        """The same, with one loop for reductions that may have one."""
        return self.memo.once(("joined", mask), lambda: joined(self.nests(mask)))

    @cached_property
    def reused(self) -> int:
        """The mask of nests that are read more often than they have elements: they would be computed again."""
        return sum(1 << n for n, number in enumerate(self.optional) if _is_reused(self, number))


def row_problem(subgraph: Subgraph) -> RowProblem | None:
    """The problem of a row kernel; None for any other subgraph."""
    if subgraph.rows is None:
        return None
    first = len(subgraph.inputs)
    inside = [n for n in range(first, first + len(subgraph.nodes)) if subgraph.depends(n)]
    required = frozenset(
        n for n in inside if n in subgraph.outputs or subgraph.nodes[n - first].definition.has_reduction
    )
    axes = tuple(Axis(d, n) for d, n in enumerate(subgraph.row_shape))
    optional = tuple(n for n in inside if n not in required and n not in subgraph.strays)
    orders = tuple(map(subgraph.order, subgraph.outputs))
    return RowProblem(axes, first, subgraph.nodes, subgraph.outputs, orders, required, optional)


def _nests(p: RowProblem, mask: int) -> tuple[RowNest, ...]:
    rows = len(p.axes)
    reductions = sum(d.definition.has_reduction for d in p.definitions)
    stored = p.required | {number for n, number in enumerate(p.optional) if mask >> n & 1}
    bodies: dict[int, Expr] = {}
    nests: list[RowNest] = []
    read = {
        (math.prod(r.source.shape), r.dtype)
        for each in p.definitions
        for r in each.definition.reads
        if each.inputs[r.slot] < p.first
    }
    for number, computed in enumerate(p.definitions, p.first):
        definition = computed.definition

        def rule(node: Expr, inputs: tuple[int, ...] = computed.inputs) -> Expr | None:
            if not isinstance(node, Read):
                return None
            source = inputs[node.slot]
            if source < p.first:
                return input_read(source, node)
            if source in stored:
                return _local_read(p, source, node)
            producer = p.definitions[source - p.first].definition
            return rounded(replaced(bodies[source], dict(zip(producer.axes, node.indices, strict=True))))

        body = bodies[number] = simplified(rewrite(definition.body, rule))
        if number not in stored:
            continue
        own = Read(Slot(number, (), definition.body.dtype), ())
        is_output = number in p.outputs
        shape, axes = definition.shape, definition.axes
        if is_output:
            address = flat_address(p.lying(number, shape), p.lying(number, axes))
        else:
            address = flat_address(shape[rows:], axes[rows:])
        body = flat(body, number)
        reduction = body if isinstance(body, Reduce) else None
        value = body if reduction is None else own
        nest = Nest(axes[rows:], reduction, None if reduction is None else own, ((number, address, value),))
        size, dtype = math.prod(shape[rows:]), definition.body.dtype
        is_read = any(number in s.inputs for s in p.definitions)
        apart = math.prod(shape) * dt.itemsize(dtype) if is_output and not is_read else 0
        problem = NestProblem(nest, apart=apart, reductions=reductions)
        is_late = is_output and (math.prod(shape), dtype) in read
        nests.append(RowNest(number, problem, is_output, size, dtype, is_late))
    return tuple(nests)


def _local_read(p: RowProblem, source: int, read: Read) -> Read:
    """A read of a stored nest: of its output, or of the row's local buffer; see `input_read`."""
    shape, indices = read.source.shape, read.indices
    if source in p.outputs:
        shape, indices = p.lying(source, shape), p.lying(source, indices)
    else:
        shape, indices = shape[len(p.axes) :], indices[len(p.axes) :]
    return Read(Slot(source, shape, read.dtype), indices)


def _is_reused(p: RowProblem, number: int) -> bool:
    definition, rows = p.definitions[number - p.first].definition, len(p.axes)
    readers = [s.definition for s in p.definitions if number in s.inputs]
    points = [math.prod(d.shape[rows:]) * _trips(d.body) for d in readers]
    return sum(points) > math.prod(definition.shape[rows:]) and not isinstance(definition.body, Read)


def _trips(body: Expr | None) -> int:
    return math.prod(a.extent for a in body.axes) if isinstance(body, Reduce) else 1


def fits(_: RowProblem) -> Verdict:
    return Verdict(True, "rows go through all nests")


def nests(p: RowProblem, k: Chosen) -> tuple[RowNest, ...]:
    """The nests that the knob `stored` says, in order."""
    return p.nests(int(k["stored"]))


def loops(p: RowProblem, k: Chosen) -> tuple[RowNest, ...]:
    """The same as they are computed: where the knob `together` says so, in one loop what may be."""
    return p.joined(int(k["stored"])) if k["together"] else nests(p, k)


def problems(p: RowProblem, k: Chosen) -> tuple[NestProblem, ...]:
    """What is scheduled inside."""
    return tuple(s.problem for s in loops(p, k))


def alone(target: Target) -> Target:
    """What a nest is scheduled for: a row belongs to one thread."""
    return replace(target, threads=1)


def following(p: RowProblem, k: Chosen) -> tuple[dict[int, int], ...]:
    """For each nest, of which inputs a row fetches what the next task reads there, and how many elements further that
    lies: where the knob `fetch` says so."""
    stored = loops(p, k)
    found: tuple[dict[int, int], ...] = tuple({} for _ in stored)
    for number, (nest, read) in _fetched(p, stored).items() if k["fetch"] else ():
        found[nest][number] = int(k["beside"]) * _distance(read.indices[0], p.axes)
    return found


def _fetched(p: RowProblem, stored: tuple[RowNest, ...]) -> dict[int, tuple[int, Read]]:
    """By the number of an input, the nest that fetches it, the last of those that go through all that a row has of it
    once, and how it reads it."""
    found: dict[int, tuple[int, Read]] = {}
    for n, each in enumerate(stored):
        nest = each.problem.nest
        axes = (*nest.axes, *(nest.reduction.axes if nest.reduction is not None else ()))
        reads = {r for e in nest.expressions for r in input_reads(e) if r.slot < p.first}
        for read in reads:
            is_alone = all(r is read or r.slot != read.slot for r in reads) and not is_data_dependent(read)
            distance = _distance(read.indices[0], p.axes) if is_alone else 0
            if distance and costs.points(axes) <= _span(read.indices[0], axes):
                found[read.slot] = n, read
    return found


def _span(address: Expr, axes: tuple[Axis, ...]) -> int:
    """Elements from the first one that an address goes to along some axes to the last one; 0 where that is not
    known."""
    steps = [stride(address, a) for a in axes]
    if None in steps:
        return 0
    return 1 + sum(abs(step or 0) * (a.extent - 1) for step, a in zip(steps, axes, strict=True))


def _distance(address: Expr, axes: tuple[Axis, ...]) -> int:
    """How much further an address is in the next row, wherever that is; 0 where it is not one number."""
    distance, rows = 0, 1
    for axis in reversed([a for a in axes if a.extent > 1]):
        step = stride(address, axis)
        if step is None or step <= 0 or (distance and step != distance * rows):
            return 0
        distance, rows = distance or step, rows * axis.extent
    return distance


def _fetch(p: RowProblem, _: Target, k: Chosen) -> Range:
    return flags(bool(_fetched(p, loops(p, k))), "no nest goes once through all that a row has of an input")


def _usual_fetch(p: RowProblem, target: Target, k: Chosen) -> bool:
    """Where a cache keeps it until then, beside what the row itself goes through."""
    found = _fetched(p, loops(p, k))
    each = nbytes(read for _, read in found.values()) / costs.points(p.axes)
    return bool(found) and each <= costs.FETCHED_CACHE_SHARE * target.l2_bytes


def _stored(p: RowProblem, _: Target, __: Chosen) -> Range:
    reason = f"a bit for each of the {len(p.optional)} nests that need not be stored"
    return Range(range(1 << len(p.optional)), reason)


def _parallel(_: RowProblem, target: Target, __: Chosen) -> Range:
    return flags(target.threads > 1, "there is one thread")


def _is_worth_sharing(p: RowProblem, target: Target, k: Chosen) -> bool:
    work = costs.points(p.axes) * sum(
        s.size * _trips(s.problem.nest.reduction) * costs.operations(_expressions(s)) for s in nests(p, k)
    )
    return target.threads > 1 and work >= costs.PARALLEL_WORK


def _expressions(nest: RowNest) -> tuple[Expr, ...]:
    return nest.problem.fused({"fuse": nest.problem.all_fused}).expressions


def _between(stored: tuple[RowNest, ...]) -> int:
    """Bytes that lie between the nests of a row."""
    return sum(s.size * dt.itemsize(s.dtype) for s in stored if not s.is_output)


def measures(p: RowProblem, _: Target, k: Chosen) -> Measures:
    """Of all rows; the working set is what lies between the nests of one."""
    count, stored = costs.points(p.axes), nests(p, k)
    bodies = [s.problem.nest.expressions for s in stored]
    reads = [r for body in bodies for e in body for r in input_reads(e) if r.slot < p.first]
    size = {s.number: s.size * dt.itemsize(s.dtype) for s in stored}
    written = count * sum(size[n] for n in p.outputs)
    work = count * sum(s.size * costs.operations(body) for s, body in zip(stored, bodies, strict=True))
    points = count * sum(s.size for s in stored)
    return Measures(points, 1, work, nbytes(reads), written, count, 1, _between(stored))


# --- sums that parts of their terms add to, of all rows


def summed(p: RowProblem, k: Chosen) -> tuple[RowNest, ...]:
    """The nests that sum, where each reduced axis is the same for all and nothing is read but inputs; else none."""
    found = [n for n in nests(p, k) if n.problem.nest.reduction is not None]
    extents = {tuple(a.extent for a in reduced(n.problem.nest).axes) for n in found}
    if len(extents) != 1 or () in extents:
        return ()
    for each in found:
        body = reduced(each.problem.nest)
        if body.op != "sum" or not each.problem.nest.axes or any(r.slot >= p.first for r in input_reads(body.body)):
            return ()
    return tuple(found)


def summing(nest: RowNest, target: Target) -> Schedule:
    """The loops of a sum whose terms are added to all rows."""
    knobs: dict[str, KnobValue] = {"lane": "output", "tile_rows": 1, "terms": False, "fetch": False}
    return Schedule("reduction", tuple(completed(reduction.KNOBS, nest.problem, alone(target), knobs).items()))


def _across(p: RowProblem, target: Target, k: Chosen) -> Range:
    sums = summed(p, k)
    if not k["parallel"] or not sums or any(reduction.LANES[0] not in _lanes_of(n, target) for n in sums):
        return one(1, "what is reduced are no sums of inputs over the same axes, of rows that threads share")
    axes = reduced(sums[0].problem.nest).axes
    most = range(2, reduction.MOST_ACROSS + 1)
    counts = [n for n in most if n <= axes[-1].extent and reduction.parts_across(axes, n, target)]
    return Range((1, *counts), "a sum takes few additions in a row")


def _lanes_of(nest: RowNest, target: Target) -> tuple[KnobValue, ...]:
    return tuple(reduction.lane_range(nest.problem, alone(target), {"fuse": 0}).values)


def _usual_across(p: RowProblem, target: Target, k: Chosen) -> int:
    """Where rows are strips of long columns, see `reduction`, and the sums of all stay in the first-level cache."""
    allowed, sums, rows = _across(p, target, k), summed(p, k), costs.points(p.axes)
    is_kept = rows > 1 and rows * sum(n.size * dt.itemsize(n.dtype) for n in sums) <= costs.NEAR_BYTES
    if len(allowed.values) == 1 or not is_kept:
        return 1
    nests_ = [n.problem.nest for n in sums]
    are_along = all(reduction.is_along_memory(nest, p.axes) for nest in nests_)
    return reduction.usual_across(allowed, nests_, target) if are_along else 1


def _together(p: RowProblem, _: Target, k: Chosen) -> Range:
    mask = int(k["stored"])
    if int(k["across"]) > 1:
        return one(False, "parts of the terms of all sums are added in one loop")
    return flags(len(p.joined(mask)) < len(p.nests(mask)), "no nests share points and what they read")


def _beside(p: RowProblem, _: Target, k: Chosen) -> Range:
    if int(k["across"]) > 1:
        return one(1, "sums of all rows are added up before")
    kept = _between(nests(p, k))
    most = min(MOST_BESIDE, costs.points(p.axes), costs.NEAR_BYTES // max(1, kept))
    return up_to(
        max(1, most), f"{kept} bytes lie between the nests of a row, {MOST_BESIDE} rows at most go side by side"
    )


STORED: Knob[RowProblem] = Knob("stored", MASK, "nests stored that need not be", _stored, lambda p, _, __: p.reused)
KNOBS: tuple[Knob[RowProblem], ...] = (
    STORED,
    Knob("parallel", FLAG, "threads share the rows", _parallel, _is_worth_sharing),
    Knob("across", NUMBER, "terms added at once to the sums of all rows", _across, _usual_across),
    Knob(
        "together",
        FLAG,
        "nests that go through the same points have one loop",
        _together,
        lambda p, t, k: True in _together(p, t, k),
    ),
    Knob("beside", NUMBER, "rows that go through each nest side by side", _beside, lambda _, __, ___: 1),
    Knob("fetch", FLAG, "a row fetches what the next one reads", _fetch, _usual_fetch),
)
