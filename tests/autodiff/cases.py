"""Named programs whose gradients are judged in `test_named.py`: every kind of read, condition, reduction and operator.

A case gives a tensor over inputs it asks for: `new("A", shape)` draws a normal array, `new("A", values)` takes these.
Where PyTorch has the operator it is a function of torch and the inputs, in the order they were asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any

import numpy as np

import neoflow as nf
from neoflow.nn import functional as F

Build = Callable[[Any], Any]


@dataclass
class Inputs:
    """Placeholders with their values, in the order they were asked for."""

    seed: int = 0
    feeds: dict[nf.Tensor, np.ndarray] = field(default_factory=dict)

    def __call__(self, name: str, what: tuple[int, ...] | np.ndarray) -> nf.Tensor:
        rng = np.random.default_rng([self.seed, len(self.feeds)])
        values = rng.standard_normal(what) if isinstance(what, tuple) else what
        dtype = "float32" if values.dtype == np.float64 else str(values.dtype)
        t = nf.placeholder(values.shape, dtype, name=name)
        self.feeds[t] = values
        return t


@dataclass(frozen=True)
class Named:
    title: str
    build: Build
    torch: Callable[..., Any] | None = None
    is_linear: bool = False
    """in every input: then differences of unit steps are exact"""


def named(group: dict[str, Build | tuple[Build, Callable]], is_linear: bool = False) -> list[Named]:
    pairs = {k: v if isinstance(v, tuple) else (v, None) for k, v in group.items()}
    return [Named(title, build, torch, is_linear) for title, (build, torch) in pairs.items()]


def reads(shape: tuple[int, ...], out: tuple[int, ...], index: Callable) -> Build:
    """y[i, ...] = A[index(i, ...)]."""

    def build(new: Inputs) -> nf.Tensor:
        a = new("A", shape)

        def body(*ix):
            found = index(*ix)
            return a[found if isinstance(found, tuple) else (found,)]

        names = [f"i{n}" for n in range(len(out))]
        return nf.compute(out, eval(f"lambda {', '.join(names)}: f({', '.join(names)})", {"f": body}), name="y")

    return build


def where(cond: Callable, then: Callable, other: Callable, shape: tuple[int, int] = (4, 5)) -> Build:
    """y[i, j] = select(cond(i, j), then(A, i, j), other(A, i, j)) over a matrix A."""

    def build(new: Inputs) -> nf.Tensor:
        a = new("A", shape)
        return nf.compute(shape, lambda i, j: nf.select(cond(i, j), then(a, i, j), other(a, i, j)), name="y")

    return build


def over(shape: tuple[int, ...], f: Callable, *more: tuple[int, ...]) -> Build:
    """f of tensors of these shapes."""
    return lambda new: f(*(new(n, s) for n, s in zip("xwbuv", (shape, *more), strict=False)))


def summed(extents: tuple[int, ...], out: tuple[int, ...], body: Callable, *shapes: tuple[int, ...]) -> Build:
    """y[i, ...] = sum[k, ...](body(tensors, (i, ...), (k, ...)))."""

    def build(new: Inputs) -> nf.Tensor:
        tensors = [new(n, s) for n, s in zip("ABC", shapes, strict=False)]
        ks = [nf.axis(n, f"k{d}") for d, n in enumerate(extents)]
        return nf.compute(out, lambda i, j: nf.sum(body(*tensors, i, j, *ks), axis=ks), name="y")

    return build


def with_zeros(shape: tuple[int, ...], *places: tuple[int, ...]) -> np.ndarray:
    values = np.random.default_rng(9).standard_normal(shape)
    for p in places:
        values[p] = 0.0
    return values


TIED = np.array([[1.0, 3.0, 3.0, 2.0], [5.0, 5.0, 5.0, 5.0], [-1.0, -4.0, 0.0, 0.0]])
ZERO_COLUMN = np.array([[0.0, 0.5, 2.0], [0.0, 1.0, 3.0]])
HUGE = np.array([[1e4, -1e4, 1e4 - 1, 3.0], [-1e4, -1e4, -1e4 + 2, -1e4 - 1]])
IDS = np.array([[3, 1, 3], [0, 3, 1]])

LATTICES = {
    "A[2*i]": reads((9,), (5,), lambda i: 2 * i),
    "A[2*i+3*j]": reads((17,), (4, 4), lambda i, j: 2 * i + 3 * j),
    "A[6*i+4*j]": reads((40,), (5, 4), lambda i, j: 6 * i + 4 * j),
    "A[i-j+7]": reads((16,), (8, 8), lambda i, j: i - j + 7),
    "A[n-1-i]": reads((8,), (8,), lambda i: 7 - i),
    "A[i,0]": reads((5, 3), (5,), lambda i: (i, 0)),
    "A[i,i]": reads((5, 5), (5,), lambda i: (i, i)),
    "A[i+j,i-j+5]": reads((11, 11), (6, 6), lambda i, j: (i + j, i - j + 5)),
    "A[2*i+j,3*i-j+9]": reads((16, 19), (4, 10), lambda i, j: (2 * i + j, 3 * i - j + 9)),
    "A[2*i+4*j+6*k]": reads((24,), (3, 2, 3), lambda i, j, k: 2 * i + 4 * j + 6 * k),
    "A[3] (no axis)": reads((5,), (4,), lambda i: 3),
}

QUASI_AFFINE = {
    "flatten": reads((2, 3, 4), (24,), lambda i: (i // 12, i // 4 % 3, i % 4)),
    "reshape (6,4)->(3,8)": reads((6, 4), (3, 8), lambda i, j: ((8 * i + j) // 4, (8 * i + j) % 4)),
    "reshape (4,6)->(3,8)": reads((4, 6), (3, 8), lambda i, j: ((8 * i + j) // 6, (8 * i + j) % 6)),
    "depth to space": (
        reads((8, 2, 3), (2, 4, 6), lambda c, h, w: (4 * c + h % 2 * 2 + w % 2, h // 2, w // 2)),
        lambda t, a: t.pixel_shuffle(a, 2),
    ),
    "space to depth": (
        reads((2, 4, 6), (8, 2, 3), lambda c, h, w: (c // 4, 2 * h + c // 2 % 2, 2 * w + c % 2)),
        lambda t, a: t.pixel_unshuffle(a, 2),
    ),
    "channel shuffle": (
        reads((12, 3), (12, 3), lambda c, h: (c % 3 * 4 + c // 3, h)),
        lambda t, a: t.nn.functional.channel_shuffle(a[None, :, :, None], 3)[0, :, :, 0],
    ),
    "A[(5*i+j)//3,(5*i+j)%3]": reads((7, 3), (4, 5), lambda i, j: ((5 * i + j) // 3, (5 * i + j) % 3)),
    "A[i//2] (upsampling)": (
        reads((4,), (8,), lambda i: i // 2),
        lambda t, a: t.nn.functional.interpolate(a[None, None], scale_factor=2.0)[0, 0],
    ),
    "A[i%3] (tiling)": (reads((3,), (10,), lambda i: i % 3), lambda t, a: a.repeat(4)[:10]),
    "A[3*i%7]": reads((7,), (10,), lambda i: 3 * i % 7),
    "A[-i%4]": reads((4,), (9,), lambda i: -i % 4),
    "A[i//3-j//2+3]": reads((7,), (9, 6), lambda i, j: i // 3 - j // 2 + 3),
}

SHAPES = {
    "pad (constant)": (
        over((3, 4), lambda x: nf.pad(x, [(1, 2), (0, 3)])),
        lambda t, a: t.nn.functional.pad(a, (0, 3, 1, 2)),
    ),
    "pad (reflect)": (
        over((1, 4, 5), lambda x: nf.pad(x, [(0, 0), (2, 1), (3, 2)], mode="reflect")),
        lambda t, a: t.nn.functional.pad(a, (3, 2, 2, 1), mode="reflect"),
    ),
    "pad (edge)": (
        over((1, 4, 5), lambda x: nf.pad(x, [(0, 0), (2, 1), (3, 2)], mode="edge")),
        lambda t, a: t.nn.functional.pad(a, (3, 2, 2, 1), mode="replicate"),
    ),
    "concat of 2": (over((2, 3), lambda *x: nf.concat(x, 0), (1, 3)), lambda t, *x: t.concat(x, 0)),
    "concat of 3": (over((2, 2), lambda *x: nf.concat(x, 1), (2, 1), (2, 4)), lambda t, *x: t.concat(x, 1)),
    "concat of 4": (over((2,), lambda *x: nf.concat(x), (1,), (4,), (3,)), lambda t, *x: t.concat(x)),
    "concat of 5": (over((2,), lambda *x: nf.concat(x), (1,), (1,), (3,), (2,)), lambda t, *x: t.concat(x)),
    "lower triangle": (over((4, 5), lambda x: nf.tril(x, 1)), lambda t, x: t.tril(x, 1)),
    "upper triangle": (over((4, 5), lambda x: nf.triu(x)), lambda t, x: t.triu(x)),
    "transpose, flip, roll": (
        over((3, 4), lambda x: nf.roll(nf.flip(nf.transpose(x), 0), 2, 1)),
        lambda t, x: t.roll(t.flip(x.T, (0,)), 2, 1),
    ),
    "slice with steps": (over((7, 6), lambda x: x[1::2, ::-2]), lambda t, x: t.flip(x[1::2, 1::2], (1,))),
    "reshape, tile, repeat": (
        over((2, 6), lambda x: nf.repeat(nf.tile(nf.reshape(x, (3, 4)), (1, 2)), 2, 0)),
        lambda t, x: x.reshape(3, 4).tile(1, 2).repeat_interleave(2, 0),
    ),
    "diagonal": (over((4, 5), lambda x: nf.diagonal(x, 1)), lambda t, x: t.diagonal(x, 1)),
    "triangle by select": where(lambda i, j: j <= i, lambda a, i, j: a[i, j], lambda a, i, j: 0.0),
    "checkerboard": where(lambda i, j: nf.equal((i + j) % 2, 0), lambda a, i, j: a[i, j], lambda a, i, j: -a[3 - i, j]),
    "im2col": (
        over((2, 2, 4, 5), lambda x: F.im2col(x, (2, 3), stride=2, padding=1, dilation=1)),
        lambda t, x: t.nn.functional.unfold(x, (2, 3), stride=2, padding=1),
    ),
    "average pooling (overlapping, padded)": (
        over((1, 2, 6, 5), lambda x: F.avg_pool(x, 3, stride=2, padding=1)),
        lambda t, x: t.nn.functional.avg_pool2d(x, 3, 2, 1),
    ),
    "average pooling (not counting padding)": (
        over((1, 2, 5, 5), lambda x: F.avg_pool(x, 3, stride=2, padding=1, count_include_pad=False)),
        lambda t, x: t.nn.functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    ),
    "adaptive average pooling": (
        over((1, 2, 5, 7), lambda x: F.adaptive_avg_pool(x, (2, 3))),
        lambda t, x: t.nn.functional.adaptive_avg_pool2d(x, (2, 3)),
    ),
    "sum": (over((3, 4), lambda x: nf.sum(x, axis=0)), lambda t, x: x.sum(0)),
    "mean": (over((3, 4), lambda x: nf.mean(x, keepdims=True)), lambda t, x: x.mean().reshape(1, 1)),
    "embedding": (
        lambda new: F.embedding(new("table", (5, 3)), new("ids", IDS)),
        lambda t, a, ids: t.nn.functional.embedding(ids, a),
    ),
    "gather": (
        lambda new: nf.gather(new("x", (2, 4)), new("ids", IDS), axis=1),
        lambda t, x, ids: t.gather(x, 1, ids),
    ),
    "data-dependent beside affine": lambda new: _looked_up(new("x", (9, 5)), new("ids", IDS)),
    "data-dependent under a select": lambda new: _looked_up_inside(new("x", (4, 1)), new("ids", IDS)),
}


def _looked_up(x: nf.Tensor, ids: nf.Tensor) -> nf.Tensor:
    return nf.compute((2, 3, 4), lambda b, j, p: x[2 * p + b, ids[b, j]], name="y")


def _looked_up_inside(x: nf.Tensor, ids: nf.Tensor) -> nf.Tensor:
    def body(i, p):
        return nf.select((p >= 1) & (p < 4), x[ids[i, p - 1], 0], 0.0)

    return nf.compute((2, 6), body, name="y")


POINTWISE = {
    "A[i]*A[i+1]": lambda new: _neighbours(new("A", (6,))),
    "sum_k A[i,k]*A[j,k]": (
        summed((4,), (3, 3), lambda a, i, j, k: a[i, k] * a[j, k], (3, 4)),
        lambda t, a: a @ a.T,
    ),
    "A[k,k]*A[i,k]": summed((4,), (4, 1), lambda a, i, j, k: a[k, k] * a[i, k], (4, 4)),
    "(A/(A+1))*B broadcast": (
        lambda new: _ratio(new("A", np.linspace(0.5, 2, 12).reshape(3, 4)), new("B", (4,))),
        lambda t, a, b: (a / (a + 1)) * b,
    ),
    "0/0 in the branch not taken": lambda new: _not_taken(new("A", ZERO_COLUMN), lambda x: nf.sin(x) / (x * x)),
    "log and sqrt of 0 in the branch not taken": lambda new: _not_taken(
        new("A", ZERO_COLUMN), lambda x: nf.sqrt(x) * nf.log(x)
    ),
    "prod": (over((3, 4), lambda x: nf.prod(x, axis=1)), lambda t, x: x.prod(1)),
    "prod with one zero": (
        lambda new: nf.prod(new("A", with_zeros((3, 4), (0, 1))), axis=1),
        lambda t, x: x.prod(1),
    ),
    "prod with two zeros": (
        lambda new: nf.prod(new("A", with_zeros((3, 4), (0, 1), (0, 3), (1, 0), (1, 1), (1, 2))), axis=1),
        lambda t, x: x.prod(1),
    ),
    "prod over two axes with a zero": (
        lambda new: nf.prod(new("A", with_zeros((2, 3), (0, 1)))),
        lambda t, x: x.prod(),
    ),
    "max": (over((3, 4), lambda x: nf.max(x, axis=1)), lambda t, x: x.amax(1)),
    "min of a product": (over((3, 4), lambda x: nf.min(x * x[::-1], axis=0)), lambda t, x: (x * x.flip(0)).amin(0)),
    "reductions inside reductions": summed((3,), (2, 2), lambda a, i, j, k: nf.tanh(a[i, k]) * _inner(a, j, k), (2, 3)),
    "softmax": (over((3, 4), F.softmax), lambda t, x: t.softmax(x, 1)),
    "softmax at 1e4": (lambda new: F.softmax(new("x", HUGE)), lambda t, x: t.softmax(x, 1)),
    "log softmax at 1e4": (lambda new: F.log_softmax(new("x", HUGE)), lambda t, x: t.log_softmax(x, 1)),
    "logsumexp at 1e4": (lambda new: F.logsumexp(new("x", HUGE)), lambda t, x: t.logsumexp(x, 1)),
    "cross entropy": (
        lambda new: F.cross_entropy(new("x", (3, 4)), new("labels", np.array([1, 3, 1]))),
        lambda t, x, y: t.nn.functional.cross_entropy(x, y),
    ),
    "margin loss": lambda new: F.margin_loss(
        new("v", np.random.default_rng(0).random((3, 4))), new("labels", np.array([1, 3, 1]))
    ),
    "mean squared error": (over((3, 4), F.mse_loss, (3, 4)), lambda t, x, y: t.nn.functional.mse_loss(x, y)),
    "max pooling": (
        over((1, 2, 4, 6), lambda x: F.max_pool(x, 2)),
        lambda t, x: t.nn.functional.max_pool2d(x, 2),
    ),
    "max pooling (overlapping, padded)": (
        over((1, 2, 5, 6), lambda x: F.max_pool(x, 3, stride=2, padding=1)),
        lambda t, x: t.nn.functional.max_pool2d(x, 3, 2, 1),
    ),
    "layer norm": (
        over((3, 5), F.layer_norm, (5,), (5,)),
        lambda t, x, g, b: t.nn.functional.layer_norm(x, (5,), g, b),
    ),
    "group norm": (
        over((2, 4, 3), lambda x, g, b: F.group_norm(x, 2, g, b), (4,), (4,)),
        lambda t, x, g, b: t.nn.functional.group_norm(x, 2, g, b),
    ),
    "batch norm": (
        over((3, 2, 4), lambda x, g, b, m, v: F.batch_norm(x, g, b, m, v).y, (2,), (2,), (2,), (2,)),
        lambda t, x, g, b, m, v: t.nn.functional.batch_norm(x, None, None, g, b, True),
    ),
    "attention": (
        over((2, 3, 4), F.scaled_dot_product_attention, (2, 5, 4), (2, 5, 3)),
        lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v),
    ),
    "attention (causal)": (
        over((2, 4, 3), lambda q, k, v: F.scaled_dot_product_attention(q, k, v, causal=True), (2, 4, 3), (2, 4, 2)),
        lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
    ),
    "squash": over((2, 3, 2, 2), lambda x: F.squash(x, axis=(2, 3))),
    "LSTM cell": (
        over((2, 3), lambda x, w, b, h, c: reduce(add, F.lstm_cell(x, h, c, w, b)), (8, 3), (8, 2), (2, 2), (2, 2)),
        lambda t, x, wx, wh, h, c: reduce(add, t.lstm_cell(x, (h, c), wx, wh)),
    ),
}


def _neighbours(a: nf.Tensor) -> nf.Tensor:
    return nf.compute((5,), lambda i: a[i] * a[i + 1], name="y")


def _ratio(a: nf.Tensor, b: nf.Tensor) -> nf.Tensor:
    return (a / (a + 1.0)) * b


def _inner(a: nf.Tensor, j: Any, k: Any) -> Any:
    m = nf.axis(3, "m")
    return nf.max(nf.sin(a[j, m]) + a[j, k], axis=[m])


def _not_taken(a: nf.Tensor, bad: Callable) -> nf.Tensor:
    """3 x where j = 0, else what is not finite at 0."""
    return nf.compute(a.shape, lambda i, j: nf.select(nf.equal(j, 0), 3.0 * a[i, j], bad(a[i, j])), name="y")


def convolution(rank: int, x: tuple, w: tuple, **how: Any) -> tuple[Build, Callable]:
    def ours(x, w):
        return getattr(F, f"conv{rank}d")(x, w, **how)

    return over(x, ours, w), lambda t, x, w: getattr(t.nn.functional, f"conv{rank}d")(x, w, **how)


def transposed(rank: int, x: tuple, w: tuple, **how: Any) -> tuple[Build, Callable]:
    def ours(x, w):
        return getattr(F, f"conv_transpose{rank}d")(x, w, **how)

    return over(x, ours, w), lambda t, x, w: getattr(t.nn.functional, f"conv_transpose{rank}d")(x, w, **how)


def _capsules(t: Any, a: Any, w: Any) -> Any:
    """The capsule convolution as a convolution: (c, k) are the input channels, (o, j) the output channels."""
    b, c, h, v, i, k = a.shape
    o, _, r, s, _, j = w.shape
    x = a.permute(0, 4, 1, 5, 2, 3).reshape(b * i, c * k, h, v)
    y = t.nn.functional.conv2d(x, w.permute(0, 5, 1, 4, 2, 3).reshape(o * j, c * k, r, s), stride=2)
    return y.reshape(b, i, o, j, *y.shape[2:]).permute(0, 2, 4, 5, 1, 3)


def _shifted(t: Any, x: Any, w: Any) -> Any:
    padded = t.nn.functional.pad(x, (1, 1, 1, 1))
    h, v = x.shape[2:]
    parts = [padded[:, c, c % 9 // 3 : c % 9 // 3 + h, c % 3 : c % 3 + v] for c in range(x.shape[1])]
    return t.einsum("bchw,oc->bohw", t.stack(parts, 1), w)


def _circulant(t: Any, x: Any, w: Any) -> Any:
    size = w.shape[2]
    at = (t.arange(size)[:, None] - t.arange(size)) % size
    return t.einsum("pqrs,bqs->bpr", w[:, :, at], x.reshape(x.shape[0], -1, size)).reshape(x.shape[0], -1)


BILINEAR = {
    "convolution 1d": convolution(1, (2, 2, 7), (3, 2, 3)),
    "convolution 1d, stride 2, padded": convolution(1, (1, 2, 8), (2, 2, 3), stride=2, padding=1),
    "convolution 1d, stride 2, dilation 2": convolution(1, (1, 2, 9), (2, 2, 3), stride=2, dilation=2),
    "convolution 1d, stride 3, dilation 2": convolution(1, (1, 1, 13), (2, 1, 3), stride=3, padding=2, dilation=2),
    "convolution 1d, stride beyond the window": convolution(1, (1, 2, 9), (2, 2, 1), stride=3),
    "convolution 1d, few large windows": convolution(1, (1, 2, 9), (16, 2, 7), stride=2, padding=1),
    "convolution 2d": convolution(2, (1, 2, 4, 5), (3, 2, 3, 2), padding=(1, 0)),
    "convolution 2d, stride 2, padded": convolution(2, (1, 2, 5, 6), (2, 2, 3, 3), stride=2, padding=1),
    "convolution 2d, strides 2 and 3": convolution(2, (1, 1, 5, 7), (2, 1, 2, 3), stride=(2, 3), dilation=(1, 2)),
    "convolution 2d, 1x1 stride 2": convolution(2, (1, 2, 5, 4), (3, 2, 1, 1), stride=2),
    "convolution 2d, groups": convolution(2, (1, 4, 4, 4), (2, 2, 3, 3), stride=2, padding=1, groups=2),
    "convolution 2d, depthwise": convolution(2, (1, 3, 4, 5), (3, 1, 3, 3), stride=2, padding=1, groups=3),
    "convolution 2d, depthwise with multiplier": (
        over((1, 2, 4, 4), lambda x, w: F.depthwise_conv2d(x, w, padding=1), (4, 1, 3, 3)),
        lambda t, x, w: t.nn.functional.conv2d(x, w, padding=1, groups=2),
    ),
    "convolution 3d": convolution(3, (1, 1, 3, 4, 3), (2, 1, 2, 2, 2), stride=(1, 2, 1), padding=(1, 0, 0)),
    "transposed convolution 1d": transposed(1, (1, 2, 4), (2, 2, 3), stride=2, padding=1, output_padding=1),
    "transposed convolution 2d": transposed(2, (1, 2, 3, 3), (2, 2, 3, 2), stride=(2, 1), padding=(1, 0)),
    "transposed convolution 3d": transposed(3, (1, 1, 2, 3, 2), (1, 2, 2, 2, 2), stride=2),
    "capsule convolution": (
        over((1, 2, 5, 5, 2, 2), lambda a, w: F.capsule_conv(a, w, stride=2), (2, 2, 3, 3, 2, 2)),
        _capsules,
    ),
    "matrix product": (over((2, 3, 4), F.matmul, (2, 4, 2)), lambda t, a, b: a @ b),
    "linear": (over((3, 4), F.linear, (2, 4)), lambda t, x, w: x @ w.T),
    "block-circulant product": (over((2, 6), F.block_circulant, (2, 2, 3)), _circulant),
    "shift convolution": (over((1, 11, 3, 4), F.shift_conv2d, (2, 11)), _shifted),
    "masked convolution": (
        over((1, 2, 4, 4), lambda x, w: F.masked_conv2d(x, w, kind="B"), (2, 2, 3, 3)),
        lambda t, x, w: t.nn.functional.conv2d(
            x, w * t.tensor([[1.0, 1, 1], [1, 1, 0], [0, 0, 0]], dtype=w.dtype), padding=1
        ),
    ),
    "MTTKRP": (
        over((3, 4, 2), F.mttkrp, (4, 3), (2, 3)),
        lambda t, x, b, c: t.einsum("ijk,jr,kr->ir", x, b, c),
    ),
}

TIES = {
    "max with ties": (lambda new: nf.max(new("A", TIED), axis=1), lambda t, x: x.amax(1)),
    "min with ties": (lambda new: nf.min(new("A", TIED), axis=1), lambda t, x: x.amin(1)),
    "max with ties over two axes": (lambda new: nf.max(new("A", TIED)), lambda t, x: x.amax()),
    "maximum of equals": (
        lambda new: nf.maximum(new("a", TIED), new("b", TIED[:, ::-1].copy())),
        lambda t, a, b: t.maximum(a, b),
    ),
    "minimum of equals": (
        lambda new: nf.minimum(new("a", TIED), new("b", TIED[:, ::-1].copy())),
        lambda t, a, b: t.minimum(a, b),
    ),
    "relu at 0": (lambda new: nf.relu(new("A", TIED)), lambda t, a: t.relu(a)),
    "abs at 0": (lambda new: nf.abs(new("A", TIED)), lambda t, a: t.abs(a)),
    "max pooling of equals": lambda new: F.max_pool(new("A", TIED[None, None]), 2, stride=1),
}
"""At kinks differences say nothing: PyTorch and the conventions of the language do."""

CASES = [
    *named(LATTICES, True),
    *named(QUASI_AFFINE, True),
    *named(SHAPES, True),
    *named(BILINEAR),
    *named(POINTWISE),
]
