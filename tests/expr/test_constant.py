"""Constants: tensors of known elements, given by name or written as arrays in expressions."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr import Compute, Constant, topological
from neoflow.expr.constant import written
from neoflow.graph import Graph, make_graph, same_graph
from tests.expr.refusals import check_refusal

rng = np.random.default_rng(0)
A = rng.standard_normal((4, 5)).astype("f")
x = nf.placeholder((5,), name="x")
d = nf.placeholder((5,), "float64", name="d")
n = nf.placeholder((5,), "int8", name="n")


def one(y, **feeds):
    return nf.evaluate(y, {{"x": x, "d": d, "n": n}[k]: v for k, v in feeds.items()})[0]


def test_a_constant_has_its_value():
    c = nf.constant(A, name="c")
    assert (c.shape, c.dtype, c.name, repr(c)) == ((4, 5), "float32", "c", "<Constant c: float32[4, 5]>")
    assert str(c) == "c = constant((4, 5), 'float32')"
    np.testing.assert_array_equal(one(c), A)
    value = rng.standard_normal(5).astype("f")
    y = nf.expr("y[i] = sum(c[i, k] * x[k])", c=c, x=x)
    np.testing.assert_allclose(one(y, x=value), A @ value, rtol=1e-5)
    assert one(c, **{}).flags.writeable  # a copy
    assert not c.value.flags.writeable


def test_the_array_is_copied():
    given = np.ones(3, "f")
    c = nf.constant(given)
    given[:] = 7
    np.testing.assert_array_equal(one(c), 1)


@pytest.mark.parametrize(
    ("value", "dtype", "found"),
    [
        (1.5, None, "float32"),
        ([1.0, 2.0], None, "float32"),
        ([1, 2], None, "int64"),
        ([[True], [False]], None, "bool"),
        (np.ones(2), None, "float64"),
        (np.ones(2), "float16", "float16"),
        (np.arange(3), np.int8, "int8"),
        (np.arange(3), "bfloat16", "bfloat16"),
        (np.ones(2, ">f4"), None, "float32"),
        (np.ones((3, 4), "f").T, None, "float32"),
        ([True, False], "int32", "int32"),
    ],
)
def test_dtypes(value, dtype, found):
    c = nf.constant(value, dtype)
    assert c.dtype == found
    np.testing.assert_array_equal(np.asarray(one(c), "f8"), np.asarray(value, "f8"))


ERRORS = [
    (lambda: nf.constant(x), "x is a tensor of the program, not an array"),
    (lambda: nf.constant([]), "a constant of shape (0,) has no element"),
    (lambda: nf.constant(["a"]), "none of float64, float32,"),
    (lambda: nf.constant([[1, 2], [3]]), "a constant is an array or numbers, not [[1, 2], [3]]: "),
    (lambda: nf.constant([300], "int8"), "the constant has elements that do not fit int8: up to 300"),
    (lambda: nf.constant([1.5], "int32"), "of type int32 is given float64s; convert them first"),
    (lambda: nf.constant([1.5], "int9"), "dtype 'int9' is not one of float64, "),
    (lambda: nf.constant(np.ma.masked_array([1.0, 2.0], [0, 1])), "masked; fill it: array.filled(0)"),
    (lambda: nf.constant(np.ones(5)) * x, "* mixes `c"),
    (lambda: x * np.ones(5, "float16"), "(float16) and `x[i]` (float32)" if False else "mixes `x[i]` (float32) and"),
    (lambda: n * np.full(5, 0.5), "* mixes `n[i]` (int8) and"),
    (lambda: x * np.ones(4), "shapes do not broadcast: x[5], c"),
    (lambda: nf.compute((5,), lambda i: x[i] * np.ones(5)), "an array of shape (5,) stands where a scalar is needed"),
    (lambda: nf.evaluate(x, {x: A[0], nf.constant(1.0, name="one"): 2.0}), "one is a constant and keeps its value"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS, ids=[m for _, m in ERRORS])
def test_errors(call, message):
    check_refusal(call, message, __file__)


def test_arrays_in_expressions_are_weak_where_numpy_made_their_type():
    xs, ds, ns = A[0], A[1].astype("f8"), np.arange(5, dtype="int8")
    w, k = rng.standard_normal(5), np.arange(5)
    for y, feeds, expected, dtype in [
        (x * w, {"x": xs}, xs * w.astype("f"), "float32"),
        (w * d, {"d": ds}, ds * w, "float64"),
        (k + x, {"x": xs}, xs + k.astype("f"), "float32"),
        (n + k, {"n": ns}, 2 * ns, "int8"),
        (n + 100 * k, {"n": ns}, ns + 100 * k, "int64"),
        (x - np.ones(5, "f"), {"x": xs}, xs - 1, "float32"),
        (nf.select(x > w, x, w), {"x": xs}, np.maximum(xs, w.astype("f")), "float32"),
        (nf.exp(w) * 1.0, {}, np.exp(w), "float64"),
        (nf.expr("y[i] = x[i] * w[i] + k[i]", x=x, w=w, k=k), {"x": xs}, xs * w + k, "float32"),
        (nf.take(x, np.array([4, 0])), {"x": xs}, xs[[4, 0]], "float32"),
        (nf.sum(w), {}, w.sum(), "float64"),
        (nf.concat([x, w]), {"x": xs}, np.concatenate([xs, w]), "float32"),
        (x * np.array(2.0), {"x": xs}, xs * 2, "float32"),
    ]:
        assert y.dtype == dtype, y
        np.testing.assert_allclose(one(y, **feeds), expected, rtol=1e-6)


def test_equal_arrays_are_one_tensor():
    a, b = x * A[0], x + A[0].copy()
    assert a.inputs[1] is b.inputs[1]
    assert written(A[0]) is not nf.constant(A[0])
    assert written(np.ones(3)) is not written(np.ones(3, "f"))
    assert written(np.ones(3)) is not written(np.ones((3, 1)))


def test_gradients_by_constants_are_there_for_who_asks():
    c = nf.constant(A)
    y = nf.sum(nf.expr("y[i] = exp(sum(c[i, k] * x[k]))", c=c, x=x))
    assert nf.check_grad(y, [x, c]) <= 1
    assert nf.check_grad(y, c) <= 1
    assert nf.check_grad(y) <= 1  # by x alone
    assert nf.grad(y, [c])[0].shape == (4, 5)
    assert not any(isinstance(t, Constant) for t in nf.grad(nf.sum(x * x), [x]))


def test_texts_of_graphs_read_back():
    outputs = [
        nf.constant(rng.standard_normal((2, 3)), t, f"c_{t}") for t in ("float64", "float32", "bfloat16", "float16")
    ]
    outputs += [nf.constant([-3, 5], t) for t in ("int8", "int16", "int32", "int64")] + [nf.constant([True, False])]
    special = nf.constant(np.float32([np.nan, -0.0, np.inf, 1e-45]))
    graph = make_graph([*outputs, special * 2.0, x + A[0]], [x])
    again = Graph.from_text(graph.to_text(), graph.leaves)
    assert again.to_text() == graph.to_text()
    assert again.digest == graph.digest
    assert same_graph(graph, again)
    for a, b in zip(graph.constants, again.constants, strict=True):
        assert a.value.tobytes() == b.value.tobytes()
        assert (a.name, a.dtype, a.where) == (b.name, b.dtype, b.where)
    other = make_graph([nf.constant(np.float32([1, 2]))], [])
    assert other.digest != make_graph([nf.constant(np.float32([1, 3]))], []).digest
    assert other.digest == make_graph([nf.constant(np.float32([1, 2]))], []).digest


def test_definitions_do_not_know_values():
    y, z = x * A[0], x * A[1]
    assert y.definition is z.definition
    assert [type(t) for t in topological([y]) if not isinstance(t, Compute)].count(Constant) == 1
