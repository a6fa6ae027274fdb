"""`TensorTile`: how a block divides a contraction among warps that multiply with tensor cores, and what that takes.

A warp computes `fragments_m` x `fragments_n` squares of 16 x 16 results, each with a term of 16 in one or two
instructions: the accumulators of a square are 8 registers of a thread, an operand of one is 4.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

from neoflow.architectures import ARCHITECTURES, WARP, Architecture
from neoflow.loops.gpu.limits import SPARE
from neoflow.loops.gpu.tile import FMAS, STAGES, runs

SQUARE = 16
"""Rows, columns and terms of a fragment."""
BLOCKS_K, BLOCKS, FRAGMENTS = (16, 32, 64), (16, 32, 64, 128, 256), (1, 2, 4)
SHARED_BYTES = 128
"""That shared memory gives in a cycle."""
NARROW_BYTES = 2


@dataclass(frozen=True)
class TensorTile:
    """is_deep: whether sums have more than one level of blocks."""

    block_k: int
    block_m: int
    block_n: int
    fragments_m: int
    fragments_n: int
    stages: int
    is_deep: bool

    @property
    def element_bytes(self) -> int:
        return NARROW_BYTES

    @property
    def warps(self) -> tuple[int, int]:
        """Along the rows and the columns of a block."""
        return self.block_m // (SQUARE * self.fragments_m), self.block_n // (SQUARE * self.fragments_n)

    @property
    def threads(self) -> int:
        return WARP * self.warps[0] * self.warps[1]

    @property
    def accumulators(self) -> int:
        return 8 * self.fragments_m * self.fragments_n

    @property
    def registers(self) -> int:
        """What a thread holds: accumulators of each level, fragments, what is on its way to shared memory."""
        sums = self.accumulators * (2 if self.is_deep else 1)
        moved = math.ceil((self.block_m + self.block_n) * self.block_k / max(1, self.threads)) if self.stages > 1 else 0
        return sums + 4 * (self.fragments_m + self.fragments_n) + moved + SPARE

    @property
    def shared_bytes(self) -> int:
        return self.stages * self.block_k * (self.block_m + self.block_n) * NARROW_BYTES

    @property
    def is_usual(self) -> bool:
        """Whether the default chooses from it: fewer squares load more than they multiply."""
        return self.fragments_m * self.fragments_n > 1 or max(self.block_m, self.block_n) <= 2 * SQUARE

    def usual_stages(self, a: Architecture) -> int:
        """A step takes fewer cycles than memory to answer: two are on their way, where copies need no registers."""
        return 3 if a.has_async_copy else 2

    def multiply_cycles(self, a: Architecture) -> float:
        """Of a processor for a term, by estimate: the peak of its tensor cores, and the loads of fragments."""
        rows, columns = self.warps
        loaded = rows * columns * (self.fragments_m + self.fragments_n) * SQUARE * NARROW_BYTES
        return self.block_m * self.block_n / (FMAS * a.tensor_flops / a.flops) + loaded / SHARED_BYTES


@lru_cache(maxsize=64)
def tensor_tiles(is_deep: bool, architecture: str, shared_bytes: int) -> tuple[TensorTile, ...]:
    """Every tile of which a processor can run a block."""
    a = ARCHITECTURES[architecture]
    sizes = itertools.product(BLOCKS_K, BLOCKS, BLOCKS, FRAGMENTS, FRAGMENTS, STAGES)
    found = (TensorTile(*s, is_deep) for s in sizes)
    return tuple(t for t in found if min(t.warps) > 0 and runs(t, a, shared_bytes))
