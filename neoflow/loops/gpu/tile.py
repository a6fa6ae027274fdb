"""`Tile`: how a block of threads divides a contraction, what that takes of a processor, and all that fit into one.

A block computes `block_m` x `block_n` results, `block_k` terms at a time: both operands of these lie in shared memory,
K outermost. A warp is `32 / warp_n` x `warp_n` threads, each of `thread_m` x `thread_n` accumulators.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from neoflow.architectures import ACCESS_BYTES, ARCHITECTURES, Architecture
from neoflow.loops.gpu.limits import SPARE, holds
from neoflow.loops.gpu.occupancy import Block

BLOCKS_K, BLOCKS, THREAD = (8, 16, 32), (16, 32, 64, 128, 256), (1, 2, 4, 8, 16)
STAGES = (1, 2, 3, 4)
USUAL_THREAD = (2, 4, 8)
"""Sides of a thread's tile that the default chooses from."""
USUAL_MOVED = 32
"""Elements that a thread brings to shared memory in a step, at most: beyond, their addresses take its registers."""
FMAS = 128
"""Float32 multiply-adds that a processor starts in a cycle (sm_80: 64)."""
SHARED_WORDS = 32
"""Words that shared memory gives in a cycle."""
PATCH = 8
"""Elements along K that neighbouring threads load where K is what is contiguous: a sector of 32 bytes of float32."""


class AnyTile(Protocol):
    """What every form of tiles has.

    is_usual: whether the default chooses from it. usual_stages: where K has more than one step. multiply_cycles: of a
    processor for a term, by estimate.
    """

    @property
    def block_k(self) -> int: ...
    @property
    def block_m(self) -> int: ...
    @property
    def block_n(self) -> int: ...
    @property
    def stages(self) -> int: ...
    @property
    def element_bytes(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def registers(self) -> int: ...
    @property
    def shared_bytes(self) -> int: ...
    @property
    def accumulators(self) -> int: ...
    @property
    def is_usual(self) -> bool: ...
    def usual_stages(self, a: Architecture) -> int: ...
    def multiply_cycles(self, a: Architecture) -> float: ...


@dataclass(frozen=True)
class Tile:
    """element_bytes: of what is multiplied and summed. is_deep: whether sums have more than one level of blocks."""

    block_k: int
    block_m: int
    block_n: int
    thread_m: int
    thread_n: int
    stages: int
    element_bytes: int
    is_deep: bool

    @property
    def threads(self) -> int:
        return self.block_m * self.block_n // (self.thread_m * self.thread_n)

    @property
    def accumulators(self) -> int:
        return self.thread_m * self.thread_n

    @property
    def is_usual(self) -> bool:
        """Whether the default chooses from it: with fewer accumulators loads take most of the time."""
        return self.thread_m in USUAL_THREAD and self.thread_n in USUAL_THREAD and self.moved <= USUAL_MOVED

    def usual_stages(self, _: Architecture) -> int:
        """A step takes longer than memory takes to answer."""
        return 2

    def multiply_cycles(self, _: Architecture) -> float:
        """Of a processor for a term, by estimate: multiply-adds, and the loads of their operands."""
        results = self.block_m * self.block_n
        loads = results * (1 / self.thread_m + 1 / self.thread_n) / SHARED_WORDS / 4
        return results / FMAS * (self.element_bytes // 4) ** 2 + loads

    @property
    def registers(self) -> int:
        """What a thread holds: accumulators of each level, a term's operands, what is on its way to shared memory."""
        words = self.element_bytes // 4
        sums = self.thread_m * self.thread_n * (2 if self.is_deep else 1)
        moved = self.moved if self.stages > 1 else 0
        return words * (sums + self.thread_m + self.thread_n + moved) + SPARE

    @property
    def moved(self) -> int:
        """Elements of a step that a thread brings to shared memory."""
        return math.ceil((self.block_m + self.block_n) * self.block_k / self.threads)

    @property
    def shared_bytes(self) -> int:
        rows = pitch(self.block_m, True, self.element_bytes) + pitch(self.block_n, True, self.element_bytes)
        return self.stages * self.block_k * rows * self.element_bytes


def runs(t: AnyTile, a: Architecture, shared_bytes: int) -> bool:
    """Whether a processor can run a block, and a thread keeps what it holds in registers."""
    return holds(block_of(t), a, shared_bytes).ok


def block_of(t: AnyTile) -> Block:
    """What a block takes."""
    return Block(t.threads, t.registers, t.shared_bytes)


def pitch(rows: int, along_k: bool, element_bytes: int) -> int:
    """Elements from a point of K to the next in shared memory, such that the stores of a warp meet no bank twice.

    A warp stores `rows` in a line, or, along K, patches of 8 points of K by 4 rows: with the next point of K 4 banks on
    (of 32) these are 32 banks. Elements of 8 bytes go by halves of a warp: 8 by 2, 2 banks of 8 bytes on.
    """
    if not along_k:
        return rows
    banks = 128 // element_bytes
    step = banks // PATCH
    return rows + (step - rows) % banks


@lru_cache(maxsize=64)
def tiles(element_bytes: int, is_deep: bool, architecture: str, shared_bytes: int) -> tuple[Tile, ...]:
    """Every tile of which a processor can run a block."""
    a = ARCHITECTURES[architecture]
    sizes = itertools.product(BLOCKS_K, BLOCKS, BLOCKS, THREAD, THREAD, STAGES)
    found = (Tile(*s, element_bytes, is_deep) for s in sizes)
    return tuple(t for t in found if runs(t, a, shared_bytes))


def vector(points: int, element_bytes: int) -> int:
    """Elements of a register tile's side in one access of shared memory."""
    return min(points, ACCESS_BYTES // element_bytes)
