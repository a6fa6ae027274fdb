"""Lowered kernels to what a driver loads, and to text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from neoflow.codegen.gpu.compilers import FLAGS, compiler, cubin
from neoflow.codegen.gpu.cuda import HERE, cuda_source
from neoflow.codegen.gpu.kernel import Lowered
from neoflow.codegen.keys import digest, program_digest
from neoflow.codegen.keys import kernel_key as key_of_text
from neoflow.errors import CodegenError
from neoflow.target import Target


@lru_cache(maxsize=4)
def toolchain(compiler: str) -> str:
    """What turns lowered text into machine code: TVM, the CUDA compiler, and the files here that drive them."""
    files = [Path(HERE, n) for n in ("compile.py", "compilers.py", "cuda.py")]
    headers = digest(*((HERE / n).read_text() for n in sorted(p.name for p in HERE.glob("*.cuh"))))
    return f"TVM {version('apache-tvm')}, {compiler}, {FLAGS}, {headers}, {program_digest(files)}"


def kernel_key(kernel: Lowered, target: Target) -> str:
    """What the code of a kernel is found by, whatever its name."""
    plain = kernel.named("kernel")
    return key_of_text(digest(plain.text(), plain.code.to_json()), str(target), toolchain(compiler().version()))


def build(kernels: Sequence[Lowered], target: Target) -> bytes:
    """A module with the entries of every kernel, as the driver loads it."""
    return cubin(cuda_source(kernels, target), target)


def source(kernels: Sequence[Lowered], target: Target, format: str = "cuda") -> str:
    """The kernels as text: "tir" before the passes, or "cuda"."""
    if format == "tir":
        return "\n".join(k.text() for k in kernels)
    if format == "cuda":
        return cuda_source(kernels, target)
    raise CodegenError(f"a GPU kernel has no source in format {format!r}; there are tir and cuda")
