"""The estimate of a kernel's time, by hand."""

import pytest

import neoflow as nf
from neoflow.graph import cost
from neoflow.roofs import STATED


def test_a_contraction_by_hand():
    m, n, k = 64, 48, 32
    x, w = nf.placeholder((m, k), name="x"), nf.placeholder((k, n), name="w")
    r = nf.axis(k, "r")
    y = nf.compute((m, n), lambda i, j: nf.sum(x[i, r] * w[r, j], axis=[r]))
    sides, results = m * k + k * n, m * n
    products = m * n * k + sides  # each element of the sides is loaded once
    beside = cost.PACKED * sides + cost.STORED * results
    expected = STATED.start + 2 * (products + beside) / 236e9 + 4 * results / 400e9
    assert cost.seconds(y.definition) == pytest.approx(expected)
    assert cost.seconds(y.definition, True) == pytest.approx(expected + 4 * results / 400e9)


def test_windows_are_packed_at_every_place_and_depthwise_ones_are_not():
    x, w, v = (nf.placeholder(s, name=n) for s, n in (((4, 8, 20), "x"), ((16, 8, 5), "w"), ((8, 5), "v")))
    c, r = nf.axis(8, "c"), nf.axis(5, "r")
    y = nf.compute((4, 16, 16), lambda b, o, p: nf.sum(x[b, c, p + r] * w[o, c, r], axis=[c, r]))
    z = nf.compute((4, 8, 16), lambda b, c, p: nf.sum(x[b, c, p + r] * v[c, r], axis=[r]))
    assert cost.sides(y.definition) == 4 * 8 * 16 * 5 + 16 * 8 * 5
    assert cost.sides(z.definition) is None


def test_memory_decides_where_it_is_slower():
    x = nf.placeholder((1 << 20,), name="x")
    y = nf.compute((1 << 20,), lambda i: x[i] + 1.0)
    assert cost.seconds(y.definition) == pytest.approx(STATED.start + (1 << 23) / 90e9)
    assert cost.copied(0) == 0.0 and cost.copied(1 << 26) == pytest.approx(STATED.start + (1 << 26) / 40e9)


def test_what_is_surely_less():
    assert cost.is_worth(1.0, 0.89) and not cost.is_worth(1.0, 0.91) and not cost.is_worth(1.0, 0.86, cost.LONGER)
    assert cost.told(2e-6, 1e-6) == "about 1.0 us instead of 2.0"
