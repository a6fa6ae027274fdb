"""clip, cumsum, sort, top_k, einsum, var and the others: against NumPy and PyTorch, differentiated, compiled."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr import topological
from tests.expr.refusals import check_refusal

rng = np.random.default_rng(0)
X = rng.standard_normal((3, 50)).astype("f")
Y = rng.standard_normal((50, 4)).astype("f")
B = rng.standard_normal((2, 1, 3, 50)).astype("f")
N = rng.integers(-5, 5, (3, 50)).astype("int16")
x, y, b = nf.placeholder((3, 50), name="x"), nf.placeholder((50, 4), name="y"), nf.placeholder((2, 1, 3, 50), name="b")
n = nf.placeholder((3, 50), "int16", name="n")
FEEDS = {x: X, y: Y, b: B, n: N}

CASES = {
    "cumsum": (lambda: nf.cumsum(x, 1), np.cumsum(X, 1)),
    "cumsum of few": (lambda: nf.cumsum(x, 0), np.cumsum(X, 0)),
    "cumsum of all": (lambda: nf.cumsum(x), np.cumsum(X)),
    "cumsum of integers": (lambda: nf.cumsum(n, -1), np.cumsum(N, -1, dtype="int16")),
    "sort": (lambda: nf.sort(x), np.sort(X)),
    "sort downwards": (lambda: nf.sort(x, 0, descending=True), -np.sort(-X, 0)),
    "sort of integers": (lambda: nf.sort(n), np.sort(N)),
    "sort of conditions": (lambda: nf.sort(x > 0), np.sort(X > 0)),
    "argsort": (lambda: nf.argsort(n, 1), np.argsort(N, 1, kind="stable")),
    "argsort downwards": (lambda: nf.argsort(n, 1, descending=True), np.argsort(-N, 1, kind="stable")),
    "top_k": (lambda: nf.top_k(x, 5)[0], -np.sort(-X)[:, :5]),
    "positions of top_k": (lambda: nf.top_k(x, 5)[1], np.argsort(-X, kind="stable")[:, :5]),
    "smallest": (lambda: nf.top_k(x, 2, axis=0, largest=False)[0], np.sort(X, 0)[:2]),
    "var": (lambda: nf.var(x, 1), X.var(1)),
    "var of all": (lambda: nf.var(x, ddof=1), X.var(ddof=1)),
    "var far from 0": (lambda: nf.var(x + 1e4, 1), (X + np.float32(1e4)).var(1)),
    "std": (lambda: nf.std(x, 0, keepdims=True, ddof=1), X.std(0, keepdims=True, ddof=1)),
    "any": (lambda: nf.any(x > 2, 1), (X > 2).any(1)),
    "any of numbers": (lambda: nf.any(n, 0), N.any(0)),
    "all": (lambda: nf.all(x > -2, 0, keepdims=True), (X > -2).all(0, keepdims=True)),
    "all of all": (lambda: nf.all(n), N.all()),
    "clip": (lambda: nf.clip(x, -0.5, 0.5), X.clip(-0.5, 0.5)),
    "clip below": (lambda: nf.clip(x, low=0), X.clip(0)),
    "clip by tensors": (lambda: nf.clip(x, x[0], 0.1), np.clip(X, X[0], np.float32(0.1))),
    "clip of integers": (lambda: nf.clip(n, -2, 2), N.clip(-2, 2)),
    "round": (lambda: nf.round(x * 2.5), np.rint(X * np.float32(2.5))),
    "bits": (lambda: (n & 3) ^ (n | 4), (N & 3) ^ (N | 4)),
    "shifts": (lambda: (n << 3) + (n >> 1), (N << 3) + (N >> 1)),
    "shifts out": (lambda: (n << n) + (n >> 99) + (n >> n), (N << N) + (N >> 99) + (N >> N)),
    "not": (lambda: ~n, ~N),
    "exclusive or": (lambda: (x > 0) ^ (n > 0), (X > 0) ^ (N > 0)),
}
SUBSCRIPTS = {
    "ij,jk->ik": "xy",
    "ij,jk": "xy",
    "ij->ji": "x",
    "ij": "x",
    "ij->": "x",
    "ji": "x",
    "ij,ij->i": "xx",
    "i,j->ij": ("x[0]", "y[1]"),
    "ij,jk,ik->k": ("x", "y", "x[:,:4]"),
    "...ij,jk->...ik": "by",
    "...j,...j->...": "bx",
    "...ij,...ij": "bb",
    "ii->i": ("x[:,:3]",),
    "ii": ("x[:,:3]",),
    "b...j,jk->...kb": "by",
    "ij,jk,kl,lm->im": ("x", "y", "y[:4]", "x[:,:4].T[:,:2]"),
    "->": ("x[0,0]",),
}


def operands(subscripts, names):
    return [eval(k, dict(zip("xyb", names, strict=True))) for k in SUBSCRIPTS[subscripts]]


def einsums():
    return {s: nf.einsum(s, *operands(s, (x, y, b))) for s in SUBSCRIPTS}


def test_values():
    made = [make() for make, _ in CASES.values()]
    for (name, (_, expected)), value in zip(CASES.items(), nf.evaluate(made, FEEDS), strict=True):
        assert (value.shape, value.dtype) == (expected.shape, expected.dtype), name
        np.testing.assert_allclose(np.float64(value), np.float64(expected), rtol=3e-5, atol=1e-5, err_msg=name)


def test_einsum():
    made = einsums()
    for s, value in zip(made, nf.evaluate(list(made.values()), FEEDS), strict=True):
        expected = np.einsum(s, *operands(s, (X, Y, B)))
        assert value.shape == expected.shape, s
        np.testing.assert_allclose(value, expected, rtol=1e-4, atol=1e-4, err_msg=s)


def test_einsum_of_three_goes_two_by_two():
    a, c = nf.placeholder((40, 30), name="a"), nf.placeholder((30, 50), name="c")
    y = nf.einsum("ij,jk,kl->il", a, c, nf.placeholder((50, 2), name="e"))
    assert nf.count_ops(y).multiply_adds == 30 * 50 * 2 + 40 * 30 * 2


@pytest.mark.tvm
def test_compiled():
    made = {**{k: make() for k, (make, _) in CASES.items()}, **einsums()}
    compiled = nf.compile(list(made.values()), list(FEEDS))(*FEEDS.values())
    for name, a, e in zip(made, compiled, nf.evaluate(list(made.values()), FEEDS), strict=True):
        assert (a.shape, a.dtype) == (e.shape, e.dtype), name
        np.testing.assert_allclose(np.float64(a), np.float64(e), rtol=3e-5, atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    "name", [k for k in CASES if k.split()[0] in ("cumsum", "sort", "top_k", "var", "std", "clip")]
)
def test_gradients(name):
    made = CASES[name][0]()
    if made.dtype == "float32":
        assert nf.check_grad(made, [x], {x: X}, samples=12) <= 1


@pytest.mark.parametrize("subscripts", SUBSCRIPTS)
def test_gradients_of_einsum(subscripts):
    made = einsums()[subscripts]
    assert nf.check_grad(made, [t for t in topological([made]) if t in (x, y, b)], FEEDS, samples=6) <= 1


def test_gradient_of_clip_at_its_limits_and_of_round():
    v = nf.placeholder((5,), name="v")
    (g,) = nf.grad(nf.sum(nf.clip(v, -1, 1)), [v])
    np.testing.assert_array_equal(nf.evaluate(g, {v: np.float32([-2, -1, 0, 1, 2])})[0], [0, 1, 1, 1, 0])
    (g,) = nf.grad(nf.sum(v + nf.round(v)), [v])
    np.testing.assert_array_equal(nf.evaluate(g, {v: np.ones(5, "f")})[0], 1)
    (g,) = nf.grad(nf.sum(nf.round(v)), [v], allow_unused=True)
    np.testing.assert_array_equal(nf.evaluate(g, {v: np.ones(5, "f")})[0], 0)


def test_nan_and_infinities():
    v = np.float32([[3, np.nan, -np.inf, 0.0, np.inf, np.nan, -0.0, 3]])
    t = nf.placeholder(v.shape, name="t")
    found = nf.evaluate([nf.sort(t), nf.argsort(t), nf.clip(t, -1, 1), nf.any(t), nf.sort(t, descending=True)], {t: v})
    np.testing.assert_array_equal(found[0], np.sort(v))
    np.testing.assert_array_equal(found[1], np.argsort(v, kind="stable"))
    np.testing.assert_array_equal(found[2], v.clip(-1, 1))
    assert found[3]
    np.testing.assert_array_equal(found[4], np.float32([[np.nan, np.nan, np.inf, 3, 3, 0, 0, -np.inf]]))


def test_cumsum_costs_some_additions_an_element():
    v = nf.placeholder((4096,), name="v")
    computes = topological([nf.cumsum(v)])
    assert len(computes) < 10
    assert nf.count_ops(nf.cumsum(v)).flops < 4096 * 40


REDUCERS = {
    "m[i] = mean[k](x[i,k])": (lambda i, k: nf.mean(x[i, k], axis=[k]), X.mean(1)),
    "m[i] = mean(x[i,k])": (lambda i, k: nf.mean(x[i, k], axis=[k]), X.mean(1)),
    "m[i] = any[k](x[i,k] > 2)": (lambda i, k: nf.any(x[i, k] > 2, axis=[k]), (X > 2).any(1)),
    "m[i] = all[k](x[i,k] > -2)": (lambda i, k: nf.all(x[i, k] > -2, axis=[k]), (X > -2).all(1)),
    "m[i] = var[k](x[i,k])": (lambda i, k: nf.var(x[i, k], axis=[k]), X.var(1)),
    "m[i] = std[k](x[i,k])": (lambda i, k: nf.std(x[i, k], axis=[k]), X.std(1)),
    "m[i] = mean[k](clip(x[i,k], -1, 1))": (
        lambda i, k: nf.mean(nf.clip(x[i, k], -1, 1), axis=[k]),
        X.clip(-1, 1).mean(1),
    ),
    "m[i] = sum[k]((n[i,k] & 3) ^ (n[i,k] << 2) | ~n[i,k] >> 1)": (
        lambda i, k: nf.sum((n[i, k] & 3) ^ (n[i, k] << 2) | ~n[i, k] >> 1, axis=[k]),
        ((N & 3) ^ (N << 2) | ~N >> 1).sum(1, dtype="int16"),
    ),
}


@pytest.mark.parametrize("text", REDUCERS)
def test_index_notation_and_compute_are_the_same(text):
    body, expected = REDUCERS[text]
    k = nf.axis(50, "k")
    written = nf.expr(text, **{name: t for name, t in (("x", x), ("n", n)) if f"{name}[" in text})
    assert written.definition is nf.compute((3,), lambda i: body(i, k)).definition
    np.testing.assert_allclose(nf.evaluate(written, FEEDS)[0], expected, rtol=1e-5)


def test_reducers_in_texts_of_several_statements():
    text = """
        m[i] = mean(x[i, k])
        v[i] = var[k](x[i, k])
        z[i, k] = (x[i, k] - m[i]) / sqrt(v[i] + 1e-5)
    """
    z = nf.expr(text, x=x)
    np.testing.assert_allclose(
        nf.evaluate(z, {x: X})[0], (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(1, keepdims=True) + 1e-5), rtol=1e-3
    )
    assert nf.check_grad(z, [x], {x: X}, samples=6) <= 1


@pytest.mark.torch
def test_as_pytorch():
    torch = pytest.importorskip("torch")
    t = torch.tensor(X, requires_grad=True)
    weights = rng.standard_normal((3, 50)).astype("f")
    for ours, theirs in [
        (nf.cumsum(x, 1), torch.cumsum(t, 1)),
        (nf.sort(x), torch.sort(t).values),
        (nf.clip(x, -0.3, 0.7), torch.clamp(t, -0.3, 0.7)),
        (nf.top_k(x, 7)[0], torch.topk(t, 7).values),
        (nf.std(x, 1, ddof=1), torch.std(t, 1)),
        (nf.einsum("ij,kj->ik", x, x), torch.einsum("ij,kj->ik", t, t)),
    ]:
        w = weights.ravel()[: ours.size].reshape(ours.shape)
        (g,) = nf.vjp(ours, [x], nf.constant(w))
        (expected,) = torch.autograd.grad((theirs * torch.tensor(w)).sum(), t)
        value, gradient = nf.evaluate([ours, g], {x: X})
        np.testing.assert_allclose(value, theirs.detach().numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(gradient, expected.numpy(), rtol=1e-4, atol=1e-5)


ERRORS = [
    (lambda: nf.einsum("ij,jk", x, x), "einsum 'ij,jk': `j` has extent 3 in x (3, 50), but 50 before"),
    (lambda: nf.einsum("...i,...i", x, b[:, :, :2]), "a dimension of `...` has extent 2 in slice (2, 1, 2, 50), but 3"),
    (lambda: nf.einsum("ij,jk->il", x, y), "`l` of the result stands twice there, or in no tensor"),
    (lambda: nf.einsum("ij->ii", x), "`i` of the result stands twice there"),
    (lambda: nf.einsum("ij->ij", x, x), "einsum 'ij->ij' describes 1 tensors, but 2 are given"),
    (lambda: nf.einsum("i->i", x), "`i` has 1 labels, but x has shape (3, 50)"),
    (lambda: nf.einsum("i1,ij", x, x), "`i1` is no row of letters"),
    (lambda: nf.einsum(x, "ij"), "einsum takes its subscripts first, einsum('ij,jk->ik', a, b), not"),
    (lambda: nf.einsum("ij", 1.0), "einsum takes a tensor, not 1.0"),
    (lambda: nf.sort(nf.placeholder((5000,), name="long")), "dimension 0 of long (5000,) has 5000 elements; sorting"),
    (lambda: nf.sort(x, 2), "axis 2 is not in [-2, 2)"),
    (lambda: nf.top_k(x, 51), "top_k of x (3, 50): dimension 1 has 50 elements, not 51"),
    (lambda: nf.top_k(x, 0), "dimension 1 has 50 elements, not 0"),
    (lambda: nf.top_k(x, 2.0), "k of top_k is 2.0; it is an integer"),
    (lambda: nf.cumsum(x > 0, 0), "cumsum takes numbers, but `gt` is bool; cast it: nf.cast(..., 'int32')"),
    (lambda: nf.var(x, 0, ddof=3), "var over 3 elements with ddof=3 divides by 0"),
    (lambda: nf.var(n), "the float "),
    (lambda: nf.bitwise_and(x, 1), "& takes conditions (bool), but `x[i, j]` is float32"),
    (lambda: x >> 1, "right_shift takes integers, but `x[i, j]` is float32"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS, ids=[m for _, m in ERRORS])
def test_errors(call, message):
    check_refusal(call, message, __file__)


def test_bits_of_axes_are_indices():
    v = nf.placeholder((8, 4), name="v")
    V = rng.standard_normal((8, 4)).astype("f")
    swapped = nf.compute((8, 4), lambda i, j: v[i ^ 1, j] * v[i, j & 2 | 1])
    I, J = np.indices((8, 4))
    np.testing.assert_array_equal(nf.evaluate(swapped, {v: V})[0], V[I ^ 1, J] * V[I, J & 2 | 1])
    assert nf.check_grad(swapped, [v]) <= 1
    with pytest.raises(nf.ExpressionError, match="leaves its tensor: index 0 is `bitwise_xor"):
        nf.compute((8,), lambda i: v[i ^ 8, 0])
