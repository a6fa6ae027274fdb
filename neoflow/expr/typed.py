"""Scalars as they are written, brought to typed expressions, or refused at the line that has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from neoflow import dtype as dt
from neoflow.caller import caller
from neoflow.errors import ExpressionError, shown
from neoflow.expr.constant import written
from neoflow.expr.equality import Incomparable
from neoflow.expr.functions import FUNCTIONS
from neoflow.expr.ir import Apply, Cast, Const, Expr, Read
from neoflow.expr.tensor import Tensor
from neoflow.expr.weak import adapted, common_dtype

Operand = Expr | Tensor | np.ndarray | int | float | bool


def fail(message: str) -> ExpressionError:
    """An error at the line the user wrote."""
    return ExpressionError(message, caller())


def operand(value: Any) -> Any:
    """What is written; an array as the constant that stands for it, one of rank 0 as a number."""
    if not isinstance(value, np.ndarray):
        return value
    return written(value) if value.ndim else value[()]


def dtype_of(value: Any) -> str:
    """The dtype of an expression or a tensor, or that of a number alone."""
    return value.dtype if isinstance(value, (Expr, Tensor)) else as_expr(value, "float32").dtype


def as_expr(value: Operand, dtype: str) -> Expr:
    """`value` as a scalar expression; a bare Python number takes `dtype` where it can."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, Tensor):
        if value.rank:
            raise fail(
                f"tensor {value.name} of shape {value.shape} stands where a scalar is needed; index it with "
                f"{value.rank} axes"
            )
        return Read(value, (), caller())
    if isinstance(value, Incomparable):
        raise value.refusal
    if isinstance(value, np.ndarray) and value.ndim:
        raise fail(
            f"an array of shape {value.shape} stands where a scalar is needed; index it with {value.ndim} axes, "
            "nf.constant(array)[...]"
        )
    value = operand(value)
    if isinstance(value, (bool, np.bool_)):
        return Const(bool(value), "bool", caller(), weak=True)
    if isinstance(value, (int, np.integer)):
        dtype = dtype if dtype != "bool" else dt.INDEX
        if dt.is_int(dtype) and not dt.holds(dtype, value):
            widen = "widen the other operand: nf.cast(x, 'int64')"
            raise fail(f"the integer {shown(int(value))} does not fit {dtype}; {widen}")
        try:
            return Const(int(value), dtype, caller(), weak=True)
        except OverflowError:
            raise fail(f"the integer {shown(int(value))} does not fit {dtype}") from None
    if isinstance(value, (float, np.floating)):
        if not dt.is_float(dtype):
            raise fail(f"the float {value!r} meets a value of type {dtype}; cast it first: nf.cast(..., 'float32')")
        return Const(float(value), dtype, caller(), weak=True)
    raise fail(f"{shown(value)} of type {type(value).__name__} is no expression, tensor or number")


def unified(fn: str, args: tuple[Operand, ...]) -> tuple[Expr, ...]:
    """Scalar operands brought to one dtype: integers widen, what is weak adapts, floats never change silently."""
    args = tuple([as_expr(a, "") if isinstance(a, Tensor) else a for a in args])
    written_as = [a for a in args if isinstance(a, Expr)]
    dtype = common_dtype(written_as, any([isinstance(a, (float, np.floating)) for a in args])) or dt.INDEX
    exprs = [adapted(as_expr(a, dtype), dtype) for a in args]
    dtypes = {e.dtype for e in exprs}
    if len(dtypes) == 1:
        return tuple(exprs)
    if all(dt.is_int(d) for d in dtypes):
        widest = max(dtypes, key=dt.itemsize)
        exprs = [e if e.dtype == widest else Cast(widest, e, caller()) for e in exprs]
    else:
        operands = " and ".join(f"`{e}` ({e.dtype})" for e in exprs)
        wanted = max((e.dtype for e in exprs), key=lambda d: (dt.is_float(d), dt.is_int(d), dt.itemsize(d)))
        raise fail(f"{fn} mixes {operands}; cast one: nf.cast(..., '{wanted}')")
    return tuple(exprs)


_ALLOWED: dict[str, Callable[[str], bool]] = {
    "arith": lambda dtype: dtype != "bool",
    "real": dt.is_float,
    "single": lambda dtype: dtype == "float32",
    "integer": dt.is_int,
    "compare": lambda dtype: True,
    "logic": lambda dtype: dtype == "bool",
}
"""The dtypes that functions of each typing class take."""


_WANTED = {
    "arith": "numbers",
    "real": "floats",
    "single": "float32",
    "integer": "integers",
    "logic": "conditions (bool)",
}


def _check_typing(fn: str, args: tuple[Expr, ...]) -> None:
    row, dtype = FUNCTIONS[fn], args[0].dtype
    if not _ALLOWED[row.typing](dtype):
        wanted = _WANTED[row.typing]
        hint = " (use // for integers)" if fn == "div" else ""
        raise fail(f"{row.symbol or fn} takes {wanted}, but `{args[0]}` is {dtype}{hint}")


def scalar(fn: str, *args: Operand) -> Expr:
    """`fn` of scalar operands, typed. Raises `ExpressionError` for types the function does not take."""
    exprs = unified(FUNCTIONS[fn].symbol or fn, args)
    if FUNCTIONS[fn].typing == "real" and all(e.weak and dt.is_int(e.dtype) for e in exprs):
        exprs = tuple(adapted(e, "float32") for e in exprs)
    _check_typing(fn, exprs)
    if fn in ("floordiv", "mod") and isinstance(exprs[1], Const) and exprs[1].value == 0:
        raise fail(f"`{exprs[0]} {FUNCTIONS[fn].symbol} 0` has no value")
    return Apply(fn, exprs, caller())
