"""Matrix products of the interpreter: any layout in memory, and infinities and NaN as single products have them."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.interp import product
from neoflow.expr.interp.infinite import amended
from neoflow.expr.interp.product import contract

ODD = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e200, -1e200])


def odd(rng, shape, share, most=None):
    values = rng.standard_normal(shape)
    return np.where(rng.random(shape) < share, rng.choice(ODD[:most], shape), values)


@pytest.mark.parametrize("seed", range(40))
def test_any_layout_is_a_sum_of_products(seed, monkeypatch):
    """Dimensions that both, one or none have, in any order in memory; put in order in pieces of a few elements."""
    monkeypatch.setattr(product, "PIECE", 7)
    monkeypatch.setattr(product, "NARROW", 2)
    rng = np.random.default_rng(seed)
    extents = rng.integers(1, 5, 5)
    arrays = []
    for _ in range(2):
        shape = np.where(rng.random(5) < 0.7, extents, 1)
        order = rng.permutation(5)
        arrays.append(rng.standard_normal(shape[order]).transpose(np.argsort(order)))
    dropped = [d for d in range(5) if rng.random() < 0.5]
    a, b = arrays
    expected = (a * b).sum(axis=tuple(dropped), keepdims=True)
    np.testing.assert_allclose(contract(a, b, dropped, is_last=True), expected, rtol=1e-12, atol=1e-12)


def test_what_a_window_reads_is_put_in_order_in_pieces(monkeypatch):
    monkeypatch.setattr(product, "PIECE", 50)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 4, 9, 9)), rng.standard_normal((5, 4, 3, 3))
    a, b = nf.placeholder(x.shape, "float64", name="a"), nf.placeholder(w.shape, "float64", name="b")
    y = nf.expr("y[b,o,p,q] = sum(a[b,c,p+r,q+s] * w[o,c,r,s])", a=a, w=b)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    np.testing.assert_allclose(nf.evaluate(y, {a: x, b: w})[0], np.einsum("bcpqrs,ocrs->bopq", windows, w), rtol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_infinities_and_nan_are_those_of_single_products(seed):
    rng = np.random.default_rng(seed)
    left, right = odd(rng, (2, 1, 9, 30), 0.01), odd(rng, (2, 3, 30, 8), 0.01)
    with np.errstate(all="ignore"):
        single = (left[..., None] * right[:, :, None]).sum(axis=-2)
        made = amended(left, right, np.matmul(left, right))
    assert made is not None
    np.testing.assert_allclose(made, single, rtol=1e-12, atol=1e-12)
    assert not np.isfinite(single).all()


def test_where_few_are_numbers_the_sum_itself_is_as_quick():
    left, right = np.full((1, 4, 5), np.inf), np.ones((1, 5, 4))
    with np.errstate(all="ignore"):
        assert amended(left, right, left @ right) is None
    x, y = nf.placeholder((4, 5), name="x"), nf.placeholder((5, 4), name="y")
    feeds = {x: left[0].astype("float32"), y: right[0].astype("float32")}
    assert (nf.evaluate(nf.expr("z[i,j] = sum(x[i,k] * y[k,j])", x=x, y=y), feeds)[0] == np.inf).all()


@pytest.mark.parametrize("seed", range(8))
def test_a_condition_hides_what_it_is_of_and_nothing_else(seed):
    """select(c, x, 0) * y: no NaN of x is left where c does not hold, all of y's are."""
    rng = np.random.default_rng(seed)
    a, b = (odd(rng, shape, 0.02, 5).astype("float32") for shape in ((4, 40), (40, 6)))
    x, y, k = nf.placeholder(a.shape, name="x"), nf.placeholder(b.shape, name="y"), nf.axis(40, "k")
    z = nf.compute((4, 6), lambda i, j: nf.sum(nf.select((k + i) % 3 < 2, x[i, k], 0.0) * y[k, j], axis=[k]))
    i, n = np.indices(a.shape)
    with np.errstate(all="ignore"):
        masked = np.where((i + n) % 3 < 2, a, np.float32(0))
        expected = (masked[:, :, None] * b[None]).astype(np.float64).sum(1).astype(np.float32)
    np.testing.assert_allclose(nf.evaluate(z, {x: a, y: b})[0], expected, rtol=1e-5, atol=1e-5)


def test_what_positions_along_an_axis_choose():
    x = nf.placeholder((6, 5), "float64", name="x")
    value = np.random.default_rng(0).standard_normal((6, 5))
    y = nf.compute(
        (6, 5),
        lambda i, j: nf.select(i == 1, x[0, j], nf.select(i % 2 == 0, x[i, 4 - j], nf.select(j < 2, 7.0, x[i, j]))),
    )
    expected = np.where(np.arange(5) < 2, 7.0, value)
    expected[0::2], expected[1] = value[0::2, ::-1], value[0]
    np.testing.assert_array_equal(nf.evaluate(y, {x: value})[0], expected)
