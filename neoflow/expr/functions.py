"""The scalar functions of the language, one row each: name, arity, typing class, NumPy meaning, infix symbol.

Typing classes: `arith` takes and gives one numeric type; `real` one float type; `integer` one integer type;
`compare` two of one type and gives bool; `logic` takes and gives bool. Derivatives are in `autodiff/rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Function:
    """A row of the table. `precedence` orders infix printing, higher binds tighter."""

    name: str
    arity: int
    typing: str
    numpy: Callable
    symbol: str = ""
    precedence: int = 9


def _sigmoid(x: np.ndarray) -> np.ndarray:
    from scipy import special  # slow to import, and needed to evaluate only

    return special.expit(x)


def _erf(x: np.ndarray) -> np.ndarray:
    from scipy import special

    return special.erf(x)


def _rsqrt(x: np.ndarray) -> np.ndarray:
    return np.reciprocal(np.sqrt(x))


def _relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, np.zeros((), x.dtype))


FUNCTIONS: dict[str, Function] = {
    f.name: f
    for f in (
        Function("or", 2, "logic", np.logical_or, "|", 3),
        Function("and", 2, "logic", np.logical_and, "&", 4),
        Function("not", 1, "logic", np.logical_not, "~", 8),
        Function("lt", 2, "compare", np.less, "<", 2),
        Function("le", 2, "compare", np.less_equal, "<=", 2),
        Function("gt", 2, "compare", np.greater, ">", 2),
        Function("ge", 2, "compare", np.greater_equal, ">=", 2),
        Function("eq", 2, "compare", np.equal, "==", 2),
        Function("ne", 2, "compare", np.not_equal, "!=", 2),
        Function("add", 2, "arith", np.add, "+", 5),
        Function("sub", 2, "arith", np.subtract, "-", 5),
        Function("mul", 2, "arith", np.multiply, "*", 6),
        Function("div", 2, "real", np.divide, "/", 6),
        Function("floordiv", 2, "integer", np.floor_divide, "//", 6),  # both round down, and by zero give 0
        Function("mod", 2, "integer", np.mod, "%", 6),
        Function("neg", 1, "arith", np.negative, "-", 7),
        Function("maximum", 2, "arith", np.maximum),
        Function("minimum", 2, "arith", np.minimum),
        Function("abs", 1, "arith", np.abs),
        Function("relu", 1, "arith", _relu),
        Function("sign", 1, "real", np.sign),
        Function("floor", 1, "real", np.floor),
        Function("ceil", 1, "real", np.ceil),
        Function("exp", 1, "real", np.exp),
        Function("log", 1, "real", np.log),
        Function("tanh", 1, "real", np.tanh),
        Function("sigmoid", 1, "real", _sigmoid),
        Function("sqrt", 1, "real", np.sqrt),
        Function("rsqrt", 1, "real", _rsqrt),
        Function("erf", 1, "real", _erf),
        Function("sin", 1, "real", np.sin),
        Function("cos", 1, "real", np.cos),
        Function("pow", 2, "real", np.power),
    )
}

REDUCERS: dict[str, np.ufunc] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
"""The associative reducers with their NumPy ufuncs; `argmax` and `argmin` give the first extreme position."""
ARG_REDUCERS = ("argmax", "argmin")


def identity(op: str, dtype: str) -> float | int:
    """The neutral element of a reducer for a dtype: 0, 1, the lowest or the highest value."""
    if op in ("sum", "prod"):
        return 0 if op == "sum" else 1
    if dtype.startswith(("float", "bfloat")):
        return float("-inf") if op == "max" else float("inf")
    info = np.iinfo(dtype)
    return int(info.min if op == "max" else info.max)
