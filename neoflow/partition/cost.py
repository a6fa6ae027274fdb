"""What a division into kernels costs: the sum over its kernels of max(bytes / P_d, operations / P_c) + L, in seconds.

    bytes         what a kernel reads of each tensor, once, and each output, once; at P_d of the level that holds it all
    operations    instructions on single elements, those of what is recomputed as often as it is
    L             from the end of one kernel to the begin of the next

What decides about memory or kernels compares by it. Source: NeoFlow, section 5.1 (R = dT/P_d + dC/P_c + dK L).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Read, postorder
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Definition
from neoflow.graph import is_contraction, is_move, points, reads_at_own_point
from neoflow.graph.cost import LANES, NEST
from neoflow.graph.work import size, work_of
from neoflow.partition.calls import Partition
from neoflow.partition.subgraph import Subgraph
from neoflow.roofs import Roofs


@dataclass(frozen=True)
class Cost:
    """Of a kernel: bytes that it moves, instructions on single elements, and bytes of what it keeps to itself, row by
    row, with what one row of that takes."""

    nbytes: float
    instructions: float
    near: float = 0.0
    row_bytes: float = 0.0

    def seconds(self, roofs: Roofs) -> float:
        """What it is thought to take."""
        return roofs.kernel_seconds(self.instructions, self.nbytes, self.near, self.row_bytes)


@remembered
def read_bytes(definition: Definition) -> tuple[int, ...]:
    """Of each slot, the bytes that are read at least once, at most."""
    found = [0] * len(definition.slots)
    for read in definition.reads:
        slot, reached = definition.slots[read.slot], 1
        for index, extent in zip(read.indices, slot.shape, strict=True):
            is_data = any(isinstance(n, Read) for n in postorder(index))
            low, high = (0, extent - 1) if is_data else affine.bounds(index)
            reached *= max(1, min(extent - 1, high) - max(0, low) + 1)
        found[read.slot] += min(reached, points(definition)) * dt.itemsize(slot.dtype)
    whole = (math.prod(s.shape) * dt.itemsize(s.dtype) for s in definition.slots)
    return tuple(map(min, found, whole))


@remembered
def each(definition: Definition) -> float:
    """Instructions of a point of what is recomputed: a move is a load that its reader makes anyhow."""
    return 0.0 if is_move(definition) else work_of(definition) / points(definition)


@remembered
def own_reads(definition: Definition) -> tuple[tuple[float, float], ...]:
    """Of each slot, how often a point of the definition has it computed: at its own point, and at others.

    What a contraction reads is computed once for each element of a side.
    """
    apart: list[dict[object, float]] = [{} for _ in definition.slots]
    own = [0.0] * len(definition.slots)
    total = points(definition)
    for read in definition.reads:
        if reads_at_own_point(read, definition.shape) and not definition.has_reduction:
            own[read.slot] = 1.0
        else:
            axes = frozenset().union(*(i.free for i in read.indices))
            apart[read.slot][read.indices] = size(axes) / total if is_contraction(definition) else 1.0
    return tuple((o, sum(a.values())) for o, a in zip(own, apart, strict=True))


def times(readers: Iterable[tuple[Definition, int, float]]) -> float:
    """How often a kernel computes a tensor that these read in these slots, each computed so often itself: at one point
    once for all of them."""
    once, more = 0.0, 0.0
    for definition, slot, often in readers:
        own, apart = own_reads(definition)[slot]
        once, more = max(once, own * often), more + apart * often
    return once + more


@remembered
def cost_of(subgraph: Subgraph) -> Cost:
    """Of one kernel."""
    first = len(subgraph.inputs)
    computed = _times(subgraph)
    read = [0] * first
    for node in subgraph.nodes:
        for i, nbytes in zip(node.inputs, read_bytes(node.definition), strict=True):
            if i < first:
                read[i] = max(read[i], nbytes)
    written = sum(_nbytes(subgraph, o) for o in subgraph.outputs)
    total, near, row_bytes, rows = 0.0, 0.0, 0.0, 0
    if subgraph.rows is not None:
        rows = math.prod(subgraph.row_shape)
    for number, node in enumerate(subgraph.nodes, first):
        own, definition = _is_own(subgraph, number), node.definition
        work = work_of(definition) if own else computed[number] * each(definition)
        if rows and own:
            width = points(definition) / rows
            work = work * math.ceil(width / LANES) * LANES / width + rows * NEST
            if number not in subgraph.outputs:
                near += 2 * _nbytes(subgraph, number)
                row_bytes += _nbytes(subgraph, number) / rows
        total += work
    return Cost(sum(read) + written, total, near, row_bytes)


def _is_own(subgraph: Subgraph, number: int) -> bool:
    """Whether a node is computed once at each of its points: it is written, reduces, or follows what does."""
    n = number - len(subgraph.inputs)
    if number in subgraph.outputs or subgraph.nodes[n].definition.has_reduction:
        return True
    return subgraph.anchor is not None and n > subgraph.anchor


def _times(subgraph: Subgraph) -> dict[int, float]:
    """How often each node is computed."""
    readers: dict[int, list[tuple[Definition, int, float]]] = {}
    found: dict[int, float] = {}
    for number, node in reversed(list(enumerate(subgraph.nodes, len(subgraph.inputs)))):
        own = _is_own(subgraph, number)
        found[number] = float(points(node.definition)) if own else times(readers.get(number, ()))
        for slot, i in enumerate(node.inputs):
            readers.setdefault(i, []).append((node.definition, slot, found[number]))
    return found


def _nbytes(subgraph: Subgraph, number: int) -> int:
    value = subgraph.value(number)
    return math.prod(value.shape) * dt.itemsize(value.dtype)


def objective(partition: Partition, roofs: Roofs) -> float:
    """Seconds of all kernel calls of a partition, one after the other."""
    return sum(cost_of(c.subgraph).seconds(roofs) for c in partition.calls)


def reward(before: Iterable[Cost], after: Iterable[Cost], roofs: Roofs) -> float:
    """Seconds that a move saves which makes kernels of these costs of those: R of the paper; below 0 it loses."""
    return sum(c.seconds(roofs) for c in before) - sum(c.seconds(roofs) for c in after)
