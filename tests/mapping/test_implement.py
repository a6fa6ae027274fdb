"""Cells become their implementations: as many kernels and calls as of who wrote the implementation by hand."""

import re

import numpy as np
import pytest

import neoflow as nf
from models import ptb_lstm, ptb_lstm_native
from neoflow.graph import make_graph
from neoflow.mapping import reroll
from neoflow.mapping.beside import beside, order_of, rows_of
from neoflow.partition import flattened
from neoflow.rewriting import divided, recurring
from neoflow.rewriting.recurring import chosen
from neoflow.target import cpu_target
from neoflow.trace import Trace


def training(model):
    weights = list(model.parameters.values())
    gradients = nf.grad(model.loss, weights)
    updates = {w: w - 0.5 * g for w, g in zip(weights, gradients, strict=True)}
    return make_graph([model.loss], list(model.inputs), updates)


def calls(graph):
    """(kernels, calls of a step)"""
    _, parts = divided(graph, Trace(), cpu_target(2), "fp32", None, None)
    found, loops = flattened(parts.calls)
    turns = [1] * len(found)
    for loop in loops:
        for n in range(loop.first, loop.first + loop.count):
            turns[n] *= loop.turns
    return len({c.subgraph.digest for c in found}), sum(turns)


def test_the_native_form_has_no_more_kernels_than_the_best():
    sizes = {"words": 50, "hidden": 32, "steps": 8, "batch": 4}
    native = reroll(training(ptb_lstm_native.build(**sizes)))
    joined = training(ptb_lstm.build(loop=nf.scan, **sizes))
    ours, best = calls(native.graph), calls(joined)
    assert ours[0] <= best[0] and ours[1] <= best[1]
    assert len(native.graph.nodes) <= len(joined.nodes)


def test_the_form_that_takes_less():
    graph = training(ptb_lstm_native.build(2, words=11, hidden=4, steps=5, layers=1))
    found = chosen(graph, cpu_target(2), "fp32")
    assert found.graph is not found.mapped.graph and re.fullmatch("about .* us as loops, .* written out", found.reason)


def test_many_steps_are_loops(monkeypatch):
    monkeypatch.setattr(recurring, "MOST", 100)
    graph = training(ptb_lstm_native.build(2, words=11, hidden=4, steps=8, layers=1))
    found = chosen(graph, cpu_target(2), "fp32")
    assert found.graph is found.mapped.graph and found.reason == "loops: written out it has more than 100 computes"


W = nf.parameter((6, 4), name="w")


def test_rows():
    assert rows_of(W[2:5]) == (W, 2)
    assert rows_of(W) == (W, 0)
    for t in (W[:, 1:3], W[::2], nf.exp(W)):
        assert rows_of(t) == (t, 0)


def test_what_lies_beside_each_other_is_not_copied():
    parts = {"a": W[2:4], "b": W[4:6], "c": W[0:2]}
    assert order_of("abc", parts) == "cab"
    assert beside([parts[n] for n in "cab"]) is W
    assert rows_of(beside([parts[n] for n in "ab"])) == (W, 2)
    np.testing.assert_array_equal(
        *nf.evaluate(
            [beside([parts["b"], parts["c"]]), nf.concat([W[4:6], W[0:2]])],
            {W: np.arange(24, dtype=np.float32).reshape(6, 4)},
        )
    )
    assert order_of("ab", {"a": W[0:2], "b": nf.exp(W)}) == "ab"


@pytest.mark.parametrize("order", ["ifgo", "iofg", "fiog"])
def test_gates_in_the_order_in_which_their_weights_lie(order):
    """No weight is copied to be put beside another."""
    xs, start = nf.placeholder((6, 2, 3), name="xs"), nf.placeholder((2, 4), name="start")
    wx, wh, b = (nf.parameter(s, name=n) for n, s in {"wx": (16, 3), "wh": (16, 4), "b": (16,)}.items())
    h = c = start
    for t in range(6):
        gates = {}
        for n, g in enumerate(order):
            own = slice(4 * n, 4 * n + 4)
            u = nf.nn.functional.linear(xs[t], wx[own], b[own]) + nf.nn.functional.linear(h, wh[own])
            gates[g] = nf.tanh(u) if g == "g" else nf.sigmoid(u)
        c = gates["f"] * c + gates["i"] * gates["g"]
        h = gates["o"] * nf.tanh(c)
    graph = make_graph([h], [xs, start])
    found = reroll(graph)
    (cell,) = found.found
    assert cell.cell == "LSTM, 1 biases"
    assert not any(t.name in ("concat", "slice", "split") for t in found.graph.nodes)
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape).astype(np.float32) for t in (xs, start, wx, wh, b)}
    np.testing.assert_allclose(*(nf.evaluate(list(g.outputs), feeds)[0] for g in (graph, found.graph)), rtol=1e-5)
