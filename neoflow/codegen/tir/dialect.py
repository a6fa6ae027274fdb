"""`Dialect`: what the code for one kind of device says in words of its own; set while a kernel is lowered.

Everything else of `codegen.tir` says the same for every device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from tvm import tirx
from tvm.tirx import stmt as ts


@dataclass(frozen=True)
class Dialect:
    """The words of a device.

    call: the intrinsic of LLVM of this name of values of one type, lane by lane. library: a function of the C library
    of a scalar. wider: by an integer type, one in which its arithmetic wraps around as TVM has it. registers: the scope
    of what stays in registers. note: stores a fault's number where others may store theirs. any_address: whether a
    vector may begin at any element of memory, and be loaded under a mask, rather than at multiples of its length only.
    constant: a number of a type. scaled: x 2^n of two vectors of float32, n being whole, rounded once; None where that
    is no instruction. stores_masked: whether some lanes of a vector are stored in about the time of all: with AVX2
    alone, on Zen 3, kernels of ShuffleNet over planes of 7 x 7 to 28 x 28 take 0.36 to 1.1 of the time, 0.93 in all,
    where those are stored in pieces. index: what loops count in and addresses are made of. Where addresses have 64 bits
    LLVM takes 0.9 of the time for what has as many from the start, and steps of four models 0.97 to 0.98 on Zen 3.
    masks: whether there are registers for masks of lanes. Else a mask is a vector, and LLVM makes one of 16 bits a lane
    of a condition of all lanes and one of each, and widens it, vector by vector: 48 kernels of MobileNet and ShuffleNet
    take 0.90 to 0.93 of the time with the two apart, and 36 of them 0.89 of that where loads take signs as masks.
    """

    call: Callable[..., Any]
    library: Callable[[str, Any], Any]
    wider: Mapping[str, str]
    registers: str
    note: Callable[[tirx.Buffer, int], ts.Stmt]
    any_address: bool
    constant: Callable[[Any, str], Any]
    scaled: Callable[[Any, Any], Any]
    stores_masked: bool
    index: str
    masks: bool


def _llvm_call(name: str, *args: Any) -> Any:
    return tirx.call_llvm_pure_intrin(str(args[-1].ty.dtype), name, *args)


def _c_call(name: str, x: Any) -> Any:
    return tirx.call_pure_extern(str(x.ty.dtype), name, x)


def _plain_store(status: tirx.Buffer, code: int) -> ts.Stmt:
    return ts.BufferStore(status, tirx.const(code, "int32"), [tirx.const(0, "int32")])


def unscaled(_: Any, __: Any) -> None:
    """Where a power of two is multiplied by."""


_SCALED = (16, 8, 4)
"""Lanes of float32 of its registers; longer vectors are two halves."""


def _scaled(x: Any, n: Any) -> Any:
    lanes = x.ty.dtype.lanes
    if lanes > _SCALED[0]:
        half = f"float32x{lanes // 2}"
        parts = [[tirx.call_intrin(half, f"tirx.vector{which}", v) for v in (x, n)] for which in ("low", "high")]
        return tirx.call_intrin(f"float32x{lanes}", "tirx.vectorcombine", *(_scaled(*p) for p in parts))
    if lanes not in _SCALED:
        return None
    name, all_lanes, as_set = f"llvm.x86.avx512.mask.scalef.ps.{32 * lanes}", -1, 4
    mask = tirx.const(all_lanes, "int16" if lanes == _SCALED[0] else "int8")
    rounding = (tirx.const(as_set, "int32"),) if lanes == _SCALED[0] else ()
    return tirx.call_llvm_pure_intrin(str(x.ty.dtype), name, x, n, x, mask, *rounding)


CPU = Dialect(
    _llvm_call,
    _c_call,
    {"int32": "int64", "int64": "int128"},
    "global",
    _plain_store,
    True,
    tirx.const,
    unscaled,
    stores_masked=False,
    index="int64",
    masks=False,
)
AVX512 = replace(CPU, scaled=_scaled, stores_masked=True, masks=True)
"""Of a CPU with its instructions."""
_current: ContextVar[Dialect] = ContextVar("neoflow_dialect", default=CPU)
_values: ContextVar[Iterator[int] | None] = ContextVar("neoflow_values", default=None)
"""Numbers of the values that a kernel holds."""


def dialect() -> Dialect:
    """The one that is spoken now."""
    return _current.get()


@contextmanager
def speaking(words: Dialect) -> Iterator[None]:
    """Kernels that are lowered inside are for a device of this dialect."""
    before, values = _current.set(words), _values.set(count())
    try:
        yield
    finally:
        _current.reset(before)
        _values.reset(values)


def next_value() -> int:
    """How many values the kernel that is lowered holds already."""
    values = _values.get()
    return 0 if values is None else next(values)
