"""Floors: what a schedule takes at least, before anything is compiled. A candidate whose floor is above the best time
that was measured is not worth measuring.

    arithmetic    vector operations over the units of a core, or what its registers make of them: chains of dependent
                  operations, accumulators that do not fit and are stored and loaded again
    sharing       the busiest core has one task at least, and its part of all
    traffic       every tensor once; what does not fit a level-2 cache, each time that a task comes back to it; and
                  partial sums, written and read once more

All of it errs on the low side, since what is dropped here is never seen; `benchmarks/tuning.py` counts how often the
best would have been. What is no more than likely (a small tile, a long way through memory) is for the model to learn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neoflow.architectures import REGISTERS_A_THREAD
from neoflow.expr import dtype as dt
from neoflow.expr.count import count_definition
from neoflow.expr.ir import Apply, Axis, Expr, postorder
from neoflow.loops import TEMPLATES, Problem, Schedule, costs, rows, tile
from neoflow.loops.gpu.estimate import estimate
from neoflow.loops.nest import reduced
from neoflow.loops.sides import size, tile_axes
from neoflow.partition import Subgraph
from neoflow.roofs import Roofs
from neoflow.target import Target
from neoflow.tune.roofs import flops_a_cycle

ADD_LATENCY = 2.0
"""Cycles after which the next addition may use a sum, on the quickest of cores; of a multiply-add `costs.LATENCY`."""
WINDOW = 512
"""Instructions that a core looks ahead: chains that are shorter overlap."""
VECTORS_A_CYCLE = 4
"""Vector instructions of any kind that a core starts in a cycle, and values that it loads."""


@dataclass(frozen=True)
class Floor:
    """What a schedule takes at least.

    cycles: of one core that does all. share: of it, the busiest core's. nbytes: that tasks read and write beyond their
    level-2 caches. held: vectors in registers, of those there are. footprint: what a task comes back to, of a level-2
    cache. seconds: where the target says how long, as a GPU's data sheet does.
    """

    cycles: float
    share: float
    nbytes: float
    held: float
    footprint: float
    seconds: float = 0.0


def floor_of(problem: Problem, schedule: Schedule, target: Target) -> Floor:
    """Of a legal schedule."""
    m = TEMPLATES[schedule.template].measures(problem, target, schedule)
    if target.device == "gpu":
        found = estimate(problem, schedule, target)
        held = found.block.registers / REGISTERS_A_THREAD
        return Floor(0.0, 1.0, m.read + m.written, held, m.working_set / target.l2_bytes, found.floor)
    is_shared = bool(dict(schedule.knobs).get("parallel", m.tasks > 1)) and target.threads > 1
    share = max(1 / target.threads, 1 / max(1.0, m.tasks)) if is_shared else 1.0
    cycles, again = CYCLES[schedule.template](problem, schedule, target)
    filled = m.accumulators / target.registers
    return Floor(cycles, share, m.read + m.written + again, filled, m.working_set / target.l2_bytes)


def least_seconds(floor: Floor, target: Target, roofs: Roofs) -> float:
    """The longest of what is there: arithmetic, memory, and what the target says."""
    clock = 1e9 * roofs.gflops / flops_a_cycle(target)
    traffic = floor.nbytes / roofs.level(int(floor.nbytes)).gb_s / 1e9
    return max(floor.cycles * floor.share / clock, traffic, floor.seconds)


def subgraph_floor(subgraph: Subgraph, roofs: Roofs) -> float:
    """Seconds that no schedule gets below: arithmetic as counted, each input and output once."""
    flops = sum(count_definition(n.definition).flops for n in subgraph.nodes)
    values = (*subgraph.inputs, *map(subgraph.value, subgraph.outputs))
    return roofs.seconds(flops, sum(v.nbytes for v in values))


# --- cycles of one core, and bytes that are read again


def _contraction(p: Any, k: Schedule, target: Target) -> tuple[float, float]:
    s, cut = tile.sides(p, k), tile.pieces(p, k)
    lanes, width, register = int(k["lanes"]), int(k["lanes"]) * int(k["vectors"]), target.lanes(s.element)
    tiles = cut.batch * cut.m * cut.n / (cut.rows * width)
    if lanes == 1:  # the compiler may join what is written one by one
        vectors = math.ceil(width / register)
        accumulators = math.ceil(cut.rows * width / register)
    else:
        vectors = int(k["vectors"]) * math.ceil(lanes / register)
        accumulators = cut.rows * vectors
    steps = tiles * cut.k
    units = target.fma_units if 2 * lanes > register else max(2, target.fma_units)  # a wide one may take two halves
    multiply = steps * accumulators / units
    loads = steps * ((cut.rows if lanes > 1 else 1) + vectors) / VECTORS_A_CYCLE
    chains = steps * costs.LATENCY / (1 + WINDOW / (cut.k * accumulators))
    stores = steps * max(0, accumulators + vectors - target.registers) / 2
    computed = steps * (accumulators + _inlined(p, k, s, register)) / VECTORS_A_CYCLE
    parts = _partial(k, cut.batch * cut.m * cut.n * dt.itemsize(tile.element_of(p)))
    return max(multiply, loads, chains, stores, computed), _again(p, k, target, cut) + parts


def _inlined(p: Any, k: Schedule, s: tile.Sides, register: int) -> float:
    """Vector operations at a step of K of a tile, at least, by which it computes its sides: of what differs from step
    to step and within the tile. Rows may be computed side by side, and steps that are written out share them."""
    left, right = tile.inlined(p, k)
    count = 0.0
    if left:
        rows = tile.pieces(p, k).rows / int(k["unroll"])
        count += rows * _moving(s.c.left, s.c.k[-1], tile_axes(s.c.m, int(k["tile_rows"])))
    if right:
        count += int(k["lanes"]) * int(k["vectors"]) * _moving(s.c.right, s.c.k[-1], s.c.n[-1:])
    return count / register


def _moving(side: Expr, step: Axis, within: tuple[Axis, ...]) -> float:
    """Instructions at least of what of a side differs along an axis, and along one of the others."""
    nodes = (n for n in postorder(side) if step in n.free and not n.free.isdisjoint(within))
    return sum(isinstance(n, Apply) and dt.is_float(n.dtype) for n in nodes) / 2


def _partial(k: Schedule, nbytes: float) -> float:
    """Of outputs of so many bytes, each written by every part of what is summed, and read to add these up."""
    splits = int(k["splits"])
    return 2.0 * splits * nbytes if splits > 1 else 0.0


def _again(p: Any, k: Schedule, target: Target, cut: tile.Pieces) -> float:
    """Of the side that every task goes through, what its level-2 cache does not keep from one to the next."""
    element = dt.itemsize(tile.element_of(p))
    by_panels = k["order"] == "panels"
    is_whole = cut.tiles <= int(k["tiles"]) if by_panels else cut.panels <= int(k["panels"])
    if not is_whole or int(k["passes"]) > 1 or k["inner"] == "panels":
        return 0.0  # what a task comes back to is a block of it
    points = size(tile.sides(p, k).c.m) if by_panels else cut.n
    passes = math.ceil(cut.panels / int(k["panels"])) if by_panels else math.ceil(cut.tiles / int(k["tiles"]))
    lost = max(0.0, points * cut.k * element / int(k["splits"]) - target.l2_bytes)
    return cut.batch * int(k["splits"]) * max(0, passes - target.threads) * lost


def _reduction(p: Any, k: Schedule, target: Target) -> tuple[float, float]:
    nest = p.fused(k)
    body = reduced(nest)
    points, terms, lanes = costs.points(nest.axes), costs.points(body.axes), int(k["lanes"])
    work = points * terms * _operations(nest.in_loop) / target.lanes("float32") / VECTORS_A_CYCLE
    parts = _partial(k, points * dt.itemsize(body.dtype))
    if lanes == 1:  # the compiler may find lanes of its own
        return work, parts
    side_by_side = int(k["unroll"]) * int(k["tile_rows"])
    chained = points * terms / (lanes * side_by_side)
    length = terms / (lanes * int(k["unroll"])) if k["lane"] == "reduced" else terms
    return max(work, chained * ADD_LATENCY / (1 + WINDOW / max(1.0, length * side_by_side))), parts


def _map(p: Any, k: Schedule, target: Target) -> tuple[float, float]:
    nest = p.fused(k)
    written = tuple(value for _, _, value in nest.outputs)
    return costs.points(nest.axes) * _operations(written) / target.lanes("float32") / VECTORS_A_CYCLE, 0.0


def _rows(p: Any, k: Schedule, target: Target) -> tuple[float, float]:
    inside = zip(rows.problems(p, k), k.inner, strict=True)
    each = [CYCLES[one.template](nest, one, target)[0] for nest, one in inside]
    return costs.points(p.axes) * sum(each), 0.0


def _scatter(p: Any, _: Schedule, target: Target) -> tuple[float, float]:
    return costs.points(p.axes) / target.lanes("float32") / VECTORS_A_CYCLE, 0.0


def _operations(expressions: tuple[Expr, ...]) -> float:
    """Instructions at least: two functions of floats may be one multiply-add, and what only moves is a load."""
    nodes = {n for e in expressions for n in postorder(e)}
    return max(1.0, sum(isinstance(n, Apply) and dt.is_float(n.dtype) for n in nodes) / 2)


CYCLES: dict[str, Callable[[Any, Schedule, Target], tuple[float, float]]] = {
    "contraction": _contraction,
    "reduction": _reduction,
    "map": _map,
    "rows": _rows,
    "scatter": _scatter,
}
"""By template of a CPU."""
