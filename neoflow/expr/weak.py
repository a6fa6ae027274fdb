"""Weak expressions and how they take the dtype of what they meet.

Weak is what holds no value of a tensor: Python numbers, axes, written arrays of NumPy's own types, and all that is
made of these alone, branches of `select` among them (of tensors as well). A weak float takes any float type, a weak
integer any float type (it is cast) and, where it is numbers alone, any integer type that holds them. What `cast` gives
is never weak.
"""

from __future__ import annotations

from collections.abc import Iterable

from neoflow import dtype as dt
from neoflow.expr.constant import retyped
from neoflow.expr.deep import Walk, run
from neoflow.expr.ir import Apply, Cast, Const, Expr, Read, Reduce, Select
from neoflow.expr.tensor import Compute, Constant, Tensor


def common_dtype(exprs: Iterable[Expr], has_float: bool) -> str | None:
    """The dtype that numbers beside `exprs` take: that of the first that is not weak, else of the widest float.

    has_float: whether a float is among the numbers. None: nothing says it.
    """
    weak: list[str] = []
    for e in exprs:
        if not e.weak:
            return e.dtype
        weak.append(e.dtype)
    floats = [d for d in weak if dt.is_float(d)]
    if floats:
        return max(floats, key=dt.itemsize)
    return "float32" if has_float else max(weak, key=dt.itemsize, default=None)


def adapted(e: Expr, dtype: str) -> Expr:
    """A weak expression as one of `dtype`, also weak; itself where it cannot take that dtype."""
    if not e.weak or e.dtype == dtype or e.dtype == "bool":
        return e
    if dt.is_float(dtype):
        return run(_as_float(e, dtype, {}))
    if dt.is_int(dtype) and dt.is_int(e.dtype) and run(_fits(e, dtype)):
        return run(_as_integer(e, dtype))
    return e


def _as_float(e: Expr, dtype: str, known: dict[Expr, Expr]) -> Walk[Expr]:
    """A weak number of any type as a float; integer arithmetic stays that, and its result is cast."""
    if e.dtype == dtype:
        return e
    if e not in known:
        known[e] = yield from _floated(e, dtype, known)
    return known[e]


def _floated(e: Expr, dtype: str, known: dict[Expr, Expr]) -> Walk[Expr]:
    match e:
        case Const():
            return Const(e.value, dtype, e.where, weak=True)
        case Select():
            then = yield _as_float(e.then, dtype, known)
            other = yield _as_float(e.other, dtype, known)
            return Select(e.cond, then, other, e.where)
        case Read():
            return Read(_retyped(e, dtype), e.indices, e.where)
        case Cast():
            return Cast(dtype, e.arg, e.where, weak=True)
        case Apply() if dt.is_float(e.dtype):
            args = []
            for a in e.args:
                args.append((yield _as_float(a, dtype, known)))
            return Apply(e.fn, tuple(args), e.where)
        case Reduce() if dt.is_float(e.dtype):
            return Reduce(e.op, e.axes, (yield _as_float(e.body, dtype, known)), e.where)
    return Cast(dtype, e, e.where, weak=True)


def _fits(e: Expr, dtype: str) -> Walk[bool]:
    """Whether an integer is a choice among numbers, all of which `dtype` holds."""
    match e:
        case Const():
            return dt.holds(dtype, e.value)
        case Select():
            return (yield _fits(e.then, dtype)) and (yield _fits(e.other, dtype))
        case Read(source=Constant() as source):
            return all(dt.holds(dtype, end) for end in (source.value.min(), source.value.max()))
        case Read(source=Compute() as source):
            return all(dt.holds(dtype, n) for n in source.choice[0])
    return False


def _as_integer(e: Expr, dtype: str) -> Walk[Expr]:
    match e:
        case Const():
            return Const(e.value, dtype, e.where, weak=True)
        case Select():
            then = yield _as_integer(e.then, dtype)
            return Select(e.cond, then, (yield _as_integer(e.other, dtype)), e.where)
    assert isinstance(e, Read)
    return Read(_retyped(e, dtype), e.indices, e.where)


def _retyped(e: Read, dtype: str) -> Tensor:
    """The weak tensor that a read reads, as one of `dtype`."""
    if isinstance(e.source, Constant):
        return retyped(e.source, dtype)
    assert isinstance(e.source, Tensor)
    return e.source.choice[1](dtype)
