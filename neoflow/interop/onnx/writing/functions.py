"""Scalar functions of the language as operators of ONNX: a row each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neoflow import dtype as dt
from neoflow.interop.onnx.writing.nodes import Nodes, held

Write = Callable[[Nodes, Sequence[str], str], str]
"""Takes the names of the arguments, which broadcast against each other, and their type."""
WIDTHS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def number(nodes: Nodes, value: float, dtype: str) -> str:
    """A constant of rank 0."""
    return nodes.table(np.array(value, dt.NUMPY[held(dtype)]))


def op(name: str) -> Write:
    return lambda nodes, args, dtype: nodes.add(name, args)


def _compared(name: str, is_negated: bool = False) -> Write:
    def write(nodes: Nodes, args: Sequence[str], dtype: str) -> str:
        if dtype == "bool" and name != "Equal":
            args = [nodes.cast(a, "bool", "int32") for a in args]
        found = nodes.add(name, args)
        return nodes.add("Not", [found]) if is_negated else found

    return write


def _relu(nodes: Nodes, args: Sequence[str], dtype: str) -> str:
    return nodes.add("Relu", args) if dt.is_float(dtype) else nodes.add("Max", [*args, number(nodes, 0, dtype)])


def _divisor(nodes: Nodes, b: str, dtype: str) -> tuple[str, str]:
    """Where it is 0, and itself with 1 there."""
    is_zero = nodes.add("Equal", [b, number(nodes, 0, dtype)])
    return is_zero, nodes.add("Where", [is_zero, number(nodes, 1, dtype), b])


def _quotient(nodes: Nodes, a: str, by: str, dtype: str) -> str:
    """Rounded down: the operator's quotient is rounded to 0, its remainder has the divisor's sign."""
    zero, rest = number(nodes, 0, dtype), nodes.add("Mod", [a, by])
    signs = nodes.add("Xor", [nodes.add("Less", [a, zero]), nodes.add("Less", [by, zero])])
    is_inexact = nodes.add("Not", [nodes.add("Equal", [rest, zero])])
    less = nodes.cast(nodes.add("And", [signs, is_inexact]), "bool", held(dtype))
    return nodes.add("Sub", [nodes.add("Div", [a, by]), less])


def _floordiv(nodes: Nodes, args: Sequence[str], dtype: str) -> str:
    """0 by 0."""
    a, b = args
    if b in nodes.nonzero:
        return _quotient(nodes, a, b, dtype)
    is_zero, by = _divisor(nodes, b, dtype)
    return nodes.add("Where", [is_zero, number(nodes, 0, dtype), _quotient(nodes, a, by, dtype)])


def _mod(nodes: Nodes, args: Sequence[str], dtype: str) -> str:
    by = args[1] if args[1] in nodes.nonzero else _divisor(nodes, args[1], dtype)[1]
    return nodes.add("Mod", [args[0], by])


def _shifted(is_left: bool) -> Write:
    """By products with powers of 2, since the operators shift unsigned integers only; what is shifted out is lost."""

    def write(nodes: Nodes, args: Sequence[str], dtype: str) -> str:
        a, b = (nodes.cast(n, held(dtype), "int64") for n in args)
        most = 63 if is_left else 62
        powers = nodes.table(np.left_shift(np.int64(1), np.arange(most + 1, dtype=np.int64)))
        zero = number(nodes, 0, "int64")
        at = nodes.add("Min", [nodes.add("Max", [b, zero]), number(nodes, most, "int64")])
        power = nodes.add("Gather", [powers, at])
        sign = nodes.add("Where", [nodes.add("Less", [a, zero]), number(nodes, -1, "int64"), zero])
        found = nodes.add("Mul", [a, power]) if is_left else _quotient(nodes, a, power, "int64")
        beyond = nodes.add(
            "Or", [nodes.add("Less", [b, zero]), nodes.add("Greater", [b, number(nodes, most, "int64")])]
        )
        found = nodes.add("Where", [beyond, zero if is_left else sign, found])
        return nodes.cast(found, "int64", held(dtype))

    return write


def _log1p(nodes: Nodes, args: Sequence[str], dtype: str) -> str:
    """log(u) x / (u - 1) with u = 1 + x rounded. Source: Kahan; Higham, Accuracy and Stability, section 1.14.1."""
    (x,), one = args, number(nodes, 1, dtype)
    u = nodes.add("Add", [x, one])
    log = nodes.add("Log", [u])
    scaled = nodes.add("Mul", [log, nodes.add("Div", [x, nodes.add("Sub", [u, one])])])
    found = nodes.add("Where", [nodes.add("Equal", [u, one]), x, scaled])
    return nodes.add("Where", [nodes.add("Equal", [u, x]), log, found])


def _expm1(nodes: Nodes, args: Sequence[str], dtype: str) -> str:
    """(u - 1) x / log(u) with u = exp(x) rounded. Source: as `_log1p`."""
    (x,), one = args, number(nodes, 1, dtype)
    u = nodes.add("Exp", [x])
    less = nodes.add("Sub", [u, one])
    scaled = nodes.add("Mul", [less, nodes.add("Div", [x, nodes.add("Log", [u])])])
    found = nodes.add("Where", [nodes.add("Equal", [u, one]), x, scaled])
    is_far = nodes.add("Greater", [nodes.add("Abs", [x]), number(nodes, 40, dtype)])
    return nodes.add("Where", [is_far, less, found])


def _rsqrt(nodes: Nodes, args: Sequence[str], dtype: str) -> str:
    return nodes.add("Reciprocal", [nodes.add("Sqrt", args)])


WRITERS: dict[str, Write] = {
    "or": op("Or"),
    "and": op("And"),
    "not": op("Not"),
    "lt": _compared("Less"),
    "le": _compared("LessOrEqual"),
    "gt": _compared("Greater"),
    "ge": _compared("GreaterOrEqual"),
    "eq": _compared("Equal"),
    "ne": _compared("Equal", is_negated=True),
    "add": op("Add"),
    "sub": op("Sub"),
    "mul": op("Mul"),
    "div": op("Div"),
    "floordiv": _floordiv,
    "mod": _mod,
    "bitwise_and": op("BitwiseAnd"),
    "bitwise_or": op("BitwiseOr"),
    "bitwise_xor": op("BitwiseXor"),
    "bitwise_not": op("BitwiseNot"),
    "left_shift": _shifted(is_left=True),
    "right_shift": _shifted(is_left=False),
    "neg": op("Neg"),
    "maximum": op("Max"),
    "minimum": op("Min"),
    "abs": op("Abs"),
    "relu": _relu,
    "sign": op("Sign"),
    "floor": op("Floor"),
    "ceil": op("Ceil"),
    "round": op("Round"),
    "stop_gradient": op("Identity"),
    "exp": op("Exp"),
    "log": op("Log"),
    "log1p": _log1p,
    "expm1": _expm1,
    "tanh": op("Tanh"),
    "sigmoid": op("Sigmoid"),
    "sqrt": op("Sqrt"),
    "rsqrt": _rsqrt,
    "erf": op("Erf"),
    "sin": op("Sin"),
    "cos": op("Cos"),
    "pow": op("Pow"),
}
"""Every function of `expr.functions.FUNCTIONS` but rounding to TF32, which no operator does."""

REDUCERS: dict[str, Any] = {
    "sum": "ReduceSum",
    "prod": "ReduceProd",
    "max": "ReduceMax",
    "min": "ReduceMin",
    "argmax": "ArgMax",
    "argmin": "ArgMin",
}


def wrapped(nodes: Nodes, name: str, dtype: str) -> str:
    """What a narrow type can hold of a value."""
    if held(dtype) == dtype or dt.is_float(dtype):
        return name
    return nodes.cast(nodes.cast(name, held(dtype), dtype), dtype, held(dtype))
