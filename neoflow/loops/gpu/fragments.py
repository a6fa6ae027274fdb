"""`TensorTile`: how a block divides a contraction among warps that multiply with tensor cores, and what that takes.

A warp computes `fragments_m` x `fragments_n` squares of 16 x 16 results, each with 32 bytes of terms (16 of 16 bits,
8 of TF32) in a few instructions: the accumulators of a square are 8 registers of a thread, an operand of one is 4.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

from neoflow.architectures import ARCHITECTURES, WARP, Architecture
from neoflow.loops.gpu.limits import SPARE
from neoflow.loops.gpu.tile import FMAS, STAGES, runs

SQUARE, TERM_BYTES = 16, 32
"""Rows and columns of a fragment, and the bytes of a line of it."""
STEP_BYTES = (32, 64, 128)
"""Of a line that a block loads at a time."""
BLOCKS = {1: (16, 32, 64, 128, 256), 2: (32, 64, 128, 256), 3: (48, 96, 192), 4: (64, 128, 256)}
"""Rows or columns of a block, by the fragments of a warp: 1, 2 or 4 warps of three, which share no others."""
SHARED_BYTES = 128
"""That shared memory gives in a cycle."""


@dataclass(frozen=True)
class TensorTile:
    """element_bytes: of an operand in shared memory. is_deep: whether sums have more than one level of blocks."""

    block_k: int
    block_m: int
    block_n: int
    fragments_m: int
    fragments_n: int
    stages: int
    element_bytes: int
    is_deep: bool

    @property
    def terms(self) -> int:
        """Of a fragment."""
        return TERM_BYTES // self.element_bytes

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
        return self.stages * self.block_k * (self.block_m + self.block_n) * self.element_bytes

    @property
    def is_usual(self) -> bool:
        """Whether the default chooses from it: fewer squares load more than they multiply; three suit few shapes."""
        is_enough = self.fragments_m * self.fragments_n > 1 or max(self.block_m, self.block_n) <= 2 * SQUARE
        return is_enough and 3 not in (self.fragments_m, self.fragments_n)

    def usual_stages(self, a: Architecture) -> int:
        """A step takes fewer cycles than memory to answer: two are on their way, where copies need no registers."""
        return 3 if a.has_async_copy else 2

    def multiply_cycles(self, a: Architecture) -> float:
        """Of a processor for a term, by estimate: the peak of its tensor cores, and the loads of fragments."""
        rows, columns = self.warps
        loaded = rows * columns * (self.fragments_m + self.fragments_n) * SQUARE * self.element_bytes
        results = self.block_m * self.block_n
        return results / (FMAS * a.tensor_flops * peak_share(self.element_bytes) / a.flops) + loaded / SHARED_BYTES


def peak_share(element_bytes: int) -> float:
    """Of the peak of tensor cores, which is that of 16 bits: half of it with elements twice as long."""
    return 2 / element_bytes


@lru_cache(maxsize=64)
def tensor_tiles(element_bytes: int, is_deep: bool, architecture: str, shared_bytes: int) -> tuple[TensorTile, ...]:
    """Every tile of which a processor can run a block."""
    a, blocks_k = ARCHITECTURES[architecture], [n // element_bytes for n in STEP_BYTES]
    sides = [(block, count) for count, blocks in BLOCKS.items() for block in blocks]
    sizes = sorted(itertools.product(blocks_k, sides, sides, STAGES), key=lambda s: (s[0], s[1][0], s[2][0], *s[1:]))
    found = (
        TensorTile(k, m, n, of_m, of_n, stages, element_bytes, is_deep) for k, (m, of_m), (n, of_n), stages in sizes
    )
    return tuple(t for t in found if runs(t, a, shared_bytes))
