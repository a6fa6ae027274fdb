"""Integer division rounds down, by zero it gives 0; of data and of indices, wherever it stands."""

import numpy as np
import pytest

import neoflow as nf

pytestmark = pytest.mark.tvm


def agree(outputs, feeds):
    inputs = list(feeds)
    found = nf.compile(outputs, inputs)(*feeds.values())
    for a, b in zip(found, nf.evaluate(outputs, feeds), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("size", [1, 5, 64, 131])
def test_of_data(dtype, size):
    rng = np.random.default_rng(size)
    a, b = (nf.placeholder((size,), dtype, name=n) for n in "ab")
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    low += dtype == "int64"  # NumPy 2 gives -2^63 // -3 the wrong sign
    extremes = np.array([low, high, 0, -1, 1, low + 1], dtype)

    def values(most, share):
        plain = rng.integers(-most, most + 1, size).astype(dtype)
        return np.where(rng.random(size) < share, rng.choice(extremes, size), plain).astype(dtype)

    constants = [f(a, c) for c in (1, 3, 7, -1, -3) for f in (lambda p, q: p // q, lambda p, q: p % q)]
    agree([a // b, a % b, nf.where(nf.not_equal(b, 0), a // b, 9), *constants], {a: values(20, 0.3), b: values(4, 0.4)})


def test_of_axes_by_axes():
    x = nf.placeholder((6,), name="x")
    k = nf.axis(6, "k")
    quotient = nf.compute((7, 6), lambda i, j: nf.cast(i // j, "int32"))
    remainder = nf.compute((40, 6), lambda i, j: nf.cast((i - 20) % (j - 3), "int64"))
    divisors = nf.compute((13,), lambda i: nf.sum(nf.select((k != 0) & (i % k == 0), x[k], 0.0), axis=[k]))
    read = nf.compute((6, 5), lambda i, j: x[i // (j + 1)] + x[(i * 7) % (j + 1)])
    agree([quotient, remainder, divisors, read], {x: np.arange(6, dtype=np.float32)})


def test_of_data_in_an_index():
    x = nf.placeholder((8,), name="x")
    a, b = (nf.placeholder((5,), "int32", name=n) for n in "ab")
    read = nf.compute((5,), lambda i: x[a[i] // b[i]] + x[a[i] % b[i]])
    added = nf.compute((5, 3), lambda i, j: nf.cast(j, "float32") * x[a[i] // (b[i] * b[i] + 1)])
    feeds = {x: np.arange(8, dtype=np.float32), a: np.int32([7, 5, 0, 3, 6]), b: np.int32([0, 2, 0, 1, 7])}
    agree([read, added], feeds)


def test_in_a_condition_and_in_both_branches():
    n = nf.placeholder((33,), "int32", name="n")
    y = nf.compute((33,), lambda i: nf.select(12 % n[i] == 0, i // n[i], n[i] % (i - 7)))
    agree([y], {n: np.random.default_rng(0).integers(-5, 6, 33).astype(np.int32)})
