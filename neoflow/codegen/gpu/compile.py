"""Lowered kernels to what a driver loads, and to text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import tvm

from neoflow.codegen.gpu.compilers import FLAGS, compiler, cubin
from neoflow.codegen.gpu.cuda import HERE, cuda_source
from neoflow.codegen.gpu.kernel import Lowered
from neoflow.codegen.gpu.ptx import libdevice, ptx_source
from neoflow.codegen.keys import digest, program_digest
from neoflow.codegen.keys import kernel_key as key_of_text
from neoflow.errors import CodegenError
from neoflow.target import Target


@lru_cache(maxsize=4)
def toolchain(compiler: str) -> str:
    """What turns lowered text into machine code: TVM, the CUDA compiler, and the files here that drive them."""
    files = [Path(HERE, n) for n in ("compile.py", "compilers.py", "cuda.py", "ptx.py", "wgmma.py")]
    headers = digest(*(p.read_text() for p in sorted((*HERE.glob("*.cuh"), *HERE.glob("device.ptx")))))
    return f"TVM {version('apache-tvm')}, {compiler}, {FLAGS}, {headers}, {program_digest(files)}"


def kernel_key(kernel: Lowered, target: Target) -> str:
    """What the code of a kernel is found by, whatever its name."""
    plain = kernel.named("kernel")
    return key_of_text(digest(plain.text(), plain.code.to_json()), str(target), toolchain(_compiler(target)))


def missing(target: Target) -> str | None:
    """Why kernels cannot be built for a target here; None where they can."""
    try:
        compiler() if target.kind == "cuda" else libdevice()
    except CodegenError as error:
        return error.message
    return None


def _compiler(target: Target) -> str:
    """What makes of text what the driver loads, where it is here."""
    if missing(target) is not None:
        return "no compiler"
    return compiler().version() if target.kind == "cuda" else f"LLVM {tvm.get_global_func(_LLVM)()}"


_LLVM = "target.llvm_version_major"


def build(kernels: Sequence[Lowered], target: Target) -> bytes:
    """A module with the entries of every kernel, as the driver loads it: machine code, or PTX."""
    if target.kind == "nvptx":
        return ptx_source(kernels, target).encode() + b"\0"
    return cubin(cuda_source(kernels, target), target)


def source(kernels: Sequence[Lowered], target: Target, format: str = "cuda") -> str:
    """The kernels as text: "tir" before the passes, "cuda" or "ptx"."""
    if format == "tir":
        return "\n".join(k.text() for k in kernels)
    if format in _KINDS and target.kind != _KINDS[format]:
        raise CodegenError(f"kernels for {target} are no {format}: compile for {_KINDS[format]}:{target.mcpu}")
    if format == "cuda":
        return cuda_source(kernels, target)
    if format == "ptx":
        return ptx_source(kernels, target)
    raise CodegenError(f"a GPU kernel has no source in format {format!r}; there are tir, cuda and ptx")


_KINDS = {"cuda": "cuda", "ptx": "nvptx"}
"""By format, the kind of target it is of."""
