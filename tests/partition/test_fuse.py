"""A graph divided into kernels computes what the graph computes; every rule has a sentence."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import make_graph, optimize
from neoflow.partition import can_overwrite, is_shared, order_calls, partition
from tests.strategies import random_program


def kernels(outputs, inputs, updates=None):
    graph = optimize(make_graph(outputs, inputs, updates))
    return graph, partition(graph)


def stored(parts, values, t):
    """The value of a tensor in memory."""
    if t not in parts.views:
        return values[t]
    view = parts.views[t]
    return values[view.base].reshape(-1)[view.offset : view.offset + t.size].reshape(t.shape)


def run(parts, feeds):
    """Evaluate kernel by kernel, from stored tensors only."""
    values = dict(feeds)
    for call in parts.calls:
        inputs, outputs = call.subgraph.tensors()
        arrays = {i: stored(parts, values, t) for i, t in zip(inputs, call.inputs, strict=True)}
        for t, value in zip(call.outputs, nf.evaluate(list(outputs), arrays, dtype="float64"), strict=True):
            values[t] = value.reshape(t.shape)
            if t in parts.views:
                view = parts.views[t]
                whole = values.setdefault(view.base, np.full(view.base.shape, np.nan))
                whole.reshape(-1)[view.offset : view.offset + t.size] = value.reshape(-1)
    return values


def law(seed):
    program = random_program(seed)
    roots = program.with_gradients()
    graph, parts = kernels(roots, list(program.feeds))
    values = run(parts, program.feeds)
    for t, wanted in zip(graph.outputs, nf.evaluate(roots, program.feeds, dtype="float64"), strict=True):
        np.testing.assert_allclose(values[t], wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_kernels_compute_what_the_graph_computes(seed):
    law(seed)


@pytest.mark.slow
def test_kernels_compute_what_the_graph_computes_for_many():
    for seed in range(1000, 3000):
        law(seed)


def dense(x, w, b):
    k = nf.axis(w.shape[1], "k")
    y = nf.compute((x.shape[0], w.shape[0]), lambda i, j: nf.sum(x[i, k] * w[j, k], axis=[k]))
    return nf.relu(y + b)


def test_epilogue_rides_with_the_contraction():
    x, w, b = nf.placeholder((8, 16), name="x"), nf.parameter((32, 16), name="w"), nf.parameter((32,), name="b")
    _, parts = kernels([dense(x, w, b)], [x])
    assert len(parts.calls) == 1
    assert len(parts.calls[0].outputs) == 1


def test_update_rides_with_the_gradient_and_is_in_place():
    x, w, b = nf.placeholder((8, 16), name="x"), nf.parameter((32, 16), name="w"), nf.parameter((32,), name="b")
    loss = nf.mean(dense(x, w, b))
    dw, db = nf.grad(loss, [w, b])
    graph, parts = kernels([loss], [x], {w: w - 0.1 * dw, b: b - 0.1 * db})
    calls, in_place = order_calls(graph, parts)
    assert in_place == {w, b}
    readers = [n for n, c in enumerate(calls) if any(t is w for t in c.inputs)]
    writer = next(n for n, c in enumerate(calls) if any(t is dict(graph.updates)[w] for t in c.outputs))
    assert writer == max(readers)
    assert can_overwrite(calls[writer], w, dict(graph.updates)[w])


def test_an_input_that_two_outputs_need_is_overwritten():
    x, m, w = nf.placeholder((8, 16), name="x"), nf.parameter((8, 16), name="m"), nf.parameter((8, 16), name="w")
    new = m * 0.9 + x
    graph, parts = kernels([], [x], {m: new, w: w + new * m})
    calls, in_place = order_calls(graph, parts)
    assert len(calls) == 1 and in_place == {m, w} and is_shared(calls[0].subgraph)


def test_an_input_that_another_output_reads_elsewhere_is_not_overwritten():
    x, m, w = nf.placeholder((8, 8), name="x"), nf.parameter((8, 8), name="m"), nf.parameter((8, 8), name="w")
    graph, parts = kernels([], [x], {m: m * 0.9 + x, w: w + nf.transpose(m, (1, 0)) * x})
    calls, in_place = order_calls(graph, parts)
    writer = next(c for c in calls if any(t is dict(graph.updates)[m] for t in c.outputs))
    assert w in in_place and (len(calls) == 2 or m not in in_place)
    assert len(calls) == 2 or not can_overwrite(writer, m, dict(graph.updates)[m])


def test_a_transposed_read_of_the_parameter_is_not_in_place():
    w = nf.parameter((4, 4), name="w")
    graph, parts = kernels([], [], {w: nf.compute((4, 4), lambda i, j: w[j, i] * 2.0)})
    _, in_place = order_calls(graph, parts)
    assert not in_place


def test_equal_subgraphs_are_one():
    x = nf.placeholder((8, 16), name="x")
    h = x
    for n in range(5):
        h = dense(h, nf.parameter((16, 16), name=f"w{n}"), nf.parameter((16,), name=f"b{n}"))
    _, parts = kernels([h], [x])
    assert len(parts.calls) == 5
    assert len(parts.subgraphs) == 1


def test_slices_and_reshapes_of_stored_tensors_are_views():
    x = nf.placeholder((9, 6, 8), name="x")
    w = nf.parameter((8, 8), name="w")
    h = nf.zeros((6, 8))
    for t in range(9):
        k = nf.axis(8, "k")
        step = x[t]
        h = nf.tanh(nf.compute((6, 8), lambda b, j, h=h, k=k: nf.sum(h[b, k] * w[k, j], axis=[k])) + step)
    _, parts = kernels([h], [x])
    assert sorted(v.offset for v in parts.views.values()) == [48 * t for t in range(9)]
    assert len(parts.calls) == 9 and len(parts.subgraphs) <= 4  # first, second, last, and all between


def test_what_is_compared_for_equality_is_stored():
    x = nf.placeholder((8, 16), name="x")
    y = nf.max(x * 3.0 + 1.0, axis=1)
    (dx,) = nf.vjp(y, [x])
    _, parts = kernels([y, dx], [x])
    reasons = [d.verdict.reason for d in parts.decisions if not d.verdict.ok]
    assert any("compares it for equality" in r for r in reasons)


def test_verdicts_have_sentences():
    x, w, b = nf.placeholder((8, 16), name="x"), nf.parameter((32, 16), name="w"), nf.parameter((32,), name="b")
    loss = nf.mean(dense(x, w, b))
    _, parts = kernels(nf.grad(loss, [w, b]), [x])
    assert parts.decisions
    assert all(len(d.verdict.reason) > 10 for d in parts.decisions)


def test_a_guarded_update_with_its_states_is_one_kernel():
    """What a trainer makes of Adam: new values only where the loss is finite. What is chosen from is not stored."""
    shape = (16, 24)
    x, w, m, v = (nf.placeholder((8, 16), name="x"), *(nf.parameter(shape, name=n) for n in "wmv"))
    k = nf.axis(16, "k")
    y = nf.compute((8, 24), lambda i, j: nf.sum(x[i, k] * w[k, j], axis=[k]))
    loss = nf.mean(y * y)
    (g,) = nf.grad(loss, [w])
    mean, square = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    new = {m: mean, v: square, w: w - 0.1 * mean / (nf.sqrt(square) + 1e-3)}
    finite = nf.abs(loss) <= 1e30
    graph, parts = kernels([loss], [x], {p: nf.select(finite, value, p) for p, value in new.items()})
    calls, in_place = order_calls(graph, parts)
    assert in_place == {w, m, v}
    assert [len(c.outputs) for c in calls if any(t.shape == shape for t in c.outputs)] == [3]


def test_a_lookup_of_each_element_stays_out_of_a_contraction():
    a, b, ids = nf.placeholder((32, 50)), nf.placeholder((50, 24)), nf.placeholder((32, 24), "int64")
    table, rows = nf.placeholder((11,)), nf.placeholder((11, 24))
    product = nf.expr("y[i,j] = sum(a[i,k] * b[k,j])", a=a, b=b)
    biased = nf.compute((32, 24), lambda i, j: product[i, j] + table[ids[i, j]], name="biased")
    _, parts = kernels([biased], [a, b, table, ids])
    assert len(parts.calls) == 2
    refused = [d.verdict.reason for d in parts.decisions if not d.verdict.ok]
    assert "biased looks up each element, and a contraction writes whole vectors" in refused
    embedded = nf.compute((32, 24), lambda i, j: product[i, j] + rows[ids[i, 0], j])
    _, parts = kernels([embedded], [a, b, rows, ids])
    assert len(parts.calls) == 1


@pytest.mark.parametrize("steps", [10, 60])
def test_slices_of_many_steps_are_not_padded_in_memory(steps):
    """The gradient of a tensor read slice by slice: one kernel puts the slices together, however many there are."""
    x = nf.placeholder((steps, 6, 8), name="x")
    ids = nf.placeholder((steps, 6), "int64", name="ids")
    table, w = nf.parameter((20, 8), name="table"), nf.parameter((8, 8), name="w")
    taken, k = nf.take(table, ids, axis=0), nf.axis(8, "k")
    h = x[0]
    for t in range(steps):
        product = nf.compute((6, 8), lambda b, j, h=h: nf.sum(h[b, k] * w[k, j], axis=[k]))
        h = nf.tanh(product + taken[t])
    _, parts = kernels(nf.grad(nf.sum(h), [table, w]), [x, ids])
    stored = [t for c in parts.calls for t in c.outputs]
    assert sum(t.shape == (steps, 6, 8) for t in stored) <= 2
