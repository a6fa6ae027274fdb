"""TIR functions to PTX, by LLVM; the driver of a GPU, or ptxas, makes machine code of it.

Mended in the text: TVM 0.27 declares kernels as functions that nothing can launch, takes in no definitions, and leaves
products and sums without a rounding mode, so that whoever reads the text may join them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import tvm
import tvm_ffi

from neoflow.codegen.gpu.cuda import HERE, lowered_module, tvm_target
from neoflow.codegen.gpu.kernel import Lowered
from neoflow.errors import CodegenError
from neoflow.target import Target

_FUNCTION = re.compile(r"^\.visible \.func ([A-Za-z0-9_$]+)\(\n(.*?)\n\)$", re.MULTILINE | re.DOTALL)
_DECLARATION = re.compile(r"^\.extern \.func (?:\([^)]*\) )?(\w+)\s*\(.*?\)\s*;", re.MULTILINE | re.DOTALL)
_DEFINITION = re.compile(r"^\.func (?:\([^)]*\) )?(\w+)\(.*?^\}", re.MULTILINE | re.DOTALL)
_UNROUNDED = re.compile(r"(?<!\.)\b(add|sub|mul)(\.ftz)?\.f32\b")


def ptx_source(kernels: Sequence[Lowered], target: Target) -> str:
    """The kernels as PTX. Raises `CodegenError` where libdevice, a part of CUDA, is not found."""
    threads = {e.symbol: e.threads for k in kernels for e in k.code.entries}
    module = lowered_module(kernels, target)
    libdevice()  # where there is none, say so here: an error inside TVM would hide it
    text = str(tvm.get_global_func("target.build.nvptx")(module, tvm_target(target)).inspect_source("ptx"))
    text = _FUNCTION.sub(lambda m: _entry(m[1], m[2], threads), text)
    return _UNROUNDED.sub(lambda m: f"{m[1]}.rn{m[2] or ''}.f32", _defined(text))


def _entry(name: str, parameters: str, threads: dict[str, int]) -> str:
    if name not in threads:
        return f".visible .func {name}(\n{parameters}\n)"
    return f".visible .entry {name}(\n{parameters}\n)\n.maxntid {threads[name]}\n.minnctapersm 1"


def _defined(text: str) -> str:
    """The text with functions of `device.ptx` where they are only declared: TVM's NVPTX takes in no source of LLVM."""
    known = {m[1]: m[0] for m in _DEFINITION.finditer((HERE / "device.ptx").read_text())}
    return _DECLARATION.sub(lambda m: known.get(m[1], m[0]), text)


@tvm_ffi.register_global_func("tvm_callback_libdevice_path", override=True)
def libdevice(_: int = 0) -> str:
    """Where libdevice is; TVM asks for it. Raises `CodegenError` when it is nowhere."""
    for place in _places():
        for found in sorted((place / "nvvm" / "libdevice").glob("libdevice.*.bc")):
            return str(found)
    raise CodegenError("PTX needs libdevice, a part of CUDA toolkits: set CUDA_PATH to where nvvm/libdevice is")


def _places() -> list[Path]:
    given = [Path(os.environ["CUDA_PATH"])] if "CUDA_PATH" in os.environ else []
    return [
        *given,
        Path("/usr/local/cuda"),
        *sorted(Path("/usr/local").glob("cuda-*"), reverse=True),
        Path("/opt/cuda"),
    ]
