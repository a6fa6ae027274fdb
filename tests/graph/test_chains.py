"""Sums of contractions become chains: the same values, one buffer."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.code import Code
from neoflow.expr.ir import same
from neoflow.graph import Pass, make_graph, run
from neoflow.graph.passes import CHAIN_SUMS
from neoflow.partition import order_calls
from neoflow.runtime.planner import make_plan
from tests.partition.test_fuse import kernels


def products(count, rows=12, width=20, inner=8):
    """Contractions [rows, width] over inputs of their own."""
    pairs = [
        (nf.placeholder((rows, inner), name=f"a{n}"), nf.placeholder((inner, width), name=f"b{n}"))
        for n in range(count)
    ]
    k = nf.axis(inner, "k")
    made = [nf.compute((rows, width), lambda i, j, a=a, b=b: nf.sum(a[i, k] * b[k, j], axis=[k])) for a, b in pairs]
    return [t for pair in pairs for t in pair], made


def feeds(inputs, seed=0):
    rng = np.random.default_rng(seed)
    return {t: rng.standard_normal(t.shape).astype(np.float32) for t in inputs}


def total(made, *others):
    def at(i, j):
        first, *rest = [*(t[i, j] for t in made), *(o(i, j) for o in others)]
        return sum(rest, first)

    return nf.compute(made[0].shape, at)


CHAIN = Pass("chain sums alone", CHAIN_SUMS.rewrites)


def chained(outputs, inputs):
    return run(make_graph(outputs, inputs), CHAIN)[0]


@pytest.mark.parametrize("count", [2, 3, 7])
def test_a_chain_has_the_same_value_and_two_terms_a_link(count):
    inputs, made = products(count)
    bias = nf.placeholder((20,), name="bias")
    d = total(made, lambda i, j: bias[j] * 2.0)
    graph = chained([d], [*inputs, bias])
    values = feeds([*inputs, bias])
    before, after = (nf.evaluate([t], values, dtype="float64")[0] for t in (d, graph.outputs[0]))
    np.testing.assert_allclose(after, before, rtol=1e-12)
    links = [t for t in graph.nodes if not t.definition.has_reduction]
    assert len(links) == count + 1 and all(len(t.inputs) <= 2 for t in links)


def test_links_are_in_the_order_of_the_graph():
    inputs, made = products(3)
    written = make_graph([total([made[2], made[0], made[1]])], inputs, None)
    order = [t for t in written.nodes if t.definition.has_reduction]
    last = run(written, CHAIN)[0].outputs[0]
    assert last.inputs[1] is order[2] and same(last.inputs[0].inputs, (order[0], order[1]))


def test_links_wait_for_nothing_deeper_and_the_rest_is_last_where_it_is():
    """made[0] reads what is deepest, though it is first in the graph; so does what else is added."""
    (a, b, *others), (_, *made) = products(3, rows=20)
    deep = a
    for _ in range(3):
        deep = nf.compute(deep.shape, lambda i, j, d=deep: nf.exp(d[i, j]) * 0.1)
    k = nf.axis(8, "k")
    first = nf.compute((20, 20), lambda i, j: nf.sum(deep[i, k] * b[k, j], axis=[k]))
    d = total([first, *made], lambda i, j: deep[i, 0] * 2.0)
    graph = chained([d], [a, b, *others])
    values = feeds([a, b, *others])
    before, after = (nf.evaluate([t], values, dtype="float64")[0] for t in (d, graph.outputs[0]))
    np.testing.assert_allclose(after, before, rtol=1e-12)
    last = graph.outputs[0]
    assert any(i.name == deep.name for i in last.inputs)  # the rest, behind all links
    (link,) = (i for i in last.inputs if i.shape == (20, 20))
    assert any(deep_in.name == deep.name for i in link.inputs if i.definition.has_reduction for deep_in in i.inputs)


def test_what_others_read_or_the_program_returns_stays():
    inputs, made = products(3)
    d = total(made)
    again = nf.compute(d.shape, lambda i, j: nf.exp(made[0][i, j]))
    assert len(chained([d, again, made[1]], inputs).nodes) == 5


def test_a_term_read_elsewhere_or_twice_or_of_another_kind_is_no_link():
    inputs, made = products(4, rows=20)
    shape = (20, 20)
    turned = nf.compute(
        shape, lambda i, j: made[0][j, i] + made[1][i, j] * 2.0 + made[2][i, j] + made[2][i, j] + made[3][i, j]
    )
    assert len(chained([turned], inputs).nodes) == 5


def test_a_sum_of_contractions_that_others_read_is_refused():
    inputs, made = products(2)
    bias = nf.placeholder((20,), name="bias")
    d = total(made, lambda i, j: bias[j])
    graph = make_graph([d, nf.exp(made[0])], [*inputs, bias])
    after, derivation = run(graph, CHAIN)
    assert after is graph and not derivation.steps
    (step,) = derivation.refused
    assert step.reason == "the contractions it adds are read elsewhere, too, all but one at most"


def test_a_weight_used_at_every_step_needs_one_buffer_for_its_gradient():
    steps, size = 6, 32
    w, x = nf.parameter((size, size), name="w"), nf.placeholder((steps, 8, size), name="x")
    k = nf.axis(size, "k")
    h = x[0]
    for t in range(1, steps):
        product = nf.compute((8, size), lambda i, j, h=h: nf.sum(h[i, k] * w[j, k], axis=[k]))
        h = nf.tanh(product + x[t])
    loss = nf.sum(h * h)
    graph, parts = kernels([loss], [x], {w: w - 0.1 * nf.grad(loss, [w])[0]})
    calls, in_place = order_calls(graph, parts)
    codes = {c.subgraph.digest: Code(()) for c in calls}
    plan = make_plan(graph, calls, in_place, parts.views, codes, 1)
    big = [b for b in plan.buffers if b.kind == "temporary" and b.shape == (size, size)]
    assert in_place == {w} and len({b.offset for b in big}) == 1
