"""Kernels run after what they read, before what overwrites it, and in the order that needs less memory."""

from itertools import pairwise

import numpy as np
import pytest

import neoflow as nf
from neoflow.code import Code
from neoflow.graph import canonicalize, make_graph, run
from neoflow.graph.passes import CHAIN_SUMS
from neoflow.partition import can_overwrite, order_calls, partition
from neoflow.runtime.planner import make_plan
from tests.partition.test_fuse import kernels
from tests.strategies import random_program


def check_order(graph, parts):
    calls, in_place = order_calls(graph, parts)
    assert sorted(map(id, calls)) == sorted(map(id, parts.calls))
    made = {t: n for n, c in enumerate(calls) for t in c.outputs}
    for n, call in enumerate(calls):
        assert all(made[parts.base(t)] < n for t in call.inputs if parts.base(t) in made)
    for p, value in graph.updates:
        readers = [n for n, c in enumerate(calls) if any(parts.base(t) is p for t in c.inputs)]
        if p in in_place:
            assert max(readers, default=0) <= made[value] and can_overwrite(calls[made[value]], p, value)
    return calls, in_place


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_with_updates_run_in_order(seed):
    """Each float input becomes a parameter that is moved along its gradient."""
    program = random_program(seed)
    outputs = [t for t in program.outputs if t.dtype.startswith("float")]
    assert outputs and program.float_inputs
    loss = sum((nf.sum(t) for t in outputs[1:]), nf.sum(outputs[0]))
    parameters = {t: nf.parameter(t.shape, t.dtype, t.name) for t in program.float_inputs if t.shape}
    gradients = nf.vjp(loss, program.float_inputs, allow_unused=True)
    updates = {
        parameters[t]: parameters[t] * 0.9 - g for t, g in zip(program.float_inputs, gradients, strict=True) if t.shape
    }
    graph, parts = kernels([loss], list(program.feeds), updates)
    check_order(graph, parts)


def stack(layers, batch=16, width=64):
    """A chain of dense layers with all their weights' updates."""
    x = nf.placeholder((batch, width), name="x")
    weights = [nf.parameter((width, width), name=f"w{n}") for n in range(layers)]
    k = nf.axis(width, "k")
    h = x
    for w in weights:
        h = nf.tanh(nf.compute((batch, width), lambda i, j, h=h, w=w: nf.sum(h[i, k] * w[j, k], axis=[k])))
    loss = nf.sum(h * h)
    return loss, x, weights


def test_a_gradient_is_used_up_before_the_next_is_made():
    loss, x, weights = stack(6)
    k = nf.axis(64, "k")
    gradients = nf.grad(loss, weights)
    squares = [nf.compute((64, 64), lambda i, j, g=g: nf.sum(g[i, k] * g[k, j], axis=[k])) for g in gradients]
    graph, parts = kernels([loss], [x], {w: w - s for w, s in zip(weights, squares, strict=True)})
    calls, in_place = check_order(graph, parts)
    codes = {c.subgraph.digest: Code(()) for c in calls}
    plan = make_plan(graph, calls, in_place, parts.views, codes, 1)
    square, row = 64 * 64 * 4, 16 * 64 * 4
    assert in_place == set(weights)
    assert plan.live_bytes <= 2 * square + 10 * row


def test_the_step_is_the_same_in_whatever_order():
    loss, x, weights = stack(3)
    updates = {w: w - 0.01 * g for w, g in zip(weights, nf.grad(loss, weights), strict=True)}
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape).astype(np.float32) * 0.2 for t in (x, *weights)}
    wanted = nf.evaluate([loss, *updates.values()], feeds, dtype="float64")
    for w in weights:
        nf.set_value(w, feeds[w])
    step = nf.compile([loss], [x], updates)
    found = step(feeds[x])
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4)
    for w, value in zip(weights, wanted[1:], strict=True):
        np.testing.assert_allclose(nf.compile([w * 1.0])()[0], value, rtol=1e-4, atol=1e-5)


def test_a_chain_of_sums_takes_up_each_step_when_it_is_made():
    """The weight of a recurrence: a link of its gradient between two steps of the backward pass, not all at the end."""
    x, w = nf.placeholder((16, 64), name="x"), nf.parameter((64, 64), name="w")
    k = nf.axis(64, "k")
    h = x
    for _ in range(5):
        h = nf.tanh(nf.compute((16, 64), lambda i, j, h=h: nf.sum(h[i, k] * w[j, k], axis=[k])))
    loss = nf.sum(h * h)
    (gradient,) = nf.grad(loss, [w])
    graph = canonicalize(make_graph([loss], [x], {w: w - 0.01 * gradient}))
    graph, _ = run(graph, CHAIN_SUMS)
    calls, in_place = check_order(graph, partition(graph))
    assert in_place == {w}
    links = [n for n, c in enumerate(calls) if any(t.shape == (64, 64) for t in c.outputs)]
    assert len(links) >= 4 and all(b - a > 1 for a, b in pairwise(links[1:]))
