"""The tile of a contraction without a search: the one of the fewest estimated cycles. All of its numbers are here.

A processor starts `FMAS` multiply-adds a cycle. Beside them it issues the loads of operands from shared memory, the
loads of the next terms and their stores; with few warps it waits for latencies. Blocks go over the processors in waves,
and the last wave, like the parts of tiles beyond an edge, costs what a whole one does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from neoflow.architectures import WARP, architecture
from neoflow.loops.gpu.tile import Tile
from neoflow.target import Target

FMAS = 128
"""Float32 multiply-adds that a processor starts in a cycle (sm_80: 64)."""
LATENT_WARPS = 8
"""Warps of a processor from which enough independent multiply-adds are under way: two a scheduler, with the 16 to 64
accumulators of each thread."""
SHARED_WORDS = 32
"""Words that shared memory gives in a cycle."""
BLOCK_CYCLES, TILE_CYCLES, SUM_CYCLES = 1500, 60, 3000
"""What starting and ending a block, a barrier, and a second launch cost, by order of magnitude."""
WORD_CYCLES = 1.5
"""Instructions for an element on its way from memory to shared memory: address, load, store, shared by its lanes."""
SPLITS = (1, 2, 4, 8, 16, 32, 64)
USUAL_THREAD = (2, 4, 8)
"""Sides of a thread's tile that the default chooses from."""
LEAST_SPLIT = 64
"""Terms of a part of K, at least."""


@dataclass(frozen=True)
class Extents:
    """Points of each group of axes."""

    batch: int
    m: int
    n: int
    k: int


def most_splits(e: Extents, tile: Tile) -> int:
    """Parts of K of a whole number of steps, none of them empty."""
    return max(1, math.ceil(e.k / tile.block_k))


def splits_for(e: Extents, tile: Tile) -> tuple[int, ...]:
    """Parts that the default chooses from."""
    most = min(most_splits(e, tile), e.k // LEAST_SPLIT)
    return tuple(s for s in SPLITS if s == 1 or s <= most)


def cycles(e: Extents, tile: Tile, splits: int, target: Target) -> float:
    """Estimated cycles of the launches."""
    a = architecture(target)
    blocks = e.batch * math.ceil(e.m / tile.block_m) * math.ceil(e.n / tile.block_n) * splits
    resident = max(1, min(a.registers // (tile.registers * tile.threads), a.threads // tile.threads, a.blocks))
    resident = max(1, min(resident, a.shared_bytes // max(1, tile.shared_bytes)))
    on_each = math.ceil(blocks / a.processors)
    warps = min(on_each, resident) * tile.threads / WARP
    steps = math.ceil(math.ceil(e.k / tile.block_k) / splits)
    terms = steps * tile.block_k
    work = tile.block_m * tile.block_n / FMAS * (tile.element_bytes // 4) ** 2
    loads = tile.block_m * tile.block_n * (1 / tile.thread_m + 1 / tile.thread_n) / SHARED_WORDS / 4
    moved = (tile.block_m + tile.block_n) * WORD_CYCLES / FMAS
    wait = max(1.0, LATENT_WARPS / warps)
    step = TILE_CYCLES * steps * (2 if tile.stages == 1 else 1)
    block = terms * (work + loads + moved) * wait + step + BLOCK_CYCLES
    partial = e.batch * e.m * e.n * 4 * (splits + 1) / (a.bandwidth / 1.5e9) if splits > 1 else 0
    return on_each * block + (SUM_CYCLES + partial if splits > 1 else 0)


def best(e: Extents, found: tuple[Tile, ...], target: Target) -> Tile:
    """The tile of the fewest cycles, of those alike the smallest."""
    usual = tuple(t for t in found if _is_usual(e, t)) or found
    return min(usual, key=lambda t: (best_cycles(e, t, target), t.threads, t.shared_bytes))


def best_cycles(e: Extents, tile: Tile, target: Target) -> float:
    return min(cycles(e, tile, s, target) for s in splits_for(e, tile))


def usual_splits(e: Extents, tile: Tile, target: Target) -> int:
    return min(splits_for(e, tile), key=lambda s: cycles(e, tile, s, target))


def _is_usual(e: Extents, t: Tile) -> bool:
    is_square = t.thread_m in USUAL_THREAD and t.thread_n in USUAL_THREAD
    stages = 1 if e.k <= t.block_k else 2
    return is_square and t.stages == stages
