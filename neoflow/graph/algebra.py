"""Folding of constants: laws of scalar arithmetic that are exact for every value, NaN and signed zeros among them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from neoflow.expr import dtype as dt
from neoflow.expr.functions import FUNCTIONS
from neoflow.expr.ir import Apply, Cast, Const, Expr, Read, Reduce, Select, rewrite
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Definition


@dataclass(frozen=True)
class Law:
    """What an application of `fn` to a first and a last argument becomes: `fold(a, b)`, or None. The name draws it."""

    name: str
    fn: str
    fold: Callable[[Expr, Expr], Expr | None]


def _is(e: Expr, value: float) -> bool:
    return isinstance(e, Const) and e.value == value and not isinstance(e.value, bool)


def _negated(e: Expr) -> Expr | None:
    """x of -x."""
    return e.args[0] if isinstance(e, Apply) and e.fn == "neg" else None


def _times_two(a: Expr, b: Expr) -> Expr | None:
    return Apply("mul", (Const(2, a.dtype), a)) if a is b and dt.is_float(a.dtype) else None


def _minus_zero(a: Expr, b: Expr) -> Expr | None:
    return a if isinstance(b, Const) and _is(b, 0) and not np.signbit(b.value) else None


def _constant_takes_sign(a: Expr, b: Expr) -> Expr | None:
    x = _negated(b)
    return Apply("mul", (Const(-a.value, a.dtype), x)) if isinstance(a, Const) and x is not None else None


def _times_reciprocal(a: Expr, b: Expr) -> Expr | None:
    if isinstance(b, Const) and dt.is_float(b.dtype) and has_reciprocal(float(b.value), b.dtype):
        return Apply("mul", (a, Const(1 / float(b.value), b.dtype)))
    return None


def _add_negated(a: Expr, b: Expr) -> Expr | None:
    x = _negated(b)
    return None if x is None else Apply("sub", (a, x))


def _add_to_negated(a: Expr, b: Expr) -> Expr | None:
    x = _negated(a)
    return None if x is None else Apply("sub", (b, x))


def _subtract_negated(a: Expr, b: Expr) -> Expr | None:
    x = _negated(b)
    return None if x is None else Apply("add", (a, x))


LAWS = (
    Law("1 * x -> x", "mul", lambda a, b: b if _is(a, 1) else None),
    Law("x * 1 -> x", "mul", lambda a, b: a if _is(b, 1) else None),
    Law("3 * -x -> -3 * x", "mul", _constant_takes_sign),
    Law("x + x -> 2 * x", "add", _times_two),
    Law("x + -y -> x - y", "add", _add_negated),
    Law("-x + y -> y - x", "add", _add_to_negated),
    Law("x - 0 -> x", "sub", _minus_zero),
    Law("x - -y -> x + y", "sub", _subtract_negated),
    Law("-(-x) -> x", "neg", lambda a, b: _negated(a)),
    Law("x / 1 -> x", "div", lambda a, b: a if _is(b, 1) else None),
    Law("stop_gradient(x) -> x", "stop_gradient", lambda a, b: a),
    Law("x / 8 -> x * 0.125", "div", _times_reciprocal),
)
"""Tried in order at every application of their function."""

_OF = {law.fn: tuple(other for other in LAWS if other.fn == law.fn) for law in LAWS}


@dataclass(frozen=True)
class Folded:
    """A body and the names of the laws that made it, in the order of use."""

    body: Expr
    laws: tuple[str, ...]


@remembered
def fold(definition: Definition, constants: tuple[Const | None, ...]) -> Folded:
    """The body with constant inputs put in and what follows from it; only rules that are exact for every value."""
    used: dict[str, None] = {}

    def rule(e: Expr) -> Expr | None:
        if isinstance(e, Read) and constants[e.slot] is not None:
            used["an input is constant"] = None
            return constants[e.slot]
        found = _fold(e)
        if found is None:
            return None
        name, result = found
        used[name] = None
        return result

    return Folded(rewrite(definition.body, rule), tuple(used))


def _fold(e: Expr) -> tuple[str, Expr] | None:
    """What a node becomes, and the name of the law."""
    match e:
        case Apply() if e.dtype != dt.INDEX:
            return _fold_apply(e)
        case Select(cond=Const() as condition):
            return "a condition is constant", e.then if condition.value else e.other
        case Select() if e.then is e.other:
            return "both branches are equal", e.then
        case Cast(arg=Const()):
            value = _fold_cast(e)
            return None if value is None else ("a cast of a constant", value)
        case Reduce(op="sum", body=Const() as term) if dt.is_float(e.dtype):
            count = math.prod(a.extent for a in e.axes)
            return "a sum of a constant", Const(term.value * count, e.dtype)
    return None


def _fold_apply(e: Apply) -> tuple[str, Expr] | None:
    constants = [a.value for a in e.args if isinstance(a, Const)]
    if len(constants) == len(e.args) and dt.is_float(e.args[0].dtype):
        with np.errstate(all="ignore"):
            value = FUNCTIONS[e.fn].numpy(*map(np.float64, constants))
        return "a function of constants", Const(value.item(), e.dtype)
    for law in _OF.get(e.fn, ()):
        result = law.fold(e.args[0], e.args[-1])
        if result is not None:
            return law.name, result
    return None


def _fold_cast(e: Cast) -> Expr | None:
    """The cast of a constant as NumPy does it; none of a float that no integer of the type stands for."""
    assert isinstance(e.arg, Const)
    value = e.arg.value
    if dt.is_float(e.arg.dtype) and dt.is_int(e.dtype) and not abs(value) < 2.0**31:
        return None
    if dt.is_int(e.dtype):
        return Const(np.asarray(int(value)).astype(dt.NUMPY[e.dtype]).item(), e.dtype)
    return Const(bool(value) if e.dtype == "bool" else float(value), e.dtype)


def has_reciprocal(value: float, dtype: str) -> bool:
    """Whether value and 1 / value are exact in `dtype`: a power of two which is neither too small nor too large."""
    if value == 0 or not np.isfinite(value) or abs(np.frexp(value)[0]) != 0.5:
        return False
    with np.errstate(all="ignore"):
        return all(float(dt.NUMPY[dtype].type(x)) == x for x in (value, 1 / value))
