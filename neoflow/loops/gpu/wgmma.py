"""The `gpu_wgmma` template: `gpu_tensor_core` by warpgroups, four warps that multiply what is in shared memory.

    for k in steps of 128 bytes:
        shared left[m][k] or [m / 64][k][64], right likewise = the operands;  barrier
        for kk in 4:  acc[64][block_n] += left[64][32 bytes] * right[32 bytes][block_n]   a warpgroup, asynchronously
        wait for all but the last `overlap` - 1 steps

No fragment is loaded: descriptors say where operands are, in lines of 128 bytes whose chunks change places as those of
`Swizzled` do. Sides that are boxes of a tensor in memory come by bulk copies, which one thread begins and a barrier in
shared memory counts (`boxes`). TF32 is rounded before it is stored, and lies along K whatever way it was loaded.

Where both sides come so and the estimate has it well ahead, it is the choice without a search: on an H200 products of
4096 cubed ran at 82 % of the tensor cores' peak by it, at 29 % by `gpu_tensor_core`; other loads have not been timed.

Source: PTX ISA 9, "Asynchronous Warpgroup Level Matrix Instructions".
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

from neoflow.architectures import ARCHITECTURES, WARP, Architecture, architecture
from neoflow.expr import dtype as dt
from neoflow.graph import TF32
from neoflow.loops.gpu import operands, tensor_core
from neoflow.loops.gpu.boxes import BARRIER_BYTES, Boxes, boxes_of
from neoflow.loops.gpu.family import Family
from neoflow.loops.gpu.fragments import peak_share
from neoflow.loops.gpu.limits import SPARE, room
from neoflow.loops.gpu.moves import knobs_of
from neoflow.loops.gpu.tile import FMAS, STAGES, runs
from neoflow.loops.knob import NUMBER, Chosen, Knob, Range, completed, up_to
from neoflow.loops.problem import NestProblem
from neoflow.loops.tile import Sides
from neoflow.target import Target
from neoflow.verdict import Verdict

ROWS, LINE_BYTES, TERM_BYTES = 64, 128, 32
"""Of a warpgroup; of a line of an operand; of the terms of an instruction."""
WARPGROUP = 4 * WARP
GROUPS, BLOCKS_N = (1, 2, 3, 4), (64, 128, 192, 256)
ALIGNMENT = 1024
"""Bytes: 8 lines, within which chunks change places."""
CLEARLY = 1.25
"""Times the estimated cycles. Chosen: it was 2.9 times as fast as `gpu_tensor_core` where 2.1 was estimated."""
USUAL_OVERLAP = 2
"""The next multiplications are there when those before end."""


@dataclass(frozen=True)
class WarpgroupTile:
    """A warpgroup computes 64 rows of all columns. is_deep: whether sums have more than one level of blocks."""

    block_m: int
    block_n: int
    stages: int
    element_bytes: int
    is_deep: bool

    @property
    def block_k(self) -> int:
        """Of a line."""
        return LINE_BYTES // self.element_bytes

    @property
    def threads(self) -> int:
        return WARPGROUP * (self.block_m // ROWS)

    @property
    def accumulators(self) -> int:
        return ROWS * self.block_n // WARPGROUP

    @property
    def registers(self) -> int:
        """What a thread holds: accumulators of each level, and, of words, what is on its way to shared memory."""
        words = (self.block_m + self.block_n) * LINE_BYTES // 4
        moved = math.ceil(words / self.threads) if self.stages > 1 else 0
        return self.accumulators * (2 if self.is_deep else 1) + moved + SPARE

    @property
    def shared_bytes(self) -> int:
        return self.stages * (LINE_BYTES * (self.block_m + self.block_n) + BARRIER_BYTES)

    @property
    def is_usual(self) -> bool:
        return True

    def usual_stages(self, _: Architecture) -> int:
        """A step takes fewer cycles than memory to answer: two are on their way, while two are multiplied."""
        return 4

    def multiply_cycles(self, a: Architecture) -> float:
        """Of a processor for a term, by estimate: the peak of its tensor cores."""
        share = peak_share(self.element_bytes)
        return self.block_m * self.block_n / (FMAS * a.tensor_flops * share / a.flops)


@lru_cache(maxsize=16)
def warpgroup_tiles(element_bytes: int, is_deep: bool, name: str, shared_bytes: int) -> tuple[WarpgroupTile, ...]:
    """Every tile of which a processor can run a block."""
    a, blocks_m = ARCHITECTURES[name], [ROWS * n for n in GROUPS]
    found = (WarpgroupTile(*s, element_bytes, is_deep) for s in itertools.product(blocks_m, BLOCKS_N, STAGES))
    return tuple(t for t in found if runs(t, a, shared_bytes))


def fits_target(p: NestProblem, target: Target) -> Verdict:
    """Whether its processors have the instructions, which are for every type that tensor cores have here."""
    if target.kind != "cuda" or not architecture(target).has_wgmma:
        return Verdict(False, f"{target} has no instructions of warpgroups, which are those of sm_90 in CUDA C++")
    return tensor_core.fits_target(p, target)


def is_usable(p: NestProblem, target: Target) -> bool:
    """Where bulk copies bring both sides, and `gpu_tensor_core` is thought to take clearly longer."""
    own = completed(KNOBS, p, target, {})
    if not (own["left_bulk"] and own["right_bulk"]):
        return False
    other = completed(tensor_core.KNOBS, p, target, {})
    return tensor_core.FAMILY.cycles(p, target, other) > CLEARLY * FAMILY.cycles(p, target, own)


def sides(p: NestProblem, k: Chosen) -> Sides:
    """The contraction that the knobs say, its sides narrow; of TF32 as the program rounds them: these instructions
    would cut bits off."""
    dtype, found = tensor_core.narrow(p, k)
    return operands.sides(p, k) if dtype == TF32 else found


def _tiles(p: NestProblem, target: Target, k: Chosen) -> tuple[WarpgroupTile, ...]:
    nbytes = dt.itemsize(tensor_core.element(p, k))
    return warpgroup_tiles(nbytes, operands.is_deep(sides(p, k).c), target.mcpu, room(target))


def boxes(p: NestProblem, target: Target, k: Chosen, side: str) -> Boxes | str:
    """What bulk copies of a side are of, or why there are none."""
    c, element, tile = sides(p, k).c, tensor_core.element(p, k), FAMILY.tile(p, target, k)
    own, rows, count = (c.left, c.m, tile.block_m) if side == "left" else (c.right, c.n, tile.block_n)
    read = operands.plain_read(own, element)
    if read is None:
        return f"the {side} side is not one read at linear addresses of what is multiplied"
    along = str(k[f"{side}_along"])
    return boxes_of(
        read, c.batch, rows, c.k, along, (tile.block_k, count if along == "k" else tile.block_k), dt.itemsize(element)
    )


FAMILY: Family[WarpgroupTile] = Family(
    "wgmma",
    ("block_m", "block_n", "stages"),
    (
        "rows of a block, 64 a warpgroup",
        "columns of a block, and of each warpgroup",
        "steps of K in shared memory: all but one are loaded while that is multiplied",
    ),
    _tiles,
    sides,
    tensor_core.element,
    lambda _: 2,
    is_in_lines=True,
    boxes=boxes,
)


def _overlap(_: NestProblem, __: Target, k: Chosen) -> Range:
    return up_to(int(k["stages"]) - 1, f"of {k['stages']} stages one at least is loaded while others are multiplied")


KNOBS = knobs_of(
    FAMILY,
    tensor_core.narrow_splits,
    Knob(
        "overlap",
        NUMBER,
        "steps of K whose multiplications are under way at a time",
        _overlap,
        lambda p, target, k: min(USUAL_OVERLAP, len(_overlap(p, target, k).values)),
    ),
)
