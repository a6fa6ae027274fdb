"""Blocks of a processor, by cases worked out by hand from the tables of the CUDA C++ Programming Guide."""

import pytest

from neoflow.architectures import ARCHITECTURES
from neoflow.loops.gpu.occupancy import Block, occupancy

CASES = {
    # 64 registers x 32 threads = 2048 a warp; 65536 / 2048 = 32 warps = 4 blocks of 8; 32 of 64 warps
    "registers": ("sm_80", Block(256, 64), 4, 0.5, "registers"),
    # 33 registers x 32 = 1056, in pieces of 256 1280; 51 warps, 48 by fours; 6 blocks of 8
    "registers in pieces": ("sm_80", Block(256, 33), 6, 0.75, "registers"),
    # 255 x 32 = 8160, 8192; 8 warps: a block of 8 fits, one of 9 does not
    "all registers": ("sm_80", Block(256, 255), 1, 0.125, "registers"),
    "a warp too many": ("sm_80", Block(288, 255), 0, 0.0, "registers"),
    # 2048 threads of a processor
    "threads": ("sm_90", Block(1024, 32), 2, 1.0, "threads"),
    # 32 blocks of a warp each: 32 of 64 warps; sm_75 holds 16 blocks, 16 of 32 warps
    "blocks": ("sm_90", Block(32, 16), 32, 0.5, "blocks"),
    "fewer blocks": ("sm_75", Block(32, 16), 16, 0.5, "blocks"),
    # a part of a warp is a warp: 33 threads are 2, 32 blocks 64 warps
    "parts of warps": ("sm_80", Block(33, 16), 32, 1.0, "threads"),
    # 48 KiB and the 1 KiB of the system: 49 of 164 KiB three times
    "shared memory": ("sm_80", Block(128, 32, 48 << 10), 3, 12 / 64, "shared memory"),
    # no such KiB before sm_80: 64 / 16
    "shared memory of Turing": ("sm_75", Block(128, 32, 16 << 10), 4, 16 / 32, "shared memory"),
    # 227 KiB and 1 are all 228
    "all shared memory": ("sm_90", Block(128, 32, 227 << 10), 1, 4 / 64, "shared memory"),
    "too much shared memory": ("sm_90", Block(128, 32, (227 << 10) + 1), 0, 0.0, "shared memory"),
    # 1536 threads of sm_86: 6 blocks; 40 registers: 1280 a warp, 51 warps, 48 by fours
    "Ampere's smaller ones": ("sm_86", Block(256, 40), 6, 1.0, "threads"),
}


@pytest.mark.parametrize("case", CASES)
def test_by_hand(case):
    name, block, blocks, share, limit = CASES[case]
    found = occupancy(block, ARCHITECTURES[name])
    assert (found.blocks, found.share, found.limit) == (blocks, share, limit)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_more_of_anything_leaves_no_more_blocks(name):
    a = ARCHITECTURES[name]
    for threads in (32, 96, 256, 1024):
        by_registers = [occupancy(Block(threads, r), a).blocks for r in range(1, 256)]
        by_shared = [occupancy(Block(threads, 32, s), a).blocks for s in range(0, a.block_shared_bytes + 1, 512)]
        for blocks in (by_registers, by_shared):
            assert blocks == sorted(blocks, reverse=True)
        assert 0 < occupancy(Block(threads, 32), a).share <= 1
