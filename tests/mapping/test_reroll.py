"""Recurrences that are written out: found, refused, and worth the same as before."""

import numpy as np
import pytest

import neoflow as nf
from models import ptb_lstm_native
from neoflow.autodiff.backward import Pulled
from neoflow.expr.memo import memo_of
from neoflow.expr.recurrence import runs_of
from neoflow.graph import make_graph
from neoflow.mapping import reroll
from tests.mapping.near import drawn, lstm, wrong_cell
from tests.random_recurrences import draw, gradients

RNG = np.random.default_rng(5)


def graph_of(outputs, feeds):
    return make_graph(outputs, [t for t in feeds if not isinstance(t, nf.expr.tensor.Parameter)])


def assert_equal_values(before, after, feeds):
    for a, b in zip(*(nf.evaluate(list(g.outputs), feeds) for g in (before, after)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4 * max(1.0, float(np.abs(a).max())))


def native(steps):
    model = ptb_lstm_native.build(2, words=11, hidden=3, steps=steps, layers=2)
    gradients = nf.grad(model.loss, list(model.parameters.values()))
    x, labels = model.example()
    feeds = {model.x: x, model.labels: labels, **model.initial()}
    return make_graph([model.loss, *gradients], list(model.inputs)), feeds


def test_two_layers_forward_and_backward():
    graph, feeds = native(8)
    found = reroll(graph)
    assert [f.run.recurrence.steps for f in found.found] == [8, 8]
    assert [r.recurrence.is_reversed for r in runs_of(found.graph.order)] == [False, False, True, True]
    assert [f.cell for f in found.found] == ["LSTM, 2 biases", "LSTM, 2 biases"]
    assert_equal_values(graph, found.graph, feeds)
    assert "8 steps of one cell in place of" in str(found) and "2 recurrences in place of" in found.summary
    assert "LSTM, 2 biases: implemented" in str(found) and "11 gradients derived anew" in str(found)


def test_a_backward_pass_that_nobody_derived():
    """Its steps are found as they stand, and the forward ones keep what these read."""
    graph, feeds = native(8)
    for t in graph.order:
        memo_of(t).pop(Pulled, None)
    found = reroll(graph)
    assert [f.run.recurrence.steps for f in found.found] == [8, 8, 7, 7]
    assert [f.run.recurrence.is_reversed for f in found.found] == [False, False, True, True]
    assert all(len(f.run.recurrence.carried) == 2 for f in found.found)
    assert [f.cell for f in found.found] == ["LSTM, 2 biases", "LSTM, 2 biases", None, None]
    assert_equal_values(graph, found.graph, feeds)
    assert "LSTM, 2 biases: what it computes inside, " in str(found)


def test_its_size_does_not_depend_on_the_steps():
    few, more = (len(reroll(native(steps)[0]).graph.nodes) for steps in (8, 14))
    assert few == more


@pytest.mark.slow
def test_the_grid_of_the_whole_model():
    model = ptb_lstm_native.build(hidden=20, words=100)
    graph = make_graph([model.loss], list(model.inputs))
    assert [f.run.recurrence.steps for f in reroll(graph).found] == [20, 20]


def cell(h, x, w):
    return nf.tanh(h @ w + x)


def unrolled(xs, start, w):
    rows = []
    for x in xs:
        start = cell(start, x, w)
        rows.append(start)
    return rows


def feeds_of(*tensors):
    return {t: RNG.standard_normal(t.shape).astype(np.float32) for t in tensors}


@pytest.mark.parametrize("first", [0, 1], ids=["steps first", "batch first"])
def test_both_directions(first):
    steps = 7
    xs = nf.placeholder((steps, 2, 4) if first == 0 else (2, steps, 4), name="xs")
    start = nf.placeholder((2, 4), name="start")
    forth, back = (nf.parameter((4, 4), name=n) for n in ("forth", "back"))
    rows = [xs[t] if first == 0 else xs[:, t] for t in range(steps)]
    ahead, behind = unrolled(rows, start, forth), unrolled(rows[::-1], start, back)[::-1]
    out = nf.stack([nf.concat([a, b], 1) for a, b in zip(ahead, behind, strict=True)])
    feeds = feeds_of(xs, start, forth, back)
    graph = graph_of([out], feeds)
    found = reroll(graph)
    assert [f.run.recurrence.steps for f in found.found] == [steps, steps]
    assert sorted(f.run.recurrence.is_reversed for f in found.found) == [False, True]
    assert_equal_values(graph, found.graph, feeds)


def gated(kind, x, state, w):
    """A step of a known cell, a product a gate: its state, of which the first tensor is given on."""
    pre = [x @ u + state[0] @ v for u, v in zip(w[::2], w[1::2], strict=True)]
    if kind == "RNN":
        return (nf.tanh(pre[0]),)
    i, f, o = map(nf.sigmoid, (pre[0], pre[1], pre[3]))
    c = f * state[1] + i * nf.tanh(pre[2])
    return o * nf.tanh(c), c


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("kind, gates", [("RNN", 1), ("LSTM", 4)])
def test_the_grid_of_layers_both_ways(kind, gates, layers):
    """Of layers x directions x steps of one cell, a recurrence a layer and direction, forward and backward."""
    steps, batch, size = 6, 2, 3
    xs, start = nf.placeholder((steps, batch, size), name="xs"), nf.placeholder((batch, size), name="start")
    rows, weights = [xs[t] for t in range(steps)], []
    for n in range(layers):
        width, ways = rows[0].shape[1], []
        for way in (1, -1):
            w = [nf.parameter((s, size), name=f"w{n}{way}{g}") for g in range(gates) for s in (width, size)]
            weights += w
            state, found = (start,) * (2 if kind == "LSTM" else 1), []
            for x in rows[::way]:
                state = gated(kind, x, state, w)
                found.append(state[0])
            ways.append(found[::way])
        rows = [nf.concat([a, b], 1) for a, b in zip(*ways, strict=True)]
    loss = nf.mean(nf.stack(rows) ** 2)
    feeds = feeds_of(xs, start, *weights)
    graph = graph_of([loss, *nf.grad(loss, weights)], feeds)
    found = reroll(graph)
    assert [(f.cell, f.run.recurrence.steps) for f in found.found] == [(kind, steps)] * 2 * layers
    assert sum(f.run.recurrence.is_reversed for f in found.found) == layers
    assert len(runs_of(found.graph.order)) == 4 * layers
    assert_equal_values(graph, found.graph, feeds)


@pytest.mark.parametrize("is_trained", [False, True])
def test_steps_of_one_expression_each(is_trained):
    steps = 7
    ids, table = nf.placeholder((steps, 2), "int64", name="ids"), nf.parameter((5, 4), name="table")
    h = start = nf.placeholder((2, 4), name="start")
    xs, w = nf.placeholder((2, steps, 4), name="xs"), nf.parameter((4, 4), name="w")
    for t in range(steps):
        text = "y[b, c] = tanh(sum(h[b, k] * w[k, c]) + xs[b, T, c] + table[ids[T, b], c])".replace("T", str(t))
        h = nf.expr(text, h=h, w=w, xs=xs, table=table, ids=ids)
    feeds = {**feeds_of(start, xs, w, table), ids: RNG.integers(0, 5, ids.shape)}
    loss = nf.sum(h * h)
    graph = graph_of([h, *(nf.grad(loss, [w, xs, table]) if is_trained else [])], feeds)
    found = reroll(graph)
    assert [f.run.recurrence.steps for f in found.found] == [steps]
    assert len(runs_of(found.graph.order)) == (2 if is_trained else 1)
    assert_equal_values(graph, found.graph, feeds)


def test_the_last_value_alone_is_not_kept_of_every_step():
    xs, start, w = nf.placeholder((9, 2, 4)), nf.placeholder((2, 4)), nf.parameter((4, 4), name="w")
    feeds = feeds_of(xs, start, w)
    graph = graph_of([unrolled([xs[t] for t in range(9)], start, w)[-1]], feeds)
    found = reroll(graph)
    assert [type(t).__name__ for t in found.graph.order if hasattr(t, "run")] == ["Last"]
    assert_equal_values(graph, found.graph, feeds)


def test_steps_that_are_given_tensors_of_their_own():
    xs = [nf.placeholder((2, 4), name=f"x{n}") for n in range(6)]
    start, w = nf.placeholder((2, 4), name="start"), nf.parameter((4, 4), name="w")
    feeds = feeds_of(*xs, start, w)
    graph = graph_of([unrolled(xs, start, w)[-1]], feeds)
    found = reroll(graph)
    assert [f.run.recurrence.steps for f in found.found] == [6]
    assert_equal_values(graph, found.graph, feeds)


def test_weights_of_each_step_are_no_cell():
    xs, start = nf.placeholder((6, 2, 4)), nf.placeholder((2, 4), name="start")
    weights = [nf.parameter((4, 4), name=f"w{n}") for n in range(6)]
    h = start
    for n, w in enumerate(weights):
        h = cell(h, xs[n], w)
    assert not reroll(graph_of([h], feeds_of(xs, start))).found


def test_a_graph_without_recurrences():
    x = nf.placeholder((4, 4))
    found = reroll(make_graph([nf.exp(x) @ x], [x]))
    assert str(found) == "no tensors follow from each other in equal steps"
    assert found.summary == "0 recurrences in place of 0 tensors"


@pytest.mark.parametrize("seed", range(8))
def test_values_and_gradients_of_random_recurrences(seed):
    program = draw(seed, seed % 2, (5, 10))
    graph = graph_of([*program.unrolled, *gradients(program, program.unrolled)], program.feeds)
    assert_equal_values(graph, reroll(graph).graph, program.feeds)


def whole(found, steps):
    return any(f.run.recurrence.steps == steps for f in found.found)


def test_the_cell_of_which_there_are_near_misses():
    outputs, _, inputs = lstm(9, np.random.default_rng(0))
    assert whole(reroll(make_graph(outputs, inputs)), 9)


NEAR = [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 600))]


@pytest.mark.parametrize("seed", NEAR)
def test_near_misses(seed):
    """A step that differs in a gate, a function, a state, a weight or what it is given is in no recurrence."""
    outputs, feeds, inputs = drawn(seed)
    graph = make_graph(outputs, inputs)
    found = reroll(graph)
    assert not whole(found, inputs[0].shape[0])
    assert_equal_values(graph, found.graph, feeds)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(s, marks=pytest.mark.slow) for s in range(2, 100))])
def test_cells_that_are_wrong_in_every_step(seed):
    """They are recurrences, and none that is known."""
    outputs, feeds, inputs = wrong_cell(seed)
    graph = make_graph(outputs, inputs)
    found = reroll(graph)
    assert not any((f.cell or "").startswith("LSTM") for f in found.found)
    assert_equal_values(graph, found.graph, feeds)
