"""The `gpu_wgmma` template: `gpu_tensor_core` by warpgroups, four warps that multiply what is in shared memory.

    for k in steps of 64:
        shared left[m][k] or [m / 64][k][64], right likewise = the operands;  barrier
        for kk in 4:  acc[64][block_n] += left[64][16] * right[16][block_n]        a warpgroup, asynchronously
        wait

No fragment is loaded: descriptors say where operands are, in lines of 128 bytes whose chunks change places as those of
`Swizzled` do. It is no choice without a search: no GPU has confirmed yet that it is the faster one.

Source: PTX ISA 9, "Asynchronous Warpgroup Level Matrix Instructions".
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

from neoflow.architectures import ARCHITECTURES, WARP, Architecture, architecture
from neoflow.loops.gpu import operands, tensor_core
from neoflow.loops.gpu.family import Family, side_knobs, tile_knobs
from neoflow.loops.gpu.limits import SPARE, room
from neoflow.loops.gpu.moves import measures_by, operand_knobs, result_knobs
from neoflow.loops.gpu.occupancy import Block
from neoflow.loops.gpu.tile import FMAS, STAGES, AnyTile, block_of, runs
from neoflow.loops.knob import Chosen, Knob
from neoflow.loops.problem import Measures, NestProblem
from neoflow.target import Target
from neoflow.verdict import Verdict

ROWS, LINE, TERMS = 64, 64, 16
"""Of a warpgroup; elements of 16 bits of a line of 128 bytes; terms of an instruction."""
WARPGROUP = 4 * WARP
GROUPS, BLOCKS_N = (1, 2, 3, 4), (64, 128, 192, 256)
ELEMENT_BYTES = 2
ALIGNMENT = 1024
"""Bytes: 8 lines, within which chunks change places."""


@dataclass(frozen=True)
class WarpgroupTile:
    """A warpgroup computes 64 rows of all columns. is_deep: whether sums have more than one level of blocks."""

    block_m: int
    block_n: int
    stages: int
    is_deep: bool

    @property
    def block_k(self) -> int:
        return LINE

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES

    @property
    def threads(self) -> int:
        return WARPGROUP * (self.block_m // ROWS)

    @property
    def accumulators(self) -> int:
        return ROWS * self.block_n // WARPGROUP

    @property
    def registers(self) -> int:
        """What a thread holds: accumulators of each level, what is on its way to shared memory, two in a register."""
        moved = math.ceil((self.block_m + self.block_n) * LINE / self.threads / 2) if self.stages > 1 else 0
        return self.accumulators * (2 if self.is_deep else 1) + moved + SPARE

    @property
    def shared_bytes(self) -> int:
        return self.stages * LINE * (self.block_m + self.block_n) * ELEMENT_BYTES

    @property
    def is_usual(self) -> bool:
        return True

    def usual_stages(self, _: Architecture) -> int:
        """A step takes fewer cycles than memory to answer: two are on their way."""
        return 3

    def multiply_cycles(self, a: Architecture) -> float:
        """Of a processor for a term, by estimate: the peak of its tensor cores."""
        return self.block_m * self.block_n / (FMAS * a.tensor_flops / a.flops)


@lru_cache(maxsize=8)
def warpgroup_tiles(is_deep: bool, name: str, shared_bytes: int) -> tuple[WarpgroupTile, ...]:
    """Every tile of which a processor can run a block."""
    a, blocks_m = ARCHITECTURES[name], [ROWS * n for n in GROUPS]
    found = (WarpgroupTile(*s, is_deep) for s in itertools.product(blocks_m, BLOCKS_N, STAGES))
    return tuple(t for t in found if runs(t, a, shared_bytes))


def fits_target(p: NestProblem, target: Target) -> Verdict:
    """Whether its processors have the instructions, for that type."""
    if target.kind != "cuda" or not architecture(target).has_wgmma:
        return Verdict(False, f"{target} has no instructions of warpgroups, which are those of sm_90 in CUDA C++")
    if not tensor_core.types(p) <= {"float16", "bfloat16"}:
        return Verdict(False, "warpgroups multiply float16 and bfloat16 here")
    return Verdict(True, "its tensor cores have the type")


def is_usable(p: NestProblem, target: Target) -> bool:
    """Never without a search: `gpu_tensor_core` has been longer in use."""
    return False


def _tiles(p: NestProblem, target: Target, k: Chosen) -> tuple[AnyTile, ...]:
    return warpgroup_tiles(operands.is_deep(tensor_core.sides(p, k).c), target.mcpu, room(target))


FAMILY = Family(
    "wgmma",
    ("block_m", "block_n", "stages"),
    (
        "rows of a block, 64 a warpgroup",
        "columns of a block, and of each warpgroup",
        "steps of K in shared memory: all but one are loaded while that is multiplied",
    ),
    _tiles,
    tensor_core.sides,
    tensor_core.element,
    lambda _: 2,
    is_in_lines=True,
)


def tile_of(p: NestProblem, target: Target, k: Chosen) -> WarpgroupTile:
    """The tile that the knobs say."""
    found = FAMILY.tile(p, target, k)
    assert isinstance(found, WarpgroupTile)
    return found


def block(p: NestProblem, target: Target, k: Chosen) -> Block:
    """What a block takes."""
    return block_of(tile_of(p, target, k))


def measures(p: NestProblem, target: Target, k: Chosen) -> Measures:
    return measures_by(FAMILY, p, target, k)


KNOBS: tuple[Knob[NestProblem], ...] = (
    *side_knobs(tensor_core.narrow_splits),
    *tile_knobs(FAMILY),
    *operand_knobs(FAMILY),
    *result_knobs(FAMILY),
)
