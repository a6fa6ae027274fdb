"""Laws of real numbers in proofs: what follows from them is proved, what is nearly that is refused."""

import pytest

import neoflow as nf
from neoflow.mapping import Pattern
from neoflow.superopt import Proof


def proved(holes, a, b):
    """Whether one function of these holes is proved to be another, at all sizes."""
    (found,) = Pattern("p", holes, lambda **p: (a(**p),), {}, lambda **p: (b(**p),)).proofs()
    return isinstance(found, Proof)


def total(x, axis=-1):
    return nf.sum(x, axis=axis, keepdims=True)


def mean(x, axis=-1):
    return nf.mean(x, axis=axis, keepdims=True)


def largest(x, axis=-1):
    return nf.max(x, axis=axis, keepdims=True)


def softmax(x, shift=None, other=None):
    top = nf.exp(x if shift is None else x - shift)
    below = top if other is None else nf.exp(x - other)
    return top / total(below)


X, XY, XM = {"x": "NK"}, {"x": "NK", "y": "NK"}, {"x": "NK", "m": "N_1"}
EQUAL = [
    (X, softmax, lambda x: softmax(x, largest(x))),
    (XM, lambda x, m: softmax(x), lambda x, m: softmax(x, m)),
    (XM, lambda x, m: softmax(x, m), lambda x, m: softmax(x, 2.0 * m - 1.0)),
    (XY, lambda x, y: nf.exp(x) * nf.exp(y), lambda x, y: nf.exp(x + y)),
    (XY, lambda x, y: nf.exp(x) * nf.exp(y) / total(nf.exp(y) * nf.exp(x)), lambda x, y: softmax(x + y)),
    (X, lambda x: mean(total(x)), total),
    (X, lambda x: mean((x - mean(x)) * (x - mean(x))), lambda x: mean(x * x) - mean(x) * mean(x)),
    (X, lambda x: mean(mean(x, 0), 0), lambda x: mean(x, 0)),
    (X, lambda x: x * nf.rsqrt(total(x * x) + 1.0), lambda x: x / nf.sqrt(total(x * x) + 1.0)),
    (X, lambda x: nf.abs(nf.rsqrt(nf.exp(x))), lambda x: nf.rsqrt(nf.exp(x))),
]
OTHER = [
    (XM, lambda x, m: softmax(x), lambda x, m: softmax(x, m, 2.0 * m)),
    (XY, lambda x, y: softmax(x), lambda x, y: softmax(x, y)),
    (X, softmax, lambda x: softmax(x, largest(x, 0))),
    (X, softmax, lambda x: softmax(x, largest(x), largest(x, 0))),
    (X, softmax, lambda x: softmax(2.0 * x)),
    (XY, lambda x, y: nf.exp(x) + nf.exp(y), lambda x, y: nf.exp(x + y)),
    (XY, lambda x, y: nf.exp(x) * nf.exp(x), lambda x, y: nf.exp(x + y)),
    (XM, lambda x, m: 1.0 / total(nf.exp(x - m)), lambda x, m: nf.exp(-m) / total(nf.exp(x))),
    (X, lambda x: mean(total(x), 0), total),
    (X, lambda x: total(total(x)), lambda x: mean(total(x, 0)) * total(x)),
    (X, lambda x: mean((x - mean(x)) * (x - mean(x))), lambda x: mean(x * x) - mean(x)),
    (X, lambda x: mean((x - mean(x, 0)) * (x - mean(x, 0))), lambda x: mean(x * x) - mean(x, 0) * mean(x, 0)),
    (X, lambda x: x * nf.rsqrt(total(x * x) + 1.0), lambda x: x / nf.sqrt(total(x * x)) + 1.0),
]


@pytest.mark.parametrize("row", EQUAL, ids=range(len(EQUAL)))
def test_equal(row):
    assert proved(*row)


@pytest.mark.parametrize("row", OTHER, ids=range(len(OTHER)))
def test_nearly_equal(row):
    assert not proved(*row)


def test_a_mask_is_the_same_on_both_sides():
    holes = {"x": "NK", "mask": "NK?"}

    def masked(x, mask):
        return nf.select(mask, x, -1e30)

    assert proved(holes, lambda x, mask: softmax(masked(x, mask)), lambda x, mask: softmax(masked(x, mask), largest(x)))
    assert not proved(holes, lambda x, mask: softmax(masked(x, mask)), lambda x, mask: softmax(x))
    assert not proved(holes, lambda x, mask: masked(x, mask), lambda x, mask: nf.select(mask, -1e30, x))


def test_the_number_of_points_is_that_of_the_axis():
    """At one size the numbers agree, at others not."""
    assert not proved(X, lambda x: total(total(x)) * (1.0 / 7.0), total)
