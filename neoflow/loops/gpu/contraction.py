"""The `gpu_contraction` template: a block of threads computes a block of results, each thread a register tile of them.

    for block in batch x splits x row blocks x column blocks:
        for k in steps of block_k:
            shared left[k][m], right[k][n] = the operands at these points, whatever their expressions;  barrier
            for kk in block_k:  acc[thread_m][thread_n] += left[kk][m] * right[kk][n]
        outputs at the block = epilogue(acc)        in partial sums first when splits > 1, which a second launch adds

Operands are computed where they are loaded, so that convolutions read their windows from memory, which are never stored
there. Only blocks at the edges are guarded.
"""

from __future__ import annotations

from neoflow.expr import dtype as dt
from neoflow.loops.gpu import operands
from neoflow.loops.gpu.family import Family, all_splits
from neoflow.loops.gpu.limits import room
from neoflow.loops.gpu.moves import knobs_of
from neoflow.loops.gpu.operands import sides
from neoflow.loops.gpu.tile import Tile, tiles, vector
from neoflow.loops.knob import NUMBER, Chosen, Knob, Range
from neoflow.loops.problem import NestProblem
from neoflow.loops.schedule import KnobValue
from neoflow.loops.tile import element_of
from neoflow.target import Target

UNROLLS = (1, 2, 4, 8)
USUAL_UNROLL, SMALL_UNROLL = 4, 2
"""Enough for the next operands to be on their way; nvcc writes out the rest where it is worth it."""
SMALL = 4
"""Accumulators of a thread up to which LLVM writes out a whole step of a loop of four terms, all of whose loads ptxas
then begins with, in all the registers there are."""


def _tiles(p: NestProblem, target: Target, k: Chosen) -> tuple[Tile, ...]:
    return tiles(dt.itemsize(element_of(p)), operands.is_deep(sides(p, k).c), target.mcpu, room(target))


FAMILY: Family[Tile] = Family(
    "fma",
    ("block_k", "block_m", "block_n", "thread_m", "thread_n", "stages"),
    (
        "terms that a block loads at a time",
        "rows of a block",
        "columns of a block",
        "rows of a thread",
        "columns of a thread",
        "steps of K in shared memory: with two, one is loaded while the other is multiplied",
    ),
    _tiles,
    sides,
    lambda p, _: element_of(p),
    lambda t: vector(t.thread_n, t.element_bytes),
    is_in_lines=False,
)


def _warp_n(p: NestProblem, target: Target, k: Chosen) -> Range:
    t = FAMILY.tile(p, target, k)
    across, down = t.block_n // t.thread_n, t.block_m // t.thread_m
    fitting = tuple(n for n in (1, 2, 4, 8, 16, 32) if across % n == 0 and down % (32 // n) == 0)
    return Range(fitting, f"a warp is 32 of a block's {down} x {across} threads")


def _usual_warp_n(p: NestProblem, target: Target, k: Chosen) -> int:
    """Nearly as many rows as columns: a warp then reads the fewest words."""
    t = FAMILY.tile(p, target, k)

    def words(n: KnobValue) -> int:
        return int(n) * t.thread_n + 32 // int(n) * t.thread_m

    return int(min(reversed(_warp_n(p, target, k).values), key=words))


KNOBS = knobs_of(
    FAMILY,
    all_splits,
    Knob("warp_n", NUMBER, "threads of a warp along the columns", _warp_n, _usual_warp_n),
    Knob(
        "unroll",
        NUMBER,
        "terms written out",
        lambda *_: Range(UNROLLS, "more terms written out only make the code longer"),
        lambda p, target, k: SMALL_UNROLL if FAMILY.tile(p, target, k).accumulators <= SMALL else USUAL_UNROLL,
    ),
)
