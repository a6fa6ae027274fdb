"""Operators that reduce, and those that normalise by what they reduced."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from neoflow import dtype as dt
from neoflow import language as nf
from neoflow.expr.tensor import Tensor
from neoflow.interop.onnx.operators.row import Row, dims_of, expect
from neoflow.nn import functional as F


def _row(name: str, reduce: Callable[[Tensor, list[int], bool], Tensor], one: Callable[[Tensor], Tensor]) -> Row:
    """one: what the operator makes of an element that is reduced over nothing."""

    def call(
        x: Tensor, axes: Any = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:  # before version 18 the axes are an attribute
        if axes is None or not len(axes):
            if noop_with_empty_axes:
                return one(x)
            axes = range(x.rank)
        dims = dims_of(axes, x.rank)
        return reduce(x, dims, bool(keepdims)) if dims else one(x)

    return Row(name, call, known=(1,))


def _extreme(f: Callable[..., Any]) -> Callable[[Tensor, list[int], bool], Tensor]:
    def call(x: Tensor, dims: list[int], keepdims: bool) -> Tensor:
        if x.dtype == "bool":
            return nf.not_equal(f(nf.cast(x, "int32"), dims, keepdims), 0)
        return f(x, dims, keepdims)

    return call


def _mean(x: Tensor, dims: list[int], keepdims: bool) -> Tensor:
    if dt.is_float(x.dtype):
        return nf.mean(x, dims, keepdims)
    return nf.sum(x, dims, keepdims) // math.prod(x.shape[d] for d in dims)


def _log_sum_exp(x: Tensor, dims: list[int], keepdims: bool) -> Tensor:
    most = nf.max(x, dims, True)
    largest = nf.stop_gradient(nf.select(nf.abs(most) < math.inf, most, nf.zeros((), x.dtype)))
    total = nf.log(nf.sum(nf.exp(x - largest), dims, True)) + largest
    return total if keepdims else nf.squeeze(total, tuple(dims))


def _arg(f: Callable[..., Any]) -> Callable[..., Tensor]:
    def call(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        (d,) = dims_of([axis], x.rank)
        if select_last_index:
            return x.shape[d] - 1 - f(nf.flip(x, d), d, bool(keepdims))
        return f(x, d, bool(keepdims))

    return call


def _hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    (d,) = dims_of([axis], x.rank)
    return nf.moveaxis(nf.one_hot(nf.argmax(x, d), x.shape[d], x.dtype), -1, d)


def _lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    expect(p in (1, 2), f"p is 1 or 2, not {p}")
    total = nf.sum(nf.abs(x) if p == 1 else x * x, [axis], True)
    norm = total if p == 1 else nf.sqrt(total)
    return nf.select(nf.equal(norm, 0.0), nf.zeros((), x.dtype), x / norm)


def _by_channel(v: Tensor, rank: int) -> Tensor:
    return nf.reshape(v, (1, -1, *(1,) * (rank - 2))) if rank > 1 else v


def _batch_norm(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, *, epsilon: float = 1e-5, momentum: float = 0.9,
    training_mode: int = 0, outputs: tuple[str, ...],
) -> Any:  # fmt: skip
    """In training mode also the new running statistics, which are results as any others."""
    new: tuple[Tensor, ...] = ()
    if training_mode:
        over = [d for d in range(x.rank) if d != 1]
        now = nf.mean(x, over), nf.var(x, over)
        new = tuple(
            old * momentum + nf.cast(n, old.dtype) * (1 - momentum) for old, n in zip((mean, var), now, strict=True)
        )
        mean, var = now
    mean, var, scale, bias = (_by_channel(nf.cast(v, x.dtype), x.rank) for v in (mean, var, scale, bias))
    return ((x - mean) * nf.rsqrt(var + epsilon) * scale + bias, *new)[: len(outputs)]


def _instance_norm(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    return F.instance_norm(x, scale, bias, epsilon)


def _standardized(x: Tensor, axis: int, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """(x - mean) / sqrt(variance + epsilon) over the dimensions from `axis` on, the mean, and what it is divided by."""
    dims = list(range(dims_of([axis], x.rank)[0], x.rank))
    mean = nf.mean(x, dims, True)
    inverse = nf.rsqrt(nf.var(x, dims, True) + epsilon)
    return (x - mean) * inverse, mean, inverse


def _layer_norm(
    x: Tensor, scale: Tensor, bias: Tensor | None = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1,
    outputs: tuple[str, ...],
) -> Any:  # fmt: skip
    y, mean, inverse = _standardized(nf.cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x, axis, epsilon)
    y = nf.cast(y, x.dtype) * scale
    return (y if bias is None else y + bias, mean, inverse)[: len(outputs)]


def _rms_norm(x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Tensor:
    dims = list(range(dims_of([axis], x.rank)[0], x.rank))
    wide = nf.cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x
    return nf.cast(wide * nf.rsqrt(nf.mean(wide * wide, dims, True) + epsilon), x.dtype) * scale


def _group_norm(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    """scale and bias: of each channel, or, before version 21, of each group."""
    each = x.shape[1] // max(scale.size, 1)
    if scale.size == num_groups and each > 1:
        scale, bias = (nf.reshape(nf.broadcast_to(v[:, None], (num_groups, each)), (-1,)) for v in (scale, bias))
    return F.group_norm(x, num_groups, scale, bias, epsilon)


def _mean_variance(x: Tensor, *, axes: tuple[int, ...] = (0, 2, 3)) -> Tensor:
    dims = dims_of(axes, x.rank)
    centred = x - nf.mean(x, dims, True)
    return centred / (nf.sqrt(nf.mean(centred * centred, dims, True)) + 1e-9)


def _lrn(x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    """Divided by a power of the sum of squares over `size` channels around each."""
    before = (size - 1) // 2
    square = nf.pad(x * x, [(0, 0), (before, size - 1 - before), *((0, 0),) * (x.rank - 2)])
    total: Any = square[:, : x.shape[1]]
    for n in range(1, size):
        total = total + square[:, n : n + x.shape[1]]
    return x * nf.pow(bias + alpha / size * total, -beta)


def _cumulative(x: Tensor, axis: np.ndarray, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    (d,) = dims_of([axis.item()], x.rank)
    x = nf.flip(x, d) if reverse else x
    y = nf.cumsum(x, d)
    y = y - x if exclusive else y
    return nf.flip(y, d) if reverse else y


def _products(x: Tensor, axis: np.ndarray, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """y[i] = the product of x[k] over k <= i, or over k < i; from the end where it is reversed."""
    (d,) = dims_of([axis.item()], x.rank)
    k = nf.axis(x.shape[d], "k")

    def body(*ix: Any) -> Any:
        i, e = (k, ix[d]) if not reverse else (ix[d], k)
        counts = i < e if exclusive else i <= e
        return nf.prod(nf.select(counts, x[(*ix[:d], k, *ix[d + 1 :])], 1), axis=[k])

    return nf.compute(x.shape, body)


ROWS = (
    _row("ReduceSum", lambda x, d, k: nf.sum(x, d, k), lambda x: x),
    _row("ReduceMean", _mean, lambda x: x),
    _row("ReduceProd", lambda x, d, k: nf.prod(x, d, k), lambda x: x),
    _row("ReduceMax", _extreme(lambda x, d, k: nf.max(x, d, k)), lambda x: x),
    _row("ReduceMin", _extreme(lambda x, d, k: nf.min(x, d, k)), lambda x: x),
    _row("ReduceL1", lambda x, d, k: nf.sum(nf.abs(x), d, k), lambda x: nf.abs(x)),
    _row("ReduceL2", lambda x, d, k: nf.sqrt(nf.sum(x * x, d, k)), lambda x: nf.abs(x)),
    _row("ReduceSumSquare", lambda x, d, k: nf.sum(x * x, d, k), lambda x: x * x),
    _row("ReduceLogSum", lambda x, d, k: nf.log(nf.sum(x, d, k)), lambda x: nf.log(x)),
    _row("ReduceLogSumExp", _log_sum_exp, lambda x: x),
    Row("ArgMax", _arg(lambda x, d, k: nf.argmax(x, d, k))),
    Row("ArgMin", _arg(lambda x, d, k: nf.argmin(x, d, k))),
    Row("Softmax", lambda x, *, axis=-1: F.softmax(x, axis)),
    Row("LogSoftmax", lambda x, *, axis=-1: F.log_softmax(x, axis)),
    Row("Hardmax", _hardmax),
    Row("LpNormalization", _lp_normalization),
    Row("BatchNormalization", _batch_norm, fixed=(3, 4), counts=True),
    Row("InstanceNormalization", _instance_norm),
    Row("LayerNormalization", _layer_norm, counts=True),
    Row("RMSNormalization", _rms_norm),
    Row("GroupNormalization", _group_norm),
    Row("MeanVarianceNormalization", _mean_variance),
    Row("LRN", _lrn),
    Row("CumSum", _cumulative, known=(1,)),
    Row("CumProd", _products, known=(1,)),
)
