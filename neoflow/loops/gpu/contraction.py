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
from neoflow.loops.gpu.family import Family, all_splits, side_knobs, tile_knobs
from neoflow.loops.gpu.limits import room
from neoflow.loops.gpu.moves import measures_by, operand_knobs, result_knobs
from neoflow.loops.gpu.occupancy import Block
from neoflow.loops.gpu.operands import sides
from neoflow.loops.gpu.tile import AnyTile, Tile, block_of, tiles, vector
from neoflow.loops.knob import NUMBER, Chosen, Knob, Range
from neoflow.loops.problem import Measures, NestProblem
from neoflow.loops.schedule import KnobValue
from neoflow.loops.tile import element_of
from neoflow.target import Target

UNROLLS = (1, 2, 4, 8)
USUAL_UNROLL, SMALL_UNROLL = 4, 2
"""Enough for the next operands to be on their way; nvcc writes out the rest where it is worth it."""
SMALL = 4
"""Accumulators of a thread up to which LLVM writes out a whole step of a loop of four terms, all of whose loads ptxas
then begins with, in all the registers there are."""


def _tiles(p: NestProblem, target: Target, k: Chosen) -> tuple[AnyTile, ...]:
    return tiles(dt.itemsize(element_of(p)), operands.is_deep(sides(p, k).c), target.mcpu, room(target))


def _width(tile: AnyTile) -> int:
    return vector(_plain(tile).thread_n, tile.element_bytes)


def _plain(tile: AnyTile) -> Tile:
    assert isinstance(tile, Tile)
    return tile


FAMILY = Family(
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
    _width,
    is_in_lines=False,
)


def tile_of(p: NestProblem, target: Target, k: Chosen) -> Tile:
    """The tile that the knobs say."""
    return _plain(FAMILY.tile(p, target, k))


def block(p: NestProblem, target: Target, k: Chosen) -> Block:
    """What a block takes."""
    return block_of(tile_of(p, target, k))


def _warp_n(p: NestProblem, target: Target, k: Chosen) -> Range:
    t = tile_of(p, target, k)
    across, down = t.block_n // t.thread_n, t.block_m // t.thread_m
    fitting = tuple(n for n in (1, 2, 4, 8, 16, 32) if across % n == 0 and down % (32 // n) == 0)
    return Range(fitting, f"a warp is 32 of a block's {down} x {across} threads")


def _usual_warp_n(p: NestProblem, target: Target, k: Chosen) -> int:
    """Nearly as many rows as columns: a warp then reads the fewest words."""
    t = tile_of(p, target, k)

    def words(n: KnobValue) -> int:
        return int(n) * t.thread_n + 32 // int(n) * t.thread_m

    return int(min(reversed(_warp_n(p, target, k).values), key=words))


def measures(p: NestProblem, target: Target, k: Chosen) -> Measures:
    return measures_by(FAMILY, p, target, k)


KNOBS: tuple[Knob[NestProblem], ...] = (
    *side_knobs(all_splits),
    *tile_knobs(FAMILY),
    Knob("warp_n", NUMBER, "threads of a warp along the columns", _warp_n, _usual_warp_n),
    Knob(
        "unroll",
        NUMBER,
        "terms written out",
        lambda *_: Range(UNROLLS, "more terms written out only make the code longer"),
        lambda p, target, k: SMALL_UNROLL if tile_of(p, target, k).accumulators <= SMALL else USUAL_UNROLL,
    ),
    *operand_knobs(FAMILY),
    *result_knobs(FAMILY),
)
