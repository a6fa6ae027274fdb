"""Kernels carried over to a graph whose operands lie packed: the ones that all rules would give again."""

from collections import Counter

import pytest

import neoflow as nf
from neoflow.graph import Layout, Wish, make_graph, operands, optimize, pack_shared
from neoflow.graph.packing import counterparts
from neoflow.partition import carried, partition
from neoflow.partition.carried import RULE
from tests.rewriting.test_layouts import step_of

WIDTH = 8


def panels(graph, tensor):
    """What contractions wish for that read a tensor along an axis of their own."""
    found = {}
    for t in graph.nodes:
        for o in operands(t.definition):
            if t.inputs[o.slot] is tensor and t.definition not in found:
                found[t.definition] = Wish(t.definition, o.slot, Layout((), 0, (1,), WIDTH), 1)
    return tuple(found.values())


def test_the_kernels_are_those_of_the_packed_graph():
    graph = step_of(size=64, gates=160, batch=20, steps=4)
    first = partition(graph)
    for p in graph.parameters:
        packed, derivation = pack_shared(graph, panels(graph, p))
        assert derivation.steps
        now = counterparts(graph, packed)
        again, other = carried(first, packed, now), partition(packed)
        assert Counter(c.subgraph.digest for c in again.calls) == Counter(c.subgraph.digest for c in other.calls)
        assert [c.name for c in again.calls] == [c.name for c in other.calls]
        assert [d.subject for d in again.decisions if d.rule == RULE] == [
            f"{t.name}{list(t.shape)}" for t in packed.nodes if t.name.endswith("_packed")
        ]


def test_what_has_no_counterpart_has_a_kernel_of_its_own():
    x = nf.placeholder((4, 8), name="x")
    graph = make_graph([nf.exp(x)], [x])
    y = nf.log(x)
    more = make_graph([*graph.outputs, y], [x])
    first = partition(graph)
    again = carried(first, more, {t: t for t in graph.order})
    assert again.calls[0] is first.calls[0] and [c.outputs for c in again.calls] == [(graph.outputs[0],), (y,)]
    assert "carried over: log[4, 8]: no, it is new, and has a kernel of its own" in map(str, again.decisions)


@pytest.mark.parametrize("seed", range(3))
def test_every_tensor_has_a_counterpart(seed):
    graph = optimize(make_graph(*_small(seed)))
    wishes = [w for p in graph.parameters for w in panels(graph, p)]
    packed, _ = pack_shared(graph, wishes)
    now = counterparts(graph, packed)
    assert set(now) == set(graph.order)
    assert all(a.shape == b.shape and a.name == b.name for a, b in now.items())


def _small(seed):
    w = nf.parameter((16, 16), name="w")
    x = nf.placeholder((4 + seed, 16), name="x")
    k = nf.axis(16, "k")
    h = x
    for _ in range(seed + 1):
        h = nf.tanh(nf.compute(x.shape, lambda i, j, h=h: nf.sum(h[i, k] * w[j, k], axis=[k]), name="h"))
    return [h], [x], {w: w - nf.grad(nf.sum(h), [w])[0]}


def test_kernels_with_rows_at_other_dimensions_are_carried_over():
    """A norm by channels of one image, of a contraction whose operand lies packed."""
    shape = (1, 64, 80)
    x, w = nf.placeholder((1, 32, 80), name="x"), nf.parameter((64, 32), name="w")
    y = nf.expr("y[b,o,p] = sum(x[b,c,p] * w[o,c])", x=x, w=w)
    mean = nf.mean(y, (0, 2))
    centred = nf.compute(shape, lambda b, c, p: y[b, c, p] - mean[c], name="centred")
    scale = nf.rsqrt(nf.mean(centred * centred, (0, 2)) + 1e-3)
    z = nf.compute(shape, lambda b, c, p: centred[b, c, p] * scale[c], name="z")
    graph = optimize(make_graph([z], [x]))
    first = partition(graph)
    packed, derivation = pack_shared(graph, panels(graph, w))
    now = counterparts(graph, packed)
    again = carried(first, packed, now)
    (before,), (after,) = ([c for c in cut.calls if c.turns] for cut in (first, again))
    assert derivation.steps and before is not after and after.subgraph.digest == before.subgraph.digest
    assert set(after.nodes) <= set(packed.nodes)
