"""A convolution of images that is written as a sum of shifted products, a term a tap of its window."""

from __future__ import annotations

from functools import partial, reduce

from neoflow.expr.products import einsum
from neoflow.expr.tensor import Tensor
from neoflow.mapping.cell import Pattern
from neoflow.nn import functional as F

WINDOWS = ((2, 2), (3, 3), (1, 3), (3, 1))


def shifts(x: Tensor, w: Tensor, window: tuple[int, int]) -> tuple[Tensor]:
    """y[:, :, i, j] = sum over r, s of w[:, :, r, s] x[:, :, i + r, j + s]"""
    rows, columns = (n - k + 1 for n, k in zip(x.shape[2:], window, strict=True))
    taps = [
        einsum("bchw,oc->bohw", x[:, :, r : r + rows, s : s + columns], w[:, :, r, s])
        for r in range(window[0])
        for s in range(window[1])
    ]
    return (reduce(lambda a, b: a + b, taps),)


def implementation(x: Tensor, w: Tensor) -> tuple[Tensor]:
    return (F.conv2d(x, w),)


def _pattern(window: tuple[int, int]) -> Pattern:
    holes = {"x": "BCHW", "w": f"OC_{window[0]}_{window[1]}"}
    return Pattern("convolution", holes, partial(shifts, window=window), {}, implementation)


PATTERNS = tuple(map(_pattern, WINDOWS))
