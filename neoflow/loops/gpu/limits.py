"""What a block may take of a processor: where every template's schedules are refused that no processor can hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from neoflow.architectures import REGISTERS_A_THREAD, THREADS_A_BLOCK, WARP, Architecture, architecture
from neoflow.loops.gpu.occupancy import Block, occupancy
from neoflow.loops.knob import Range
from neoflow.target import Target
from neoflow.verdict import Verdict

STATIC_BYTES = 48 << 10
"""Shared memory of a block that a source may declare; more is asked for at the launch."""
SPARE = 40
"""Registers of a thread for addresses, loops and what expressions need, beside those that a schedule counts."""


def room(target: Target) -> int:
    """Shared memory that a block may have; in LLVM's PTX, no more than is declared."""
    return architecture(target).block_shared_bytes if target.kind == "cuda" else STATIC_BYTES


def holds(block: Block, a: Architecture, shared_bytes: int) -> Verdict:
    """Whether a processor can run the block, threads keep what they hold, and shared memory is at most that."""
    if not WARP <= block.threads <= THREADS_A_BLOCK or block.threads % WARP:
        return Verdict(False, f"{block.threads} threads are no whole warps, of {WARP} to {THREADS_A_BLOCK} threads")
    if block.registers > REGISTERS_A_THREAD:
        return Verdict(False, f"a thread has {REGISTERS_A_THREAD} registers, and takes {block.registers}")
    if block.registers * block.threads > a.registers:
        taken = f"{block.threads} threads of {block.registers} registers"
        return Verdict(False, f"a processor of {a.name} has {a.registers} registers, too few for {taken}")
    if block.shared_bytes > shared_bytes:
        return Verdict(False, f"a block has {shared_bytes} bytes of shared memory, and takes {block.shared_bytes}")
    found = occupancy(block, a)
    if not found.blocks:
        return Verdict(False, f"a processor of {a.name} holds no such block: there is too little of {found.limit}")
    return Verdict(True, f"a processor of {a.name} holds {found.blocks}: {found}")


def held(
    values: Iterable[int], block: Callable[[int], Block], target: Target, reason: str, shared_bytes: int | None = None
) -> Range:
    """Of the values those whose block a processor holds, and the sentence that says why no others.

    shared_bytes: of a block, at most; without, what a launch may ask for.
    """
    most = room(target) if shared_bytes is None else shared_bytes
    verdicts = {n: holds(block(n), architecture(target), most) for n in values}
    refused = next((f"; with {n}, {v.reason}" for n, v in verdicts.items() if not v.ok), "")
    return Range(tuple(n for n, v in verdicts.items() if v.ok), reason + refused)
