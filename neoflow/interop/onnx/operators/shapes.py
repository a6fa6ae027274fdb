"""Operators that move elements, and those that ask for shapes: these are known when a graph is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from neoflow import language as nf
from neoflow.dtype import NUMPY
from neoflow.expr.tensor import Tensor
from neoflow.interop.onnx.operators.row import Row, dims_of, expect
from neoflow.interop.onnx.values import FOLDED, Value, dtype_of


def _constant(**given: Any) -> np.ndarray:
    """One of value, value_int, value_ints, value_float, value_floats."""
    (name,) = given
    expect(name in ("value", "value_int", "value_ints", "value_float", "value_floats"), f"{name} is no array")
    if name == "value":
        return given[name]
    return np.array(given[name], np.int64 if name.startswith("value_int") else np.float32)


def _shape(x: Tensor, *, start: int = 0, end: int | None = None) -> np.ndarray:
    return np.array(x.shape[slice(*slice(start, end).indices(x.rank))], np.int64)


def _reshape(x: Tensor, shape: np.ndarray, *, allowzero: int = 0) -> Tensor:
    wanted = [int(n) for n in shape.ravel()]
    if not allowzero:
        expect(
            all(n or d < x.rank for d, n in enumerate(wanted)), f"shape {wanted} keeps dimensions that there are not"
        )
        wanted = [n or x.shape[d] for d, n in enumerate(wanted)]
    return nf.reshape(x, wanted)


def _flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    expect(-x.rank <= axis <= x.rank, f"axis {axis} is not in [{-x.rank}, {x.rank}]")
    at = axis if axis >= 0 else axis + x.rank
    return nf.reshape(x, (math.prod(x.shape[:at]), math.prod(x.shape[at:])))


def _squeeze(x: Tensor, axes: np.ndarray | None = None) -> Tensor:
    gone = [d for d, n in enumerate(x.shape) if n == 1] if axes is None else dims_of(axes, x.rank)
    expect(all(x.shape[d] == 1 for d in gone), f"dimensions {gone} of shape {x.shape} are not all 1")
    return nf.reshape(x, [n for d, n in enumerate(x.shape) if d not in gone])


def _unsqueeze(x: Tensor, axes: np.ndarray) -> Tensor:
    new = dims_of(axes.ravel(), x.rank + axes.size)
    expect(len(set(new)) == len(new), f"axes {new} are given twice")
    old = iter(x.shape)
    return nf.reshape(x, [1 if d in new else next(old) for d in range(x.rank + len(new))])


def _transpose(x: Tensor, *, perm: Sequence[int] | None = None) -> Tensor:
    return nf.transpose(x, tuple(range(x.rank))[::-1] if perm is None else tuple(perm))


def _concat(*xs: Tensor, axis: int) -> Tensor:
    return nf.concat(list(xs), axis)


def _split(
    x: Tensor,
    split: np.ndarray | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    outputs: tuple[str, ...],
) -> tuple[Value, ...]:
    (d,), count = dims_of([axis], x.rank), len(outputs)
    if split is None:
        each = -(-x.shape[d] // count)
        sizes = [min(each, x.shape[d] - n * each) for n in range(count)]
    else:
        sizes = [int(n) for n in split]
    expect(
        len(sizes) == count and sum(sizes) == x.shape[d], f"sizes {sizes} do not make {x.shape[d]} in {count} outputs"
    )
    ends = np.cumsum(sizes)
    whole = (slice(None),) * d
    return tuple(
        x[(*whole, slice(int(e) - n, int(e)))]
        if n > 0
        else np.zeros((*x.shape[:d], 0, *x.shape[d + 1 :]), NUMPY[x.dtype])
        for n, e in zip(sizes, ends, strict=True)
    )


def _slice(
    x: Tensor, starts: np.ndarray, ends: np.ndarray, axes: np.ndarray | None = None, steps: np.ndarray | None = None
) -> Value:
    dims = dims_of(range(starts.size) if axes is None else axes, x.rank)
    jumps = np.ones(starts.size, np.int64) if steps is None else steps
    key = [slice(None)] * x.rank
    for d, start, end, step in zip(dims, starts, ends, jumps, strict=True):
        expect(step, "a step is not 0")
        low = int(start)
        high: int | None = int(end)
        if step < 0 and high is not None and high < -x.shape[d]:
            high = None
        key[d] = slice(low, high, int(step))
    shape = [len(range(*k.indices(n))) for k, n in zip(key, x.shape, strict=True)]
    return x[tuple(key)] if all(shape) else np.zeros(shape, NUMPY[x.dtype])


def _expand(x: Tensor, shape: np.ndarray) -> Tensor:
    wanted = [int(n) for n in shape]
    rank = max(len(wanted), x.rank)
    both = zip((1,) * (rank - x.rank) + x.shape, [1] * (rank - len(wanted)) + wanted, strict=True)
    return nf.broadcast_to(x, [b if a == 1 else a if b == 1 else b for a, b in both])


def _tile(x: Tensor, repeats: np.ndarray) -> Tensor:
    return nf.tile(x, tuple(int(n) for n in repeats)) if x.rank else x


def _filled(shape: np.ndarray, *, value: np.ndarray | None = None) -> Value:
    fill = np.zeros(1, np.float32) if value is None else value
    expect(fill.size == 1, f"the value is one element, not {fill.size}")
    return nf.full([int(n) for n in shape], fill.item(), fill.dtype.name)


def _range(start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> Value:
    expect(delta.item(), "a step is not 0")
    n = max(0, math.ceil((limit.item() - start.item()) / delta.item()))
    if n <= FOLDED:
        return np.asarray(start.item() + np.arange(n) * delta.item()).astype(start.dtype)
    return nf.cast(nf.arange(n), start.dtype) * delta.item() + start.item()


_MODES = {"constant": "constant", "edge": "edge", "reflect": "reflect"}


def _pad(
    x: Tensor, pads: np.ndarray, value: np.ndarray | None = None, axes: np.ndarray | None = None, *,
    mode: str = "constant",
) -> Tensor:  # fmt: skip
    if mode == "wrap":
        return _wrapped(x, _widths(x, pads, axes))
    expect(mode in _MODES, f"mode {mode!r} is not known")
    widths = _widths(x, pads, axes)
    cut = tuple(slice(max(0, -a), n - max(0, -b)) for n, (a, b) in zip(x.shape, widths, strict=True))
    x = x[cut] if any(a < 0 or b < 0 for a, b in widths) else x
    fill = 0 if value is None or not value.size else value.item()
    return nf.pad(x, [(max(0, a), max(0, b)) for a, b in widths], _MODES[mode], fill)


def _widths(x: Tensor, pads: np.ndarray, axes: np.ndarray | None) -> list[tuple[int, int]]:
    dims = dims_of(range(x.rank) if axes is None else axes, x.rank)
    expect(pads.size == 2 * len(dims), f"{pads.size} pads are given for {len(dims)} dimensions")
    widths = [(0, 0)] * x.rank
    for n, d in enumerate(dims):
        widths[d] = (int(pads[n]), int(pads[len(dims) + n]))
    return widths


def _wrapped(x: Tensor, widths: list[tuple[int, int]]) -> Tensor:
    shape = [a + n + b for n, (a, b) in zip(x.shape, widths, strict=True)]

    def body(*ix: Any) -> Any:
        return x[tuple((i + -a % n) % n for i, n, (a, _) in zip(ix, x.shape, widths, strict=True))]

    return nf.compute(shape, body)


def _depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    b, c, h, w = x.shape
    s, depth = blocksize, c // blocksize**2
    if mode == "DCR":
        y = nf.transpose(nf.reshape(x, (b, s, s, depth, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        y = nf.transpose(nf.reshape(x, (b, depth, s, s, h, w)), (0, 1, 4, 2, 5, 3))
    return nf.reshape(y, (b, depth, h * s, w * s))


def _space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    b, c, h, w = x.shape
    s = blocksize
    y = nf.reshape(x, (b, c, h // s, s, w // s, s))
    y = nf.transpose(y, (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return nf.reshape(y, (b, c * s * s, h // s, w // s))


def _eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    expect(x.rank == 2, f"EyeLike takes two dimensions, not {x.rank}")
    return nf.eye(x.shape[0], x.shape[1], k, dtype=x.dtype if dtype is None else dtype_of(dtype))


def _trilu(x: Tensor, k: np.ndarray | None = None, *, upper: int = 1) -> Tensor:
    at = 0 if k is None else int(k.item())
    if x.dtype == "bool":
        return nf.not_equal((nf.triu if upper else nf.tril)(nf.cast(x, "int32"), at), 0)
    return nf.triu(x, at) if upper else nf.tril(x, at)


def _reversed(x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    """The first lengths[b] steps of sample b in the opposite order."""

    def body(*ix: Any) -> Any:
        t, n = ix[time_axis], lengths[ix[batch_axis],]
        return x[tuple(nf.select(t < n, n - 1 - t, t) if d == time_axis else i for d, i in enumerate(ix))]

    return nf.compute(x.shape, body)


def _size(x: Tensor) -> np.ndarray:
    return np.array(x.size, np.int64)


ROWS = (
    Row("Constant", _constant),
    Row("Shape", _shape),
    Row("Size", _size),
    Row("Reshape", _reshape, known=(1,)),
    Row("Flatten", _flatten),
    Row("Squeeze", _squeeze, known=(1,)),
    Row("Unsqueeze", _unsqueeze, known=(1,)),
    Row("Transpose", _transpose),
    Row("Concat", _concat, joins=True),
    Row("Split", _split, known=(1,), counts=True),
    Row("Slice", _slice, known=(1, 2, 3, 4)),
    Row("Expand", _expand, known=(1,)),
    Row("Tile", _tile, known=(1,)),
    Row("ConstantOfShape", _filled, known=(0,)),
    Row("Range", _range, known=(0, 1, 2)),
    Row("Pad", _pad, known=(1, 2, 3)),
    Row("DepthToSpace", _depth_to_space),
    Row("SpaceToDepth", _space_to_depth),
    Row("EyeLike", _eye_like),
    Row("Trilu", _trilu, known=(1,)),
    Row("ReverseSequence", _reversed),
)
