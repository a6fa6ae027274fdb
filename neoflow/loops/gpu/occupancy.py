"""How many blocks a processor of a GPU holds at a time, and what there is too little of for more.

Source: CUDA C++ Programming Guide 13, "Multiprocessor Level" and the technical specifications by compute capability:
registers are given to warps in pieces of 256, to four warps at a time; shared memory to blocks in pieces of 128 bytes,
of 256 before sm_80; from sm_80 on each block takes 1 KiB more than it asks for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from neoflow.architectures import WARP, Architecture

_REGISTERS, _WARPS = 256, 4
_AMPERE = 80


@dataclass(frozen=True)
class Block:
    """What a block asks for. registers: of a thread. shared_bytes: declared, and asked for at the launch."""

    threads: int
    registers: int
    shared_bytes: int = 0

    @property
    def warps(self) -> int:
        return math.ceil(self.threads / WARP)


@dataclass(frozen=True)
class Occupancy:
    """blocks: of a processor at a time; none where one does not fit. share: of the warps that it could hold at most.
    limit: what there is too little of for one more."""

    blocks: int
    share: float
    limit: str

    def __str__(self) -> str:
        return f"{self.share:.0%} occupancy ({self.limit})"


def occupancy(block: Block, a: Architecture) -> Occupancy:
    """Of a processor that holds nothing but such blocks."""
    held = {
        "threads": a.threads // WARP // block.warps,
        "blocks": a.blocks,
        "registers": _by_registers(block, a),
        "shared memory": _by_shared_bytes(block, a),
    }
    limit = min(held, key=lambda name: held[name])
    return Occupancy(held[limit], held[limit] * block.warps / (a.threads // WARP), limit)


def _by_registers(block: Block, a: Architecture) -> int:
    of_a_warp = _whole(max(1, block.registers) * WARP, _REGISTERS)
    return a.registers // of_a_warp // _WARPS * _WARPS // block.warps


def _by_shared_bytes(block: Block, a: Architecture) -> int:
    if block.shared_bytes > a.block_shared_bytes:
        return 0
    is_new = a.capability >= _AMPERE
    taken = _whole(block.shared_bytes, 128 if is_new else 256) + (1024 if is_new else 0)
    return a.shared_bytes // taken if taken else a.blocks


def _whole(n: int, piece: int) -> int:
    return math.ceil(n / piece) * piece
