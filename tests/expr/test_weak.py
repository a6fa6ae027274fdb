"""Numbers, axes and what is made of these alone take the dtype of what they meet."""

import numpy as np
import pytest

import neoflow as nf

x = nf.placeholder((4, 5), name="x")
d = nf.placeholder((4, 5), "float64", name="d")
h = nf.placeholder((4, 5), "bfloat16", name="h")
n = nf.placeholder((4, 5), "int8", name="n")
flag = nf.placeholder((4, 5), "bool", name="flag")
k = nf.axis(5, "k")

rng = np.random.default_rng(0)
X, D = rng.standard_normal((4, 5)).astype("f"), rng.standard_normal((4, 5))
N, F = rng.integers(-9, 9, (4, 5)).astype("int8"), rng.random((4, 5)) > 0.5
I, J = np.indices((4, 5))
FEEDS = {x: X, d: D, n: N, flag: F}

CASES = [
    (lambda i, j: d[i, j] * nf.select(i > 2, 1.0, 0.25), "float64", D * np.where(I > 2, 1, 0.25)),
    (lambda i, j: nf.select(i > 2, 0.1, 0.3) + d[i, j], "float64", D + np.where(I > 2, 0.1, 0.3)),
    (lambda i, j: x[i, j] * nf.select(i > 2, 1, 0), "float32", X * (I > 2)),
    (lambda i, j: n[i, j] + nf.select(i > j, 1, -1), "int8", N + np.where(I > J, 1, -1)),
    (lambda i, j: n[i, j] + nf.select(i > j, 300, 0), "int64", N + np.where(I > J, 300, 0)),
    (
        lambda i, j: nf.select(flag[i, j], nf.select(i > j, 1, 2), d[i, j]),
        "float64",
        np.where(F, np.where(I > J, 1, 2), D),
    ),
    (lambda i, j: nf.select(d[i, j] > nf.select(i > 1, 0.1, 0.2), d[i, j], 0), "float64", None),
    (lambda i, j: x[i, j] * i + j, "float32", X * I + J),
    (lambda i, j: d[i, j] * i, "float64", D * I),
    (lambda i, j: d[i, j] * nf.exp(-i / 7), "float64", D * np.exp(-I / 7)),
    (lambda i, j: d[i, j] * -(i * 0.1), "float64", D * -(I * 0.1)),
    (lambda i, j: nf.cos(i / 10000 ** (2 * j / 64)), "float32", np.cos(I / 10000 ** (2 * J / 64))),
    (lambda i, j: i / 8, "float32", I / 8),
    (lambda i, j: nf.select(i > j, i, 0.5), "float32", np.where(I > J, I, 0.5)),
    (lambda i, j: (i // 2 + j % 3) * x[i, j], "float32", (I // 2 + J % 3) * X),
    (lambda i, j: d[i, j] * nf.sum(nf.select(k < i, 0.1, 0.0), axis=[k]), "float64", None),
    (lambda i, j: x[i, j] * nf.sum(nf.select(k < i, 1, 0), axis=[k]), "float32", X * I),
    (
        lambda i, j: nf.maximum(d[i, j], i) + nf.minimum(0.1, nf.sqrt(j)),
        "float64",
        np.maximum(D, I) + np.minimum(0.1, J**0.5),
    ),
    (lambda i, j: i * j + 1, "int64", I * J + 1),
    (lambda i, j: n[i, j] * i, "int64", N * I),
    (lambda i, j: d[i, j] + np.float32(0.5), "float64", D + 0.5),
    (lambda i, j: nf.clip(d[i, j], -0.1, i), "float64", np.minimum(np.maximum(D, -0.1), I)),
    (lambda i, j: nf.cast(nf.select(i > 1, 1.5, 2), "float64") + d[i, j], "float64", D + np.where(I > 1, 1.5, 2)),
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_meaning(case):
    body, dtype, expected = CASES[case]
    y = nf.compute((4, 5), body)
    assert y.dtype == dtype
    (value,) = nf.evaluate(y, FEEDS)
    if expected is not None:
        np.testing.assert_allclose(value, expected, rtol=1e-6 if dtype == "float32" else 1e-14, atol=1e-14)


def test_narrow_floats_take_numbers_and_axes():
    assert nf.compute((4, 5), lambda i, j: h[i, j] * nf.select(i > 2, 1, 0.5) + i).dtype == "bfloat16"


@pytest.mark.tvm
def test_compiled():
    ys = [nf.compute((4, 5), body) for body, *_ in CASES]
    for a, b in zip(nf.compile(ys, list(FEEDS))(*FEEDS.values()), nf.evaluate(ys, FEEDS), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_index_notation_says_the_same():
    text = "y[i,j] = d[i,j] * (1 if i > 2 else 0.25) + i / 7 + (j if i > j else 0.5)"

    def body(i, j):
        return d[i, j] * nf.select(i > 2, 1, 0.25) + i / 7 + nf.select(i > j, j, 0.5)

    assert nf.expr(text, d=d).definition is nf.compute((4, 5), body).definition


def test_select_of_tensors():
    ys = [d * nf.select(flag, 0.1, 0), x * nf.where(x > 0, 1, 0), n + nf.where(flag, 1, -1), nf.where(flag, 1, 300) + n]
    assert [y.dtype for y in ys] == ["float64", "float32", "int8", "int64"]
    expected = [D * np.where(F, 0.1, 0), X * (X > 0), N + np.where(F, 1, -1).astype("int8"), N + np.where(F, 1, 300)]
    for value, e in zip(nf.evaluate(ys, FEEDS), expected, strict=True):
        np.testing.assert_allclose(value, e)
    assert nf.where(flag, 1, 0).dtype == "int64"
    assert nf.where(flag, 1.0, 0).dtype == "float32"


ERRORS = [
    (lambda i, j: nf.cast(1.0, "float32") * d[i, j], "* mixes `1.0` (float32) and `d[i, j]` (float64)"),
    (lambda i, j: nf.cast(i, "float32") * d[i, j], "* mixes `cast(i, float32)` (float32) and `d[i, j]` (float64)"),
    (lambda i, j: nf.cast(i * 0.5, "float32") * d[i, j], "(float32) and `d[i, j]` (float64)"),
    (lambda i, j: n[i, j] * x[i, j], "* mixes `n[i, j]` (int8) and `x[i, j]` (float32)"),
    (lambda i, j: (i + n[i, j]) * x[i, j], "and `x[i, j]` (float32)"),
    (lambda i, j: n[i, j] / 2, "/ takes floats, but `n[i, j]` is int8 (use // for integers)"),
    (
        lambda i, j: n[i, j] + nf.select(i > 2, 0.5, 1),
        "+ mixes `n[i, j]` (int8) and `select(i > 2, 0.5, 1.0)` (float32)",
    ),
    (lambda i, j: x[i * 0.5, j], "index 0 of x is `cast(i, float32) * 0.5` of type float32; an index is an integer"),
    (lambda i, j: flag[i, j] * i, "* mixes `flag[i, j]` (bool) and `i` (int64)"),
]


@pytest.mark.parametrize(("body", "message"), ERRORS, ids=[m for _, m in ERRORS])
def test_errors(body, message):
    with pytest.raises(nf.ExpressionError) as caught:
        nf.compute((4, 5), body)
    assert message in str(caught.value)


def test_a_deep_weak_expression():
    def body(i):
        total = i * 0.5
        for _ in range(3000):
            total = total + 0.001
        return total * d[i, 0]

    assert nf.compute((4,), body).dtype == "float64"
