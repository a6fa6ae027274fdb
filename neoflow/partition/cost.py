"""What a division into kernels costs: the sum over its kernels of what `graph.cost` says of one, in seconds.

What decides about fusion, memory or kernels compares by it, and what speaks against a move is that the sum grows.
Source: NeoFlow, section 5.1 (R = dT/P_d + dC/P_c + dK L).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Definition
from neoflow.graph import is_contraction, is_move, points, reads_at_own_point
from neoflow.graph.cost import LANES, LOOP, NEST, RIDES, Cost, read_bytes, sides, with_products
from neoflow.graph.work import size, work_of
from neoflow.partition.calls import Partition
from neoflow.partition.subgraph import Subgraph
from neoflow.roofs import Roofs


@remembered
def each(definition: Definition) -> float:
    """Instructions of a point of what is recomputed, beside the load that its reader counts: a move is one anyhow."""
    return 0.0 if is_move(definition) else max(0.0, work_of(definition) / points(definition) - 1.0)


@remembered
def own_reads(definition: Definition) -> tuple[tuple[float, float], ...]:
    """Of each slot, how often a point of the definition has it computed: at its own point, and at others.

    What a contraction reads is computed once for each element of a side, and what is the same all along the inner loops
    is taken out of them.
    """
    apart: list[dict[object, float]] = [{} for _ in definition.slots]
    own = [0.0] * len(definition.slots)
    total, loops = points(definition), (*definition.axes, *definition.reduction_axes)
    for read in definition.reads:
        if reads_at_own_point(read, definition.shape) and not definition.has_reduction:
            own[read.slot] = 1.0
        else:
            axes = frozenset().union(*(i.free for i in read.indices))
            if not is_contraction(definition):
                axes = frozenset(loops[: max((n for n, a in enumerate(loops, 1) if a in axes), default=0)])
            apart[read.slot][read.indices] = size(axes) / total
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
    often, kept = _times(subgraph)
    read = [0] * first
    for node in subgraph.nodes:
        for i, nbytes in zip(node.inputs, read_bytes(node.definition), strict=True):
            if i < first:
                read[i] = max(read[i], nbytes)
    written = sum(subgraph.value(o).nbytes for o in subgraph.outputs)
    total, near, row_bytes, beside = 0.0, 0.0, 0.0, 0.0
    rows = 0 if subgraph.rows is None else math.prod(subgraph.row_shape)
    anchor = None if subgraph.anchor is None else subgraph.nodes[subgraph.anchor].definition
    for number, node in enumerate(subgraph.nodes, first):
        definition = node.definition
        if number not in kept:
            total += often[number] * each(definition)
            continue
        total += work_of(definition) * _filled(_width(definition, rows)) + _nests(definition, rows)
        beside += RIDES * points(definition) if number in subgraph.riders else 0.0
        if rows and number not in subgraph.outputs:
            near += 2 * subgraph.value(number).nbytes
            row_bytes += subgraph.value(number).nbytes / rows
    cost = Cost(sum(read) + written, total, near, row_bytes, beside=beside)
    if anchor is not None and subgraph.anchor is not None:
        own = subgraph.value(first + subgraph.anchor).nbytes
        cost = with_products(cost, anchor, min(own, written))
    return cost


@remembered
def _width(definition: Definition, rows: int) -> float:
    """Elements that a kernel goes through along memory in one piece: all of a sum's terms that lie in one, or a row."""
    if not _goes_along(definition):
        return points(definition) / rows if rows else LANES
    largest = max(definition.reads, key=lambda r: math.prod(r.source.shape))
    width = 1
    for index in reversed(largest.indices):
        if index.free and not index.free.issubset(definition.reduction_axes):
            break
        width *= size(index.free)
    return width


def _filled(width: float) -> float:
    """How many times as long as its elements a run of so many takes in vectors; one element is in none."""
    return 1.0 if width <= 1 else math.ceil(width / LANES) * LANES / width


@remembered
def _goes_along(definition: Definition) -> bool:
    """Whether what is reduced lies along memory; of a contraction tiles do, whatever it reads."""
    if not definition.has_reduction or sides(definition) is not None:
        return False
    largest = max(definition.reads, key=lambda r: math.prod(r.source.shape), default=None)
    last = next((i for i in reversed(largest.indices) if i.free), None) if largest is not None else None
    return last is not None and last.free.issubset(definition.reduction_axes)


@remembered
def _nests(definition: Definition, rows: int) -> float:
    """Instructions that it takes to begin to go along memory, and to end: for each result of a sum along it, and for
    each row of what has more than one element there."""
    if _goes_along(definition):
        return NEST * math.prod(definition.shape)
    return LOOP * rows if points(definition) > rows else 0.0


def multiplies(subgraph: Subgraph) -> bool:
    """Whether there are contractions in it."""
    return any(is_contraction(node.definition) for node in subgraph.nodes)


def _times(subgraph: Subgraph) -> tuple[dict[int, float], set[int]]:
    """How often each node is computed, and those that are once at each of their points: what is written, reduces,
    follows what does, or is kept for a row that reads it more than once."""
    readers: dict[int, list[tuple[Definition, int, float]]] = {}
    found: dict[int, float] = {}
    kept: set[int] = set()
    for number, node in reversed(list(enumerate(subgraph.nodes, len(subgraph.inputs)))):
        found[number] = times(readers.get(number, ()))
        if _is_own(subgraph, number) or _pays(subgraph, number, found[number]):
            found[number] = float(points(node.definition))
            kept.add(number)
        for slot, i in enumerate(node.inputs):
            readers.setdefault(i, []).append((node.definition, slot, found[number]))
    return found, kept


def _is_own(subgraph: Subgraph, number: int) -> bool:
    """Whether a node is computed once at each of its points in whatever kernel it is."""
    n = number - len(subgraph.inputs)
    if number in subgraph.outputs or subgraph.nodes[n].definition.has_reduction:
        return True
    return subgraph.anchor is not None and n > subgraph.anchor


def _pays(subgraph: Subgraph, number: int, often: float) -> bool:
    """Whether a row kernel rather keeps a node for its row than computes it so often; its readers count the loads."""
    if subgraph.rows is None or not subgraph.depends(number) or number in subgraph.strays:
        return False
    definition = subgraph.nodes[number - len(subgraph.inputs)].definition
    stored = work_of(definition) + LOOP * math.prod(subgraph.row_shape)
    return often * each(definition) > stored


def objective(partition: Partition, roofs: Roofs) -> float:
    """Seconds of all kernel calls of a partition, one after the other."""
    return sum(cost_of(c.subgraph).seconds(roofs) for c in partition.calls)


def reward(before: Iterable[Cost], after: Iterable[Cost], roofs: Roofs) -> float:
    """Seconds that a move saves which makes kernels of these costs of those: R = dT/P_d + dC/P_c + dK L; below 0 it
    loses.

    One P_d for both sides: that of the level which holds the largest of them. What is moved is no nearer for being
    moved by two kernels. Traffic and instructions are added: which of them hides the other is not known so well that a
    move which saves both could be refused.
    """
    costs, made = list(before), list(after)
    most = max((c.nbytes for c in (*costs, *made)), default=0.0)
    return spent(costs, roofs, most) - spent(made, roofs, most)


def spent(costs: Iterable[Cost], roofs: Roofs, among: float = 0.0) -> float:
    """Seconds of memory, of arithmetic and of L, all added; among: bytes beside which those of each kernel move."""
    return sum(c.spent(roofs, among) for c in costs)
