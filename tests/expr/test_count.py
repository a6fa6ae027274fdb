"""Counts checked by hand."""

import pytest

from neoflow.expr import dsl as nf
from neoflow.expr.count import OpCount, count_ops


def arithmetic(tensor):
    cost = count_ops(tensor)
    return cost.multiply_adds, cost.other


@pytest.fixture
def x():
    return nf.placeholder((6, 10), name="x")


def test_a_matrix_product():
    a, b, k = nf.placeholder((6, 10), name="a"), nf.placeholder((10, 7), name="b"), nf.axis(10, "k")
    y = nf.compute((6, 7), lambda i, j: nf.sum(a[i, k] * b[k, j], axis=[k]))
    assert count_ops(y) == OpCount(6 * 7 * 10, 0, 4 * (60 + 70), 4 * 42)
    assert count_ops(y).flops == 2 * 420 and count_ops([y]).bytes_moved == 4 * 172


def test_a_convolution_with_padding_counts_its_products_and_not_its_guards():
    x, w = nf.placeholder((2, 3, 8, 8), name="x"), nf.placeholder((4, 3, 3, 3), name="w")
    c, r, s = nf.axis(3, "c"), nf.axis(3, "r"), nf.axis(3, "s")

    def body(b, o, p, q):
        h, v = p + r - 1, q + s - 1
        inside = (h >= 0) & (h < 8) & (v >= 0) & (v < 8)
        return nf.sum(nf.select(inside, x[b, c, h, v] * w[o, c, r, s], 0.0), axis=[c, r, s])

    assert arithmetic(nf.compute((2, 4, 8, 8), body)) == (2 * 4 * 8 * 8 * 27, 0)


def test_functions_sums_and_multiply_adds(x):
    k = nf.axis(10, "k")
    assert arithmetic(nf.exp(x)) == (0, 60)
    assert arithmetic(nf.compute((6, 10), lambda i, j: x[i, j] * 2.0 + 1.0)) == (60, 0)
    assert arithmetic(nf.compute((6, 10), lambda i, j: 1.0 - x[i, j] * x[i, j])) == (60, 0)
    assert arithmetic(nf.compute((6, 10), lambda i, j: x[i, j] * 2.0 + x[i, j] * 3.0)) == (60, 60)
    assert arithmetic(nf.compute((6,), lambda i: nf.sum(nf.exp(x[i, k]), axis=[k]))) == (0, 120)
    assert arithmetic(nf.compute((6,), lambda i: nf.sum(x[i, k] * x[i, k] * 3.0, axis=[k]))) == (60, 60)
    assert arithmetic(nf.max(x)) == (0, 60)
    assert arithmetic(nf.argmax(x, axis=1)) == (0, 60)
    assert arithmetic(nf.prod(x, axis=0)) == (0, 60)


def test_nested_reductions_count_with_their_trips(x):
    k, m = nf.axis(10, "k"), nf.axis(10, "m")
    inner = nf.compute((6,), lambda i: nf.sum(x[i, k] * nf.sum(x[i, m] * x[i, k], axis=[m]), axis=[k]))
    assert arithmetic(inner) == (6 * 10 * (10 + 1), 0)
    gathered = nf.compute((6,), lambda i: x[i, nf.argmax(x[i, k], axis=[k])])
    assert arithmetic(gathered) == (0, 60)


def test_a_select_counts_its_dearer_branch_and_no_condition(x):
    y = nf.compute((6, 10), lambda i, j: nf.select(nf.exp(x[i, j]) > 1.0, nf.exp(nf.tanh(x[i, j])), x[i, j] * 3.0))
    assert arithmetic(y) == (0, 120)
    k = nf.axis(10, "k")
    z = nf.compute((6,), lambda i: nf.sum(nf.select(k < i, nf.exp(x[i, k]), x[i, k] * x[i, k]), axis=[k]))
    assert arithmetic(z) == (0, 120)  # as dear as (60, 0): then the first


def test_what_is_free(x):
    assert arithmetic(nf.compute((5, 4), lambda i, j: x[(2 * i + j) % 6, 2 * j])) == (0, 0)
    assert arithmetic(nf.compute((5,), lambda i: nf.cast(3 * i + 1, "float32"))) == (0, 0)
    ids = nf.placeholder((5,), "int64", name="ids")
    assert arithmetic(nf.compute((5, 10), lambda i, j: x[ids[i] // 2 + 1, j])) == (0, 0)
    assert arithmetic(ids * 3) == (0, 5)


def test_a_node_used_twice_counts_once(x):
    def body(i, j):
        e = nf.exp(x[i, j])
        return e / (e + 1.0)

    assert arithmetic(nf.compute((6, 10), body)) == (0, 180)


def test_bytes_move_once_per_tensor_and_by_width(x):
    h = nf.cast(x, "float16")
    y = nf.exp(h) * h + h
    cost = count_ops([y, h])
    assert cost.bytes_read == 60 * (4 + 2 + 2 + 2)
    assert cost.bytes_written == 60 * 2 * 4
    assert count_ops(x) == OpCount()


def test_counts_add():
    assert OpCount(1, 2, 3, 4) + OpCount(10, 20, 30, 40) == OpCount(11, 22, 33, 44)
