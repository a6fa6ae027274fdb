"""TIR functions to CUDA C++, by TVM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from neoflow.codegen.gpu.kernel import CHANGING, Lowered
from neoflow.codegen.gpu.wgmma import functions
from neoflow.target import Target

HERE = Path(__file__).parent
_FIRST = 'extern "C" __global__'
_BOUNDS = re.compile(r"__launch_bounds__\((32|64|128|256)\)")
"""Without a number of blocks ptxas spills rather than give a thread of a small block more than 168 registers, of 256
threads more than 80; of PTX by LLVM, more than 80 of 256 threads are those of more loads at a time, and spill."""
_CHOICE = re.compile(r"^( *)\w+?([24]) (v_\w* = make_ushort\2\()", re.MULTILINE)
"""A condition that all lanes of a choice share: TVM 0.27 declares it with the type of what is chosen."""
_HALF = """#include <cuda_fp16.h>
struct __align__(8) half4 {
  half x, y, z, w;
  __device__ half4() {}
  __device__ half4(half x, half y, half z, half w) : x(x), y(y), z(z), w(w) {}
};
static __device__ half4 make_half4(half x, half y, half z, half w) { return half4(x, y, z, w); }
"""


def lowered_module(kernels: Sequence[Lowered], target: Target) -> tvm.IRModule:
    """The functions of kernels, as the code generators take them.

    They are lowered as for CUDA C++: for NVPTX TVM would join products and sums.
    """
    machine, t = tvm_target(replace(target, kind="cuda")), tirx.transform
    functions = {n: f.with_attr("target", machine) for k in kernels for n, f in k.functions}
    if target.kind != "cuda":  # of which LLVM takes all pointers of a function for apart, or none
        functions = {n: f.with_attr("tirx.noalias", False) if CHANGING in f.attrs else f for n, f in functions.items()}
    passes = [t.FlattenBuffer(), t.StmtSimplify(), t.LowerIntrin()]
    module = tvm.transform.Sequential(passes)(tvm.IRModule(functions))
    return tvm.IRModule({n: f.with_attr("target", tvm_target(target)) for n, f in module.functions.items()})


@lru_cache(maxsize=8)
def tvm_target(target: Target) -> tvm.target.Target:
    key = "arch" if target.kind == "cuda" else "mcpu"
    return tvm.target.Target({"kind": target.kind, key: target.mcpu})


def cuda_source(kernels: Sequence[Lowered], target: Target) -> str:
    """The kernels as CUDA C++, whole but for the headers of CUDA."""
    with _source_alone():
        module = tvm.get_global_func("target.build.cuda")(lowered_module(kernels, target), tvm_target(target))
        text = str(module.inspect_source("cuda"))
    text = _BOUNDS.sub(r"__launch_bounds__(\1, 1)", text[text.index(_FIRST) :])
    text = _CHOICE.sub(r"\1ushort\2 \3", text)
    text = _with_changing(text, kernels)
    half = _HALF if "half" in text else ""
    device = (HERE / "device.cuh").read_text() if any(name in text for name in _OF_DEVICE) else ""
    return f"{half}{(HERE / 'math.cuh').read_text()}\n{device}{_guarded(functions(text))}{text}"


def _with_changing(text: str, kernels: Sequence[Lowered]) -> str:
    """The text where pointers to what other threads change are not said to be the only ones."""
    for name, function in (pair for k in kernels for pair in k.functions):
        changing = [int(n) for n in function.attrs.get(CHANGING, ())]
        if not changing:
            continue

        def signature(found: re.Match[str], changing: Sequence[int] = changing) -> str:
            given = found[2].split(",")
            for n in changing:
                given[n] = given[n].replace(" __restrict__", "")
            return f"{found[1]}({','.join(given)})"

        text = re.sub(rf"\b({name})\(([^()]*)\)", signature, text)
    return text


_COMPILE = "tvm_callback_cuda_compile"
_IS_ALONE = ContextVar("source alone", default=False)


@contextmanager
def _source_alone() -> Iterator[None]:
    """Within it TVM compiles no CUDA C++ itself.

    Where there is CUDA's runtime and a driver, TVM 0.27 gives each source that it makes to NVRTC, at once and with fast
    math: seconds for nothing, and an error, since ours still lacks the functions that it calls.
    """
    _keep_from_compiling()
    before = _IS_ALONE.set(True)
    try:
        yield
    finally:
        _IS_ALONE.reset(before)


@lru_cache(maxsize=1)
def _keep_from_compiling() -> None:
    """Others' modules of TVM in this process are compiled as ever."""
    compiles = tvm.get_global_func(_COMPILE, allow_missing=True)

    def compiled(code: str, *more: Any) -> Any:
        return b"" if _IS_ALONE.get() else compiles(code, *more)

    tvm_ffi.register_global_func(_COMPILE, compiled, override=True)


def _guarded(text: str) -> str:
    """Instructions, to which an emulator gives a meaning of its own."""
    return f"#ifndef NEOFLOW_EMULATED\n{text}#endif\n" if text else ""


_OF_DEVICE = ("nf_cp_async", "nf_ldmatrix", "nf_mma", "nf_wgmma")
"""What `device.cuh` is for."""
