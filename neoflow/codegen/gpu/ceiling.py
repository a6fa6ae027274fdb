"""Kernels that measure what a GPU reaches at most: multiply-adds, tensor cores by type, copies, launches."""

from __future__ import annotations

from dataclasses import dataclass

from neoflow.architectures import architecture
from neoflow.codegen.gpu.compilers import cubin
from neoflow.codegen.gpu.cuda import HERE
from neoflow.target import Target

THREADS = 256
ROUNDS, COPIES = 1024, 4


@dataclass(frozen=True)
class Ceiling:
    """A kernel and what each of its threads does: floating-point operations, or bytes read and written.

    mma: the function of `device.cuh` that a kernel of tensor cores calls.
    """

    name: str
    symbol: str
    operations: float = 0.0
    nbytes: float = 0.0
    mma: str | None = None


def _tensor(name: str, shape: str, dtype: str) -> Ceiling:
    """8 products of 16 x 8 x k a round by the 32 threads of a warp."""
    k = int(shape.partition("k")[2])
    operations = ROUNDS * 8 * 2 * 16 * 8 * k / 32
    return Ceiling(f"{name} tensor cores", f"nf_peak_{dtype}", operations, mma=f"nf_mma_{shape}_{dtype}")


def ceilings(target: Target) -> tuple[Ceiling, ...]:
    """Those that the architecture has."""
    found = architecture(target)
    plain = (
        Ceiling("launch", "nf_peak_empty"),
        Ceiling("float32 multiply-adds", "nf_peak_fma", operations=ROUNDS * 8 * 16 * 2),
        Ceiling("copy", "nf_peak_copy", nbytes=COPIES * 2 * 16),
    )
    if not (found.has_bfloat16 and found.has_tf32):
        return (*plain, _tensor("float16", "m16n8k8", "f16"))
    return (
        *plain,
        _tensor("float16", "m16n8k16", "f16"),
        _tensor("bfloat16", "m16n8k16", "bf16"),
        _tensor("TF32", "m16n8k8", "tf32"),
    )


def ceilings_source(target: Target) -> str:
    """The kernels as CUDA C++."""
    sizes = f"#define NF_ROUNDS {ROUNDS}\n#define NF_COPIES {COPIES}\n"
    parts = [(HERE / name).read_text() for name in ("math.cuh", "device.cuh", "ceilings.cu")]
    tensor = (HERE / "ceiling_mma.cu").read_text()
    parts += [tensor.replace("NF_SYMBOL", c.symbol).replace("NF_MMA", c.mma) for c in ceilings(target) if c.mma]
    return sizes + "".join(parts)


def ceilings_module(target: Target) -> bytes:
    """The kernels as machine code."""
    return cubin(ceilings_source(target), target)
