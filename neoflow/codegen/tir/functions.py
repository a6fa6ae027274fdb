"""The language's scalar functions over vector lanes: one row each, as `expr/functions.py` gives their NumPy meaning."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import tvm
from tvm import tirx

from neoflow.codegen.tir import emit
from neoflow.codegen.tir.dialect import dialect
from neoflow.codegen.tir.intrinsics import elementary
from neoflow.codegen.tir.near_zero import NEAR_ZERO, near_zero
from neoflow.expr.functions import FUNCTIONS

Value = emit.Value


def _const(x: Value, value: float) -> Value:
    return emit.splat(value, emit.element_of(x), emit.lanes_of(x))


def _is_float(x: Value) -> bool:
    return emit.element_of(x).startswith("float")


def _wrapping(operation: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    """The operation on floats, or on integers that wrap around.

    TVM promises that 32 and 64 bits do not overflow; in a wider or unsigned type, which LLVM takes back, that is so.
    """

    def apply(a: Value, b: Value) -> Value:
        lanes, element, wider = emit.lanes_of(a), emit.element_of(a), dialect().wider
        if element not in wider:
            return operation(a, b)
        wide = emit.vector_type(wider[element], lanes)
        return tirx.Cast(emit.vector_type(element, lanes), operation(tirx.Cast(wide, a), tirx.Cast(wide, b)))

    return apply


_add = _wrapping(lambda a, b: a + b)
_subtract = _wrapping(lambda a, b: a - b)
_product = _wrapping(lambda a, b: a * b)


def _multiply(a: Value, b: Value) -> Value:
    """The rounded product: LLVM must not join it with an addition.

    A value computed again elsewhere has to come out the same to the last bit, or what compares the two, as the
    gradient of a maximum does, finds no element equal to its maximum.
    """
    return emit.call("llvm.arithmetic.fence", a * b) if _is_float(a) else _product(a, b)


def _maximum(a: Value, b: Value) -> Value:
    return emit.call("llvm.maximum", a, b) if _is_float(a) else tirx.Select(a > b, a, b)  # NaN wins


def _minimum(a: Value, b: Value) -> Value:
    return emit.call("llvm.minimum", a, b) if _is_float(a) else tirx.Select(a < b, a, b)


def _absolute(x: Value) -> Value:
    return emit.call("llvm.fabs", x) if _is_float(x) else tirx.Select(x < _const(x, 0), _negative(x), x)


def _relu(x: Value) -> Value:
    return tirx.Select(x < _const(x, 0), _const(x, 0), x)  # NaN stays


def _sign(x: Value) -> Value:
    zero_or_nan = emit.call("llvm.fabs", x)
    return tirx.Select(x > _const(x, 0), _const(x, 1), tirx.Select(x < _const(x, 0), _const(x, -1), zero_or_nan))


def _negative(x: Value) -> Value:
    return _subtract(_const(x, -0.0 if _is_float(x) else 0), x)


def _sigmoid64(x: Value) -> Value:
    e = emit.call("llvm.exp", _negative(emit.call("llvm.fabs", x)))
    return tirx.Select(x < _const(x, 0), e, _const(x, 1)) / (_const(x, 1) + e)


def _libm(name: str) -> Callable[[Value], Value]:
    """One call of the C library a lane; only for a scalar."""

    def apply(x: Value) -> Value:
        return dialect().library(name, x)

    return apply


def _round_tf32(x: Value) -> Value:
    """Of float32: the 13 last bits are rounded off, halves away from zero; in 32 bits that also carries to Inf."""
    lanes = emit.lanes_of(x)
    bits = tirx.reinterpret(emit.vector_type("uint32", lanes), x)
    rounded = (bits + emit.splat(0x1000, "uint32", lanes)) & emit.splat(0xFFFFE000, "uint32", lanes)
    exponent = emit.splat(0x7F800000, "uint32", lanes)
    is_number = tirx.NE(bits & exponent, exponent)
    return tirx.Select(is_number, tirx.reinterpret(emit.vector_type("float32", lanes), rounded), x)


_FLOAT64: dict[str, Callable[[Value], Value]] = {
    "exp": lambda x: emit.call("llvm.exp", x),
    "log": lambda x: emit.call("llvm.log", x),
    "sin": lambda x: emit.call("llvm.sin", x),
    "cos": lambda x: emit.call("llvm.cos", x),
    "sigmoid": _sigmoid64,
    "tanh": _libm("tanh"),
    "erf": _libm("erf"),
}


def _shifted(left: bool) -> Callable[[Value, Value], Value]:
    """x << n or x >> n; by a number that is no place of a bit nothing is left of x, which LLVM leaves undefined."""

    def apply(x: Value, n: Value) -> Value:
        bits = tvm.DataType(emit.element_of(x)).bits
        is_place = tirx.And(n >= _const(n, 0), n < _const(n, bits))
        last = tirx.Select(is_place, n, _const(n, bits - 1))
        if not left:
            return x >> last
        return tirx.Select(is_place, x << last, _const(x, 0))

    return apply


_TABLE: dict[str, Callable[..., Value]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: tirx.EQ(a, b),
    "not": tirx.Not,
    "add": _add,
    "sub": _subtract,
    "mul": _multiply,
    "div": lambda a, b: a / b,
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "bitwise_not": lambda x: x ^ _const(x, -1),  # TVM 0.27 prints ~ of a vector, which CUDA C++ has not
    "left_shift": _shifted(left=True),
    "right_shift": _shifted(left=False),
    "neg": _negative,
    "maximum": _maximum,
    "minimum": _minimum,
    "abs": _absolute,
    "relu": _relu,
    "sign": _sign,
    "floor": lambda x: emit.call("llvm.floor", x),
    "round": lambda x: emit.call("llvm.rint", x),
    "ceil": lambda x: emit.call("llvm.ceil", x),
    "sqrt": lambda x: emit.call("llvm.sqrt", x),
    "stop_gradient": lambda x: x,
    "round_tf32": _round_tf32,
    "rsqrt": lambda x: _const(x, 1) / emit.call("llvm.sqrt", x),
    "pow": lambda x, y: emit.call("llvm.pow", x, y),
}


def _divide(fn: str, a: Value, b: Value, constant: bool, statements: list) -> Value:
    """a // b or a % b rounding down; 0 where b is 0, and no trap for -2^63 // -1.

    Both go through memory: TVM's simplifier follows scalars into the selections and loses the case of 0.
    """
    a = emit.held(statements, a)
    if constant:
        return _floor(fn, a, b)
    b = emit.held(statements, b)
    zero, minus = tirx.EQ(b, _const(b, 0)), tirx.EQ(b, _const(b, -1))
    safe = tirx.Select(zero, _const(b, 1), tirx.Select(minus, _const(b, 1), b))
    by_minus_one = _negative(a) if fn == "floordiv" else _const(a, 0)
    return tirx.Select(zero, _const(a, 0), tirx.Select(minus, by_minus_one, _floor(fn, a, safe)))


def _floor(fn: str, a: Value, b: Value) -> Value:
    """From the machine's division, which rounds to zero: TVM 0.27 lowers its own wrongly for some a < 0."""
    remainder = tirx.truncmod(a, b)
    below = tirx.And(tirx.NE(remainder, _const(a, 0)), (remainder ^ b) < _const(a, 0))
    if fn == "mod":
        return tirx.Select(below, remainder + b, remainder)
    quotient = tirx.truncdiv(a, b)
    return tirx.Select(below, quotient - _const(a, 1), quotient)


def divide_index(fn: str, a: Value, divisor: int, low: int, statements: list) -> Value:
    """a // divisor or a % divisor for an index not below `low`: shifted to where it is not negative.

    The dividend goes through memory, out of sight of TVM's simplifier, which takes multiples of the divisor out of the
    base of a ramp although rounding to zero does not allow it.
    """
    shift = -(low // divisor) if low < 0 else 0
    lanes = emit.lanes_of(a)
    unsigned, signed = emit.vector_type("uint32", lanes), emit.vector_type(emit.element_of(a), lanes)
    dividend = tirx.Cast(unsigned, emit.held(statements, a + _const(a, shift * divisor) if shift else a))
    by = emit.splat(divisor, "uint32", lanes)
    if fn == "mod":
        return tirx.Cast(signed, tirx.truncmod(dividend, by))
    quotient = tirx.Cast(signed, tirx.truncdiv(dividend, by))
    return quotient - _const(a, shift) if shift else quotient


def apply_function(fn: str, args: Sequence[Value], constant: bool, statements: list) -> Value:
    """`fn` of `args`, lane by lane; `constant` says that the last argument is one, so not a zero divisor."""
    if fn in ("floordiv", "mod"):
        return _divide(fn, args[0], args[1], constant and _nonzero(args[1]), statements)
    if fn in _FLOAT64:
        wide = emit.element_of(args[0]) == "float64"
        return _FLOAT64[fn](args[0]) if wide else elementary(fn, args[0], statements)
    if fn in NEAR_ZERO:
        return near_zero(fn, args[0], statements)
    if emit.element_of(args[0]) == "bool" and FUNCTIONS[fn].typing == "compare":  # TVM takes them for floats
        return apply_function(fn, [emit.flags(a) for a in args], constant, statements)
    if fn == "ne":
        return emit.differ(statements, *args)
    if fn == "pow" and constant and constant_of(args[1]) == 2.0:
        return _multiply(args[0], args[0])
    return _TABLE[fn](*args)


def constant_of(x: Value) -> float:
    """The number that all lanes are when it is printed; NaN when none is known."""
    x = x.value if isinstance(x, tirx.Broadcast) else x
    return float(x.value) if isinstance(x, tirx.IntImm | tirx.FloatImm) else math.nan


def _nonzero(x: Value) -> bool:
    return constant_of(x) not in (0.0, -1.0)
