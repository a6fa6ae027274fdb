"""Gradients through casts of narrow floats: terms are added in the wide type, and rounded once."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.interp import evaluate
from neoflow.expr.ir import Cast, Reduce, postorder
from neoflow.expr.tensor import Compute, topological


def wide(t):
    return nf.cast(t, "float32")


def gradients(y, *of):
    g = nf.placeholder(y.shape, y.dtype, "g")
    return nf.vjp(y, list(of), g), g


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_sum_is_of_wide_terms(dtype):
    x, w = nf.placeholder((3, 5, 6), dtype, "x"), nf.placeholder((4, 5, 6), dtype, "w")
    (dx, dw), _ = gradients(nf.expr("y[i,j] = sum[r,s](x[i,r,s] * w[j,r,s])", x=wide(x), w=wide(w)), x, w)
    assert dx.dtype == dw.dtype == dtype
    sums = [
        n for t in topological([dx, dw]) if isinstance(t, Compute) for n in postorder(t.definition.body)
        if isinstance(n, Reduce)
    ]  # fmt: skip
    assert len(sums) == 2 and all(s.dtype == "float32" for s in sums)
    assert not any(isinstance(n, Cast) and n.dtype == dtype for s in sums for n in postorder(s.body))


def test_it_is_rounded_once():
    """To the nearest float16 of the exact sum, of which terms rounded one by one would miss many."""
    k, rng = 4096, np.random.default_rng(0)
    x, w = nf.placeholder((2, 3), "float16", "x"), nf.placeholder((k, 3), "float16", "w")
    (dx,), g = gradients(nf.expr("y[i,j] = sum[c](x[i,c] * w[j,c])", x=wide(x), w=wide(w)), x)
    w_, g_ = rng.normal(size=w.shape).astype(np.float16), rng.normal(size=(2, k)).astype(np.float32)
    (found,) = evaluate([dx], {x: np.zeros(x.shape, np.float16), w: w_, g: g_})
    exact = g_.astype(np.float64) @ w_.astype(np.float64)
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=0.51 * np.finfo(np.float16).eps, atol=1e-3)


def test_windows_scatters_and_slices():
    """Every way in which a term comes to its place keeps the dtype of what was read."""
    x, ids = nf.placeholder((9, 4), "float16", "x"), nf.placeholder((7,), "int64", "ids")
    r = nf.axis(3, "r")
    windows = nf.compute((4, 4), lambda i, j: nf.sum(wide(x)[2 * i + r, j], axis=[r]), name="windows")
    looked_up = nf.compute((7, 4), lambda i, j: wide(x)[ids[i], j], name="looked_up")
    sliced = nf.compute((4,), lambda j: wide(x)[3, j] * 2.0, name="sliced")
    rng = np.random.default_rng(1)
    x_, ids_ = rng.normal(size=x.shape).astype(np.float16), rng.integers(0, 9, 7)
    for y, wanted in ((windows, [1, 1, 2, 1, 2, 1, 2, 1, 1]), (sliced, [0, 0, 0, 2, 0, 0, 0, 0, 0])):
        (dx,), g = gradients(y, x)
        (found,) = evaluate([dx], {x: x_, g: np.ones(y.shape, np.float32)})
        assert found.dtype == np.float16
        np.testing.assert_array_equal(found, np.repeat(np.array(wanted, np.float16)[:, None], 4, axis=1))
    (dx,), g = gradients(looked_up, x)
    (found,) = evaluate([dx], {x: x_, ids: ids_, g: np.ones((7, 4), np.float32)})
    np.testing.assert_array_equal(found[:, 0], np.bincount(ids_, minlength=9).astype(np.float16))
