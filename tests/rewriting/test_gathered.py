"""Products by the same weights as one, where these stay from call to call."""

import numpy as np

import neoflow as nf
from neoflow.graph import canonicalize, make_graph, optimize
from neoflow.models import build_model
from neoflow.nn import functional as F
from neoflow.partition import partition
from neoflow.rewriting.gathered import GATHERED, gathered, gatherings
from neoflow.rewriting.optimizing import Optimizer
from neoflow.rewriting.times import Times
from neoflow.roofs import STATED
from neoflow.superopt import Limits
from tests.chance import Chance


def weight(rows, columns, name):
    return nf.parameter((rows, columns), name=name, init=lambda shape, rng: rng.standard_normal(shape))


def program(seed):
    """Steps of an input, and what is made of them, each by one of two weights."""
    make = Chance(np.random.default_rng(seed))
    steps, size = make.between(2, 5), make.between(3, 7)
    x = nf.placeholder((steps, make.between(1, 2), size), name="x")
    weights = [weight(size, size, "v"), weight(size, size, "w")]
    results, h = [], x[0]
    for t in range(steps):
        y = F.linear(x[t], weights[make.chance(0.3)])
        h = nf.tanh(y + F.linear(h, weights[1])) if make.chance(0.5) else nf.tanh(y + h)
        results += [nf.sum(h * h)] if make.chance(0.3) else []
    return make_graph([*results, h], [x])


def products(graph):
    return sum(t.definition.has_reduction and len(t.definition.slots) > 1 for t in graph.nodes)


def law(seed):
    """Whether several products of a random program become one; its values are as they were."""
    graph = canonicalize(program(seed))
    rng = np.random.default_rng(seed)
    feeds = {t: rng.standard_normal(t.shape) for t in (*graph.inputs, *graph.parameters)}
    after = graph
    for move in gatherings(graph):
        after = move.replay(after)
    after.check()
    for g in (after, optimize(after)):
        values = (nf.evaluate(list(h.outputs), feeds, dtype="float64") for h in (g, graph))
        for a, b in zip(*values, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=f"seed {seed}")
    return products(after) < products(graph)


def test_values_stay():
    assert sum(law(seed) for seed in range(20)) >= 10


def steps_of(count, size=512, is_changed=False):
    """A placeholder, and the sums of its rows times one matrix, each behind a function of its own."""
    x, w = nf.placeholder((count, 1, size), name="x"), weight(8 * size, size, "w")
    outputs = [nf.tanh(F.linear(x[t], w)) * float(t + 1) for t in range(count)]
    return canonicalize(make_graph(outputs, [x], {w: w * 0.5} if is_changed else None))


def test_one_product_in_the_place_of_those_of_all_steps():
    graph = steps_of(5)
    (move,) = gatherings(graph)
    after = move.replay(graph)
    assert products(graph) == 5 and products(after) == 1
    (one,) = (t for t in after.nodes if t.definition.has_reduction)
    assert one.shape == (5, 1, 4096) and set(one.inputs) == {*graph.inputs, *graph.parameters}
    assert str(move) == "products like linear by the same parameter are one" and not move.steps
    assert gathered(graph, "none of its digests") is graph


def test_what_the_program_changes_is_left():
    assert not list(gatherings(steps_of(3, is_changed=True)))


def test_what_needs_another_of_them_is_left():
    w, x = weight(6, 6, "w"), nf.placeholder((2, 6), name="x")
    graph = canonicalize(make_graph([F.linear(nf.tanh(F.linear(x, w)), w)], [x]))
    (move,) = gatherings(graph)
    assert move.replay(graph).digest == graph.digest


def optimizer(without=()):
    """By the estimate alone, of kernels that all take as long as their weights take to be read."""
    times = Times(STATED, lambda kernel: 1e-4 * sum("4096" in str(n.definition) for n in kernel.nodes))
    return Optimizer(Limits(graphs=2), partition, times, without)


def test_a_search_begins_with_them_where_that_is_surely_faster():
    graph = steps_of(5)
    found = optimizer()(graph)
    assert "products like linear by the same parameter are one" in found.summary
    assert products(found.graph) == 1 and found.replay(steps_of(5)).digest == found.graph.digest
    assert not optimizer((GATHERED,))(graph).is_other


def test_of_a_model():
    model = build_model("nasrnn", 1)
    graph = canonicalize(make_graph([model.scores], [model.x]))
    after = graph
    for move in gatherings(graph):
        after = move.replay(after)
    shapes = [t.shape for t in after.nodes if t.definition.has_reduction]
    assert shapes.count((1, 4096)) == 5 and shapes.count((5, 1, 4096)) == 1
