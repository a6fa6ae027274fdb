"""No wasted work: what the gradient of an operand costs, counted, against what the forward pass costs.

A strided read reaches each element from a residue class of the window only; the plain guarded gather would visit every
tap for every element, stride^2 times as much as the forward pass.
"""

import pytest

import neoflow as nf
from neoflow.expr.count import count_ops
from neoflow.expr.tensor import Placeholder, topological
from neoflow.graph import make_graph, optimize
from neoflow.nn import functional as F


def gradient_of(y, x):
    (d,) = nf.vjp(y, [x], nf.placeholder(y.shape, y.dtype, "g"))
    return d


def after_the_graph_passes(d):
    inputs = [t for t in topological([d]) if isinstance(t, Placeholder)]
    return list(optimize(make_graph([d], inputs)).outputs)


def ratio(y, x):
    """Multiply-adds of d y / d x over those of y, as derived; the passes over the graph must not change them."""
    d = gradient_of(y, x)
    derived, forward = count_ops(d).multiply_adds, count_ops(y).multiply_adds
    assert count_ops(after_the_graph_passes(d)).multiply_adds == derived
    return derived / forward


def image(*shape):
    return nf.placeholder(shape, name="x")


def weights(*shape):
    return nf.placeholder(shape, name="w")


CONVOLUTIONS = {
    "3x3, stride 2": ((1, 64, 56, 56), (64, 64, 3, 3), {"stride": 2, "padding": 1}),
    "3x3": ((1, 64, 56, 56), (64, 64, 3, 3), {"padding": 1}),
    "3x3 on a small image": ((1, 64, 7, 7), (64, 64, 3, 3), {"padding": 1}),
    "3x3, stride 2, dilation 2": ((1, 64, 56, 56), (64, 64, 3, 3), {"stride": 2, "padding": 2, "dilation": 2}),
    "3x3, stride 3, dilation 2": ((1, 64, 57, 57), (64, 64, 3, 3), {"stride": 3, "padding": 2, "dilation": 2}),
    "7x7, stride 2": ((1, 3, 224, 224), (64, 3, 7, 7), {"stride": 2, "padding": 3}),
    "1x1, stride 2": ((1, 64, 56, 56), (128, 64, 1, 1), {"stride": 2}),
    "5x3, strides 3 and 2": ((1, 16, 90, 60), (16, 16, 5, 3), {"stride": (3, 2), "padding": (1, 1)}),
}


@pytest.mark.parametrize("case", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_convolutions(case):
    shape, kernel, how = case
    x, w = image(*shape), weights(*kernel)
    y = F.conv2d(x, w, **how)
    assert ratio(y, x) == pytest.approx(1, abs=0.05)
    assert ratio(y, w) == 1


GROUPED = {
    "4 groups": ((1, 64, 28, 28), (64, 16, 3, 3), {"padding": 1, "groups": 4}),
    "4 groups, stride 2": ((1, 64, 28, 28), (64, 16, 3, 3), {"stride": 2, "padding": 1, "groups": 4}),
    "depthwise": ((1, 64, 28, 28), (64, 1, 3, 3), {"padding": 1, "groups": 64}),
    "two filters a channel": ((1, 64, 28, 28), (128, 1, 3, 3), {"padding": 1, "groups": 64}),
}


@pytest.mark.parametrize("case", GROUPED.values(), ids=GROUPED)
def test_grouped_convolutions(case):
    shape, kernel, how = case
    x, w = image(*shape), weights(*kernel)
    y = F.conv2d(x, w, **how)
    assert ratio(y, x) == 1
    assert ratio(y, w) == 1


def test_nothing_is_computed_for_the_padding():
    x, w = image(1, 8, 12, 12), weights(8, 8, 3, 3)
    shapes = {t.shape for t in topological([gradient_of(F.conv2d(x, w, padding=1), x)])}
    assert (1, 8, 14, 14) not in shapes


def test_a_convolution_without_padding_has_a_border_where_windows_are_cut():
    """Of n elements the n/2 even ones meet two taps and the odd ones one, some of these outside: 84 for 81."""
    x, w = image(1, 64, 56, 56), weights(64, 64, 3, 3)
    assert ratio(F.conv2d(x, w, stride=2), x) == pytest.approx((84 / 81) ** 2)


def test_a_transposed_convolution():
    x, w = image(1, 16, 28, 28), weights(16, 8, 4, 4)
    assert ratio(F.conv_transpose2d(x, w, stride=2, padding=1), x) <= 1.0


def test_the_capsule_convolution():
    a, w = image(1, 4, 56, 56, 4, 4), weights(4, 4, 3, 3, 4, 4)
    assert ratio(F.capsule_conv(a, w, stride=2, padding=1), a) == pytest.approx(1, abs=0.05)
    assert ratio(F.capsule_conv(a, w, stride=2, padding=1), w) == 1


def test_few_large_windows():
    """Most elements are near a border: the products are summed over (o, j) first, then gathered, 20 additions each."""
    a, w = image(1, 32, 20, 20, 4, 4), weights(32, 32, 9, 9, 4, 4)
    y = F.capsule_conv(a, w, stride=2)
    assert ratio(y, a) == 1
    assert count_ops(gradient_of(y, a)).other < 0.03 * count_ops(y).multiply_adds


def test_a_read_at_6i_plus_4j():
    a, b, j = nf.placeholder((3076,), name="a"), nf.placeholder((500, 21), name="b"), nf.axis(21, "j")
    y = nf.compute((500,), lambda i: nf.sum(a[6 * i + 4 * j] * b[i, j], axis=[j]))
    assert ratio(y, a) == pytest.approx(1, abs=0.05)


def test_a_strided_slice_costs_a_copy():
    x = image(1, 64, 56, 56)
    assert count_ops(gradient_of(x[:, :, ::2, ::2], x)).flops == 0


def test_residues_are_named_in_the_order_of_the_dimensions():
    """A gradient's text, and so the key of its kernel, follows from structure, not from what was built before."""
    for n in range(4, 24, 2):
        x, w = nf.placeholder((3 * n, n), name="x"), nf.placeholder((40, n), name="w")
        r = nf.axis(40, "r")
        y = nf.compute((n, n), lambda i, j, x=x, w=w, r=r: nf.sum(x[2 * i + j, j] * w[r, i], axis=[r]))
        assert "select((i % 2 == 0) & (j % 2 == 0)" in str(gradient_of(y, x).definition)
