"""Every operator of `nn.functional` against PyTorch in float64: values, and gradients by all float inputs."""

from collections.abc import Callable

import numpy as np
import pytest

import neoflow as nf
from neoflow.errors import ExpressionError
from neoflow.nn import functional as F

torch = pytest.importorskip("torch")
T = torch.nn.functional
pytestmark = pytest.mark.torch

ABOVE = np.array([[3, 0, 2], [1, 4, 4]])


def compare(ours: Callable, theirs: Callable, *shapes: tuple[int, ...] | np.ndarray, shift: float = 0.0) -> None:
    """`ours` on tensors and `theirs` on torch's, inputs normal around `shift`; arrays go in as they are."""
    rng = np.random.default_rng(7)
    arrays = [s if isinstance(s, np.ndarray) else rng.standard_normal(s) + shift for s in shapes]
    inputs = [nf.placeholder(a.shape, "float32" if a.dtype == np.float64 else a.dtype, f"x{n}") for n, a in
              enumerate(arrays)]  # fmt: skip
    wrt = [t for t in inputs if t.dtype == "float32"]
    y = ours(*inputs)
    leaves = [torch.tensor(a, requires_grad=a.dtype == np.float64) for a in arrays]
    expected = theirs(*leaves)
    g = rng.standard_normal(y.shape)
    cotangent = nf.placeholder(y.shape, y.dtype, "g")
    feeds = {**dict(zip(inputs, arrays, strict=True)), cotangent: g}
    value, *gradients = nf.evaluate([y, *nf.vjp(y, wrt, cotangent, allow_unused=True)], feeds, dtype="float64")
    np.testing.assert_allclose(value, expected.detach().numpy(), rtol=1e-10, atol=1e-10)
    floats = [t for t in leaves if t.requires_grad]
    for mine, other in zip(
        gradients, torch.autograd.grad(expected, floats, torch.tensor(g), allow_unused=True), strict=True
    ):
        other = np.zeros(mine.shape) if other is None else other.numpy()
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-9)


ELEMENTWISE = {
    "relu": (F.relu, T.relu),
    "gelu": (F.gelu, T.gelu),
    "elu": (lambda x: F.elu(x, 0.7), lambda x: T.elu(x, 0.7)),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.2), lambda x: T.leaky_relu(x, 0.2)),
    "softplus": (F.softplus, lambda x: torch.logaddexp(x, torch.zeros_like(x))),
    "silu": (F.silu, T.silu),
    "sigmoid": (F.sigmoid, torch.sigmoid),
    "tanh": (F.tanh, torch.tanh),
    "softmax": (F.softmax, lambda x: T.softmax(x, -1)),
    "softmax of dimension 1": (lambda x: F.softmax(x, 1), lambda x: T.softmax(x, 1)),
    "log_softmax": (F.log_softmax, lambda x: T.log_softmax(x, -1)),
    "logsumexp": (F.logsumexp, lambda x: torch.logsumexp(x, -1)),
    "logsumexp of dimension 0": (lambda x: F.logsumexp(x, 0, True), lambda x: torch.logsumexp(x, 0, True)),
    "layer_norm": (F.layer_norm, lambda x: T.layer_norm(x, x.shape[-1:])),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_activations(name):
    compare(*ELEMENTWISE[name], (2, 3, 5))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "softplus"])
def test_stable_for_large_elements(name):
    ours, theirs = ELEMENTWISE[name]
    compare(lambda x: ours(x * 1e4), lambda x: theirs(x * 1e4), (4, 6))
    compare(ours, theirs, (4, 6), shift=1e4)
    compare(ours, theirs, (4, 6), shift=-1e4)


CONVOLUTIONS = [
    (1, (2, 3, 11), (4, 3, 3), {"stride": 2, "padding": 1, "dilation": 2}),
    (2, (2, 3, 8, 7), (4, 3, 3, 2), {}),
    (2, (2, 3, 9, 8), (4, 3, 3, 3), {"stride": 2, "padding": 1}),
    (2, (1, 4, 9, 8), (6, 2, 3, 2), {"stride": (2, 3), "padding": (2, 0), "dilation": (1, 2), "groups": 2}),
    (2, (2, 4, 7, 7), (4, 1, 3, 3), {"stride": 2, "padding": 1, "groups": 4}),
    (2, (1, 3, 6, 6), (6, 1, 3, 3), {"padding": 1, "groups": 3}),
    (3, (1, 2, 5, 6, 5), (3, 2, 2, 3, 2), {"stride": (1, 2, 1), "padding": (0, 1, 1)}),
    (3, (1, 4, 4, 4, 5), (2, 2, 2, 2, 3), {"groups": 2, "dilation": (2, 1, 1)}),
]


@pytest.mark.parametrize(("rank", "x", "w", "options"), CONVOLUTIONS)
def test_convolutions(rank, x, w, options):
    ours, theirs = getattr(F, f"conv{rank}d"), getattr(T, f"conv{rank}d")
    compare(lambda *a: ours(*a, **options), lambda *a: theirs(*a, **options), x, w, (w[0],))


def test_depthwise_conv2d():
    ours = lambda x, w: F.depthwise_conv2d(x, w, stride=2, padding=1)
    compare(ours, lambda x, w: T.conv2d(x, w, stride=2, padding=1, groups=3), (2, 3, 8, 8), (6, 1, 3, 3))


TRANSPOSED = [
    (1, (2, 3, 5), (3, 4, 4), {"stride": 3, "padding": 1, "output_padding": 2}),
    (2, (1, 3, 5, 4), (3, 2, 3, 3), {}),
    (2, (2, 3, 4, 5), (3, 2, 4, 3), {"stride": (2, 3), "padding": (1, 2), "output_padding": (1, 0)}),
    (2, (1, 2, 4, 4), (2, 3, 3, 2), {"stride": 2, "padding": 1, "dilation": (2, 3)}),
    (2, (1, 2, 4, 4), (2, 3, 1, 2), {"stride": 3}),
    (3, (1, 2, 3, 3, 2), (2, 2, 2, 3, 2), {"stride": (1, 2, 2), "padding": (0, 1, 0)}),
]


@pytest.mark.parametrize(("rank", "x", "w", "options"), TRANSPOSED)
def test_transposed_convolutions(rank, x, w, options):
    ours, theirs = getattr(F, f"conv_transpose{rank}d"), getattr(T, f"conv_transpose{rank}d")
    compare(lambda *a: ours(*a, **options), lambda *a: theirs(*a, **options), x, w, (w[1],))


def test_capsule_conv():
    def theirs(a, w):
        a = T.pad(a.permute(0, 1, 4, 5, 2, 3), (1, 1, 0, 0)).permute(0, 1, 4, 5, 2, 3)
        windows = a.unfold(2, 3, 2).unfold(3, 2, 1)  # [B, C, P, Q, I, K, R, S]
        return torch.einsum("bcpqikrs,ocrskj->bopqij", windows, w)

    ours = lambda a, w: F.capsule_conv(a, w, stride=(2, 1), padding=(0, 1))
    compare(ours, theirs, (2, 3, 7, 4, 2, 3), (4, 3, 3, 2, 3, 2))


def test_squash():
    def theirs(m):
        n2 = (m * m).sum((3, 4), keepdim=True)
        return m * torch.sqrt(n2 + 1e-9) / (1 + n2)

    compare(lambda m: F.squash(m, (3, 4)), theirs, (2, 3, 4, 2, 2))


@pytest.mark.parametrize("options", [{"stride": 2, "padding": 1}, {"stride": 1}, {"stride": (2, 1), "padding": (0, 1)}])
def test_pooling(options):
    x = (2, 3, 9, 8)
    compare(lambda x: F.max_pool(x, 3, **options), lambda x: T.max_pool2d(x, 3, **options), x)
    for counted in (True, False):
        ours = lambda x: F.avg_pool(x, 3, **options, count_include_pad=counted)
        theirs = lambda x: T.avg_pool2d(x, 3, **options, count_include_pad=counted)
        compare(ours, theirs, x)


def test_pooling_in_other_dimensions():
    compare(lambda x: F.max_pool(x, 2), lambda x: T.max_pool1d(x, 2), (2, 3, 9))
    compare(lambda x: F.max_pool(x, 2, 1, 0, 3), lambda x: T.max_pool1d(x, 2, 1, 0, 3), (2, 3, 9))
    compare(lambda x: F.avg_pool(x, 2, 1), lambda x: T.avg_pool3d(x, 2, 1), (1, 2, 3, 4, 3))


@pytest.mark.parametrize("size", [(3, 2), (4, 5), 1, (9, 8)])
def test_adaptive_and_global_pooling(size):
    x = (2, 3, 9, 8)
    compare(lambda x: F.adaptive_avg_pool(x, size), lambda x: T.adaptive_avg_pool2d(x, size), x)
    compare(lambda x: F.adaptive_max_pool(x, size), lambda x: T.adaptive_max_pool2d(x, size), x)
    compare(F.global_avg_pool, lambda x: x.mean((2, 3)), x)
    compare(F.global_max_pool, lambda x: x.amax((2, 3)), x)


def test_batch_norm_in_training():
    mean, variance = np.arange(4.0), np.arange(1.0, 5.0)

    def ours(part):
        return lambda x, g, b: getattr(
            F.batch_norm(x, g, b, nf.full((4,), 0.5) * 2.0, nf.full((4,), 3.0), momentum=0.2), part
        )

    def theirs(x, g, b):
        return T.batch_norm(x, None, None, g, b, training=True)

    compare(ours("y"), theirs, (3, 4, 5, 2), (4,), (4,))
    compare(ours("mean"), lambda x, g, b: 0.8 + 0.2 * x.mean((0, 2, 3)), (3, 4, 5, 2), (4,), (4,))
    compare(ours("variance"), lambda x, g, b: 2.4 + 0.2 * x.var((0, 2, 3)), (3, 4, 5, 2), (4,), (4,))
    running = lambda x, g, b, m, v: F.batch_norm_inference(x, g, b, m, v * v)
    other = lambda x, g, b, m, v: (x - m[:, None]) * torch.rsqrt(v * v + 1e-5)[:, None] * g[:, None] + b[:, None]
    compare(running, other, (3, 4, 5), (4,), (4,), mean, variance)


def test_other_norms():
    compare(F.layer_norm, lambda x, g, b: T.layer_norm(x, (6,), g, b), (2, 3, 6), (6,), (6,))
    compare(
        lambda x, g, b: F.group_norm(x, 2, g, b), lambda x, g, b: T.group_norm(x, 2, g, b), (2, 4, 3, 2), (4,), (4,)
    )
    compare(F.instance_norm, lambda x, g, b: T.instance_norm(x, weight=g, bias=b), (2, 4, 3, 3), (4,), (4,))
    compare(F.instance_norm, T.instance_norm, (2, 4, 7))


def test_linear_and_contractions():
    compare(F.linear, T.linear, (2, 3, 4), (5, 4), (5,))
    compare(F.linear, T.linear, (3, 4), (5, 4))
    compare(F.matmul, torch.matmul, (2, 3, 4), (2, 4, 5))
    compare(F.mttkrp, lambda x, b, c: torch.einsum("ijk,jr,kr->ir", x, b, c), (3, 4, 5), (4, 2), (5, 2))


def test_block_circulant():
    def theirs(x, w):
        p, q, k = w.shape
        place = (torch.arange(k)[:, None] - torch.arange(k)[None, :]) % k
        dense = w[:, :, place].permute(0, 2, 1, 3).reshape(p * k, q * k)
        return x @ dense.T

    compare(F.block_circulant, theirs, (3, 8), (3, 2, 4))


def test_im2col():
    ours = lambda x: F.im2col(x, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2))
    compare(ours, lambda x: T.unfold(x, (3, 2), (1, 2), (1, 0), (2, 1)), (2, 3, 6, 7))


def test_shift_convolution():
    def theirs(x, w, b):
        parts = []
        for c in range(x.shape[1]):
            r, s = c % 9 // 3, c % 3
            parts.append(T.pad(x[:, c], (1, 1, 1, 1))[:, r : r + x.shape[2], s : s + x.shape[3]])
        return T.conv2d(torch.stack(parts, 1)[:, :, ::2, ::2], w[:, :, None, None], b)

    compare(lambda x, w, b: F.shift_conv2d(x, w, b, stride=2), theirs, (2, 11, 6, 5), (3, 11), (3,))


@pytest.mark.parametrize("kind", ["A", "B"])
def test_masked_convolution(kind):
    mask = torch.zeros(3, 5)
    mask[:1] = 1
    mask[1, : 2 + (kind == "B")] = 1
    theirs = lambda x, w, b: T.conv2d(x, w * mask, b, padding=(1, 2))
    compare(lambda x, w, b: F.masked_conv2d(x, w, b, kind), theirs, (2, 3, 6, 7), (4, 3, 3, 5), (4,))


def test_attention():
    shapes = (2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 3)
    sdpa = T.scaled_dot_product_attention
    compare(F.scaled_dot_product_attention, sdpa, *shapes)
    ours = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, causal=True, scale=0.3)
    compare(ours, lambda q, k, v: sdpa(q, k, v, is_causal=True, scale=0.3), *shapes)
    mask = np.random.default_rng(0).random((5, 6)) < 0.6
    mask[:, 0] = True
    compare(F.scaled_dot_product_attention, sdpa, *shapes, mask)
    compare(F.scaled_dot_product_attention, sdpa, *shapes, (2, 1, 5, 6))


def test_multi_head_attention():
    def theirs(x, w, b, wo, bo):
        q, k, v = (T.linear(x, w, b).view(2, 5, 3, 2, 3).permute(2, 0, 3, 1, 4)).unbind(0)
        return T.linear(T.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 5, 6), wo, bo)

    ours = lambda *a: F.multi_head_attention(*a, heads=2)
    compare(ours, theirs, (2, 5, 6), (18, 6), (18,), (6, 6), (6,))


def test_embedding_and_one_hot():
    compare(F.embedding, lambda w, i: T.embedding(i, w), (5, 3), ABOVE)
    value = nf.evaluate(F.one_hot(ids := nf.placeholder((2, 3), "int64"), 5), {ids: ABOVE})[0]
    np.testing.assert_array_equal(value, np.eye(5)[ABOVE])


def test_double_backward_of_embedding():
    """The gradient of |d(sum of squares)|^2 by the table, indices repeated: 8 e_v * count_v^2."""
    table, ids = nf.placeholder((5, 3), name="table"), nf.placeholder((2, 3), "int64", name="ids")
    e = F.embedding(table, ids)
    (first,) = nf.grad(nf.sum(e * e), [table])
    (second,) = nf.grad(nf.sum(first * first), [table])
    value = np.random.default_rng(1).standard_normal((5, 3))
    counts = np.bincount(ABOVE.reshape(-1), minlength=5)[:, None]
    (got,) = nf.evaluate([second], {table: value, ids: ABOVE}, dtype="float64")
    np.testing.assert_allclose(got, 8 * value * counts**2)


def test_losses():
    labels = np.array([3, 0, 2, 3])
    compare(F.cross_entropy, T.cross_entropy, (4, 5), labels)
    compare(F.cross_entropy, lambda x, y: T.cross_entropy(x.movedim(2, 1), y), (2, 3, 5), ABOVE)
    compare(F.mse_loss, T.mse_loss, (4, 5), (4, 5))

    def theirs(lengths, y):
        t = T.one_hot(y, 5)
        return (t * T.relu(0.9 - lengths) ** 2 + 0.5 * (1 - t) * T.relu(lengths - 0.1) ** 2).sum(1).mean()

    compare(F.margin_loss, theirs, (4, 5), labels)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_recurrent_cells(kind):
    shapes = (4, 3), (4, 5), *(((4, 5),) if kind == "lstm" else ())
    rows = 20 if kind == "lstm" else 15
    weights = (rows, 3), (rows, 5), (rows,), (rows,)
    if kind == "gru":
        compare(F.gru_cell, torch.gru_cell, *shapes, *weights)
    for part in range(2 * (kind == "lstm")):
        theirs = lambda x, h, c, *w: torch.lstm_cell(x, (h, c), *w)[part]
        compare(lambda *a: F.lstm_cell(*a)[part], theirs, *shapes, *weights)


def test_dropout_is_reproducible_and_keeps_the_mean():
    x, seed = nf.placeholder((200, 300), name="x"), nf.placeholder((), "int64", name="seed")
    y, other = F.dropout(x, 0.3, seed), F.dropout(x, 0.3, seed, stream=1)
    (dx,) = nf.grad(nf.sum(y * y), [x])
    value = np.random.default_rng(0).random((200, 300)) + 1
    one, gradient, again = nf.evaluate([y, dx, other], {x: value, seed: np.array(1)}, dtype="float64")
    (same,) = nf.evaluate([y], {x: value, seed: np.array(1)}, dtype="float64")
    (next_one,) = nf.evaluate([y], {x: value, seed: np.array(2)}, dtype="float64")
    np.testing.assert_array_equal(one, same)
    np.testing.assert_allclose(gradient, 2 * one / 0.7 * (one != 0))
    kept = one != 0
    np.testing.assert_allclose(one[kept], value[kept] / 0.7)
    n = value.size
    for mask in (kept, again != 0, next_one != 0):  # within four standard deviations
        assert abs(mask.mean() - 0.7) < 4 * np.sqrt(0.21 / n)
    for a, b in ((kept[:, 1:], kept[:, :-1]), (kept[1:], kept[:-1]), (kept, again != 0), (kept, next_one != 0)):
        assert abs((a & b).mean() - 0.49) < 4 * np.sqrt(0.25 / n)


def test_random_bits_are_uniform():
    seed = nf.placeholder((), "int64", name="seed")
    bits, floats = F.random_bits((256, 256), seed), F.uniform((1000,), seed)
    values, u = nf.evaluate([bits, floats], {seed: np.array(5)})
    for digits in (values % 256, values * 256 // (2**31 - 1)):  # 255 degrees of freedom: 255 +- 23
        counts = np.bincount(digits.reshape(-1), minlength=256)
        assert 160 < ((counts - 256.0) ** 2 / 256).sum() < 360
    assert u.dtype == np.float32 and u.min() >= 0 and u.max() < 1


REFUSALS = [
    (lambda x: F.conv2d(x, nf.placeholder((4, 2, 3, 3), name="w")), r"x\[B, C, ...\] and w\[O, C/groups, ...\]"),
    (lambda x: F.conv2d(x, nf.placeholder((4, 3, 9, 3), name="w")), "a window of 9 .* does not fit 8 elements"),
    (lambda x: F.conv2d(x, nf.placeholder((4, 3, 3, 3), name="w"), stride=(1, 2, 3)), "give an integer or 2 of them"),
    (lambda x: F.conv1d(x, x), r"conv1d takes x and w of rank 3, not x\[2, 3, 8, 8\]"),
    (lambda x: F.max_pool(x, 3, padding=2), "at most half of the window"),
    (lambda x: F.linear(x, nf.placeholder((4, 5), name="w")), r"linear takes x\[..., I\] and w\[O, I\]"),
    (lambda x: F.group_norm(x, 2), "2 groups do not divide"),
    (lambda x: F.dropout(x, 1.0, nf.placeholder((), "int64")), "rate 1.0 is not in"),
    (lambda x: F.dropout(x, 0.5, x), r"a seed is one integer \(rank 0\)"),
    (lambda x: F.cross_entropy(x, nf.placeholder((2,), "int64", name="y")), r"logits\[..., K\] and integer labels"),
]


@pytest.mark.parametrize(("call", "message"), REFUSALS)
def test_refusals(call, message):
    with pytest.raises(ExpressionError, match=message) as caught:
        call(nf.placeholder((2, 3, 8, 8), name="x"))
    assert "test_functional.py:" in str(caught.value)
