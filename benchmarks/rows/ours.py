"""The forms in neoflow: each takes the inputs of a row and its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

import neoflow as nf
from benchmarks.rows.cases import Row
from neoflow.nn import functional as F

Form = Callable[..., nf.Tensor | tuple[nf.Tensor, ...]]


def _matmul(a: nf.Tensor, b: nf.Tensor, left: str, right: str) -> nf.Tensor:
    return nf.expr(f"y[m,n] = sum(a[{','.join(left)}] * b[{','.join(right)}])", a=a, b=b)


def _convolution(x: nf.Tensor, w: nf.Tensor, stride: int, padding: int, groups: int) -> nf.Tensor:
    if groups == x.shape[1]:
        return F.depthwise_conv2d(x, w, stride=stride, padding=padding)
    return F.conv2d(x, w, stride=stride, padding=padding, groups=groups)


def _by_convolutions(x: nf.Tensor, w: nf.Tensor) -> nf.Tensor:
    return nf.stack([F.conv2d(x, w[u], stride=2) for u in range(w.shape[0])], 1)


def _batch_norm(x: nf.Tensor, gamma: nf.Tensor, beta: nf.Tensor) -> nf.Tensor:
    return F.batch_norm(x, gamma, beta, nf.zeros(gamma.shape), nf.ones(gamma.shape)).y


def _lstm(
    x: nf.Tensor, h: nf.Tensor, c: nf.Tensor, wx: nf.Tensor, wh: nf.Tensor, bias: nf.Tensor
) -> tuple[nf.Tensor, ...]:
    return F.lstm_cell(x, h, c, wx, wh, bias)


def _mi_lstm(
    x: nf.Tensor, h: nf.Tensor, c: nf.Tensor, wx: nf.Tensor, wh: nf.Tensor, *vectors: nf.Tensor
) -> tuple[nf.Tensor, ...]:
    """vectors: both biases, alpha, beta1, beta2; gates in the order i, f, o, z (`models/mi_lstm.py`)."""
    bx, bh, alpha, one, two = vectors
    u, g, size = F.linear(x, wx, bx), F.linear(h, wh, bh), h.shape[1]
    pre = alpha * u * g + one * u + two * g
    return F.lstm_gates(pre, c, {"i": 0, "f": size, "o": 2 * size, "g": 3 * size})


FORMS: dict[str, Form] = {
    "matmul": _matmul,
    "batched": lambda a, b: nf.expr("y[s,m,n] = sum(a[s,m,k] * b[s,k,n])", a=a, b=b),
    "convolution": _convolution,
    "capsule": lambda x, w: F.capsule_conv(x, w, stride=2),
    "capsules_by_convolutions": _by_convolutions,
    "softmax": F.softmax,
    "layer_norm": F.layer_norm,
    "gelu": F.gelu,
    "tanh": nf.tanh,
    "batch_norm": _batch_norm,
    "max_pool": lambda x: F.max_pool(x, 3, 2, 1),
    "lstm": _lstm,
    "mi_lstm": _mi_lstm,
    "embedding": F.embedding,
}


def program(row: Row, forms: Mapping[str, Form] = FORMS) -> tuple[list[nf.Tensor], list[nf.Tensor], list[nf.Tensor]]:
    """Roots, all inputs of the row, and the values of the form alone."""
    shapes = (*row.shapes, *row.cotangents)
    inputs = [nf.placeholder(s, d, name=f"x{n}") for n, (s, d) in enumerate(zip(shapes, row.dtypes, strict=True))]
    given = inputs[: len(row.shapes)]
    made = forms[row.form](*given, **row.options)
    values = list(made) if isinstance(made, tuple) else [made]
    wrt, pulled = [given[n] for n in row.wrt], []
    for value, cotangent in zip(values, inputs[len(given) :], strict=False):
        pulled.append(nf.vjp(value, wrt, cotangent))
    gradients = [reduce(lambda a, b: a + b, parts) for parts in zip(*pulled, strict=True)]
    return [*(values if row.with_value else ()), *gradients], inputs, values
