"""`Target`: what code is generated for. Pure data; finding this machine's needs no compiler."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from neoflow.boundary import public
from neoflow.errors import CodegenError
from neoflow.machine import available_cores, cpuinfo


@dataclass(frozen=True)
class Target:
    """A machine: `mcpu` as LLVM names it, `threads` of the pool, width of a vector register, level-2 cache of
    a core, how many vector multiply-adds it starts in a cycle. Of a GPU, kind "cuda" or "nvptx", `mcpu` is its
    architecture, and the rest follows from that (`neoflow.architectures`). `device` is "cpu" or "gpu".

    Its `str` is part of every cache key.
    """

    kind: str = "cpu"
    mcpu: str = "x86-64-v3"
    threads: int = 1
    vector_bytes: int = 32
    l2_bytes: int = 1 << 19
    fma_units: int = 2

    def lanes(self, dtype: str) -> int:
        """Elements of a vector register; dtypes narrower than 4 bytes are computed in 4."""
        return self.vector_bytes // (8 if dtype in ("float64", "int64") else 4)

    def fmas(self, dtype: str, lanes: int) -> int:
        """Multiply-adds of vectors of so many lanes a cycle: a processor of one unit for whole vectors passes halves of
        them through two."""
        return self.fma_units if 2 * lanes > self.lanes(dtype) else 2

    @property
    def device(self) -> str:
        """What its templates are for: "cpu" or "gpu"."""
        return "gpu" if self.kind in ("cuda", "nvptx") else "cpu"

    @property
    def spreads_operands(self) -> bool:
        """Whether a multiply-add takes an element from memory for all lanes. Where none does, a load spreads it first:
        tiles of one vector, a load for each product, took 1.9 times as long as those of two on Zen 3."""
        return self.vector_bytes == 64

    @property
    def registers(self) -> int:
        """Vector registers the instruction set names."""
        return 32 if self.vector_bytes == 64 else 16

    @property
    def outruns_l2(self) -> bool:
        """Whether two multiply-adds of 512 bits a cycle go through lines as fast as a level-2 cache brings them."""
        return self.fma_units > 1 and self.vector_bytes >= 64

    def to_text(self) -> str:
        """The target as `from_text` reads it back."""
        from neoflow.text import write_record  # imported here: a package that is run does not say it

        return write_record(self, "target")

    @classmethod
    @public
    def from_text(cls, text: str) -> Target:
        """The target that `to_text` wrote. Raises `TextError`."""
        from neoflow.text import read_record

        return read_record(cls, text, "target")

    def __str__(self) -> str:
        if self.device == "gpu":
            return f"{self.kind}({self.mcpu})"
        sizes = f"vector={self.vector_bytes}, l2={self.l2_bytes}, fma={self.fma_units}"
        return f"{self.kind}({self.mcpu}, threads={self.threads}, {sizes})"


# LLVM's name of a processor model by (vendor, family): the first row whose feature the processor has.
_MODELS = (
    ("AuthenticAMD", 26, "avx512f", "znver5"),
    ("AuthenticAMD", 25, "avx512f", "znver4"),
    ("AuthenticAMD", 25, "avx2", "znver3"),
    ("AuthenticAMD", 23, "avx2", "znver2"),
    ("GenuineIntel", 6, "amx_tile", "sapphirerapids"),
    ("GenuineIntel", 6, "avx512_vnni", "cascadelake"),
    ("GenuineIntel", 6, "avx512f", "skylake-avx512"),
    ("GenuineIntel", 6, "avx2", "haswell"),
)


FEATURES = {
    "adx": "adx",
    "aes": "aes",
    "amx-tile": "amx_tile",
    "avx": "avx",
    "avx2": "avx2",
    "avx512bf16": "avx512_bf16",
    "avx512bitalg": "avx512_bitalg",
    "avx512bw": "avx512bw",
    "avx512cd": "avx512cd",
    "avx512dq": "avx512dq",
    "avx512f": "avx512f",
    "avx512fp16": "avx512_fp16",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vl": "avx512vl",
    "avx512vnni": "avx512_vnni",
    "avx512vp2intersect": "avx512_vp2intersect",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avxvnni": "avx_vnni",
    "bmi": "bmi1",
    "bmi2": "bmi2",
    "f16c": "f16c",
    "fma": "fma",
    "gfni": "gfni",
    "lzcnt": "abm",
    "movbe": "movbe",
    "pclmul": "pclmulqdq",
    "popcnt": "popcnt",
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "ssse3": "ssse3",
    "vaes": "vaes",
    "vpclmulqdq": "vpclmulqdq",
}
"""Instructions that code of kernels may use: LLVM's name, and that of the system (the flags of /proc/cpuinfo)."""


def _l2_bytes() -> int:
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index2/size") as file:
            return int(file.read().strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        return 1 << 19


def cpu_target(threads: int | None = None) -> Target:
    """This machine, with `threads` threads or one for each core this process may use."""
    if platform.machine() != "x86_64":
        raise CodegenError(
            f"no CPU target for {platform.machine()}: neoflow generates x86-64 code with AVX2 or AVX-512"
        )
    info = cpuinfo()
    flags = set(info.get("flags", "").split())
    vendor, family = info.get("vendor_id", ""), int(info.get("cpu family", 0))
    generic = "x86-64-v4" if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags else "x86-64-v3"
    model = next((m for v, f, need, m in _MODELS if v == vendor and f == family and need in flags), generic)
    count = threads if threads is not None else available_cores()
    if count < 1:
        raise CodegenError(f"a target has at least one thread, not {count}")
    units = 1 if model == "znver4" else 2  # Zen 4 passes the two halves of a 512-bit operation through its units
    return Target("cpu", model, count, 64 if "avx512f" in flags else 32, _l2_bytes(), units)
