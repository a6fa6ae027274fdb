"""Convolutions in one, two and three dimensions, and their relatives.

Cross-correlation as in every deep learning library; data `[B, C, ...]`, weights `[O, C/groups, ...]`. Padding is a
compute of its own, so that the contraction is a plain sum of products at affine places.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from operator import and_

from neoflow.expr import dsl
from neoflow.expr.dsl import axis
from neoflow.expr.ir import Axis, Expr
from neoflow.expr.shape.padding import pad
from neoflow.expr.shape.rearrange import reshape
from neoflow.expr.tensor import Tensor
from neoflow.nn.tools import SPACE, WINDOW, Size, compute, describe, expect, fail, sizes

__all__ = [
    "capsule_conv", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "depthwise_conv2d", "im2col", "masked_conv2d", "pad_space", "shift_conv2d",
]  # fmt: skip


def pad_space(x: Tensor, padding: Sequence[int], value: float = 0.0) -> Tensor:
    """x with `padding[d]` elements on both sides of its d-th space dimension; these are its last, after [B, C]."""
    leading = [(0, 0)] * (x.rank - len(padding))
    return pad(x, [*leading, *((n, n) for n in padding)], value=value) if any(padding) else x


def extent_of(n: int, window: int, stride: int, padding: int, dilation: int, what: str) -> int:
    """How many windows fit: floor((n + 2 padding - dilation (window - 1) - 1) / stride) + 1."""
    if stride < 1 or dilation < 1 or padding < 0:
        raise fail(f"{what}: stride {stride} and dilation {dilation} are at least 1, padding {padding} at least 0")
    result = (n + 2 * padding - dilation * (window - 1) - 1) // stride + 1
    if result < 1:
        raise fail(f"{what}: a window of {window} (dilation {dilation}) does not fit {n} elements padded by {padding}")
    return result


def at_windows(
    space: Sequence[Expr], window: Sequence[Expr], stride: Sequence[int], dilation: Sequence[int]
) -> list[Expr]:
    """The places stride * p + dilation * r."""
    return [m * p + d * r for p, r, m, d in zip(space, window, stride, dilation, strict=True)]


def _by_dimension(what: str, rank: int, **given: Size) -> list[tuple[int, ...]]:
    """Each argument as one integer for every space dimension."""
    return [sizes(value, rank, f"{what}: {name}") for name, value in given.items()]


def _window_axes(kernel: Sequence[int]) -> list[Axis]:
    """The reduction axes r, s, u over a window."""
    return [axis(n, name) for n, name in zip(kernel, WINDOW, strict=False)]


def _conv(
    rank: int,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Size,
    padding: Size,
    dilation: Size,
    groups: int,
) -> Tensor:
    what = f"conv{rank}d"
    expect(x.rank == w.rank == rank + 2, f"{what} takes x and w of rank {rank + 2}, not {describe(x, w)}")
    strides, paddings, dilations = _by_dimension(what, rank, stride=stride, padding=padding, dilation=dilation)
    batch, channels, *image = x.shape
    filters, depth, *kernel = w.shape
    expect(
        groups >= 1 and channels == depth * groups and filters % groups == 0,
        f"{what} with groups={groups} takes x[B, C, ...] and w[O, C/groups, ...] with O a multiple of groups, "
        f"not {describe(x, w)}",
    )
    out = [extent_of(*args, what) for args in zip(image, kernel, strides, paddings, dilations, strict=True)]
    c, window = axis(depth, "c"), _window_axes(kernel)
    is_depthwise = 1 < groups == channels == filters
    is_grouped = groups > 1 and not is_depthwise
    outer = (groups, filters // groups) if is_grouped else (filters,)
    if is_grouped:  # groups a dimension of their own on all sides: what is left is a batch of plain contractions
        x, w = reshape(x, (batch, groups, depth, *image)), reshape(w, (*outer, depth, *kernel))
    xp = pad_space(x, paddings)
    inner = [] if is_depthwise else [c]

    def body(ix: tuple[Expr, ...]) -> Expr:
        b, *filter = ix[:-rank]
        group = filter[:1] if groups > 1 else []
        at = at_windows(ix[-rank:], window, strides, dilations)
        weight = w[(*filter, 0 if is_depthwise else c, *window)]
        return dsl.sum(xp[(b, *group, *inner, *at)] * weight, axis=[*inner, *window])

    names = ("b", "g", "o") if is_grouped else ("b", "o")
    kind = "grouped_" if is_grouped else "depthwise_" if is_depthwise else ""
    y: Tensor = compute((batch, *outer, *out), (*names, *SPACE[:rank]), body, kind + what)
    y = reshape(y, (batch, filters, *out)) if is_grouped else y
    return y if bias is None else _add_bias(y, bias)


def _add_bias(y: Tensor, bias: Tensor) -> Tensor:
    expect(bias.shape == (y.shape[1],), f"the bias of {describe(y)} has shape [{y.shape[1]}], not {list(bias.shape)}")
    names = ("b", "o", *SPACE[: y.rank - 2])
    return compute(y.shape, names, lambda ix: y[ix] + bias[ix[1],], "bias")


def conv1d(
    x: Tensor, w: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Size = 0, dilation: Size = 1,
    groups: int = 1,
) -> Tensor:  # fmt: skip
    """y[b,o,p] = sum_{c,r} x[b, c, stride p + dilation r - padding] w[o,c,r] + bias[o].

    x [B, C, N], w [O, C/groups, R], bias [O] -> [B, O, P]; with groups, output channel o reads the channels of its own.
    """
    return _conv(1, x, w, bias, stride, padding, dilation, groups)


def conv2d(
    x: Tensor, w: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Size = 0, dilation: Size = 1,
    groups: int = 1,
) -> Tensor:  # fmt: skip
    """As `conv1d` over two dimensions: x [B, C, H, W], w [O, C/groups, R, S], bias [O] -> [B, O, P, Q]."""
    return _conv(2, x, w, bias, stride, padding, dilation, groups)


def conv3d(
    x: Tensor, w: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Size = 0, dilation: Size = 1,
    groups: int = 1,
) -> Tensor:  # fmt: skip
    """As `conv1d` over three dimensions: x [B, C, D, H, W], w [O, C/groups, R, S, U], bias [O] -> [B, O, P, Q, T]."""
    return _conv(3, x, w, bias, stride, padding, dilation, groups)


def depthwise_conv2d(
    x: Tensor, w: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Size = 0, dilation: Size = 1
) -> Tensor:
    """Each channel with M filters of its own: x [B, C, H, W], w [M C, 1, R, S] -> [B, M C, P, Q]."""
    expect(x.rank == 4, f"depthwise_conv2d takes x[B, C, H, W], not {describe(x)}")
    return _conv(2, x, w, bias, stride, padding, dilation, x.shape[1])


def _conv_transpose(
    rank: int,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    stride: Size,
    padding: Size,
    output_padding: Size,
    dilation: Size,
) -> Tensor:
    """One contraction without multiplications by inserted zeros: output places are split into (u, residue).

    yf[b, o, u, e] = sum_{c,t} x[b, c, u - t] w[c, o, stride t + e],   y[stride u + e - padding] = yf[u, e]
    """
    what = f"conv_transpose{rank}d"
    expect(
        x.rank == w.rank == rank + 2 and x.shape[1] == w.shape[0],
        f"{what} takes x[B, C, ...] and w[C, O, ...] of rank {rank + 2}, not {describe(x, w)}",
    )
    strides, paddings, extra, dilations = _by_dimension(
        what, rank, stride=stride, padding=padding, output_padding=output_padding, dilation=dilation
    )
    batch, channels, *image = x.shape
    filters = w.shape[1]
    if any(d > 1 for d in dilations):
        w = _dilated(w, dilations)
    kernel = w.shape[2:]
    out = [(n - 1) * m - 2 * a + k + e for n, m, a, k, e in zip(image, strides, paddings, kernel, extra, strict=True)]
    expect(
        all(n > 0 for n in out) and all(0 <= e < m for e, m in zip(extra, strides, strict=True)),
        f"{what}: output {out} must be positive and output_padding {extra} below the stride {strides}",
    )
    taps = [-(-k // m) for k, m in zip(kernel, strides, strict=True)]
    whole = [-(-(a + n) // m) for a, n, m in zip(paddings, out, strides, strict=True)]
    after = [max(0, u - n) for u, n in zip(whole, image, strict=True)]
    xp = pad(x, [(0, 0), (0, 0), *((t - 1, e) for t, e in zip(taps, after, strict=True))])
    wp = pad(w, [(0, 0), (0, 0), *((0, t * m - k) for t, m, k in zip(taps, strides, kernel, strict=True))])
    c, window = axis(channels, "c"), _window_axes(taps)

    def body(ix: tuple[Expr, ...]) -> Expr:
        b, o = ix[:2]
        u, e = ix[2 : 2 + rank], ix[2 + rank :]
        source = [i + t - 1 - r for i, t, r in zip(u, taps, window, strict=True)]
        return dsl.sum(xp[(b, c, *source)] * wp[(c, o, *at_windows(window, e, strides, [1] * rank))], axis=[c, *window])

    names = ("b", "o", *SPACE[:rank], *(f"{n}_" for n in SPACE[:rank]))
    parts = compute((batch, filters, *whole, *strides), names, body, what)

    def place(ix):
        at = [i + a for i, a in zip(ix[2:], paddings, strict=True)]
        return parts[(*ix[:2], *(i // m for i, m in zip(at, strides, strict=True)),
                      *(i % m for i, m in zip(at, strides, strict=True)))]  # fmt: skip

    y = compute((batch, filters, *out), ("b", "o", *SPACE[:rank]), place, f"{what}_interleave")
    return y if bias is None else _add_bias(y, bias)


def _dilated(w: Tensor, dilation: Sequence[int]) -> Tensor:
    """w with dilation - 1 zeros between its taps."""
    kernel = [d * (n - 1) + 1 for n, d in zip(w.shape[2:], dilation, strict=True)]

    def body(ix):
        inside = functools.reduce(and_, (dsl.equal(i % d, 0) for i, d in zip(ix[2:], dilation, strict=True)))
        return dsl.select(inside, w[(*ix[:2], *(i // d for i, d in zip(ix[2:], dilation, strict=True)))], 0.0)

    return compute((*w.shape[:2], *kernel), ("c", "o", *WINDOW[: len(dilation)]), body, "dilated")


def conv_transpose1d(
    x: Tensor, w: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Size = 0, output_padding: Size = 0,
    dilation: Size = 1,
) -> Tensor:  # fmt: skip
    """The adjoint of `conv1d` in its input: y[b,o,z] = sum over (c,p,r) with stride p + dilation r - padding = z.

    x [B, C, N], w [C, O, R] -> [B, O, (N-1) stride - 2 padding + dilation (R-1) + output_padding + 1].
    """
    return _conv_transpose(1, x, w, bias, stride, padding, output_padding, dilation)


def conv_transpose2d(
    x: Tensor, w: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Size = 0, output_padding: Size = 0,
    dilation: Size = 1,
) -> Tensor:  # fmt: skip
    """As `conv_transpose1d` over two dimensions: x [B, C, H, W], w [C, O, R, S]."""
    return _conv_transpose(2, x, w, bias, stride, padding, output_padding, dilation)


def conv_transpose3d(
    x: Tensor, w: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Size = 0, output_padding: Size = 0,
    dilation: Size = 1,
) -> Tensor:  # fmt: skip
    """As `conv_transpose1d` over three dimensions: x [B, C, D, H, W], w [C, O, R, S, U]."""
    return _conv_transpose(3, x, w, bias, stride, padding, output_padding, dilation)


def capsule_conv(a: Tensor, w: Tensor, stride: Size = 1, padding: Size = 0) -> Tensor:
    """A convolution of matrices: each multiplication of scalars becomes a product of I x K and K x J matrices.

    y[b,o,p,q,i,j] = sum_{c,r,s,k} a[b, c, stride p + r, stride q + s, i, k] w[o,c,r,s,k,j]
    a [B, C, H, W, I, K], w [O, C, R, S, K, J] -> [B, O, P, Q, I, J].
    Source: Hinton et al., Matrix Capsules with EM Routing, 2018; NeoFlow, section 2.
    """
    fits = a.rank == w.rank == 6 and a.shape[1] == w.shape[1] and a.shape[5] == w.shape[4]
    expect(fits, f"capsule_conv takes a[B, C, H, W, I, K] and w[O, C, R, S, K, J], not {describe(a, w)}")
    (m, n), (above, beside) = _by_dimension("capsule_conv", 2, stride=stride, padding=padding)
    batch, _, height, width, rows, _ = a.shape
    filters, channels, kh, kw, inner, columns = w.shape
    shape = (
        batch,
        filters,
        extent_of(height, kh, m, above, 1, "capsule_conv"),
        extent_of(width, kw, n, beside, 1, "capsule_conv"),
        rows,
        columns,
    )
    if above or beside:
        a = pad(a, [(0, 0), (0, 0), (above, above), (beside, beside), (0, 0), (0, 0)])
    c, r, s, k = axis(channels, "c"), axis(kh, "r"), axis(kw, "s"), axis(inner, "k")
    return dsl.compute(
        shape,
        lambda b, o, p, q, i, j: dsl.sum(a[b, c, m * p + r, n * q + s, i, k] * w[o, c, r, s, k, j], axis=[c, r, s, k]),
        "capsule_conv",
    )


def im2col(x: Tensor, kernel: Size, stride: Size = 1, padding: Size = 0, dilation: Size = 1) -> Tensor:
    """Every window of an image as a column: x [B, C, H, W] -> [B, C R S, P Q], in row-major order of both.

    Source: Chellapilla et al., High Performance Convolutional Neural Networks for Document Processing, 2006.
    """
    expect(x.rank == 4, f"im2col takes x[B, C, H, W], not {describe(x)}")
    kernels, strides, paddings, dilations = _by_dimension(
        "im2col", 2, kernel=kernel, stride=stride, padding=padding, dilation=dilation
    )
    batch, channels, *image = x.shape
    p, q = (extent_of(*args, "im2col") for args in zip(image, kernels, strides, paddings, dilations, strict=True))
    xp = pad_space(x, paddings)
    windows = dsl.compute(
        (batch, channels, *kernels, p, q),
        lambda b, c, r, s, p, q: xp[(b, c, *at_windows((p, q), (r, s), strides, dilations))],
        "im2col",
    )
    return reshape(windows, (batch, channels * kernels[0] * kernels[1], p * q))


def shift_conv2d(x: Tensor, w: Tensor, bias: Tensor | None = None, kernel: int = 3, stride: Size = 1) -> Tensor:
    """Channel c shifted by its own offset out of kernel x kernel (row-major, in turn), then a 1x1 convolution.

    y[b,o,p,q] = sum_c x[b, c, stride p + (c mod k^2) div k - k div 2, stride q + c mod k - k div 2] w[o,c]
    x [B, C, H, W], w [O, C] -> [B, O, ceil(H/stride), ceil(W/stride)]; zeros outside of x.
    Source: Wu et al., Shift: A Zero FLOP, Zero Parameter Alternative to Spatial Convolutions, 2017.
    """
    fits = x.rank == 4 and w.rank == 2 and x.shape[1] == w.shape[1] and kernel % 2 == 1
    expect(fits, f"shift_conv2d takes x[B, C, H, W], w[O, C] and an odd kernel, not {describe(x, w)} and {kernel}")
    m, n = sizes(stride, 2, "shift_conv2d: stride")
    expect(m >= 1 and n >= 1, f"shift_conv2d: stride {stride} is not at least 1")
    batch, channels, height, width = x.shape
    xp = pad_space(x, (kernel // 2, kernel // 2))
    shifted = dsl.compute(
        (batch, channels, -(-height // m), -(-width // n)),
        lambda b, c, p, q: xp[b, c, m * p + c % (kernel * kernel) // kernel, n * q + c % kernel],
        "shift",
    )
    return conv2d(shifted, w[:, :, None, None], bias)


def masked_conv2d(
    x: Tensor, w: Tensor, bias: Tensor | None = None, kind: str = "A", padding: Size | None = None
) -> Tensor:
    """PixelCNN's convolution: only weights above the centre, or left of it in its row, count; kind "B": and the centre.

    x [B, C, H, W], w [O, C, R, S] with odd R and S -> [B, O, H, W] (padding None keeps the size).
    Source: van den Oord et al., Pixel Recurrent Neural Networks, 2016, section 3.4.
    """
    expect(kind in ("A", "B"), f"masked_conv2d has kinds A and B, not {kind!r}")
    expect(w.rank == 4 and w.shape[2] % 2 == w.shape[3] % 2 == 1, f"masked_conv2d takes odd windows, not {describe(w)}")
    middle, last = w.shape[2] // 2, w.shape[3] // 2 + (kind == "B")
    masked = dsl.compute(
        w.shape,
        lambda o, c, r, s: dsl.select((r < middle) | (dsl.equal(r, middle) & (s < last)), w[o, c, r, s], 0.0),
        "masked",
    )
    around = (w.shape[2] // 2, w.shape[3] // 2) if padding is None else padding
    return conv2d(x, masked, bias, padding=around)
