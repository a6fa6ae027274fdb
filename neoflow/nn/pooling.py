"""Windows reduced to their largest or mean element, over the space dimensions of `[B, C, ...]`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from neoflow.expr import dsl
from neoflow.expr import dtype as dt
from neoflow.expr.dsl import axis
from neoflow.expr.ir import Expr
from neoflow.expr.tensor import Tensor
from neoflow.nn.convolution import at_windows, extent_of, pad_space
from neoflow.nn.tools import SPACE, WINDOW, Size, compute, describe, expect, sizes

__all__ = [
    "adaptive_avg_pool", "adaptive_max_pool", "avg_pool", "global_avg_pool", "global_max_pool", "max_pool",
]  # fmt: skip


def _pool(
    op: str, x: Tensor, window: Size, stride: Size | None, padding: Size, dilation: Size, value: float
) -> tuple[Tensor, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The reduction over every window of x padded by `value`; also windows, strides and paddings by dimension."""
    what, rank = f"{op}_pool", x.rank - 2
    expect(1 <= rank <= 3, f"{what} takes x[B, C, ...] with one to three space dimensions, not {describe(x)}")
    windows = sizes(window, rank, f"{what}: window")
    strides = windows if stride is None else sizes(stride, rank, f"{what}: stride")
    paddings, dilations = sizes(padding, rank, f"{what}: padding"), sizes(dilation, rank, f"{what}: dilation")
    expect(
        all(2 * a <= n for a, n in zip(paddings, windows, strict=True)),
        f"{what}: padding {paddings} is at most half of the window {windows}",
    )
    out = [extent_of(*args, what) for args in zip(x.shape[2:], windows, strides, paddings, dilations, strict=True)]
    xp = pad_space(x, paddings, value)
    inner = [axis(n, name) for n, name in zip(windows, WINDOW, strict=False)]

    def body(ix: Sequence[Expr]) -> Expr:
        return dsl.reduction(op, xp[(*ix[:2], *at_windows(ix[2:], inner, strides, dilations))], inner)

    return compute((*x.shape[:2], *out), ("b", "c", *SPACE[:rank]), body, what), windows, strides, paddings


def max_pool(x: Tensor, window: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1) -> Tensor:
    """The largest element of each window; x [B, C, ...] -> [B, C, P, ...]. stride None: that of the window.

    Windows may overlap; places of the padding never win. Tied elements share the cotangent equally.
    """
    return _pool("max", x, window, stride, padding, dilation, -math.inf)[0]


def avg_pool(
    x: Tensor, window: Size, stride: Size | None = None, padding: Size = 0, count_include_pad: bool = True
) -> Tensor:
    """The mean of each window; x [B, C, ...] -> [B, C, P, ...]. stride None: that of the window.

    count_include_pad: the zeros of the padding count as elements; otherwise means are of what lies inside.
    """
    total, windows, strides, paddings = _pool("sum", x, window, stride, padding, 1, 0.0)
    if count_include_pad or not any(paddings):
        return total * (1.0 / math.prod(windows))

    def mean(ix: tuple[Expr, ...]) -> Expr:
        count: Expr | int = 1
        for p, n, w, m, a in zip(ix[2:], x.shape[2:], windows, strides, paddings, strict=True):
            start = m * p - a
            count = count * (dsl.minimum(start + w, n) - dsl.maximum(start, 0))
        return total[ix] / dsl.cast(count, x.dtype)

    return compute(total.shape, ("b", "c", *SPACE[: x.rank - 2]), mean, "avg_pool")


def longest_window(n: int, m: int) -> int:
    """The greatest ceil((p+1) n / m) - floor(p n / m) of p < m.

    With n = q m + r it is q + ceil((a + r) / m), where a = p r mod m goes through the multiples of gcd(r, m) below m.
    """
    q, r = divmod(n, m)
    return q if not r else q + 1 + (r > math.gcd(r, m))


def _adaptive(op: str, x: Tensor, size: Size) -> tuple[Tensor, tuple[int, ...]]:
    """Place p of P reduces [floor(p n / P), ceil((p+1) n / P)); reduction axes are as long as the longest window."""
    rank, what = x.rank - 2, f"adaptive_{op}_pool"
    out = sizes(size, rank, f"{what}: size")
    expect(all(m >= 1 for m in out), f"adaptive pooling: size {size} is not at least 1")
    longest = [longest_window(n, m) for n, m in zip(x.shape[2:], out, strict=True)]
    inner = [axis(n, name) for n, name in zip(longest, WINDOW, strict=False)]

    def body(ix: tuple[Expr, ...]) -> Expr:
        places, inside = [], None
        for p, r, n, m in zip(ix[2:], inner, x.shape[2:], out, strict=True):
            place = p * n // m + r
            places.append(place)
            if n % m:
                here = place < (p * n + n + m - 1) // m
                inside = here if inside is None else inside & here
        element = x[(*ix[:2], *places)]
        if inside is not None:
            element = dsl.select(inside, element, -math.inf if op == "max" else 0.0)
        return dsl.reduction(op, element, inner)

    return compute((*x.shape[:2], *out), ("b", "c", *SPACE[:rank]), body, what), out


def adaptive_max_pool(x: Tensor, size: Size) -> Tensor:
    """The largest element of each of `size` (nearly) equal windows: x [B, C, N, ...] -> [B, C, size, ...]."""
    return _adaptive("max", x, size)[0]


def adaptive_avg_pool(x: Tensor, size: Size) -> Tensor:
    """The mean of each of `size` (nearly) equal windows: x [B, C, N, ...] -> [B, C, size, ...]."""
    total, out = _adaptive("sum", x, size)
    if all(n % m == 0 for n, m in zip(x.shape[2:], out, strict=True)):
        return total * (math.prod(out) / math.prod(x.shape[2:]))

    def mean(ix: tuple[Expr, ...]) -> Expr:
        count: Expr | int = 1
        for p, n, m in zip(ix[2:], x.shape[2:], out, strict=True):
            count = count * ((p * n + n + m - 1) // m - p * n // m)
        return total[ix] / dsl.cast(count, x.dtype)

    return compute(total.shape, ("b", "c", *SPACE[: x.rank - 2]), mean, "adaptive_avg_pool")


def global_avg_pool(x: Tensor) -> Tensor:
    """The mean over all space dimensions: x [B, C, ...] -> [B, C]."""
    expect(x.rank > 2 and dt.is_float(x.dtype), f"global_avg_pool takes floats x[B, C, ...], not {describe(x)}")
    return dsl.mean(x, tuple(range(2, x.rank)))


def global_max_pool(x: Tensor) -> Tensor:
    """The largest element over all space dimensions: x [B, C, ...] -> [B, C]."""
    expect(x.rank > 2, f"global_max_pool takes x[B, C, ...], not {describe(x)}")
    return dsl.max(x, tuple(range(2, x.rank)))
