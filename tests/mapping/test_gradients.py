"""Gradients are derived anew where `nf.grad` gave them, in the order in which they need each other."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import make_graph
from neoflow.mapping import reroll
from neoflow.mapping.gradients import apart

RNG = np.random.default_rng(3)
X = nf.placeholder((2, 3), name="x")
W, V = nf.parameter((3, 3), name="w"), nf.parameter((3, 3), name="v")
FEEDS = {t: RNG.standard_normal(t.shape).astype(np.float32) for t in (X, W, V)}


def assert_the_same(graph):
    parts = apart(graph)
    again = parts.joined(parts.graph.outputs)
    for a, b in zip(*(nf.evaluate(list(g.outputs), FEEDS) for g in (graph, again)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return parts


def test_gradients_are_apart():
    loss = nf.sum(nf.tanh(X @ W))
    (g,) = nf.grad(loss, [W])
    parts = assert_the_same(make_graph([loss, g * 2.0], [X]))
    assert list(parts.stands.values()) == [W]
    assert W not in make_graph([parts.graph.outputs[1]], list(parts.graph.inputs)).parameters


def test_gradients_of_gradients():
    loss = nf.sum(nf.tanh(X @ W))
    (g,) = nf.grad(loss, [W])
    (second,) = nf.grad(nf.sum(g * g), [W])
    parts = assert_the_same(make_graph([g, second], [X]))
    assert len(parts.stands) == 2


def test_a_gradient_in_another_loss():
    h = nf.tanh(X @ W)
    (g,) = nf.grad(nf.sum(h * nf.tanh(V @ W)[:2]), [V])
    loss = nf.sum(h * h) + nf.sum(g * g)
    parts = assert_the_same(make_graph([loss, *nf.grad(loss, [W])], [X]))
    assert list(parts.stands.values()) == [V, W]


def test_a_cotangent_is_no_gradient_of_its_own():
    c = nf.tanh(X @ W)
    (g,) = nf.vjp(X, [X], c)
    assert g is c and not apart(make_graph([g], [X])).stands


def test_gradients_by_what_is_computed_stay():
    h = nf.tanh(X @ W)
    parts = assert_the_same(make_graph(nf.grad(nf.sum(h * h), [h]), [X]))
    assert not parts.stands


@pytest.mark.parametrize("form", ["vjp", "grad"])
def test_of_an_unrolled_recurrence(form):
    h, states = X, []
    for _ in range(6):
        h = nf.tanh(h @ W)
        states.append(h)
    y = nf.stack(states)
    found = nf.vjp(y, [W, X], y * 0.5) if form == "vjp" else nf.grad(nf.sum(y * y), [W, X])
    graph = make_graph([y, *found], [X])
    mapped = reroll(graph)
    assert len(mapped.parts.stands) == 2 and len(mapped.graph.nodes) < len(graph.nodes) / 2
    for a, b in zip(*(nf.evaluate(list(g.outputs), FEEDS) for g in (graph, mapped.graph)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
