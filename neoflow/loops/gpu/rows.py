"""The `gpu_rows` template: each row goes through all nests of a row kernel, by a team of threads of one block.

    for block: for team in block's: row = block * teams + team
        nest 0 of the row -> buffer; barrier; nest 1 of the row -> buffer or output; barrier; ...

Of a nest that reduces nothing, members compute every so-many-th vector; where it reduces, as many members share an
output as the team has for each (`members`). What lies between nests is in shared memory, asked for at the launch where
it is more than a source may declare, or where that is too small in scratch. A team of a warp or less waits for itself
alone.
"""

from __future__ import annotations

import math

from neoflow.architectures import ACCESS_BYTES, THREADS_A_BLOCK, WARP, architecture
from neoflow.expr import dtype as dt
from neoflow.loops import costs, rows
from neoflow.loops.gpu import blocks
from neoflow.loops.gpu.limits import SPARE, STATIC_BYTES, held, holds, room
from neoflow.loops.gpu.occupancy import Block
from neoflow.loops.knob import NUMBER, WORD, Chosen, Knob, Range, one
from neoflow.loops.nest import Nest
from neoflow.loops.problem import Measures
from neoflow.loops.row_nests import RowNest
from neoflow.loops.rows import RowProblem, nests
from neoflow.target import Target

PLACES = ("shared", "global")
USUAL_STEPS = 8
"""Vectors of a row that a thread goes through, where there are rows enough."""
LEAST_STEPS = 2
"""The same where there are not."""
MOST_THREADS = THREADS_A_BLOCK // 2
"""Threads of a row, unless a search finds more to be faster: in a block of all there may be each has 64 registers, and
ptxas gives up to 125 to LLVM's code of row kernels of a dozen computes where it may."""
PADDING = 4
"""What the size of a row's buffer is a multiple of: accesses of any width begin at whole ones."""


def fused(nest: RowNest) -> Nest:
    """Over as few axes as there may be."""
    return nest.problem.fused({"fuse": nest.problem.all_fused})


def nest_lanes(nest: Nest, k: Chosen) -> int:
    """Points of the last axis in a vector: as many as the knob says, or as there may be here."""
    return max(n for n in _whole(nest) if n <= int(k["lanes"]))


def _whole(nest: Nest) -> tuple[int, ...]:
    if nest.reduction is None:
        axis, expressions = nest.axes[-1] if nest.axes else None, nest.expressions
    else:
        axis, expressions = nest.reduction.axes[-1] if nest.reduction.axes else None, (nest.reduction.body,)
    return tuple(int(n) for n in blocks.whole_lanes(axis, expressions, False).values)


def steps(nest: Nest, k: Chosen) -> int:
    """Vectors of points, or of terms of each."""
    reduced = nest.reduction.axes if nest.reduction is not None else nest.axes
    return costs.points(reduced) // nest_lanes(nest, k)


def members(nest: Nest, k: Chosen) -> int:
    """How many threads of a team share an output of a nest that reduces."""
    outputs = blocks.ceil_power(costs.points(nest.axes))
    return min(blocks.ceil_power(steps(nest, k)), max(1, int(k["team"]) // outputs))


def stride(nest: RowNest) -> int:
    """Elements from a row's buffer to the next one's."""
    return math.ceil(nest.size / PADDING) * PADDING


def local(p: RowProblem, k: Chosen) -> list[RowNest]:
    """The nests that lie between others only."""
    return [n for n in nests(p, k) if not n.is_output]


def shared_bytes(p: RowProblem, k: Chosen) -> int:
    """Shared memory of a block whose rows lie there: buffers, and what members exchange."""
    return offsets(p, k)[-1] + exchanged_bytes(p, k)


def offsets(p: RowProblem, k: Chosen) -> tuple[int, ...]:
    """Where the rows of each nest begin in a block's memory, in bytes; and where the last ones end."""
    teams, found = int(k["threads"]) // int(k["team"]), [0]
    for n in local(p, k):
        nbytes = teams * stride(n) * dt.itemsize(n.dtype)
        found.append(found[-1] + math.ceil(nbytes / ACCESS_BYTES) * ACCESS_BYTES)
    return tuple(found)


def dynamic_bytes(p: RowProblem, k: Chosen) -> int:
    """What a launch asks for: all of the rows, where a source may not declare as much."""
    return offsets(p, k)[-1] if k["place"] == "shared" and shared_bytes(p, k) > STATIC_BYTES else 0


def exchanged_bytes(p: RowProblem, k: Chosen) -> int:
    """The part of it that members exchange, wherever rows lie."""
    return sum(2 * blocks.EXCHANGED_BYTES for n in nests(p, k) if n.problem.nest.reduction is not None)


def _lanes(p: RowProblem, _: Target, k: Chosen) -> Range:
    most = max(max(_whole(fused(n))) for n in nests(p, k))
    return Range(blocks.powers(most), "powers of two, up to what divides an axis of a nest and is one access")


def _usual_lanes(p: RowProblem, target: Target, k: Chosen) -> int:
    """The widest that leaves a warp its work."""
    longest = max(_points(fused(n)) for n in nests(p, k))
    return max((int(n) for n in _lanes(p, target, k).values if longest // int(n) >= WARP), default=1)


def _points(nest: Nest) -> int:
    return costs.points(nest.axes) * (costs.points(nest.reduction.axes) if nest.reduction is not None else 1)


def _team(*_: object) -> Range:
    return Range(blocks.powers(THREADS_A_BLOCK), f"powers of two up to the {THREADS_A_BLOCK} that a block may have")


def _usual_team(p: RowProblem, target: Target, k: Chosen) -> int:
    """A warp, or as many threads as a row has work for."""
    vectors = max(_points(fused(n)) // nest_lanes(fused(n), k) for n in nests(p, k))
    found = architecture(target)
    missing = blocks.ceil_power(math.ceil(found.processors * found.threads / costs.points(p.axes)))
    wanted = max(
        blocks.floor_power(vectors / USUAL_STEPS), min(missing, blocks.floor_power(vectors / LEAST_STEPS)), WARP
    )
    return min(wanted, blocks.ceil_power(vectors), MOST_THREADS)


def block(p: RowProblem, _: Target, k: Chosen) -> Block:
    """What a block takes; of each vector its accumulators stay in registers, or its values."""
    used = shared_bytes(p, k) if k["place"] == "shared" else exchanged_bytes(p, k)
    return Block(int(k["threads"]), registers(p, k), used)


def registers(p: RowProblem, k: Chosen) -> int:
    """Of a thread."""
    return SPARE + int(k["lanes"]) * max(max(1, dt.itemsize(n.dtype) // 4) for n in nests(p, k))


def _threads(p: RowProblem, target: Target, k: Chosen) -> Range:
    values = (n for n in blocks.powers(THREADS_A_BLOCK) if n >= max(WARP, int(k["team"])))
    reason = f"powers of two from a warp and a team to the {THREADS_A_BLOCK} that a block may have"
    return held(values, lambda n: Block(n, registers(p, k), exchanged_bytes(p, k)), target, reason)


def _usual_threads(p: RowProblem, target: Target, k: Chosen) -> int:
    """Teams enough for a block of the usual size, unless rows are few or shared memory is short."""
    team = int(k["team"])
    needed = team * math.ceil(costs.points(p.axes) / architecture(target).processors)
    wanted = min(blocks.USUAL_THREADS // 2, blocks.ceil_power(needed))
    least = max(WARP, team)
    while wanted > least and shared_bytes(p, {**_all(k), "threads": wanted}) > STATIC_BYTES:
        wanted //= 2
    return max(wanted, least)


def _all(k: Chosen) -> dict[str, int]:
    return {name: int(k[name]) for name in ("stored", "lanes", "team")}


def _place(p: RowProblem, target: Target, k: Chosen) -> Range:
    if not local(p, k):
        return one("shared", "nothing lies between nests")
    wanted = Block(int(k["threads"]), registers(p, k), shared_bytes(p, k))
    verdict = holds(wanted, architecture(target), room(target))
    return Range(PLACES, "rows fit in both") if verdict.ok else one("global", verdict.reason)


def measures(p: RowProblem, target: Target, k: Chosen) -> Measures:
    found = rows.measures(p, target, k)
    count = math.ceil(costs.points(p.axes) * int(k["team"]) / int(k["threads"]))
    between = shared_bytes(p, k)
    return Measures(found.points, 1, found.operations, found.read, found.written, count, int(k["lanes"]), between)


KNOBS: tuple[Knob[RowProblem], ...] = (
    rows.STORED,
    Knob("lanes", NUMBER, "points in a vector, where a nest has such", _lanes, _usual_lanes),
    Knob("team", NUMBER, "threads of a row", _team, _usual_team),
    Knob("threads", NUMBER, "threads of a block", _threads, _usual_threads),
    Knob("place", WORD, "where rows lie between nests", _place, lambda p, t, k: str(_place(p, t, k).values[0]), PLACES),
)
