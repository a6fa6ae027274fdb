"""Convolutions, pooling, and images of another size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from neoflow import language as nf
from neoflow.expr.ir import Expr
from neoflow.expr.tensor import Tensor
from neoflow.interop.onnx.operators.row import Row, dims_of, expect
from neoflow.nn import functional as F

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
MOST = 1 << 27
"""Elements of the tables that are made here."""
Pads = list[tuple[int, int]]
"""Elements before and after, for each dimension of space."""


def _space(x: Tensor) -> Sequence[int]:
    expect(3 <= x.rank <= 5, f"one to three dimensions of space are known, not those of shape {x.shape}")
    return x.shape[2:]


def _pads(
    image: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    pads: Sequence[int] | None, auto_pad: str,
) -> Pads:  # fmt: skip
    if auto_pad in ("NOTSET", "VALID"):
        given = pads if pads is not None and auto_pad == "NOTSET" else [0] * (2 * len(image))
        expect(len(given) == 2 * len(image), f"{len(given)} pads are given for {len(image)} dimensions")
        return list(zip(given[: len(image)], given[len(image) :], strict=True))
    expect(auto_pad in ("SAME_UPPER", "SAME_LOWER"), f"auto_pad {auto_pad!r} is not known")
    found = []
    for n, k, s, d in zip(image, kernel, strides, dilations, strict=True):
        total = max(0, (-(-n // s) - 1) * s + d * (k - 1) + 1 - n)
        less = total // 2
        found.append((less, total - less) if auto_pad == "SAME_UPPER" else (total - less, less))
    return found


def _padded(x: Tensor, pads: Pads, value: float = 0.0) -> Tensor:
    expect(all(a >= 0 and b >= 0 for a, b in pads), f"pads {pads} are at least 0")
    return nf.pad(x, [(0, 0), (0, 0), *pads], value=value) if any(map(any, pads)) else x


def _conv(
    x: Tensor, w: Tensor, bias: Tensor | None = None, *, kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None, dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    group: int = 1, auto_pad: str = "NOTSET",
) -> Tensor:  # fmt: skip
    image = _space(x)
    stride, dilation = strides or [1] * len(image), dilations or [1] * len(image)
    around = _pads(image, w.shape[2:], stride, dilation, pads, auto_pad)
    if all(a == b for a, b in around):
        same = [a for a, _ in around]
        return _CONV[len(image)](x, w, bias, tuple(stride), tuple(same), tuple(dilation), group)
    return _CONV[len(image)](_padded(x, around), w, bias, tuple(stride), 0, tuple(dilation), group)


def _conv_transpose(
    x: Tensor, w: Tensor, bias: Tensor | None = None, *, kernel_shape: Sequence[int] | None = None,
    strides: Sequence[int] | None = None, dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None, output_shape: Sequence[int] | None = None, group: int = 1,
    auto_pad: str = "NOTSET",
) -> Tensor:  # fmt: skip
    image = _space(x)
    rank = len(image)
    stride, dilation = strides or [1] * rank, dilations or [1] * rank
    extra = list(output_padding or [0] * rank)
    full = [s * (n - 1) + (k - 1) * d + 1 for s, n, k, d in zip(stride, image, w.shape[2:], dilation, strict=True)]
    around = _pads(image, w.shape[2:], stride, dilation, pads, "NOTSET")
    if output_shape is not None or auto_pad.startswith("SAME"):
        wanted = list(output_shape or [n * s for n, s in zip(image, stride, strict=True)])[-rank:]
        total = [f + e - n for f, e, n in zip(full, extra, wanted, strict=True)]
        halves = [(t // 2, t - t // 2) for t in total]
        around = halves if auto_pad == "SAME_UPPER" else [(b, a) for a, b in halves]
    parts = zip(nf.split(x, group, axis=1), nf.split(w, group, axis=0), strict=True) if group > 1 else [(x, w)]
    whole = [_TRANSPOSED[rank](a, b, None, tuple(stride), 0, 0, tuple(dilation)) for a, b in parts]
    y = nf.concat(whole, 1) if group > 1 else whole[0]
    ends = [f + e - b for f, e, (_, b) in zip(full, extra, around, strict=True)]
    y = _padded(y, [(max(0, -a), max(0, e - f)) for f, e, (a, _) in zip(full, ends, around, strict=True)])
    y = y[
        (slice(None), slice(None), *(slice(max(0, a), e + max(0, -a)) for e, (a, _) in zip(ends, around, strict=True)))
    ]
    return y if bias is None else y + nf.reshape(bias, (1, -1, *(1,) * rank))


def _windows(
    x: Tensor, kernel: Sequence[int], strides: Sequence[int] | None, dilations: Sequence[int] | None,
    pads: Sequence[int] | None, auto_pad: str, ceil_mode: int,
) -> tuple[list[int], list[int], Pads, list[int]]:  # fmt: skip
    """Strides, dilations, what is padded, which may be more at the end than the operator says, and how many fit."""
    image = _space(x)
    stride, dilation = list(strides or [1] * len(image)), list(dilations or [1] * len(image))
    around = _pads(image, kernel, stride, dilation, pads, auto_pad)
    counts = []
    for d, (n, k) in enumerate(zip(image, kernel, strict=True)):
        before, after = around[d]
        room = n + before + after - dilation[d] * (k - 1) - 1
        expect(room >= 0 and stride[d] > 0, f"a window of {k} does not fit into {n} elements")
        count = room // stride[d] + 1
        if ceil_mode and room % stride[d] and count * stride[d] < n + before:
            around[d] = (before, after + stride[d] - room % stride[d])
            count += 1
        counts.append(count)
    return stride, dilation, around, counts


def _max_pool(
    x: Tensor, *, kernel_shape: Sequence[int], strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None, auto_pad: str = "NOTSET",
    ceil_mode: int = 0, storage_order: int = 0, outputs: tuple[str, ...],
) -> Any:  # fmt: skip
    stride, dilation, around, counts = _windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    lowest = -math.inf if x.dtype.endswith(("16", "32", "64")) and "int" not in x.dtype else np.iinfo(x.dtype).min
    padded = _padded(x, around, lowest)
    if len(outputs) < 2:
        return _reduced("max", padded, kernel_shape, stride, dilation, counts)
    taps = nf.axis(math.prod(kernel_shape), "t")

    def place(ix: Sequence[Expr]) -> list[Any]:
        """Where the tap is in the padded image."""
        found, rest = [], math.prod(kernel_shape)
        for i, k, s, d in zip(ix, kernel_shape, stride, dilation, strict=True):
            rest //= k
            found.append(s * i + d * (taps // rest % k))
        return found

    best = nf.compute((*x.shape[:2], *counts), lambda b, c, *ix: nf.argmax(padded[(b, c, *place(ix))], axis=[taps]))

    def index(b: Any, c: Any, *ix: Any) -> Any:
        image, tap, rest = x.shape[2:], best[(b, c, *ix)], math.prod(kernel_shape)
        places = []
        for i, k, s, d, (before, _) in zip(ix, kernel_shape, stride, dilation, around, strict=True):
            rest //= k
            places.append(s * i + d * (tap // rest % k) - before)
        at: Any = b * x.shape[1] + c
        for n in image if not storage_order else ():
            at = at * n + places.pop(0)
        if storage_order:
            inner: Any = 0
            for n in reversed(image):
                inner = inner * n + places.pop()
            at = at * math.prod(image) + inner
        return at

    values = _reduced("max", padded, kernel_shape, stride, dilation, counts)
    return values, nf.compute(values.shape, index)


def _reduced(
    op: str, x: Tensor, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], counts: Sequence[int]
) -> Tensor:
    window = [nf.axis(k, n) for k, n in zip(kernel, "rsu", strict=True)] if len(kernel) == 3 else [
        nf.axis(k, n) for k, n in zip(kernel, "rs", strict=False)
    ]  # fmt: skip

    def body(b: Any, c: Any, *ix: Any) -> Any:
        at = [s * i + d * r for i, r, s, d in zip(ix, window, stride, dilation, strict=True)]
        return (nf.max if op == "max" else nf.sum)(x[(b, c, *at)], axis=window)

    return nf.compute((*x.shape[:2], *counts), body, f"{op}_pool")


def _average_pool(
    x: Tensor, *, kernel_shape: Sequence[int], strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None, auto_pad: str = "NOTSET",
    ceil_mode: int = 0, count_include_pad: int = 0,
) -> Tensor:  # fmt: skip
    stride, dilation, around, counts = _windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    declared = _pads(x.shape[2:], kernel_shape, stride, dilation, pads, auto_pad)
    total = _reduced("sum", _padded(x, around), kernel_shape, stride, dilation, counts)
    inside: Any = np.ones((), np.int64)
    for n, k, s, d, (before, _), (a, b), count in zip(
        x.shape[2:], kernel_shape, stride, dilation, around, declared, counts, strict=True
    ):
        expect(count * k <= MOST, f"{count} windows of {k} elements are more than {MOST} elements")
        places = s * np.arange(count)[:, None] + d * np.arange(k)
        low, high = (before - a, before + n + b) if count_include_pad else (before, before + n)
        inside = inside[..., None] * ((places >= low) & (places < high)).sum(1)
    if inside.min() == inside.max():
        return total * (1.0 / int(inside.min()))
    return total / nf.constant(inside, x.dtype)


def _lp_pool(
    x: Tensor, *, kernel_shape: Sequence[int], p: int = 2, strides: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None, auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Tensor:  # fmt: skip
    stride, dilation, around, counts = _windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    powers = nf.pow(nf.abs(_padded(x, around)), float(p))
    return nf.pow(_reduced("sum", powers, kernel_shape, stride, dilation, counts), 1.0 / p)


def _over_space(f: Any) -> Any:
    def call(x: Tensor) -> Tensor:
        return f(x, list(range(2, x.rank)), True)

    return call


def _coordinates(n: int, m: int, scale: float, mode: str, roi: tuple[float, float] | None) -> np.ndarray:
    """Where each of m places is among n."""
    at = np.arange(m, dtype=np.float64)
    match mode:
        case "half_pixel":
            return (at + 0.5) / scale - 0.5
        case "half_pixel_symmetric":
            return n / 2 * (1 - m / (n * scale)) + (at + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (at + 0.5) / scale - 0.5 if m > 1 else np.zeros(m)
        case "asymmetric":
            return at / scale
        case "align_corners":
            return at * (n - 1) / (n * scale - 1) if m > 1 else np.zeros(m)
        case "tf_crop_and_resize" if roi is not None:
            low, high = roi
            span = at * (high - low) * (n - 1) / (m - 1) if m > 1 else 0.5 * (high - low) * (n - 1) * np.ones(m)
            return low * (n - 1) + span if m > 1 else 0.5 * (low + high) * (n - 1) * np.ones(m)
    expect(False, f"coordinate_transformation_mode {mode!r} is not known")
    return at


_ROUNDED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda c: np.ceil(c - 0.5),
    "round_prefer_ceil": lambda c: np.floor(c + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _taps(
    at: np.ndarray, mode: str, a: float, nearest: str, scale: float, antialias: bool
) -> tuple[np.ndarray, np.ndarray]:
    """What each place takes: positions and weights, [places, taps]."""
    if mode == "nearest":
        expect(nearest in _ROUNDED, f"nearest_mode {nearest!r} is not known")
        return _ROUNDED[nearest](at).astype(np.int64)[:, None], np.ones((at.size, 1))
    reach = 1.0 if mode == "linear" else 2.0
    shrink = min(1.0, scale) if antialias else 1.0
    low = np.floor(at - reach / shrink).astype(np.int64)
    places = low[:, None] + np.arange(int(2 * reach / shrink) + 3)
    t = np.abs((places - at[:, None]) * shrink)
    if mode == "linear":
        return places, np.maximum(0.0, 1 - t)
    near = (a + 2) * t**3 - (a + 3) * t**2 + 1
    far = a * t**3 - 5 * a * t**2 + 8 * a * t - 4 * a
    return places, np.where(t <= 1, near, np.where(t < 2, far, 0.0))


def _resize(
    x: Tensor, roi: np.ndarray | None = None, scales: np.ndarray | None = None, sizes: np.ndarray | None = None, *,
    mode: str = "nearest", coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75,
    nearest_mode: str = "round_prefer_floor", exclude_outside: int = 0, extrapolation_value: float = 0.0,
    antialias: int = 0, axes: Sequence[int] | None = None, keep_aspect_ratio_policy: str = "stretch",
) -> Tensor:  # fmt: skip
    """Dimension by dimension: a gather for the nearest element, else a product with the (sparse) matrix of weights."""
    expect(mode in ("nearest", "linear", "cubic"), f"mode {mode!r} is not known")
    dims = dims_of(range(x.rank) if axes is None else axes, x.rank)
    extents = [x.shape[d] for d in dims]
    if sizes is not None and sizes.size:
        out = [int(n) for n in sizes]
        factors = [m / n for m, n in zip(out, extents, strict=True)]
        if keep_aspect_ratio_policy != "stretch":
            one = (min if keep_aspect_ratio_policy == "not_larger" else max)(factors)
            factors = [one] * len(out)
            out = [math.floor(n * one + 0.5) for n in extents]
    else:
        expect(scales is not None and scales.size == len(dims), "there are neither scales nor sizes")
        factors = [float(s) for s in scales.ravel()] if scales is not None else []
        out = [math.floor(n * s) for n, s in zip(extents, factors, strict=True)]
    is_cropped = coordinate_transformation_mode == "tf_crop_and_resize"
    outside: list[tuple[int, np.ndarray]] = []
    for d, n, m, scale, k in zip(dims, extents, out, factors, range(len(dims)), strict=True):
        if m == n and scale == 1 and not is_cropped:
            continue
        expect(m > 0 and m * n <= MOST, f"{n} elements cannot become {m}: at least 1, and a product of at most {MOST}")
        part = (float(roi[k]), float(roi[k + len(dims)])) if is_cropped and roi is not None else None
        at = _coordinates(n, m, scale, coordinate_transformation_mode, part)
        if is_cropped:
            outside.append((d, (at < 0) | (at > n - 1)))
        places, weights = _taps(at, mode, cubic_coeff_a, nearest_mode, scale, bool(antialias))
        if exclude_outside:
            weights = np.where((places >= 0) & (places < n), weights, 0.0)
        weights = weights / weights.sum(1, keepdims=True)
        places = np.clip(places, 0, n - 1)
        x = _sampled(x, d, places, weights)
    for d, away in outside:
        if away.any():
            shape = [away.size if e == d else 1 for e in range(x.rank)]
            x = nf.select(nf.constant(away.reshape(shape)), nf.full((), extrapolation_value, x.dtype), x)
    return x


def _sampled(x: Tensor, d: int, places: np.ndarray, weights: np.ndarray) -> Tensor:
    """y[..., i, ...] = sum over k of weights[i, k] x[..., places[i, k], ...]."""
    if weights.shape[1] == 1:
        return nf.take(x, nf.constant(places[:, 0]), axis=d)
    matrix = np.zeros((places.shape[0], x.shape[d]))
    np.add.at(matrix, (np.arange(places.shape[0])[:, None], places), weights)
    return nf.moveaxis(nf.matmul(nf.moveaxis(x, d, -1), nf.constant(matrix.T, x.dtype)), -1, d)


ROWS = (
    Row("Conv", _conv),
    Row("ConvTranspose", _conv_transpose),
    Row("MaxPool", _max_pool, counts=True),
    Row("AveragePool", _average_pool),
    Row("LpPool", _lp_pool),
    Row("GlobalAveragePool", _over_space(lambda x, d, k: nf.mean(x, d, k))),
    Row("GlobalMaxPool", _over_space(lambda x, d, k: nf.max(x, d, k))),
    Row("Resize", _resize, known=(1, 2, 3)),
)
