"""Counts of instructions that can be checked by hand."""

import neoflow as nf
from neoflow.expr.ir import Axis
from neoflow.graph.work import operands, work_of

X, W = nf.placeholder((8, 16), name="x"), nf.placeholder((16, 32), name="w")
V = nf.placeholder((8,), name="v")


def work(shape, body):
    return work_of(nf.compute(shape, body).definition)


def test_elements_are_loaded_and_computed():
    assert work((8, 16), lambda i, j: X[i, j] * 2.0) == 8 * 16 * 2
    assert work((8, 16), lambda i, j: X[i, j] * 2.0 + V[i]) == 8 * 16 * 3, "an addition to a product is one with it"
    assert work((8,), lambda i: X[i, (i + 3) % 8]) == 8, "arithmetic of axes is free"


def test_what_is_the_same_along_a_sum_counts_once():
    r = nf.axis(16, "r")
    assert work((8,), lambda i: nf.sum(X[i, r], axis=[r])) == 8 * 16 * 2
    assert work((8,), lambda i: nf.sum(X[i, r] * (V[i] + 1.0), axis=[r])) == 8 * 16 * 2 + 8 * 2


def test_a_contraction_loads_next_to_nothing_in_its_tile():
    r = nf.axis(16, "r")
    points, sides = 8 * 32 * 16, 8 * 16 + 16 * 32
    assert work((8, 32), lambda i, j: nf.sum(X[i, r] * W[r, j], axis=[r])) == points + sides
    scaled = work((8, 32), lambda i, j: nf.sum(X[i, r] * W[r, j] * V[i], axis=[r]))
    assert scaled == points + sides + 8 + 8 * 16, "a third factor is multiplied into the side that is smaller with it"


def test_a_sum_of_products_without_two_sides_loads_both():
    r = nf.axis(16, "r")
    assert work((16,), lambda i: nf.sum(W[r, i] * W[r, i + 16], axis=[r])) == 16 * 16 * 3


def test_factors_are_counted_as_often_as_they_are_there():
    x = X[Axis(0, 8), 0]
    first, second, third = operands(x * x * 2.0)
    assert first is x and second is x and str(third) == "2.0"
    assert len(operands(x * x * x * x * x * x * x * x)) == 6
