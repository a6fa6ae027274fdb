"""Reductions of the same rows are one kernel, also where a row lies in pieces and strays are between them."""

from functools import partial

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import make_graph, optimize
from neoflow.loops import problem_of
from neoflow.partition import LOSES, object_for_gpu, object_to, partition
from neoflow.partition.graph_facts import Facts
from neoflow.partition.kernels import Kernels, Merge
from neoflow.partition.rules import ALONGSIDE
from neoflow.partition.storage import Storing
from neoflow.runtime.parameters import set_value
from tests.graph.programs import norms
from tests.partition.test_fuse import run

B, C, P = 8, 16, 49
APART = partial(object_to, besides=(LOSES,))
"""A choice by which rows in pieces become no kernel with what makes them."""


def column(x, body, name):
    b, p = nf.axis(x.shape[0], "b"), nf.axis(x.shape[2], "p")
    return nf.compute((x.shape[1],), lambda c: nf.sum(body(b, c, p), axis=[b, p]), name=name)


def inputs(shape=(B, C, P)):
    return nf.placeholder(shape, name="x"), nf.placeholder(shape, name="y")


def moments(x, y):
    """Sums and sums of products of computed tensors."""
    t = nf.exp(x)
    return [
        column(x, lambda b, c, p: t[b, c, p], "first"),
        column(x, lambda b, c, p: t[b, c, p] * y[b, c, p], "second"),
        t,
    ]


def divided(roots, fed, **options):
    graph = optimize(make_graph(roots, fed))
    return graph, partition(graph, **options)


def check(graph, parts, feeds):
    values = run(parts, feeds)
    for t, wanted in zip(graph.outputs, nf.evaluate(list(graph.outputs), feeds, dtype="float64"), strict=True):
        np.testing.assert_allclose(values[t], wanted, rtol=1e-9, atol=1e-9)


def test_sums_of_the_same_rows_are_one_kernel():
    x, y = inputs()
    graph, parts = divided(moments(x, y), [x, y], choose=APART)
    assert [c.subgraph.rows for c in parts.calls] == [None, 1]
    rng = np.random.default_rng(0)
    check(graph, parts, {t: rng.uniform(-1, 1, t.shape) for t in (x, y)})
    assert len(divided(moments(x, y), [x, y], without=["alongside"], choose=APART)[1].calls) == 3


def test_a_mean_and_a_variance_are_one_kernel_though_a_row_lies_in_pieces():
    x, _ = inputs()
    mean = nf.mean(x, (0, 2))
    centred = nf.compute((B, C, P), lambda b, c, p: x[b, c, p] - mean[c], name="centred")
    variance = column(x, lambda b, c, p: centred[b, c, p] * centred[b, c, p], "variance")
    graph, parts = divided([mean, nf.rsqrt(variance + 1.0)], [x])
    (call,) = parts.calls
    strays = [call.subgraph.nodes[n - 1].definition.shape for n in call.subgraph.strays]
    assert strays.count((B, C, P)) == len(strays) >= 1
    optional = [call.subgraph.nodes[n - 1].definition.shape for n in problem_of(call.subgraph).optional]
    assert (B, C, P) not in optional
    check(graph, parts, {x: np.random.default_rng(0).uniform(-1, 1, x.shape)})


def objection(roots, fed, rule="alongside", **options):
    _, parts = divided(roots, fed, **options)
    return [d.verdict.reason for d in parts.decisions if d.rule == rule and not d.verdict.ok]


def test_other_rows_stay_apart():
    x, y = inputs((B, P, P))
    t, b, p = nf.exp(x), nf.axis(B, "b"), nf.axis(P, "p")
    other = nf.compute((P,), lambda c: nf.sum(t[b, p, c], axis=[b, p]), name="other")
    reasons = objection([other, column(x, lambda b, c, p: t[b, c, p] * y[b, c, p], "down"), t], [x, y], choose=APART)
    assert "they go through no rows of the same tensor" in reasons


def test_what_needs_the_other_to_have_finished_stays_apart():
    x, _ = inputs()
    t = nf.exp(x)
    first = column(x, lambda b, c, p: t[b, c, p], "first")
    turned = nf.compute((C,), lambda c: first[C - 1 - c] * 2.0, name="turned")
    second = column(x, lambda b, c, p: nf.tanh(t[b, c, p] * turned[c]), "second")
    assert len(divided([first, second, turned, t], [x], choose=APART)[1].calls) > 2
    facts = Facts.of(optimize(make_graph([first, second, turned, t], [x])))
    state = Kernels(Storing(facts).settle())
    a, b = (next(n for n, k in state.kernels.items() if k.head.name == name) for name in ("first", "second"))
    assert ALONGSIDE.legal(facts, state, Merge(b, a, 1)).reason == "second needs first to have finished"
    assert "which needs the first to have finished" in ALONGSIDE.legal(facts, state, Merge(a, b, 1)).reason


def test_few_long_rows_in_pieces_stay_apart_and_on_a_gpu_more_of_them():
    x, y = inputs((4, 4, 1 << 14))
    assert "threads would share 4 rows of 65536 elements" in objection(moments(x, y), [x, y])
    x, y = inputs((64, 64, 128))
    assert not objection(moments(x, y), [x, y])
    reasons = objection(moments(x, y), [x, y], choose=object_for_gpu)
    assert "threads would share 64 rows of 8192 elements" in reasons


def law(seed):
    case = norms(seed)
    graph, parts = divided(case.roots, list(case.feeds))
    check(graph, parts, case.feeds)


@pytest.mark.parametrize("seed", range(5))
def test_kernels_of_norms_compute_what_the_graph_computes(seed):
    law(seed)


@pytest.mark.slow
def test_kernels_of_norms_compute_what_the_graph_computes_for_many():
    for seed in range(1000, 2000):
        law(seed)


def step(batch, channels, space, seed):
    """A convolution, batch norm and relu with all gradients: what it gives and what evaluate gives."""
    rng = np.random.default_rng(seed)
    x = nf.placeholder((batch, 3, space, space), name="x")
    w = nf.parameter((channels, 3, 1, 1), name="w")
    gamma, beta, mean, variance = (nf.parameter((channels,), name=n) for n in ("gamma", "beta", "mean", "variance"))
    made = nf.nn.functional.batch_norm(nf.nn.functional.conv2d(x, w), gamma, beta, mean, variance)
    loss = nf.mean(nf.relu(made.y) * made.y)
    outputs = [loss, *nf.grad(loss, [w, gamma, beta])]
    feeds = {x: rng.normal(size=x.shape).astype("float32")}
    for p in (w, gamma, beta, mean, variance):
        feeds[p] = rng.uniform(0.5, 1.5, p.shape).astype("float32")
        set_value(p, feeds[p])
    updates = {mean: made.mean, variance: made.variance}
    f = nf.compile(outputs, [x], updates)
    wanted = nf.evaluate([*outputs, *updates.values()], feeds, dtype="float64")
    return f, [*f(feeds[x]), nf.get_value(mean), nf.get_value(variance)], wanted


@pytest.mark.parametrize(
    ("batch", "channels", "space"),
    [(5, 33, 7), (16, 24, 14), (3, 9, 1)],
)
@pytest.mark.slow
def test_a_step_with_batch_norm_takes_few_kernels_and_is_right(batch, channels, space):
    f, found, wanted = step(batch, channels, space, 0)
    if space > 1:
        assert len(f.compiled.calls) <= 7
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-4 * np.abs(b).max())
