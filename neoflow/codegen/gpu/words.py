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
from neoflow.codegen.tir.dialect import Dialect, dialect, unscaled


@dataclass(frozen=True)
class GpuDialect(Dialect):
    """barrier: all threads of the block wait for each other, and see what each has stored before; warp_barrier: those
    of a warp. shuffle: what the thread of a warp has whose number differs in this bit. votes: a bit for each thread of
    a warp, set where its integer is not 0; count: how many there are. add: adds to an element that others add to.
    """

    barrier: Callable[[], ts.Stmt]
    warp_barrier: Callable[[], ts.Stmt]
    shuffle: Callable[[Any, int], Any]
    votes: Callable[[Any], Any]
    count: Callable[[Any], Any]
    add: Callable[[tirx.Buffer, Any, Any], ts.Stmt]


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


def _cuda_warp_barrier() -> ts.Stmt:
    return ts.Evaluate(tirx.call_extern("void", "nf_warp_barrier"))


def _cuda_shuffle(value: Any, distance: int) -> Any:
    return tirx.call_extern(str(value.ty.dtype), "nf_shuffle_xor", value, emit.integer(distance))


def _cuda_votes(flag: Any) -> Any:
    return tirx.call_extern("int32", "nf_votes", flag)


def _cuda_count(votes: Any) -> Any:
    return tirx.call_extern("int32", "nf_count", votes)


def _cuda_add(buffer: tirx.Buffer, index: Any, value: Any) -> ts.Stmt:
    return _added("nf_add", buffer, index, value)


def _added(function: str, buffer: tirx.Buffer, index: Any, value: Any) -> ts.Stmt:
    return ts.Evaluate(tirx.call_extern("void", function, buffer.data, index, value))


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
    """A function of libdevice, which has them for numbers alone: of vectors, lane by lane."""
    element, lanes = emit.element_of(args[0]), emit.lanes_of(args[0])
    function = f"__nv_{name}{'f' if element == 'float32' else ''}"
    if lanes == 1:
        return tirx.call_pure_extern(element, function, *args)
    known = [tirx.Var("x", a.ty) for a in args]
    found = [tirx.call_pure_extern(element, function, *(tirx.Shuffle([x], [n]) for x in known)) for n in range(lanes)]
    value = tirx.Shuffle(found, list(range(lanes)))
    for variable, given in zip(known, args, strict=True):
        value = tirx.Let(variable, given, value)
    return value


def _ptx_barrier() -> ts.Stmt:
    """The number of the barrier is an argument since LLVM 21, which TVM 0.27's own lowering does not know."""
    return ts.Evaluate(tirx.call_llvm_intrin("void", "llvm.nvvm.barrier.cta.sync.aligned.all", emit.integer(0)))


_ALL = -1
"""Every thread of a warp, a bit each."""


def _ptx_warp_barrier() -> ts.Stmt:
    return ts.Evaluate(tirx.call_llvm_intrin("void", "llvm.nvvm.bar.warp.sync", emit.integer(_ALL)))


def _ptx_shuffle(value: Any, distance: int) -> Any:
    """Of 32 bits; wider values are two of them."""
    kind = str(value.ty.dtype)
    if kind == "float64":
        return tirx.reinterpret(kind, _ptx_shuffle(tirx.reinterpret("int64", value), distance))
    if kind == "int64":
        low = tirx.Cast("uint32", _ptx_shuffle(tirx.Cast("int32", value), distance))
        high = _ptx_shuffle(tirx.Cast("int32", value >> tirx.const(32, kind)), distance)
        return (tirx.Cast(kind, high) << tirx.const(32, kind)) | tirx.Cast(kind, low)
    if kind not in ("float32", "int32"):
        return tirx.Cast(kind, _ptx_shuffle(tirx.Cast("int32", value), distance))
    name = f"llvm.nvvm.shfl.sync.bfly.{'f32' if kind == 'float32' else 'i32'}"
    return tirx.call_llvm_intrin(kind, name, emit.integer(_ALL), value, emit.integer(distance), emit.integer(31))


def _ptx_votes(flag: Any) -> Any:
    holds = tirx.NE(flag, emit.integer(0))
    return tirx.call_llvm_intrin("int32", "llvm.nvvm.vote.ballot.sync", emit.integer(_ALL), holds)


def _ptx_count(votes: Any) -> Any:
    return tirx.call_llvm_pure_intrin("int32", "llvm.ctpop", votes)


def _ptx_add(buffer: tirx.Buffer, index: Any, value: Any) -> ts.Stmt:
    """A function for each type: PTX has no overloads."""
    return _added(f"nf_add_{value.ty.dtype}", buffer, index, value)


DIALECTS = {
    "cuda": GpuDialect(
        *(_cuda_call, _cuda_library, _WIDER, "local", _noted, False, _cuda_constant, unscaled, True, "int32", True),
        *(_cuda_barrier, _cuda_warp_barrier, _cuda_shuffle, _cuda_votes, _cuda_count, _cuda_add),
    ),
    "nvptx": GpuDialect(
        *(_ptx_call, _ptx_library, _WIDER, "local", _noted, False, tirx.const, unscaled, True, "int32", True),
        *(_ptx_barrier, _ptx_warp_barrier, _ptx_shuffle, _ptx_votes, _ptx_count, _ptx_add),
    ),
}
