"""A graph is what one call computes: checked, ordered, and another one when tensors of it are replaced."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.tensor import Compute
from neoflow.graph import make_graph, optimize
from tests.strategies import random_program


def test_missing_input_is_named():
    x, y = nf.placeholder((3,), name="x"), nf.placeholder((3,), name="y")
    with pytest.raises(nf.GraphError, match="reads placeholder y, which is not among the inputs"):
        make_graph([x + y], [x])


def test_update_of_another_shape_is_refused():
    w = nf.parameter((3,), name="w")
    with pytest.raises(nf.GraphError, match=r"parameter w is float32\(3,\) but its update is float32\(2, 3\)"):
        make_graph([], [], {w: w + nf.parameter((2, 3), name="v")})


def test_update_of_a_placeholder_is_refused():
    x = nf.placeholder((3,), name="x")
    with pytest.raises(nf.GraphError, match="x is updated but is no parameter"):
        make_graph([], [x], {x: x * 2.0})


def test_order_respects_reads():
    program = random_program(3)
    graph = optimize(make_graph(program.outputs, list(program.feeds)))
    seen = set()
    for t in graph.order:
        if isinstance(t, Compute):
            assert all(i in seen for i in t.inputs)
        seen.add(t)


def test_what_reads_a_replaced_tensor_reads_the_other():
    x, w = nf.placeholder((3,), name="x"), nf.parameter((3,), name="w")
    a = nf.exp(x)
    b = a * 2.0
    graph = make_graph([a, b], [x], {w: b + w})
    after = graph.replace({a: nf.tanh(x)})
    feeds = {x: np.array([0.1, 0.2, 0.3]), w: np.array([1.0, 2.0, 3.0])}
    found = nf.evaluate(after.roots, feeds, dtype="float64")
    t = np.tanh(feeds[x])
    for value, wanted in zip(found, (t, 2 * t, 2 * t + feeds[w]), strict=True):
        np.testing.assert_allclose(value, wanted)
    assert after.inputs == graph.inputs and after.updates[0][0] is w
    assert graph.replace({}).digest == graph.digest


def test_a_tensor_may_be_replaced_by_what_reads_it():
    x = nf.placeholder((3,), name="x")
    a = nf.exp(x)
    after = make_graph([a + a], [x]).replace({a: a * 2.0})
    (found,) = nf.evaluate(after.outputs, {x: np.zeros(3)}, dtype="float64")
    np.testing.assert_allclose(found, 4.0)


def test_several_are_replaced_at_once():
    """Two products as slices of one: neither is left."""
    x = nf.placeholder((2, 3), name="x")
    a, b = x[0] * 2.0, x[1] * 2.0
    both = x * 2.0
    after = make_graph([a, b, a + b], [x]).replace({a: both[0], b: both[1]})
    assert {t.name for t in after.nodes} == {"mul", "slice", "add"}
    feeds = {x: np.arange(6, dtype=np.float32).reshape(2, 3)}
    np.testing.assert_allclose(nf.evaluate(after.outputs, feeds)[2], 2 * feeds[x].sum(0))


def test_a_replacement_of_another_shape_or_type_is_refused():
    x = nf.placeholder((3,), name="x")
    a = nf.exp(x)
    graph = make_graph([a], [x])
    with pytest.raises(nf.GraphError, match=r"exp is float32\[3\] and cannot be replaced by \w+, float32\[2, 3\]"):
        graph.replace({a: nf.compute((2, 3), lambda i, j: x[j])})
    with pytest.raises(nf.GraphError, match=r"exp is float32\[3\] and cannot be replaced by \w+, float64\[3\]"):
        graph.replace({a: nf.cast(x, "float64")})


def test_what_is_not_in_the_graph_is_not_replaced():
    x = nf.placeholder((3,), name="x")
    with pytest.raises(nf.GraphError, match="tanh is to be replaced but is not in the graph"):
        make_graph([nf.exp(x)], [x]).replace({nf.tanh(x): x})


def test_a_replacement_that_needs_what_reads_it_is_refused():
    x = nf.placeholder((3,), name="x")
    a = nf.exp(x)
    b = nf.tanh(a)
    graph = make_graph([b], [x])
    with pytest.raises(nf.GraphError, match="tanh is to read mul, which needs tanh itself"):
        graph.replace({a: b * 2.0})
