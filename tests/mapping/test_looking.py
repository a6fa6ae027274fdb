"""How much is done to see what a graph has: counted, since time depends on the machine."""

import pytest

import neoflow as nf
from models import bert, nasnet_a, ptb_lstm_native, resnet, shufflenet, sru_rnntc
from neoflow.graph import make_graph
from neoflow.mapping import patterns, reroll
from neoflow.mapping.chains import may_recur
from neoflow.mapping.outside import ANY, DEPTHS, may_be, outside
from neoflow.mapping.unify import Looked, Unifier
from neoflow.nn import functional as F

GOALS = 3
"""Of unification, a compute of a graph."""


def trained(model):
    gradients = nf.grad(model.loss, list(model.parameters.values()))
    return make_graph([model.loss, *gradients], list(model.inputs))


def layers(count):
    """A network without recurrences, of four tensors a layer."""
    x, h = nf.placeholder((4, 6), name="x"), None
    for n in range(count):
        w = nf.parameter((6, 6), name=f"w{n}")
        h = F.layer_norm(F.softmax((x if h is None else h) @ w))
    return make_graph([h, *nf.grad(nf.sum(h), [w])], [x])


def test_most_graphs_have_no_recurrence():
    assert not may_recur(layers(20).order)
    assert may_recur(trained(ptb_lstm_native.build(2, words=11, hidden=3, steps=5)).order)
    assert may_recur(trained(sru_rnntc.build(2)).order)


@pytest.mark.slow
@pytest.mark.parametrize("model", [bert, nasnet_a, resnet], ids=lambda m: m.__name__)
def test_no_model_without_recurrences_is_looked_through(model):
    assert not may_recur(trained(model.build()).order)


@pytest.mark.slow
def test_what_looks_like_one():
    graph = trained(shufflenet.build())
    assert not reroll(graph, recurs=True).found


def test_what_is_no_pattern_in_one_layer_is_none_in_all():
    few, more = (reroll(layers(n)) for n in (20, 30))
    assert few.goals == more.goals > 0


def test_many_steps_are_unified_once():
    few, more = (reroll(trained(ptb_lstm_native.build(2, words=11, hidden=3, steps=n))).goals for n in (8, 12))
    assert more <= 1.2 * few  # what extents are tried depends on them


@pytest.mark.slow
@pytest.mark.parametrize(
    "build", [lambda: trained(ptb_lstm_native.build(steps=44)), lambda: layers(900)], ids=["recurrence", "none"]
)
def test_ten_thousand_computes(build):
    graph = build()
    assert len(graph.nodes) > 10_000
    assert 0 < reroll(graph).goals < GOALS * len(graph.nodes)


def test_what_stands_outermost_leaves_room_for_what_unifies():
    """What a pattern is, at any sizes, stands outermost in it too."""
    for p in patterns():
        if not p.cell_input:
            given = p.given(dict(zip(p.letters, range(3, 20), strict=False)))
            for n, cell in enumerate(p.cells):
                (t,) = p.results(cell, {**given, **p.attributes})
                for k, depth in enumerate(DEPTHS):
                    assert may_be(p.outside[n][k], outside(t, Unifier((), (), Looked()), depth)), (p.name, n)


def test_what_stands_outermost():
    x, y, z = (nf.placeholder((4, 6), name=n) for n in "xyz")

    def told(t, holes=(), depth=DEPTHS[-1]):
        return outside(t, Unifier(holes, (), Looked()), depth)

    assert told(x, [x]) is ANY and may_be(ANY, told(nf.exp(x)))
    two, three = x + nf.exp(y), x + nf.exp(y) + nf.tanh(z)
    assert told(two) != told(three) and told(-(x * 2.0)).kind == "Read"
    assert may_be(told(two, [x]), told(three)) and not may_be(told(two), told(three))
    assert not may_be(told(three, [x]), told(two))
    assert may_be(told(nf.exp(x) / y, [x, y]), told(nf.exp(nf.tanh(z)) / nf.tanh(x)))
    assert not may_be(told(nf.exp(x) / y, [x, y]), told(nf.exp(x) * y))
    assert not may_be(told(nf.exp(x) / y, [x, y]), told(nf.sin(x) / y))
    many = nf.exp(x)
    for _ in range(20):
        many = many + nf.exp(y)
    assert not told(many).is_exact and may_be(told(two, [x]), told(many)) and not may_be(told(three), told(many))
