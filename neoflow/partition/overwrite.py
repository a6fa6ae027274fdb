"""Which output of a kernel may take the place of which input: their memory is one, so nothing may be read too late."""

from __future__ import annotations

import math

from neoflow.expr import affine
from neoflow.expr.ir import Const, Read
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Tensor
from neoflow.graph import own_indices, reads_at_own_point
from neoflow.graph.facts import address, flat
from neoflow.partition.calls import KernelCall
from neoflow.partition.composed import is_at_own_row
from neoflow.partition.subgraph import Subgraph


def can_overwrite(call: KernelCall, t: Tensor, output: Tensor) -> bool:
    """Whether `output` of the kernel may be written over its input t."""
    position = next(n for n, o in enumerate(call.outputs) if o is output)
    number = call.subgraph.outputs[position]
    return all(i is not t or number in replacements(call.subgraph, n) for n, i in enumerate(call.inputs))


@remembered
def replacements(subgraph: Subgraph, number: int) -> frozenset[int]:
    """The outputs that may be written over input `number`."""
    alike = [o for o in subgraph.outputs if _lies_alike(subgraph, number, o)]
    if subgraph.rows is not None:
        return frozenset(o for o in alike if _is_read_in_time(subgraph, number, o))
    return frozenset(alike if _followers(subgraph, number) is not None else ())


def _lies_alike(subgraph: Subgraph, number: int, output: int) -> bool:
    """Whether an output has the type and the shape of an input; a turned one, see `Subgraph`, as many elements."""
    value, other = subgraph.value(output), subgraph.value(number)
    if not subgraph.is_turned(output):
        return value == other
    return math.prod(value.shape) == math.prod(other.shape) and value.dtype == other.dtype


@remembered
def is_shared(subgraph: Subgraph) -> bool:
    """Whether code must allow for an output that lies where another output still reads."""
    for n in range(len(subgraph.inputs)):
        places = replacements(subgraph, n)
        followers = _followers(subgraph, n) if subgraph.rows is None else None
        if any(followers is None or followers - {o} for o in places):
            return True
    return False


def _followers(subgraph: Subgraph, number: int) -> frozenset[int] | None:
    """The outputs that need input `number`; None when it is read anywhere but at the point being written.

    Through the whole chain: an inlined node that reads it must itself be read at the kernel's own point.
    """
    reached = {number}
    for n, node in enumerate(subgraph.nodes):
        for read in node.definition.reads:
            if node.inputs[read.slot] in reached:
                if n == subgraph.anchor or not reads_at_own_point(read, node.definition.shape):
                    return None
                reached.add(len(subgraph.inputs) + n)
    return frozenset(reached.intersection(subgraph.outputs))


def _is_read_in_time(subgraph: Subgraph, number: int, output: int) -> bool:
    """Whether a row kernel is done with a row of input `number` when it writes that row of `output`.

    Its nodes run in order, row by row. What neither reduces nor is an output may be computed where it is read: it is
    then as if its readers read the input.
    """
    first, rows = len(subgraph.inputs), subgraph.rows or 0
    late = {number: True}
    """values that bring a read of the input to their readers; True while it is at the reader's own point"""
    for n, node in enumerate(subgraph.nodes, first):
        definition = node.definition
        brought: list[bool] = []
        for read in definition.reads:
            source = node.inputs[read.slot]
            if source not in late:
                continue
            is_own = is_at_own_row(read.indices, read.source.shape, definition.shape, rows)
            is_own_point = reads_at_own_point(read, definition.shape)
            if source == number and subgraph.is_turned(output):
                is_own_point = _is_at_its_place(subgraph, read, definition.shape, output)
                is_own = is_own_point or _is_in_its_row(subgraph, read, definition.shape, output)
            if definition.shape[:rows] != subgraph.row_shape or not is_own:
                return False
            brought.append(late[source] and is_own_point)
        if not brought:
            continue
        if n > output or (n == output and not (all(brought) and not definition.has_reduction)):
            return False
        if not definition.has_reduction and n not in subgraph.outputs:
            late[n] = all(brought)
    return True


def _is_at_its_place(subgraph: Subgraph, read: Read, shape: tuple[int, ...], output: int) -> bool:
    """Whether a read is, in a node of this shape, of the element in whose place the output has its own point."""
    if shape != subgraph.value(output).shape:
        return False
    order, own = subgraph.order(output), own_indices(shape)
    here = flat([own[d] for d in order], tuple(shape[d] for d in order))
    apart = affine.simplify(affine.from_linear(affine.combine(address(read), here, -1)))
    return isinstance(apart, Const) and apart.value == 0


def _is_in_its_row(subgraph: Subgraph, read: Read, shape: tuple[int, ...], output: int) -> bool:
    """Whether a read, in a node of this shape, is of the row in whose place the output has its own; blocks of a
    dimension are not looked for."""
    order, lying = subgraph.order(output), read.source.shape
    if len(order) != len(lying):
        return False
    dims = sorted(range(len(order)), key=order.__getitem__)
    return is_at_own_row([read.indices[d] for d in dims], [lying[d] for d in dims], shape, subgraph.rows or 0)
