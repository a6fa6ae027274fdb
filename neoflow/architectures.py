"""`ARCHITECTURES`: what a schedule asks of an NVIDIA GPU, by compute capability; and the targets that name one.

Source: CUDA C++ Programming Guide 13, table "Technical Specifications per Compute Capability"; processors, caches and
peaks of the board named, by its data sheet. A GPU at hand may have fewer processors; only defaults follow from them.
"""

from __future__ import annotations

from dataclasses import dataclass

from neoflow.errors import ConfigError
from neoflow.target import Target

WARP = 32
"""Threads that go in step."""


@dataclass(frozen=True)
class Architecture:
    """A compute capability, and the board whose size schedules have in mind.

    threads, blocks, registers, shared_bytes: what a processor holds at a time. block_shared_bytes: the most that one
    block may ask for, of which up to 48 KiB without asking. flops: float32, of the board, a second.
    tensor_flops: float16 with float32 sums. bandwidth: bytes a second.
    has_async_copy: `cp.async`. has_bfloat16, has_tf32: tensor cores for them. has_wgmma: four warps multiply what is in
    shared memory (`sm_90a`).
    """

    name: str
    board: str
    processors: int
    threads: int
    blocks: int
    registers: int
    shared_bytes: int
    block_shared_bytes: int
    l2_bytes: int
    flops: float
    tensor_flops: float
    bandwidth: float
    has_async_copy: bool
    has_bfloat16: bool
    has_tf32: bool
    has_wgmma: bool = False

    @property
    def capability(self) -> int:
        """The number in its name: 80 for sm_80."""
        return int(self.name.removeprefix("sm_"))


_KB, _MB, _T = 1 << 10, 1 << 20, 1e12
THREADS_A_BLOCK = 1024
ACCESS_BYTES = 16
"""The widest access of a thread; what is accessed begins at a multiple of it."""
REGISTERS_A_THREAD = 255

ARCHITECTURES: dict[str, Architecture] = {
    a.name: a
    for a in (
        Architecture(
            "sm_75", "T4", 40, 1024, 16, 65536, 64 * _KB, 64 * _KB, 4 * _MB, 8.1 * _T, 65 * _T, 0.32 * _T,
            has_async_copy=False, has_bfloat16=False, has_tf32=False,
        ),
        Architecture(
            "sm_80", "A100", 108, 2048, 32, 65536, 164 * _KB, 163 * _KB, 40 * _MB, 19.5 * _T, 312 * _T, 1.56 * _T,
            has_async_copy=True, has_bfloat16=True, has_tf32=True,
        ),
        Architecture(
            "sm_86", "A10", 72, 1536, 16, 65536, 100 * _KB, 99 * _KB, 6 * _MB, 31.2 * _T, 125 * _T, 0.6 * _T,
            has_async_copy=True, has_bfloat16=True, has_tf32=True,
        ),
        Architecture(
            "sm_89", "L4", 58, 1536, 24, 65536, 100 * _KB, 99 * _KB, 48 * _MB, 30.3 * _T, 121 * _T, 0.3 * _T,
            has_async_copy=True, has_bfloat16=True, has_tf32=True,
        ),
        Architecture(
            "sm_90", "H200", 132, 2048, 32, 65536, 228 * _KB, 227 * _KB, 50 * _MB, 67 * _T, 989 * _T, 4.8 * _T,
            has_async_copy=True, has_bfloat16=True, has_tf32=True, has_wgmma=True,
        ),
    )
}  # fmt: skip
NEWEST = "sm_90"
GPU_KINDS = ("cuda", "nvptx")
"""Of targets: through CUDA C++, and through LLVM."""


def architecture(target: Target) -> Architecture:
    """Of a target for a GPU."""
    return ARCHITECTURES[target.mcpu]


def has_tf32(target: Target) -> bool:
    """Whether contractions may be in TF32 there: by tensor cores."""
    return target.kind in GPU_KINDS and architecture(target).has_tf32


def gpu_target(kind: str, name: str) -> Target:
    """The target of a kind, "cuda" or "nvptx", for the architecture of a name: "sm_80".

    Raises `ConfigError` for an architecture that there is no row for.
    """
    found = ARCHITECTURES.get(name)
    if found is None:
        raise ConfigError(f"there is no GPU architecture {name!r}; there are {', '.join(ARCHITECTURES)}")
    return Target(kind, name, 1, 16, found.l2_bytes, 1)


def taken_by(target: Target) -> range:
    """The capabilities, 90 for sm_90, of GPUs that take the target's code: machine code those of its major version from
    its own on, PTX all from its own on."""
    least = architecture(target).capability
    return range(least, _ANY if target.kind == "nvptx" else (least // 10 + 1) * 10)


def runs_on(target: Target, here: str) -> bool:
    """Whether a GPU of the architecture `here` takes the target's code."""
    return int(here.removeprefix("sm_")) in taken_by(target)


_ANY = 1 << 31
"""More than the capability of any GPU."""
