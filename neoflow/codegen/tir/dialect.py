"""`Dialect`: what the code for one kind of device says in words of its own; set while a kernel is lowered.

Everything else of `codegen.tir` says the same for every device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
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
    constant: a number of a type.
    """

    call: Callable[..., Any]
    library: Callable[[str, Any], Any]
    wider: Mapping[str, str]
    registers: str
    note: Callable[[tirx.Buffer, int], ts.Stmt]
    any_address: bool
    constant: Callable[[Any, str], Any]


def _llvm_call(name: str, *args: Any) -> Any:
    return tirx.call_llvm_pure_intrin(str(args[-1].ty.dtype), name, *args)


def _c_call(name: str, x: Any) -> Any:
    return tirx.call_pure_extern(str(x.ty.dtype), name, x)


def _plain_store(status: tirx.Buffer, code: int) -> ts.Stmt:
    return ts.BufferStore(status, tirx.const(code, "int32"), [tirx.const(0, "int32")])


CPU = Dialect(_llvm_call, _c_call, {"int32": "int64", "int64": "int128"}, "global", _plain_store, True, tirx.const)
_current: ContextVar[Dialect] = ContextVar("neoflow_dialect", default=CPU)


def dialect() -> Dialect:
    """The one that is spoken now."""
    return _current.get()


@contextmanager
def speaking(words: Dialect) -> Iterator[None]:
    """Kernels that are lowered inside are for a device of this dialect."""
    before = _current.set(words)
    try:
        yield
    finally:
        _current.reset(before)
