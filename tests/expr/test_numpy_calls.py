"""NumPy's functions on tensors give tensors, and say so where they have no counterpart."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr import Tensor

rng = np.random.default_rng(0)
X, P = rng.standard_normal((3, 4)).astype("f"), rng.random((3, 4)).astype("f") + 0.5
N = rng.integers(0, 4, (3, 4)).astype("int64")
x, p, n = nf.placeholder((3, 4), name="x"), nf.placeholder((3, 4), name="p"), nf.placeholder((3, 4), "int64", name="n")
FEEDS = {x: X, p: P, n: N}

CALLS = """np.exp(x) | np.log(p) | np.sin(x) | np.cos(x) | np.tanh(x) | np.sqrt(p) | np.abs(x)
np.fabs(x) | np.sign(x) | np.floor(x) | np.ceil(x) | np.rint(x) | np.square(x)
np.reciprocal(p) | np.negative(x) | np.positive(x) | np.isnan(x) | np.add(x, p)
np.subtract(X, p) | np.multiply(2, x) | np.divide(x, p) | np.power(p, x) | np.maximum(x, p)
np.minimum(x, 0) | np.greater(x, p) | np.less_equal(x, 0) | np.equal(n, 1) | np.not_equal(n, N)
np.logical_and(x > 0, p > 1) | np.logical_not(x > 0) | np.logical_xor(x > 0, p > 1)
np.bitwise_and(n, 1) | np.bitwise_or(x > 0, p > 1) | np.invert(n) | np.left_shift(n, 2)
np.right_shift(n, N) | np.floor_divide(n, 2) | np.remainder(n, 3) | np.matmul(x, p.T) | X @ p.T
np.sum(x) | np.sum(x, axis=0) | np.sum(x, 1, keepdims=True) | np.prod(x, 0) | np.max(x, axis=1)
np.min(x) | np.mean(x, -1) | np.amax(x) | np.any(x > 1, 0) | np.all(x > -1)
np.argmax(x, axis=1) | np.var(x, 0) | np.std(x, 1, ddof=1) | np.concatenate([x, P], axis=1)
np.stack((x, p)) | np.transpose(x) | np.transpose(x, (1, 0)) | np.reshape(x, (4, 3))
np.ravel(x) | np.squeeze(x[:1]) | np.expand_dims(x, 0) | np.moveaxis(x, 0, 1)
np.swapaxes(x, 0, 1) | np.flip(x, 0) | np.roll(x, 1, axis=1) | np.tile(x, 2)
np.repeat(x, 2, axis=0) | np.pad(x, 1) | np.pad(x, ((1, 0), (0, 2)), mode="edge")
np.where(x > 0, x, P) | np.clip(x, -0.5, 0.5) | np.cumsum(x, axis=1) | np.sort(x, axis=0)
np.argsort(x) | np.round(x) | np.einsum("ij,kj->ik", x, P) | np.take(x, [0, 2], axis=0)
np.take_along_axis(x, n, axis=1) | np.tril(x) | np.triu(x, 1) | np.diagonal(x)
np.zeros_like(x) | np.ones_like(x) | np.full_like(x, 3) | np.broadcast_to(x, (2, 3, 4))
np.dot(x, p.T) | X + x | X * x | 2.0 - x | np.float32(2) * x | np.int64(2) * n | X[0] < x
np.add.reduce(x) | np.maximum.reduce(x, axis=1) | np.split(x, 2, axis=1)[1] | X - x[0]
np.ones(4) / p | 10 ** x | N << n | N & n | np.array([True] * 4) ^ (x > 0)"""
CALLS = CALLS.replace("\n", " | ").split(" | ")


def test_as_numpy():
    made = [eval(call) for call in CALLS]
    assert all(isinstance(t, Tensor) for t in made)
    for call, value in zip(CALLS, nf.evaluate(made, FEEDS), strict=True):
        expected = eval(call, {"np": np, "x": X, "p": P, "n": N, "X": X, "P": P, "N": N})
        assert value.shape == expected.shape, call
        np.testing.assert_allclose(np.float64(value), np.float64(expected), rtol=1e-5, atol=1e-6, err_msg=call)


def test_in_bodies():
    y = nf.compute((3, 4), lambda i, j: np.exp(-np.square(x[i, j])) * np.maximum(p[i, j], np.float32(0.7)))
    np.testing.assert_allclose(nf.evaluate(y, FEEDS)[0], np.exp(-X * X) * np.maximum(P, 0.7), rtol=1e-6)


def test_shapes_are_known():
    assert (np.shape(x), np.ndim(x), np.size(x)) == ((3, 4), 2, 12)


ERRORS = [
    (
        lambda: np.arctan2(x, x),
        "np.arctan2 has no counterpart for tensors; write it with the functions of nf, or apply",
    ),
    (lambda: np.median(x), "np.median has no counterpart for tensors"),
    (lambda: np.linalg.norm(x), "np.norm has no counterpart for tensors"),
    (lambda: np.add.accumulate(x), "np.add.accumulate has no counterpart for tensors"),
    (
        lambda: np.sum(x, dtype=np.float64),
        "np.sum of a tensor takes (a, axis=None, *, keepdims=False): got an unexpected",
    ),
    (
        lambda: np.sum(x, 0, np.float32),
        "np.sum of a tensor takes (a, axis=None, *, keepdims=False): too many positional",
    ),
    (lambda: np.add(x, 1, out=np.ones(3)), "np.add of a tensor takes no out: it gives a new one"),
    (lambda: np.exp(x, where=X > 0), "np.exp of a tensor takes no where"),
    (lambda: np.dot(x, nf.placeholder((2, 4, 3), name="z")), "np.dot of more than two dimensions has no counterpart"),
    (lambda: nf.compute((3,), lambda i: np.arctan2(x[i, 0], 1.0)), "np.arctan2 has no counterpart"),
    (lambda: nf.compute((3,), lambda i: np.exp(x[i, 0], where=True)), "np.exp of an expression takes no where"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS, ids=[m for _, m in ERRORS])
def test_errors(call, message):
    with pytest.raises(nf.ExpressionError) as caught:
        call()
    assert message in str(caught.value)


def test_adding_to_an_array_in_place_is_refused():
    a = np.ones((3, 4), "f")
    with pytest.raises(nf.ExpressionError, match=r"np\.add of a tensor takes no out"):
        a += x
