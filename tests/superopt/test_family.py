"""Families: what is erased of a definition, what stays, and what has none."""

import pytest

import neoflow as nf
from neoflow.superopt import Form, family, form, name
from neoflow.superopt.concrete import operator

A = nf.placeholder((3, 4), name="a")
B = nf.placeholder((2, 4), name="b")
X = nf.placeholder((2, 3, 8, 8), name="x")
W = nf.placeholder((5, 3, 3, 3), name="w")


@pytest.mark.parametrize(
    "tensor, text, guards",
    [
        (A @ nf.transpose(B), "(a[A, B], b[B, C]) [i0<A, i1<C] = sum[i2<B](a[i0, i2] * b[i2, i1])", ""),
        (
            nf.concat([A, B], 0),
            "(a[A, B], b[C, B]) [i0<A + C, i1<B] = select(i0 < A, a[i0, i1], b[i0 - A, i1])",
            "",
        ),
        (A[1:], "(a[A, B]) from D [i0<C, i1<B] = a[D + i0, i1]", "D <= A - C"),
        (nf.compute((3, 4), lambda i, j: A[2 - i, j]), "(a[A, B]) [i0<C, i1<B] = a[A - i0 - 1, i1]", "C <= A"),
        (nf.compute((6, 4), lambda i, j: A[i // 2, j]), "(a[A, B]) [i0<C, i1<B] = a[div(i0, 2), i1]", "C <= 2A"),
        (
            nf.compute((3, 4), lambda i, j: nf.select(A[i, j] > 0.0, A[i, j], 1.0) * nf.cast(i, "float32")),
            "(a[A, B]) [i0<A, i1<B] = where(gt(a[i0, i1], 0.0), a[i0, i1], 1.0) * place(i0)",
            "",
        ),
        (nf.transpose(A), "(a[A, B]) [i0<B, i1<A] = a[i1, i0]", ""),
        (
            nf.pad(A, ((1, 1), (0, 0))),
            "(a[A, B]) [i0<C, i1<B] = select((i0 >= 1) & (A >= i0), a[i0 - 1, i1], 0.0)",
            "",
        ),
        (
            nf.expr("y[b, o, p, q] = sum(x[b, c, 2*p + r, 2*q + s] * w[o, c, r, s])", x=X, w=W),
            "(a[A, B, C, D], b[E, B, F, G]) [i0<A, i1<E, i2<H, i3<I] = "
            "sum[i4<B, i5<F, i6<G](a[i0, i4, 2*i2 + i5, 2*i3 + i6] * b[i1, i4, i5, i6])",
            "2H <= 2 + C - F and 2I <= 2 + D - G",
        ),
        (nf.expr("y[i] = sum[k](a[i, k]) / 4.0", a=A), "(a[A, B]) [i0<A] = sum[i1<B](a[i0, i1]) / count(B)", ""),
        (nf.relu(A), "(a[A, B]) [i0<A, i1<B] = relu(a[i0, i1])", ""),
    ],
)
def test_extents_are_erased(tensor, text, guards):
    found, sizes = family(tensor.definition)
    assert str(found) == f"operator{text}" and found.guards == guards
    stand_ins = [nf.placeholder(s.shape, name=f"s{s.position}") for s in tensor.definition.slots]
    assert operator(found, sizes, stand_ins, "float32").definition is tensor.definition


def test_one_family_at_two_sizes():
    small, large = nf.concat([A, B], 0), nf.concat([nf.placeholder((7, 9)), nf.placeholder((7, 9))], 0)
    one, two = family(small.definition), family(large.definition)
    assert one[0].key == two[0].key and two[1] == {"A": 7, "B": 9, "C": 7}


def test_equal_extents_are_different_symbols():
    square = nf.placeholder((4, 4))
    found, sizes = family((square @ nf.placeholder((4, 4), name="v")).definition)
    assert found.symbols == ("A", "B", "C") and set(sizes.values()) == {4}


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: nf.cast(A, "int32"), "an operator of int32 has no family"),
        (lambda: A[nf.placeholder((2,), "int64", name="ids")], "an operator of int64 has no family"),
        (lambda: nf.cast(A, "float64"), "an operator with a cast to float64 has no family"),
    ],
)
def test_what_has_no_family(make, message):
    with pytest.raises(nf.GraphError, match=message):
        family(make().definition)


def test_forms_are_arithmetic():
    n, m = name("N"), name("M")
    assert str((n + m).times(2) - m + 3) == "M + 2*N + 3" and (n - n) == Form() and str(form(-2)) == "-2"
    assert str((n.times(4) + m + 5).over(4)) == "N + div(M + 1, 4) + 1"
    assert (n.times(4) + m + 5).over(4).value({"N": 2, "M": 7}) == (2 * 4 + 7 + 5) // 4
    assert str(n.over(3).put({"N": m.times(3) + 2})) == "M"
