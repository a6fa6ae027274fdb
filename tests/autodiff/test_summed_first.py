"""Gradients through windows whose large operand is read once: sums of what shares a place, then those gathered."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.autodiff import adjoint
from neoflow.expr.interp import evaluate
from neoflow.expr.ir import Select, postorder
from neoflow.expr.tensor import Compute, topological
from neoflow.nn import functional as F


def gradient(y, x):
    g = nf.placeholder(y.shape, y.dtype, "g")
    (d,) = nf.vjp(y, [x], g)
    return d, g


def sums(d, w):
    """The computes that read the weights."""
    return [t for t in topological([d]) if isinstance(t, Compute) and any(i is w for i in t.inputs)]


def convolution(batch, size, channels, filters, **how):
    x = nf.placeholder((batch, channels, size, size), name="x")
    w = nf.placeholder((filters, channels, 3, 3), name="w")
    return x, w, F.conv2d(x, w, padding=1, **how)


@pytest.mark.parametrize(("size", "how"), [(14, {"stride": 2}), (7, {})])
def test_many_weights_are_read_once(size, how):
    """They are 2.4 million, what each pixel adds to each tap 225,792: one sum without a guard, in their own order."""
    x, w, y = convolution(1, size, 512, 512, **how)
    (only,) = sums(gradient(y, x)[0], w)
    assert only.shape == (7, 7, 512, 3, 3)
    assert not any(isinstance(n, Select) for n in postorder(only.definition.body))


@pytest.mark.parametrize(
    ("case", "classes"),
    [
        ((16, 14, 512, 512, {"stride": 2}), 4),  # 3.6 million
        ((1, 14, 32, 32, {"stride": 2}), 4),  # 9,216 weights are near anyway
        ((1, 14, 256, 256, {}), 1),  # one sum reads 590 thousand weights once, and would write 450 thousand sums
    ],
)
def test_others_are_gathered(case, classes):
    *sizes, how = case
    x, w, y = convolution(*sizes, **how)
    assert len(sums(gradient(y, x)[0], w)) == classes


def test_what_ends_as_the_source_does_lies_so_at_the_end():
    """Vectors go along both axes then, not along one of them alone."""
    x = nf.placeholder((1, 32, 20, 20, 4, 4), name="x")
    w = nf.placeholder((32, 32, 9, 9, 4, 4), name="w")
    (only,) = sums(gradient(F.capsule_conv(x, w, stride=2), x)[0], w)
    assert only.shape == (6, 6, 32, 9, 9, 4, 4)


@pytest.mark.parametrize(
    ("shape", "kernel", "how"),
    [
        ((2, 5, 9, 7), (20, 5, 3, 3), {"stride": 2, "padding": 1}),
        ((2, 6, 9, 7), (40, 3, 3, 3), {"stride": 2, "padding": 1, "groups": 2}),
        ((1, 3, 8, 11), (17, 3, 2, 3), {"stride": (3, 2), "padding": (0, 2)}),
        ((1, 4, 7, 7), (16, 4, 3, 3), {"padding": 1}),
        ((1, 4, 11, 9), (18, 4, 3, 3), {"stride": 2, "padding": 2, "dilation": 2}),
    ],
)
def test_it_is_the_gradient(monkeypatch, shape, kernel, how):
    """<dx, u> is <g, y at u>, for a convolution is linear in its image."""
    monkeypatch.setattr(adjoint, "_FAR", 0)
    monkeypatch.setattr(adjoint, "_largest", lambda e: 1 << 40)
    rng = np.random.default_rng(0)
    x, w = nf.placeholder(shape, name="x"), nf.placeholder(kernel, name="w")
    y = F.conv2d(x, w, **how)
    d, g = gradient(y, x)
    assert len(sums(d, w)) == 1
    weights, cotangent = rng.standard_normal(kernel), rng.standard_normal(y.shape)
    (found,) = evaluate([d], {w: weights, g: cotangent}, "float64")
    for _ in range(3):
        u = rng.standard_normal(shape)
        (there,) = evaluate([y], {x: u, w: weights}, "float64")
        assert np.sum(found * u) == pytest.approx(np.sum(cotangent * there), rel=1e-10)


def test_a_diagonal_is_summed_over_each_of_its_points_once():
    """An axis that stands in two indices of the read is one axis of the sums."""
    x, w = nf.placeholder((4, 4), name="x"), nf.placeholder((4, 6, 50), name="w")
    i, j, k = nf.axis(4, "i"), nf.axis(6, "j"), nf.axis(50, "k")
    y = nf.sum(nf.select(x[i, i] > 0.5, x[i, i] * w[i, j, k], 0.0), axis=[i, j, k])
    nf.check_grad(nf.compute((), lambda: y, name="y"), [x, w])
