"""Brackets of tensors as NumPy has them; iteration, `in`, `index`, `@` and `.T`."""

import numpy as np
import pytest

import neoflow as nf

rng = np.random.default_rng(0)
X = rng.standard_normal((8, 4)).astype("f")
IDS = rng.integers(0, 4, (3, 2)).astype("int32")
x, ids = nf.placeholder((8, 4), name="x"), nf.placeholder((3, 2), "int32", name="ids")
z = nf.placeholder((2, 3, 4), name="z")

KEYS = """x[ids] | x[:, ids] | x[ids, 0] | x[ids, :] | x[1:7, ids] | x[None, ids] | x[..., ids]
x[ids, ids] | x[0, ids] | x[ids, None] | x[::2][ids] | x[[0, -1]]
x[np.array([[0, 1], [2, -1]])] | x[[0, 1], [2, 3]] | x[:, [0, -1]] | x[np.array(1)]
x[2, ..., [1, 1]] | x[-1] | x[::-2, None, 1:] | x[..., -1] | x[ids[0]] | x[ids, ids[:, :1]]
x[ids[0, 0]] | x.T | x.T @ x | x @ x.T[:, 0] | x[0] @ x[1] | np.ones(8, "f") @ x
x[ids] @ x[:4]""".replace("\n", " | ").split(" | ")


def test_as_numpy():
    ys = [eval(k) for k in KEYS]
    for key, value in zip(KEYS, nf.evaluate(ys, {x: X, ids: IDS}), strict=True):
        expected = eval(key, {"x": X, "ids": IDS, "np": np})
        assert value.shape == expected.shape, key
        np.testing.assert_allclose(value, expected, rtol=1e-5, err_msg=key)


@pytest.mark.tvm
def test_compiled_and_differentiated():
    ys = [eval(k) for k in KEYS]
    for key, a, b in zip(KEYS, nf.compile(ys, [x, ids])(X, IDS), nf.evaluate(ys, {x: X, ids: IDS}), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, err_msg=key)
    for key in ("x[ids]", "x[1:7, ids]", "x[ids, ids]", "x[[0, -1, 0]]", "x.T @ x", "x[ids] @ x[:4]"):
        assert nf.check_grad(eval(key), [x], {ids: IDS}) <= 1


def test_iteration_goes_over_the_first_dimension():
    rows = list(z)
    assert [r.shape for r in rows] == [(3, 4), (3, 4)]
    first, second = z
    b, *rest = x[1]
    assert (len(z), len(rest), b.shape) == (2, 3, ())
    Z = rng.standard_normal(z.shape).astype("f")
    for got, expected in zip(nf.evaluate([first, second, *rows], {z: Z}), [Z[0], Z[1], *Z], strict=True):
        np.testing.assert_array_equal(got, expected)
    assert [r.shape for r in reversed(z)] == [(3, 4)] * 2
    assert dict(zip("ab", z, strict=True))["b"].shape == (3, 4)
    with pytest.raises(ValueError, match="too many values to unpack"):
        _, _ = x


def test_in_and_index_are_by_identity():
    w = [nf.placeholder((3,), name=f"w{n}") for n in range(3)]
    other = nf.placeholder((4,), "float64", name="other")
    every = [other, None, "text", x, *w]
    assert w[1] in every
    assert every.index(w[1]) == 5
    assert nf.placeholder((3,), name="w1") not in every
    assert every.count(x) == 1
    every.remove(x)
    assert x not in every
    assert (x == None) is False  # noqa: E711 - what `==` gives is the test
    assert x not in (None, "x", {})
    assert bool(x == x) and not bool(x != x) and bool(x != z) and not bool(w[0] == w[1])
    assert len({*w, w[0]}) == 3


def test_equality_is_still_element_by_element():
    y = nf.placeholder((8, 4), name="y")
    np.testing.assert_array_equal(nf.evaluate(nf.select(x == y, 1, 2), {x: X, y: X})[0], 1)
    assert (x == 0.5).dtype == (x != X).dtype == "bool"


def refused(call):
    with pytest.raises(nf.ExpressionError) as caught:
        call()
    return str(caught.value)


ERRORS = [
    (lambda: x[x > 0], "x is indexed with the conditions gt: how many hold is not known while the program is written"),
    (lambda: x[[True, False]], "x is indexed with the conditions c"),
    (lambda: x[[0, 9]], "index 9 leaves dimension of extent 8 of x (shape (8, 4))"),
    (lambda: x[:, np.array([-5])], "index -5 leaves dimension of extent 4 of x (shape (8, 4))"),
    (lambda: x[[0.5]], "of type float64; an index is an integer"),
    (lambda: x[..., ...], "x is indexed with `...` 2 times; it may stand once"),
    (lambda: x[ids, ids, ids], "x has rank 2 (shape (8, 4)) but is indexed with 3 indices"),
    (
        lambda: z[0, :, ids],
        "z is indexed with integer tensors and integers that stand apart, whose dimensions NumPy moves",
    ),
    (lambda: z[ids, None, 0], "z is indexed with integer tensors and integers that stand apart"),
    (lambda: x[ids, nf.placeholder((5,), "int64", name="m")], "shapes do not broadcast: ids[3, 2], m[5]"),
    (lambda: nf.compute((3,), lambda i: x[i, 1:2]), "x is indexed with axes and with slices at once; slice it first"),
    (lambda: list(nf.placeholder((), name="s")), "s has rank 0: it has no first dimension to go over"),
    (lambda: 2 in x, "what x contains is not known while the program is written; use nf.any(nf.equal(x, value))"),
    (lambda: bool(x == 0), "tensor eq has no value while the program is written"),
    (lambda: (x == z) + 1, "shapes do not broadcast: x[8, 4], z[2, 3, 4]"),
    (lambda: nf.select(x == z, x, 0), "shapes do not broadcast: x[8, 4], z[2, 3, 4]"),
    (lambda: (x == nf.placeholder((8, 4), "float64", name="d")) & True, "== mixes `x[i, j]` (float32) and `d[i, j]`"),
    (lambda: np.asarray(x), "x has no value while the program is written, so NumPy cannot take it; nf.compile and nf."),
    (lambda: nf.compute((4,), lambda j: np.ones(8)[j]), "`j` has no value while the program is written"),
    (lambda: x @ x, "matmul of x[8, 4] and x[8, 4]: the inner extents must be equal"),
    (lambda: x @ nf.placeholder((), name="s"), "matmul of x[8, 4] and s[]: the inner extents must be equal"),
    (lambda: nf.compute((4,), lambda j: x[-9, j]), "index 0 is `-9` = -9 at every point, but the extent is 8"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS, ids=[m for _, m in ERRORS])
def test_errors(call, message):
    assert message in refused(call)


def test_negative_numbers_count_from_the_end():
    row = nf.compute((4,), lambda j: x[-1, j] + x[-8, 3 - j])
    assert row.definition is nf.expr("y[j] = x[-1, j] + x[-8, 3 - j]", x=x).definition
    np.testing.assert_array_equal(nf.evaluate(row, {x: X})[0], X[-1] + X[-8, ::-1])
    assert nf.expr("y[j] = x[n, j]", x=x, n=-2).definition is nf.expr("y[j] = x[6, j]", x=x).definition
