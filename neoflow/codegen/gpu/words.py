"""The dialects of GPUs: functions of `math.cuh` in CUDA C++, intrinsics and libdevice in LLVM's NVPTX."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx import stmt as ts

from neoflow.codegen.tir import emit
from neoflow.codegen.tir.dialect import Dialect

_WIDER = {"int32": "int64", "int64": "uint64"}


def _cuda_call(name: str, *args: Any) -> Any:
    """`nf_NAME`, which `math.cuh` has for every type that is computed with; products are never fused unasked."""
    if name == "llvm.arithmetic.fence":
        return args[0]
    return tirx.call_pure_extern(str(args[-1].ty.dtype), name.replace("llvm.", "nf_"), *args)


def _cuda_library(name: str, x: Any) -> Any:
    return tirx.call_pure_extern(str(x.ty.dtype), name, x)


def _noted(status: tirx.Buffer, code: int) -> ts.Stmt:
    """Any of the threads' numbers stays."""
    return ts.Evaluate(tirx.call_extern("void", "nf_note", status.data, emit.integer(code)))


CUDA = Dialect(_cuda_call, _cuda_library, _WIDER, "local", _noted, any_address=False)
DIALECTS = {"cuda": CUDA}
