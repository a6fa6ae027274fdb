"""Products of matrices, and operators that read or write at places which data say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from neoflow import dtype as dt
from neoflow import language as nf
from neoflow.expr.tensor import Constant, Tensor
from neoflow.interop.onnx.operators.row import Row, dims_of, expect


def _gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    expect(a.rank == b.rank == 2, f"Gemm takes matrices, not shapes {a.shape} and {b.shape}")
    y = nf.einsum(f"{'ki' if transA else 'ik'},{'jk' if transB else 'kj'}->ij", a, b)
    y = y if alpha == 1 else y * _weak(alpha, y)
    if c is None:
        return y
    return y + (c if beta == 1 else c * _weak(beta, c))


def _weak(factor: float, x: Tensor) -> float | int:
    return int(factor) if dt.is_int(x.dtype) else factor


def _from_start(ids: Tensor, extent: int) -> Tensor:
    """Indices from 0 on; those of ONNX may be negative."""
    if isinstance(ids, Constant):
        return nf.constant(np.where(ids.value < 0, ids.value + extent, ids.value), "int64")
    return nf.select(ids < 0, ids + extent, ids)


def _gather(x: Tensor, ids: Tensor, *, axis: int = 0) -> Tensor:
    (d,) = dims_of([axis], x.rank)
    if isinstance(ids, Constant) and not ids.rank:
        return nf.take(x, int(ids.value), axis=d)
    return nf.take(x, _from_start(ids, x.shape[d]), axis=d)


def _gather_elements(x: Tensor, ids: Tensor, *, axis: int = 0) -> Tensor:
    """Where ids is smaller than x in another dimension, it is about the beginning of x."""
    (d,) = dims_of([axis], x.rank)
    ids = _from_start(ids, x.shape[d])
    return nf.compute(ids.shape, lambda *ix: x[tuple(ids[ix] if e == d else i for e, i in enumerate(ix))])


def _gather_nd(x: Tensor, ids: Tensor, *, batch_dims: int = 0) -> Tensor:
    *places, depth = ids.shape
    expect(batch_dims + depth <= x.rank, f"indices of {depth} numbers are too long for shape {x.shape}")
    rest = x.shape[batch_dims + depth :]

    def body(*ix: Any) -> Any:
        at, inner = ix[: len(places)], ix[len(places) :]
        picked = []
        for n in range(depth):
            i = ids[(*at, n)]
            picked.append(nf.select(i < 0, i + x.shape[batch_dims + n], i))
        return x[(*at[:batch_dims], *picked, *inner)]

    return nf.compute((*places, *rest), body)


_Write = Callable[[Tensor], Tensor]


def _written(x: Tensor, updates: Tensor, write: _Write, reduction: str) -> Tensor:
    """x with the updates in their places, by scatters, which add. ONNX says that without a reduction no place is
    written twice."""
    expect(reduction in ("none", "add"), f"reduction {reduction!r} is not known, only none and add")
    if reduction == "add":
        return x + write(updates)
    is_written = write(nf.ones(updates.shape, "int32")) > 0
    if dt.is_float(x.dtype) or dt.is_int(x.dtype):
        return nf.select(is_written, write(updates), x)
    return nf.select(is_written, nf.not_equal(write(nf.cast(updates, "int32")), 0), x)


def _scatter_elements(x: Tensor, ids: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none") -> Tensor:
    (d,) = dims_of([axis], x.rank)
    ids = _from_start(ids, x.shape[d])
    axes = [nf.axis(n) for n in ids.shape]
    place = [ids[tuple(axes)] if e == d else i for e, i in enumerate(axes)]
    return _written(x, updates, lambda u: nf.scatter(x.shape, axes, place, u[tuple(axes)]), reduction)


def _scatter_nd(x: Tensor, ids: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    *places, depth = ids.shape
    outer, inner = [nf.axis(n) for n in places], [nf.axis(n) for n in x.shape[depth:]]
    picked = []
    for n in range(depth):
        i = ids[(*outer, n)]
        picked.append(nf.select(i < 0, i + x.shape[n], i))
    axes = [*outer, *inner]
    return _written(x, updates, lambda u: nf.scatter(x.shape, axes, [*picked, *inner], u[tuple(axes)]), reduction)


def _one_hot(ids: Tensor, depth: np.ndarray, values: Tensor, *, axis: int = -1) -> Tensor:
    n = int(depth.item())
    (d,) = dims_of([axis], ids.rank + 1)
    if dt.is_float(ids.dtype):
        ids = nf.cast(ids, "int64")
    ids = nf.select(ids < 0, ids + n, ids)

    def body(*ix: Any) -> Any:
        return nf.select(nf.equal(ids[(*ix[:d], *ix[d + 1 :])], ix[d]), values[1,], values[0,])

    return nf.compute((*ids.shape[:d], n, *ids.shape[d:]), body)


def _top_k(x: Tensor, k: np.ndarray, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Tensor, Tensor]:
    return nf.top_k(x, int(k.item()), axis, bool(largest))


def _einsum(*xs: Tensor, equation: str) -> Tensor:
    return nf.einsum(equation.replace(" ", ""), *xs)


def _compress(x: Tensor, condition: np.ndarray, *, axis: int | None = None) -> Tensor:
    if axis is None:
        x, axis = nf.ravel(x), 0
    (d,) = dims_of([axis], x.rank)
    return nf.take(x, nf.constant(np.flatnonzero(condition[: x.shape[d]]), "int64"), axis=d)


def _non_zero(x: np.ndarray) -> np.ndarray:
    return np.array(np.nonzero(x if x.ndim else x.reshape(1)), np.int64)


ROWS = (
    Row("MatMul", lambda a, b: nf.matmul(a, b)),
    Row("Gemm", _gemm),
    Row("Einsum", _einsum),
    Row("Gather", _gather),
    Row("GatherElements", _gather_elements),
    Row("GatherND", _gather_nd),
    Row("ScatterElements", _scatter_elements),
    Row("ScatterND", _scatter_nd),
    Row("OneHot", _one_hot, known=(1,)),
    Row("TopK", _top_k, known=(1,)),
    Row("Compress", _compress, known=(1,)),
    Row("NonZero", _non_zero, known=(0,)),
)
