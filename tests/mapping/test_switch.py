"""What is mapped without being asked, and where that is left out or asked for: worth the same."""

import re

import numpy as np
import pytest

import neoflow as nf
from models import mi_lstm, ptb_lstm, ptb_lstm_native
from neoflow import config
from neoflow.architectures import gpu_target
from neoflow.graph import make_graph
from neoflow.mapping import pattern, remove
from neoflow.rewriting import mapped, recurring
from neoflow.rewriting.recurring import KEPT, chosen
from neoflow.target import cpu_target
from neoflow.trace import Trace


def losses(steps=3):
    model = ptb_lstm_native.build(2, words=11, hidden=4, steps=6, layers=1)
    weights = list(model.parameters.values())
    gradients = nf.grad(model.loss, weights)
    updates = {w: w - 0.5 * g for w, g in zip(weights, gradients, strict=True)}
    f = nf.compile([model.loss], list(model.inputs), updates)
    x, labels = model.example()
    return f, [float(f(x, labels)[0]) for _ in range(steps)]


@pytest.mark.tvm
def test_training_with_and_without(monkeypatch):
    monkeypatch.setenv("NEOFLOW_WITHOUT", "mapping")
    f, without = losses()
    with pytest.raises(nf.ConfigError, match="there is no stage 'mapping'"):
        f.explain("mapping")
    monkeypatch.delenv("NEOFLOW_WITHOUT")
    f, mapped = losses()
    assert "6 steps of one cell in place of" in f.explain("mapping")
    assert "7 gradients derived anew" in f.explain("mapping")
    assert re.search("about .* us as loops, .* written out", f.explain("mapping"))
    np.testing.assert_allclose(mapped, without, rtol=1e-5)
    assert without[0] > without[-1]


@pytest.mark.tvm
def test_what_may_have_no_recurrence_has_no_such_stage():
    x = nf.placeholder((4, 4), name="x")
    f = nf.compile([nf.tanh(nf.tanh(nf.tanh(nf.tanh(x) @ x) @ x) @ x)], [x])
    assert "mapping" not in f.explain()


def test_a_gpu_is_asked_for_it(monkeypatch):
    """Nobody has measured yet what loops are worth there."""
    graph = graph_of(ptb_lstm_native.build(2, words=11, hidden=4, steps=6, layers=1))
    assert mapped(graph, Trace(), config.load(), gpu_target("cuda", "sm_80"), "fp32") is graph
    assert mapped(graph, Trace(), config.load(), cpu_target(2), "fp32") is not graph
    monkeypatch.setenv("NEOFLOW_WITH", "mapping")
    assert mapped(graph, Trace(), config.load(), gpu_target("cuda", "sm_80"), "fp32") is not graph


def graph_of(model):
    gradients = nf.grad(model.loss, list(model.parameters.values()))
    return make_graph([model.loss, *gradients], list(model.inputs))


def unasked(graph):
    return chosen(graph, cpu_target(2), "fp32", False)


@pytest.mark.parametrize("build", [ptb_lstm.build, mi_lstm.build], ids=["LSTM", "MI-LSTM"])
def test_what_multiplies_no_more_than_it_has_to_is_left(build, monkeypatch):
    small = {"words": 11, "hidden": 4, "steps": 6}
    graph = graph_of(build(2, **small))
    found = unasked(graph)
    assert found.graph is graph and found.reason == KEPT and found.summary.endswith("left as it is")
    monkeypatch.setattr(recurring, "MOST", len(graph.nodes) - 1)
    assert unasked(graph).graph is not graph  # of so many steps, loops


def test_products_of_each_gate_become_one():
    graph = graph_of(ptb_lstm_native.build(2, words=11, hidden=4, steps=6, layers=2))
    found = unasked(graph)
    assert found.graph is not graph and found.mapped.better == 2


def test_other_patterns_are_asked_for():
    x, w = nf.placeholder((2, 3), name="x"), nf.parameter((3, 3), name="w")
    h = x
    for _ in range(6):
        h = nf.tanh(h @ w)
    e = nf.exp(h)
    graph = make_graph([e / nf.sum(e, axis=-1, keepdims=True)], [x])
    assert not unasked(graph).mapped.cells
    assert any("softmax" in v.reason for v in chosen(graph, cpu_target(2), "fp32").mapped.cells)


def test_the_pattern_of_a_user_counts():
    def cell(x, h, w):
        return (0.9 * h + nf.tanh(x @ w),)

    def better(x, h, w):
        return (nf.tanh(x @ w) + h * 0.9,)

    xs, w = nf.placeholder((6, 2, 3), name="xs"), nf.parameter((3, 4), name="w")
    h = nf.placeholder((2, 4), name="start")
    inputs = [xs, h]
    for t in range(6):
        (h,) = cell(xs[t], h, w)
    graph = make_graph([h], inputs)
    assert unasked(graph).reason == KEPT
    pattern("leaky", {"x": "BI", "h": "BH", "w": "IH"}, cell, {"h": 0}, better)
    assert unasked(graph).mapped.better == 1
    remove("leaky")


def test_what_there_is_not(monkeypatch):
    x = nf.placeholder((2,))
    monkeypatch.setenv("NEOFLOW_WITH", "magic")
    with pytest.raises(nf.ConfigError, match="no transformation 'magic' to ask for; there are mapping, together, "):
        nf.compile([x + 1.0], [x])
