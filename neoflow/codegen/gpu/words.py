"""The dialects of GPUs: functions of `math.cuh` in CUDA C++; intrinsics and libdevice in LLVM's NVPTX."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx
from tvm.tirx import stmt as ts

from neoflow.codegen.tir import emit
from neoflow.codegen.tir.dialect import Dialect, dialect


@dataclass(frozen=True)
class GpuDialect(Dialect):
    """barrier: all threads of the block wait for each other, and see what each has stored before."""

    barrier: Callable[[], ts.Stmt]


def words() -> GpuDialect:
    """The one that is spoken now."""
    found = dialect()
    assert isinstance(found, GpuDialect)
    return found


_WIDER = {"int32": "int64", "int64": "uint64"}


def _noted(status: tirx.Buffer, code: int) -> ts.Stmt:
    """Any of the threads' numbers stays."""
    return ts.Evaluate(tirx.call_extern("void", "nf_note", status.data, emit.integer(code)))


# --- CUDA C++


def _cuda_call(name: str, *args: Any) -> Any:
    """`nf_NAME`, which `math.cuh` has for every type that is computed with; products are never fused unasked."""
    if name == "llvm.arithmetic.fence":
        return args[0]
    return tirx.call_pure_extern(str(args[-1].ty.dtype), name.replace("llvm.", "nf_"), *args)


def _cuda_library(name: str, x: Any) -> Any:
    return tirx.call_pure_extern(str(x.ty.dtype), name, x)


def _cuda_barrier() -> ts.Stmt:
    return ts.Evaluate(tirx.call_intrin("void", "tirx.tvm_storage_sync", tvm.ir.StringImm("shared")))


def _cuda_constant(value: Any, element: str) -> Any:
    """TVM 0.27 prints 15 digits behind the point of a double: of any other its bits."""
    if element != "float64" or not math.isfinite(value) or float(f"{value:.15f}") == value:
        return tirx.const(value, element)
    high, low = struct.unpack(">ii", struct.pack(">d", value))
    return tirx.call_pure_extern(element, "nf_double", tirx.const(high, "int32"), tirx.const(low, "int32"))


# --- NVPTX

_LIBDEVICE = {"llvm.exp": "exp", "llvm.log": "log", "llvm.sin": "sin", "llvm.cos": "cos", "llvm.pow": "pow"}
"""What the back end has no instruction for."""


def _ptx_call(name: str, *args: Any) -> Any:
    if name in _LIBDEVICE:
        return _ptx_library(_LIBDEVICE[name], *args)
    return tirx.call_llvm_pure_intrin(str(args[-1].ty.dtype), name, *args)


def _ptx_library(name: str, *args: Any) -> Any:
    kind = str(args[0].ty.dtype)
    return tirx.call_pure_extern(kind, f"__nv_{name}{'f' if kind == 'float32' else ''}", *args)


def _ptx_barrier() -> ts.Stmt:
    """The number of the barrier is an argument since LLVM 21, which TVM 0.27's own lowering does not know."""
    return ts.Evaluate(tirx.call_llvm_intrin("void", "llvm.nvvm.barrier.cta.sync.aligned.all", emit.integer(0)))


DIALECTS = {
    "cuda": GpuDialect(_cuda_call, _cuda_library, _WIDER, "local", _noted, False, _cuda_constant, _cuda_barrier),
    "nvptx": GpuDialect(_ptx_call, _ptx_library, _WIDER, "local", _noted, False, tirx.const, _ptx_barrier),
}
