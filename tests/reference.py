"""A second meaning of the language, written from its grammar alone: plain loops over Python numbers, one at a time.

Slow and simple on purpose, to judge the vectorised interpreter and everything after it. Floats are Python's doubles
inside a body; what a tensor stores is rounded to its type, unless everything is asked for in float64.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from neoflow.expr.ir import Apply, Axis, Cast, Const, Expr, Read, Reduce, Select
from neoflow.expr.tensor import Compute, Tensor

Number = int | float | bool
Env = list[int]
"""The value of every axis, by ident."""
Closure = Callable[[Env], Number]


class Fault(Exception):
    """The program reads outside a tensor."""


def run(tensors: Sequence[Tensor], feeds: Mapping[Tensor, np.ndarray], dtype: str | None = None) -> list[np.ndarray]:
    """What `evaluate` should give, for small programs."""
    known: dict[Tensor, list[Number]] = {}
    return [
        np.array(_flat(t, feeds, known, dtype), object).reshape(t.shape).astype(_result_type(t.dtype, dtype))
        for t in tensors
    ]


def _result_type(dtype: str, forced: str | None) -> np.dtype:
    import ml_dtypes

    if forced and "float" in dtype:
        return np.dtype(forced)
    return np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)


def _flat(
    t: Tensor, feeds: Mapping[Tensor, np.ndarray], known: dict[Tensor, list[Number]], forced: str | None
) -> list[Number]:
    """The elements of a tensor in row-major order."""
    if t in known:
        return known[t]
    if isinstance(t, Compute):
        inputs = [_flat(s, feeds, known, forced) for s in t.inputs]
        element = _Compiler(t, inputs, forced).closure(t.definition.body)
        store = _rounding(t.dtype, forced)
        env = [0] * 64
        result = []
        for point in itertools.product(*(range(n) for n in t.shape)):
            env[: len(point)] = point
            result.append(store(element(env)))
    else:
        result = [x.item() if hasattr(x, "item") else x for x in np.asarray(feeds[t]).reshape(-1)]
        if t.dtype == "bfloat16":
            result = [float(x) for x in result]
    known[t] = result
    return result


# ------------------------------------------------------------------------------------------------------- number types


def _round_ieee(code: str) -> Callable[[Number], float]:
    def store(x: Number) -> float:
        try:
            return struct.unpack(code, struct.pack(code, x))[0]
        except OverflowError:
            return math.copysign(math.inf, x)

    return store


def _round_bfloat16(x: Number) -> float:
    x = _FLOAT32(x)
    if not math.isfinite(x):
        return x
    (bits,) = struct.unpack("<I", struct.pack("<f", x))
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return struct.unpack("<f", struct.pack("<I", bits))[0]


_FLOAT32 = _round_ieee("<f")


def _wrap(width: int) -> Callable[[Number], int]:
    half = 1 << (width - 1)
    return lambda x: (int(x) + half) % (2 * half) - half


def _rounding(dtype: str, forced: str | None) -> Callable[[Number], Number]:
    """From any number to one the type can hold."""
    if dtype == "bool":
        return lambda x: x != 0
    if dtype.startswith("int"):
        return _wrap(int(dtype[3:]))
    if forced == "float64" or dtype == "float64":
        return float
    return {"float32": _FLOAT32, "float16": _round_ieee("<e"), "bfloat16": _round_bfloat16}[dtype]


# ---------------------------------------------------------------------------------------------------------- functions


def _partial(f: Callable[..., float]) -> Callable[..., float]:
    """`f` with IEEE results where Python raises."""

    def total(*args: float) -> float:
        try:
            return f(*args)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return total


def _div(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or math.isnan(a):
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _log(x: float) -> float:
    return -math.inf if x == 0 else math.log(x)


def _log1p(x: float) -> float:
    return -math.inf if x == -1 else math.log1p(x)


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _integral(f: Callable[[float], int]) -> Callable[[float], float]:
    return lambda x: float(f(x)) if math.isfinite(x) else x


def _larger(a: Number, b: Number) -> Number:
    return a if a != a or (b == b and a >= b) else b


def _smaller(a: Number, b: Number) -> Number:
    return a if a != a or (b == b and a <= b) else b


def _sign(x: float) -> float:
    return x if x != x else float((x > 0) - (x < 0))


def _floordiv(a: int, b: int) -> int:
    return a // b if b else 0


def _mod(a: int, b: int) -> int:
    return a % b if b else 0


_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "not": lambda x: not x,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _div,
    "floordiv": _floordiv,
    "mod": _mod,
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "bitwise_not": lambda x: ~x,
    "left_shift": lambda x, n: x << n,
    "right_shift": lambda x, n: x >> n,
    "neg": lambda x: -x,
    "maximum": _larger,
    "minimum": _smaller,
    "abs": abs,
    "relu": lambda x: _larger(x, type(x)(0)),
    "sign": _sign,
    "floor": _integral(math.floor),
    "ceil": _integral(math.ceil),
    "round": _integral(lambda x: math.copysign(round(x), x)),
    "exp": _partial(math.exp),
    "log": _partial(_log),
    "log1p": _partial(_log1p),
    "expm1": _partial(math.expm1),
    "stop_gradient": lambda x: x,
    "tanh": math.tanh,
    "sigmoid": _sigmoid,
    "sqrt": _partial(math.sqrt),
    "rsqrt": lambda x: _div(1.0, _partial(math.sqrt)(x)),
    "erf": math.erf,
    "sin": _partial(math.sin),
    "cos": _partial(math.cos),
    "pow": _partial(math.pow),
}


# ------------------------------------------------------------------------------------------------------------- bodies


class _Compiler:
    """Turns expressions of one compute into closures over the axis values."""

    def __init__(self, tensor: Compute, inputs: list[list[Number]], forced: str | None):
        self.tensor, self.inputs, self.forced = tensor, inputs, forced
        self.made: dict[Expr, Closure] = {}

    def closure(self, e: Expr) -> Closure:
        if e not in self.made:
            self.made[e] = getattr(self, "_" + type(e).__name__.lower())(e)
        return self.made[e]

    def _const(self, e: Const) -> Closure:
        value = _rounding(e.dtype, self.forced)(e.value)
        return lambda env: value

    def _axis(self, e: Axis) -> Closure:
        ident = e.ident
        return lambda env: env[ident]

    def _read(self, e: Read) -> Closure:
        data, name = self.inputs[e.source.position], self.tensor.inputs[e.source.position].name
        dims = [(self.closure(i), n) for i, n in zip(e.indices, e.source.shape, strict=True)]

        def element(env: Env) -> Number:
            at = 0
            for index, extent in dims:
                i = index(env)
                if not 0 <= i < extent:
                    raise Fault(f"index {i} leaves {name}")
                at = at * extent + i
            return data[at]

        return element

    def _apply(self, e: Apply) -> Closure:
        args = [self.closure(a) for a in e.args]
        if e.fn == "and":
            return lambda env: args[0](env) and args[1](env)
        if e.fn == "or":
            return lambda env: args[0](env) or args[1](env)
        fn = _FUNCTIONS[e.fn]
        if e.dtype.startswith("int") and e.dtype != "int64":
            wrap = _rounding(e.dtype, self.forced)
            return lambda env: wrap(fn(*[a(env) for a in args]))
        if len(args) == 1:
            (only,) = args
            return lambda env: fn(only(env))
        first, second = args
        return lambda env: fn(first(env), second(env))

    def _select(self, e: Select) -> Closure:
        cond, then, other = (self.closure(c) for c in e.children)
        return lambda env: then(env) if cond(env) else other(env)

    def _cast(self, e: Cast) -> Closure:
        arg, convert = self.closure(e.arg), _rounding(e.dtype, self.forced)
        return lambda env: convert(arg(env))

    def _reduce(self, e: Reduce) -> Closure:
        body = self.closure(e.body)
        idents = [a.ident for a in e.axes]
        ranges = [range(a.extent) for a in e.axes]
        wrap = _rounding(e.dtype, self.forced) if e.dtype.startswith("int") else lambda x: x
        fold = {
            "sum": lambda a, b: a + b,
            "prod": lambda a, b: a * b,
            "max": _larger,
            "min": _smaller,
        }.get(e.op)

        def element(env: Env) -> Number:
            best: Number | None = None
            position = 0
            for count, point in enumerate(itertools.product(*ranges)):
                for ident, i in zip(idents, point, strict=True):
                    env[ident] = i
                x = body(env)
                if best is None:
                    best = x
                elif fold is not None:
                    best = wrap(fold(best, x))
                elif best == best and (x != x or (x > best if e.op == "argmax" else x < best)):
                    best, position = x, count
            assert best is not None
            return best if fold is not None else position

        return element
