"""The scalar functions of the language, one row each: name, arity, typing, NumPy meaning, cost, exactness, symbol.

Typing classes: `arith` takes and gives one numeric type; `real` one float type; `single` float32; `integer` one integer
type; `compare` takes two of one type and gives bool; `logic` takes and gives bool. `//` and `%` round down, and by zero
give 0. A shift by a negative number, or by the width of the type and more, leaves no bit of x: 0, or -1 to the right of
x < 0. `round_tf32` gives the nearest number of TF32, which has 10 bits after the point and the exponents of float32; of
two the one away from zero, as tensor cores' own conversion does.

A new function is a row here, its derivative in `autodiff/rules.py`, its vector code on each device
(`codegen/tir/functions.py`), and a test; the laws over random programs take it from the row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from neoflow import dtype as dt


@dataclass(frozen=True)
class Function:
    """A row of the table.

    cost: the time of one value, that of an addition being one: what recomputing it costs.
    instructions: of one vector, roughly: a division is one, though a slow one; a polynomial or a division of
    integers is ten (exp has 9 multiply-adds).
    exact: whether a float result has the same bits however it is compiled (integers and conditions always have).
    symbol, precedence: how it is printed between its operands; higher binds tighter.
    error: what the vector code may add to the exact float result, in units of its eps; None where floats have no part,
    or a rule of their own (products, signs). monotone: it rises or falls all along. whole: "always" when it gives whole
    numbers, "of whole" when it does so for whole ones.
    one_lane: element types in which there is no vector code but a call of the C library, one lane at a time.
    """

    name: str
    arity: int
    typing: str
    numpy: Callable
    cost: int
    instructions: int
    exact: bool
    symbol: str = ""
    precedence: int = 9
    one_lane: tuple[str, ...] = ()
    error: int | None = None
    monotone: bool = False
    whole: str = ""


def _sigmoid(x: np.ndarray) -> np.ndarray:
    from scipy import special  # imported here: slow to import, and needed to evaluate only

    return special.expit(x)


def _erf(x: np.ndarray) -> np.ndarray:
    from scipy import special

    return special.erf(x)


def _rsqrt(x: np.ndarray) -> np.ndarray:
    return np.reciprocal(np.sqrt(x))


def _relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, np.zeros((), x.dtype))


def _round_tf32(x: np.ndarray) -> np.ndarray:
    """By quanta of 2^-10 of the leading bit, not below those of float32's smallest normal numbers; NaN and Inf stay."""
    with np.errstate(invalid="ignore"):
        wide = np.asarray(x, np.float64)
        quantum = np.ldexp(1.0, np.maximum(np.frexp(wide)[1], _LEAST_NORMAL) - 11)
        units = np.trunc(wide / quantum)
        units = units + np.copysign(np.abs(wide / quantum - units) >= 0.5, wide)
        rounded = np.where(np.abs(units * quantum) < _BEYOND, units * quantum, np.copysign(np.inf, wide))
    return np.where(np.isfinite(wide), rounded, wide).astype(x.dtype)


_LEAST_NORMAL, _BEYOND = -125, 2.0**128
"""Of float32, whose exponents TF32 has: that of its least normal number by `frexp`, and what is larger than any."""
ROUND_TF32 = "round_tf32"
"""The function's name, by which tensor cores know what they may multiply."""
SCALAR_64 = ("float64",)

# fmt: off
FUNCTIONS: dict[str, Function] = {
    f.name: f
    for f in (
        #        name      arity typing     meaning      cost  instr. exact
        Function("or",       2, "logic",   np.logical_or,    1,  1, True, "|", 3),
        Function("and",      2, "logic",   np.logical_and,   1,  1, True, "&", 4),
        Function("not",      1, "logic",   np.logical_not,   1,  1, True, "~", 8),
        Function("lt",       2, "compare", np.less,          1,  1, True, "<", 2),
        Function("le",       2, "compare", np.less_equal,    1,  1, True, "<=", 2),
        Function("gt",       2, "compare", np.greater,       1,  1, True, ">", 2),
        Function("ge",       2, "compare", np.greater_equal, 1,  1, True, ">=", 2),
        Function("eq",       2, "compare", np.equal,         1,  1, True, "==", 2),
        Function("ne",       2, "compare", np.not_equal,     1,  1, True, "!=", 2),
        Function("add",      2, "arith",   np.add,           1,  1, False, "+", 5, error=1, whole="of whole"),
        Function("sub",      2, "arith",   np.subtract,      1,  1, False, "-", 5, error=1, whole="of whole"),
        Function("mul",      2, "arith",   np.multiply,      1,  1, False, "*", 6, whole="of whole"),
        Function("div",      2, "real",    np.divide,       10,  1, False, "/", 6, error=2),
        Function("floordiv", 2, "integer", np.floor_divide, 10, 10, True, "//", 6),
        Function("mod",      2, "integer", np.mod,          10, 10, True, "%", 6),
        Function("bitwise_and", 2, "integer", np.bitwise_and, 1, 1, True),
        Function("bitwise_or", 2, "integer", np.bitwise_or, 1, 1, True),
        Function("bitwise_xor", 2, "integer", np.bitwise_xor, 1, 1, True),
        Function("bitwise_not", 1, "integer", np.invert, 1,  1, True),
        Function("left_shift", 2, "integer", np.left_shift, 1, 1, True),
        Function("right_shift", 2, "integer", np.right_shift, 1, 1, True),
        Function("neg",      1, "arith",   np.negative,      1,  1, True, "-", 7, whole="of whole"),
        Function("maximum",  2, "arith",   np.maximum,       1,  1, True, error=0, whole="of whole"),
        Function("minimum",  2, "arith",   np.minimum,       1,  1, True, error=0, whole="of whole"),
        Function("abs",      1, "arith",   np.abs,           1,  1, True, whole="of whole"),
        Function("relu",     1, "arith",   _relu,            1,  1, True, error=0, whole="of whole"),
        Function("sign",     1, "real",    np.sign,          1,  1, True, error=0, monotone=True, whole="always"),
        Function("floor",    1, "real",    np.floor,         1,  1, True, error=0, monotone=True, whole="always"),
        Function("ceil",     1, "real",    np.ceil,          1,  1, True, error=0, monotone=True, whole="always"),
        Function("round",    1, "real",    np.rint,          1,  1, True, error=0, monotone=True, whole="always"),
        Function("stop_gradient", 1, "real", np.positive,    1,  1, True, error=0, monotone=True, whole="of whole"),
        Function(ROUND_TF32, 1, "single", _round_tf32,       4,  4, True, error=0, monotone=True, whole="of whole"),
        Function("exp",      1, "real",    np.exp,          10, 10, False, error=8, monotone=True),
        Function("log",      1, "real",    np.log,          10, 10, False, error=8, monotone=True),
        Function("log1p",    1, "real",    np.log1p,        10, 10, False, error=8, monotone=True),
        Function("expm1",    1, "real",    np.expm1,        10, 10, False, error=8, monotone=True),
        Function("tanh",     1, "real",    np.tanh,         10, 10, False, one_lane=SCALAR_64, error=8, monotone=True),
        Function("sigmoid",  1, "real",    _sigmoid,        10, 10, False, error=8, monotone=True),
        Function("sqrt",     1, "real",    np.sqrt,         10,  1, False, error=2, monotone=True),
        Function("rsqrt",    1, "real",    _rsqrt,          10,  1, False, error=3, monotone=True),
        Function("erf",      1, "real",    _erf,            10, 10, False, one_lane=SCALAR_64, error=8, monotone=True),
        Function("sin",      1, "real",    np.sin,          10, 10, False, error=8),
        Function("cos",      1, "real",    np.cos,          10, 10, False, error=8),
        Function("pow",      2, "real",    np.power,        10, 10, False, error=16),
    )
}
# fmt: on


@dataclass(frozen=True)
class Reducer:
    """An associative reducer. function: what makes one of two values, a row of `FUNCTIONS`; numpy: its meaning."""

    function: str
    numpy: np.ufunc
    exact: bool


REDUCERS: dict[str, Reducer] = {
    "sum": Reducer("add", np.add, False),
    "prod": Reducer("mul", np.multiply, False),
    "max": Reducer("maximum", np.maximum, True),
    "min": Reducer("minimum", np.minimum, True),
}
BLOCK = 512
"""Terms that a compiled sum of floats adds to one number before that is added to another: the error of a sum is that
of so many additions for each level of blocks, not of all its terms. Clearing and adding the accumulators of a block
costs a hundredth of a block of multiply-adds."""
ARG_REDUCERS = ("argmax", "argmin")
"""They give the first position of an extreme."""


def levels(terms: int) -> int:
    """Levels of blocks of a sum of so many terms: each takes `BLOCK` additions at most."""
    found = 1
    while terms > BLOCK:
        terms = math.ceil(terms / BLOCK)
        found += 1
    return found


def identity(op: str, dtype: str) -> float | int:
    """The neutral element of a reducer for a dtype: 0, 1, the lowest or the highest value."""
    if op in ("sum", "prod"):
        return 0 if op == "sum" else 1
    if dt.is_float(dtype):
        return float("-inf") if op == "max" else float("inf")
    info = np.iinfo(dtype)
    return int(info.min if op == "max" else info.max)
