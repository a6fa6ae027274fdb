"""The tile of a contraction without a search: the one of the fewest estimated cycles. All of its numbers are here.

A processor multiplies; beside that it issues the loads of the next terms and their stores; with few warps it waits for
latencies. Blocks go over the processors in waves,
and the last wave, like the parts of tiles beyond an edge, costs what a whole one does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

from neoflow.architectures import REGISTERS_A_THREAD, WARP, architecture
from neoflow.loops.gpu.tile import AnyTile
from neoflow.target import Target

T = TypeVar("T", bound=AnyTile)
LATENT_WARPS = 8
"""Warps of a processor from which enough independent multiply-adds are under way: two a scheduler, with the 16 to 64
accumulators of each thread."""
BLOCK_CYCLES, TILE_CYCLES, SUM_CYCLES = 1500, 60, 3000
"""What starting and ending a block, a barrier, and a second launch cost, by order of magnitude."""
THREADS = 128
"""That a processor issues for in a cycle."""
WORD_CYCLES = 1.5
"""Instructions for an element on its way from memory to shared memory: address, load, store, shared by its lanes."""
SPLITS = (1, 2, 4, 8, 16, 32, 64)
MOST_ELEMENTS = (1 << 31) - 1
"""Of a buffer: its addresses are integers of 32 bits."""
CLEARANCE = 32
"""Registers of a thread that a tile leaves beside those it is thought to take: operands whose expressions are long take
more, and a thread without them keeps its sums in memory."""
LEAST_SPLIT = 64
"""Terms of a part of K, at least."""


@dataclass(frozen=True)
class Extents:
    """Points of each group of axes."""

    batch: int
    m: int
    n: int
    k: int


def most_splits(e: Extents, tile: AnyTile) -> int:
    """Parts of K of a whole number of steps, none of them empty, whose sums the memory of a kernel can count."""
    room = MOST_ELEMENTS // (e.batch * e.m * e.n)
    return max(1, min(math.ceil(e.k / tile.block_k), room))


def splits_for(e: Extents, tile: AnyTile) -> tuple[int, ...]:
    """Parts that the default chooses from."""
    most = min(most_splits(e, tile), e.k // LEAST_SPLIT)
    return tuple(s for s in SPLITS if s == 1 or s <= most)


def cycles(e: Extents, tile: AnyTile, splits: int, target: Target) -> float:
    """Estimated cycles of the launches."""
    a = architecture(target)
    blocks = e.batch * math.ceil(e.m / tile.block_m) * math.ceil(e.n / tile.block_n) * splits
    resident = max(1, min(a.registers // (tile.registers * tile.threads), a.threads // tile.threads, a.blocks))
    resident = max(1, min(resident, a.shared_bytes // max(1, tile.shared_bytes)))
    on_each = math.ceil(blocks / a.processors)
    warps = min(on_each, resident) * tile.threads / WARP
    steps = math.ceil(math.ceil(e.k / tile.block_k) / splits)
    terms = steps * tile.block_k
    work = tile.multiply_cycles(a)
    moved = (tile.block_m + tile.block_n) * WORD_CYCLES / THREADS
    wait = max(1.0, LATENT_WARPS / warps)
    step = TILE_CYCLES * steps * (2 if tile.stages == 1 else 1)
    block = terms * (work + moved) * wait + step + BLOCK_CYCLES
    partial = e.batch * e.m * e.n * 4 * (splits + 1) / (a.bandwidth / 1.5e9) if splits > 1 else 0
    return on_each * block + (SUM_CYCLES + partial if splits > 1 else 0)


def best(e: Extents, found: tuple[T, ...], target: Target) -> T:
    """The tile of the fewest cycles, of those alike the smallest."""
    usual = tuple(t for t in found if _is_usual(e, t, target)) or found
    return min(usual, key=lambda t: (best_cycles(e, t, target), t.threads, t.shared_bytes))


def best_cycles(e: Extents, tile: AnyTile, target: Target) -> float:
    return min(cycles(e, tile, s, target) for s in splits_for(e, tile))


def usual_splits(e: Extents, tile: AnyTile, target: Target) -> int:
    return min(splits_for(e, tile), key=lambda s: cycles(e, tile, s, target))


def _is_usual(e: Extents, t: AnyTile, target: Target) -> bool:
    a = architecture(target)
    roomy = t.registers + CLEARANCE <= min(REGISTERS_A_THREAD, a.registers // t.threads)
    return roomy and t.is_usual and t.stages == (1 if e.k <= t.block_k else t.usual_stages(a))
