"""Images read at places that data say, or put together from their windows."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from neoflow import language as nf
from neoflow.expr.tensor import Tensor
from neoflow.interop.onnx.operators.row import Row, expect

_MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""Names of modes before version 20."""
Tap = tuple[Tensor, Tensor]
"""Of a dimension of an image: positions, which are inside, and weights, both [N, places...]."""


def _reflected(at: Any, low: float, high: float) -> Any:
    """Mirrored at both ends until it lies between them."""
    if high == low:
        return at * 0.0 + low
    turn = (at - low) - 2 * (high - low) * nf.floor((at - low) / (2 * (high - low)))
    return low + nf.minimum(turn, 2 * (high - low) - turn)


def _inside(at: Tensor, n: int, padding: str, ends: tuple[float, float]) -> tuple[Tensor, Tensor | None]:
    """Whole numbers as positions of `n` elements; whether they were some, where what is outside counts as 0."""
    if padding == "reflection":
        at = nf.round(_reflected(at, *ends))
    clipped = nf.cast(nf.minimum(nf.maximum(at, 0.0), float(n - 1)), "int64")
    return clipped, (at >= 0.0) & (at <= float(n - 1)) if padding == "zeros" else None


def _cubic(t: Tensor) -> Tensor:
    """The weight of a tap at a distance of t >= 0, with a = -3/4."""
    a = -0.75
    near = (a + 2) * t * t * t - (a + 3) * t * t + 1.0
    far = a * t * t * t - 5 * a * t * t + 8 * a * t - 4 * a
    return nf.select(t <= 1.0, near, nf.select(t < 2.0, far, nf.zeros((), t.dtype)))


def _taps(at: Tensor, n: int, mode: str, padding: str, is_aligned: bool) -> list[Tap]:
    """What each place takes along a dimension of n elements. at: from -1 to 1."""
    ends = (0.0, n - 1.0) if is_aligned else (-0.5, n - 0.5)
    at = (at + 1.0) * (0.5 * (n - 1)) if is_aligned else (at + 1.0) * (0.5 * n) - 0.5
    if mode == "nearest":
        at = nf.round(at)
    if padding == "border":
        at = nf.select((at < ends[0]) | (at > ends[1]), nf.minimum(nf.maximum(at, 0.0), n - 1.0), at)
    elif padding == "reflection":
        at = nf.select((at < ends[0]) | (at > ends[1]), _reflected(at, *ends), at)
    low = at if mode == "nearest" else nf.floor(at)
    found = []
    for step in {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[mode]:
        place = low + float(step)
        distance = nf.abs(at - place)
        weight = {"nearest": lambda t: t * 0.0 + 1.0, "linear": lambda t: 1.0 - t, "cubic": _cubic}[mode](distance)
        position, is_there = _inside(nf.round(place), n, padding, ends)
        if is_there is not None:
            weight = nf.select(is_there, weight, nf.zeros((), weight.dtype))
        found.append((position, weight))
    return found


def _grid_sample(
    x: Tensor, grid: Tensor, *, mode: str = "linear", padding_mode: str = "zeros", align_corners: int = 0
) -> Tensor:
    """y[n,c,p...] = sum over taps of w[n,p...] x[n,c,i[n,p...],...]; the grid's last dimension is the last of space
    first."""
    mode = _MODES.get(mode, mode)
    rank = x.rank - 2
    expect(mode in ("nearest", "linear", "cubic"), f"mode {mode!r} is not known")
    expect(padding_mode in ("zeros", "border", "reflection"), f"padding_mode {padding_mode!r} is not known")
    expect(grid.rank == x.rank and grid.shape[-1] == rank, f"a grid of shape {grid.shape} is none for {x.shape}")
    taps = [
        _taps(nf.cast(grid[..., rank - 1 - d], x.dtype), x.shape[2 + d], mode, padding_mode, bool(align_corners))
        for d in range(rank)
    ]
    shape = (*x.shape[:2], *grid.shape[1:-1])

    def body(n: Any, c: Any, *place: Any) -> Any:
        terms = []
        for chosen in itertools.product(*taps):
            weight = functools.reduce(lambda a, b: a * b, [w[(n, *place)] for _, w in chosen])
            terms.append(weight * x[(n, c, *(i[(n, *place)] for i, _ in chosen))])
        return functools.reduce(lambda a, b: a + b, terms)

    return nf.compute(shape, body, "grid_sample")


def _col2im(
    x: Tensor, image: np.ndarray, block: np.ndarray, *, dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """The sum of the windows where they overlap: x [N, C B..., L] -> [N, C, image...]."""
    size, window = [int(n) for n in image], [int(n) for n in block]
    rank = len(size)
    dilation, step, around = list(dilations or [1] * rank), list(strides or [1] * rank), list(pads or [0] * 2 * rank)
    expect(
        len(window) == len(dilation) == len(step) == rank and len(around) == 2 * rank,
        f"a block of {window} is none of an image of {size}",
    )
    room = [n + around[d] + around[rank + d] for d, n in enumerate(size)]
    counts = [(n - m * (k - 1) - 1) // s + 1 for n, k, m, s in zip(room, window, dilation, step, strict=True)]
    per = math.prod(window)
    expect(
        x.rank == 3 and min(counts) > 0 and x.shape[2] == math.prod(counts) and x.shape[1] % per == 0,
        f"a tensor of shape {x.shape} is not {counts} windows of {window}",
    )
    parts = nf.reshape(x, (x.shape[0], x.shape[1] // per, *window, *counts))
    axes = [nf.axis(n) for n in parts.shape]
    at = [s * p + m * k for s, p, m, k in zip(step, axes[2 + rank :], dilation, axes[2 : 2 + rank], strict=True)]
    whole = nf.scatter((*parts.shape[:2], *room), axes, [*axes[:2], *at], parts[tuple(axes)])
    return whole[(slice(None), slice(None), *(slice(around[d], around[d] + n) for d, n in enumerate(size)))]


ROWS = (Row("GridSample", _grid_sample), Row("Col2Im", _col2im, known=(1, 2)))
