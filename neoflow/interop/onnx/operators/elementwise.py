"""Operators of single elements, with NumPy's broadcasting."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from neoflow import dtype as dt
from neoflow import language as nf
from neoflow.expr.tensor import Tensor
from neoflow.interop.onnx.operators.row import Row, expect
from neoflow.interop.onnx.values import dtype_of
from neoflow.nn import functional as F


def _truncated(a: Tensor, b: Tensor) -> Tensor:
    """The quotient of integers, rounded to 0."""
    q = nf.abs(a) // nf.abs(b)
    return nf.select((a < 0) ^ (b < 0), -q, q)


def _div(a: Tensor, b: Tensor) -> Tensor:
    return _truncated(a, b) if dt.is_int(a.dtype) else a / b


def _mod(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    if not fmod:
        return a % b if dt.is_int(a.dtype) else a - b * nf.floor(a / b)
    if dt.is_int(a.dtype):
        return a - b * _truncated(a, b)
    q = a / b
    return a - b * nf.select(q < 0, nf.ceil(q), nf.floor(q))


def _pow(x: Tensor, y: Tensor) -> Tensor:
    if dt.is_int(x.dtype):
        return nf.cast(nf.round(nf.pow(nf.cast(x, "float64"), nf.cast(y, "float64"))), x.dtype)
    return nf.pow(x, nf.cast(y, x.dtype))


def _sign(x: Tensor) -> Tensor:
    if dt.is_float(x.dtype):
        return nf.sign(x)
    return nf.cast(x > 0, x.dtype) - nf.cast(x < 0, x.dtype)


def cast(x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    """saturate and round_mode are about types of 8 bits and fewer, which the language lacks."""
    return converted(x, dtype_of(to))


def converted(x: Tensor, dtype: str) -> Tensor:
    if dtype == "bool" and x.dtype != "bool":
        return nf.not_equal(x, nf.zeros((), x.dtype))
    return nf.cast(x, dtype)


def _is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    low, high = nf.equal(x, -math.inf), nf.equal(x, math.inf)
    if detect_negative and detect_positive:
        return low | high
    return low if detect_negative else high if detect_positive else nf.zeros(x.shape, "bool")


def _clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    x = x if low is None else nf.maximum(x, low)
    return x if high is None else nf.minimum(x, high)


def _gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate == "none":
        return F.gelu(x)
    return 0.5 * x * (1.0 + nf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def _selu(x: Tensor, *, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Tensor:
    return gamma * F.elu(x, alpha)


def _hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return nf.minimum(nf.maximum(alpha * x + beta, 0.0), 1.0)


def _shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    return nf.select(x < -lambd, x + bias, nf.select(x > lambd, x - bias, nf.zeros((), x.dtype)))


def _asinh(x: Tensor) -> Tensor:
    a = nf.abs(x)
    return nf.sign(x) * nf.log1p(a + a * a / (1.0 + nf.sqrt(a * a + 1.0)))


def _acosh(x: Tensor) -> Tensor:
    return nf.log(x + nf.sqrt(x * x - 1.0))


def _dropout(
    x: Tensor, ratio: Any = None, training_mode: Any = None, *, seed: int = 0, outputs: tuple[str, ...]
) -> Any:
    """A file says how a model is used: nothing is dropped, unless it asks for that, which is refused."""
    is_training = training_mode is not None and bool(training_mode)
    expect(
        not is_training or (ratio is not None and not ratio),
        "it drops elements at random; export the model for inference, or drop them with nf.nn.Dropout",
    )
    return (x, nf.ones(x.shape, "bool"))[: len(outputs)]


def _many(f: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def call(*xs: Tensor) -> Any:
        return functools.reduce(f, xs)

    return call


def _mean(*xs: Tensor) -> Any:
    return functools.reduce(lambda a, b: a + b, xs) * (1.0 / len(xs))


def _celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return nf.maximum(x, 0.0) + nf.minimum(alpha * nf.expm1(x / alpha), 0.0)


def _prelu(x: Tensor, slope: Tensor) -> Tensor:
    return nf.select(x < 0, x * slope, x)


def _dequantize(x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1) -> Tensor:
    """Of a tensor or of an axis; blocks are not known."""
    y = nf.cast(x, scale.dtype)
    shape = [n if d == axis % max(x.rank, 1) else 1 for d, n in enumerate(x.shape)] if scale.size > 1 else []
    if zero is not None:
        y = y - nf.reshape(nf.cast(zero, scale.dtype), shape)
    return y * nf.reshape(scale, shape)


def _quantize(
    x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1, saturate: int = 1,
    output_dtype: int = 0, precision: int = 0, block_size: int = 0,
) -> Tensor:  # fmt: skip
    """To int8 and int16, of a tensor or of an axis; saturate is about floats of 8 bits."""
    expect(not block_size, "blocks are not known")
    dtype = zero.dtype if zero is not None else dtype_of(output_dtype or 2)
    shape = [n if d == axis % max(x.rank, 1) else 1 for d, n in enumerate(x.shape)] if scale.size > 1 else []
    y = nf.round(x / nf.reshape(nf.cast(scale, x.dtype), shape))
    if zero is not None:
        y = y + nf.reshape(nf.cast(zero, y.dtype), shape)
    low, high = dt.ENDS[dtype]
    return nf.cast(nf.minimum(nf.maximum(y, float(low)), float(high)), dtype)


ROWS = (
    Row("Add", lambda a, b: a + b),
    Row("Sub", lambda a, b: a - b),
    Row("Mul", lambda a, b: a * b),
    Row("Div", _div),
    Row("Mod", _mod),
    Row("Pow", _pow),
    Row("Neg", lambda x: -x),
    Row("Abs", lambda x: nf.abs(x)),
    Row("Sign", _sign),
    Row("Floor", lambda x: nf.floor(x)),
    Row("Ceil", lambda x: nf.ceil(x)),
    Row("Round", lambda x: nf.round(x)),
    Row("Exp", lambda x: nf.exp(x)),
    Row("Log", lambda x: nf.log(x)),
    Row("Sqrt", lambda x: nf.sqrt(x)),
    Row("Reciprocal", lambda x: 1.0 / x),
    Row("Erf", lambda x: nf.erf(x)),
    Row("Sin", lambda x: nf.sin(x)),
    Row("Cos", lambda x: nf.cos(x)),
    Row("Tan", lambda x: nf.sin(x) / nf.cos(x)),
    Row("Sinh", lambda x: 0.5 * (nf.exp(x) - nf.exp(-x))),
    Row("Cosh", lambda x: 0.5 * (nf.exp(x) + nf.exp(-x))),
    Row("Tanh", lambda x: nf.tanh(x)),
    Row("Asinh", _asinh),
    Row("Acosh", _acosh),
    Row("Atanh", lambda x: 0.5 * (nf.log1p(x) - nf.log1p(-x))),
    Row("Sigmoid", lambda x: nf.sigmoid(x)),
    Row("Relu", lambda x: nf.relu(x)),
    Row("LeakyRelu", lambda x, *, alpha=0.01: F.leaky_relu(x, alpha)),
    Row("PRelu", _prelu),
    Row("ThresholdedRelu", lambda x, *, alpha=1.0: nf.select(x > alpha, x, nf.zeros((), x.dtype))),
    Row("Elu", lambda x, *, alpha=1.0: F.elu(x, alpha)),
    Row("Celu", _celu),
    Row("Selu", _selu),
    Row("Gelu", _gelu),
    Row("Mish", F.mish),
    Row("Swish", lambda x, *, alpha=1.0: x * nf.sigmoid(alpha * x)),
    Row("HardSigmoid", _hard_sigmoid),
    Row("HardSwish", lambda x: x * _hard_sigmoid(x, alpha=1 / 6)),
    Row("Softplus", F.softplus),
    Row("Softsign", lambda x: x / (1.0 + nf.abs(x))),
    Row("Shrink", _shrink),
    Row("Clip", _clip),
    Row("Max", _many(lambda a, b: nf.maximum(a, b))),
    Row("Min", _many(lambda a, b: nf.minimum(a, b))),
    Row("Sum", _many(lambda a, b: a + b)),
    Row("Mean", _mean),
    Row("Where", lambda c, a, b: nf.select(c, a, b)),
    Row("Equal", lambda a, b: nf.equal(a, b)),
    Row("Less", lambda a, b: a < b),
    Row("LessOrEqual", lambda a, b: a <= b),
    Row("Greater", lambda a, b: a > b),
    Row("GreaterOrEqual", lambda a, b: a >= b),
    Row("And", lambda a, b: nf.logical_and(a, b)),
    Row("Or", lambda a, b: nf.logical_or(a, b)),
    Row("Xor", lambda a, b: nf.not_equal(a, b)),
    Row("Not", lambda x: nf.logical_not(x)),
    Row("BitwiseAnd", lambda a, b: nf.bitwise_and(a, b)),
    Row("BitwiseOr", lambda a, b: nf.bitwise_or(a, b)),
    Row("BitwiseXor", lambda a, b: nf.bitwise_xor(a, b)),
    Row("BitwiseNot", lambda x: nf.bitwise_not(x)),
    Row("IsNaN", lambda x: nf.not_equal(x, x)),
    Row("IsInf", _is_inf),
    Row("Cast", cast),
    Row("CastLike", lambda x, like, *, saturate=1, round_mode="up": converted(x, like.dtype)),
    Row("Identity", lambda x: x),
    Row("Dropout", _dropout, known=(1, 2), counts=True),
    Row("DequantizeLinear", _dequantize),
    Row("QuantizeLinear", _quantize),
)

__all__ = ["ROWS", "cast", "converted"]
