"""Activations that lie otherwise: values stay, forward and backward; what pays is taken, and what does not says so."""

import numpy as np
import pytest

import neoflow as nf
from benchmarks.flowing import channels, turned
from neoflow import nn
from neoflow.graph import Layout, in_blocks, make_graph, optimize
from neoflow.nn import functional as F
from neoflow.partition import partition
from neoflow.rewriting import flowing, lying
from neoflow.rewriting.flowing import BLOCKED, SWAPPED, flow, nobody
from neoflow.rewriting.judging import swept
from neoflow.rewriting.orders import kernel_of
from tests.chance import Chance
from tests.codegen.kernels import TARGET, WIDE
from tests.graph.programs import PROGRAMS


@pytest.fixture
def wanted(monkeypatch):
    """Whatever is legal is thought to pay."""
    monkeypatch.setattr(flowing, "CLEARLY", 30.0)
    monkeypatch.setattr(flowing, "ROOM", 30.0)
    monkeypatch.setattr(flowing, "_refused", lambda *_: None)
    monkeypatch.setattr(flowing, "LEAST", 0)


def network(seed):
    """Convolutions, wide and depthwise, with padding, pooling, a residual and a transpose, of random sizes, few of
    which a block divides; its loss, its result and the gradients."""
    make = Chance(np.random.default_rng(seed))
    p = nn.Parameters(f"n{seed}", gain=2**0.5)
    channels, size = make.pick((32, 48, 20, 33)), make.between(5, 9)
    x = nf.placeholder((make.between(1, 2), 3, size, size), name="x")
    y = nn.conv_norm(p, "a", x, channels, 3, 1, 1, training=make.chance(0.5))
    if make.chance(0.7):
        y = nn.conv_norm(p, "b", y, channels, 3, make.pick((1, 2)), 1, channels, training=False)
    if make.chance(0.5):
        y = y + nf.tanh(F.conv2d(y, p("c.weight", channels, channels, 1, 1)))
    y = F.max_pool(y, 2) if make.chance(0.5) else y
    y = F.conv2d(y, p("d.weight", 32, channels, 1, 1))
    if make.chance(0.5):
        y = nf.relu(nf.transpose(nf.tanh(y), (0, 2, 3, 1)) * 2.0)
    loss = nf.mean(nf.exp(y * 0.1))
    wrt = list(p.values())
    roots = [loss, *nf.grad(loss, wrt, allow_unused=True)]
    graph = optimize(make_graph(roots, [x]))
    feeds = {t: make.rng.uniform(0.1, 1, t.shape).astype("float32") for t in (x, *graph.parameters)}
    return graph, feeds


def law(kind, graph, values):
    """How many streams lie otherwise; what is computed stays."""
    found = flow(graph, kind, TARGET, partition, nobody)
    found.graph.check()
    for a, b in zip(values(graph.roots), values(found.graph.roots), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)
    return sum(v.ok for _, v in found.said)


def networks(seeds):
    counts = {BLOCKED: 0, SWAPPED: 0}
    for seed in seeds:
        graph, feeds = network(seed)
        for kind in counts:
            counts[kind] += law(kind, graph, lambda roots, f=feeds: nf.evaluate(list(roots), f, dtype="float64"))
    return counts


def programs(seeds):
    counts = {BLOCKED: 0, SWAPPED: 0}
    for seed in seeds:
        for program in PROGRAMS:
            case = program(seed)
            graph = optimize(make_graph(case.roots, list(case.feeds)))
            for kind in counts:
                counts[kind] += law(kind, graph, case.values)
    return counts


def test_values_stay_forward_and_backward(wanted):
    counts = networks((0, 1, 3))
    assert counts[BLOCKED] >= 2 and counts[SWAPPED] >= 1


@pytest.mark.slow
def test_values_stay_in_many_programs(wanted):
    assert programs(range(500, 512))[SWAPPED] >= 3


@pytest.mark.tvm
@pytest.mark.parametrize(("make", "kind"), [(turned, SWAPPED), (channels, BLOCKED)])
def test_what_is_taken_is_right(make, kind, monkeypatch, wanted):
    monkeypatch.setattr(lying, "flow", lambda graph, kind, _, *rest: flow(graph, kind, WIDE, *rest))
    (y,), x = make()
    f = nf.compile([y], [x])
    assert "lies as [" in f.explain(kind)
    array = np.random.default_rng(0).uniform(-1, 1, x.shape).astype(np.float32)
    feeds = {x: array, **{p: nf.get_value(p) for p in f.parameters}}
    (exact,) = nf.evaluate([y], feeds, dtype="float64")
    np.testing.assert_allclose(f(array)[0], exact, rtol=1e-4, atol=1e-4 * np.abs(exact).max())
    monkeypatch.setenv("NEOFLOW_WITHOUT", kind)
    assert kind not in [r.name for r in nf.compile([y], [x]).compiled.trace.records]


def test_producers_write_what_consumers_read_and_weights_are_copied_beside():
    (y,), x = channels()
    found = flow(optimize(make_graph([y], [x])), BLOCKED, WIDE, partition, nobody)
    assert "lies as [" in str(found)
    blocks = [t for t in found.graph.nodes if t.shape[-1] == 16 and len(t.shape) == 5]
    assert len(blocks) >= 3 and all("//" not in str(t) for t in blocks if not t.definition.has_reduction)
    copies = [t for t in found.graph.nodes if in_blocks(t.definition)]
    assert {t.inputs[0].name for t in copies} == {"w0", "w1", "v0", "v1"}
    stored = {t for c in partition(found.graph).calls for t in c.outputs}
    assert stored.issuperset(copies), "each reader would gather its lanes"


def test_what_does_not_pay_says_so(monkeypatch):
    (y,), x = channels()
    monkeypatch.setattr(flowing, "CLEARLY", 0.1)
    graph = optimize(make_graph([y], [x]))
    found = flow(graph, BLOCKED, WIDE, partition, nobody)
    assert found.graph is graph and found.summary.startswith("none of ")
    assert "conv2d: its kernels would take" in str(found) and "as [0, 1/16, 2, 3, 1%16]" in str(found)
    a = nf.placeholder((8, 8), name="a")
    small = flow(make_graph([nf.exp(a) + 1.0], [a]), SWAPPED, TARGET, partition, nobody)
    assert small.summary == "nothing is read or written that would take less with its dimensions swapped"


@pytest.mark.parametrize(("faster", "taken"), [(True, True), (False, False), (None, False)])
def test_what_was_measured_decides(faster, taken):
    """Kernels that were measured become others only where these were measured too, and took less."""
    (y,), x = turned()
    graph = optimize(make_graph([y], [x]))
    usual = {c.subgraph.digest for c in partition(graph).calls}

    def known(kernel):
        if kernel.digest in usual:
            return 2e-6
        return None if faster is None else 1e-6 if faster else 3e-6

    found = flow(graph, SWAPPED, WIDE, partition, known)
    assert (found.graph is not graph) == taken
    if not taken:
        reason = "but its kernels took 6 us so and 4" if faster is False else "but its kernels were measured"
        assert reason in str(found)


def test_what_is_returned_lies_as_it_is_written():
    _, x = turned()
    y = nf.tanh(x)
    t, r = nf.transpose(y), nf.axis(9, "r")
    z = nf.compute((512, 512), lambda j, i: nf.max(t[j, i + r], axis=[r]), name="z")
    graph = optimize(make_graph([z, y], [x]))
    found = flow(graph, SWAPPED, TARGET, partition, nobody)
    assert [t.shape for t in found.graph.outputs] == [t.shape for t in graph.outputs]
    assert not any(v.ok for name, v in found.said if name == "tanh")


def test_a_search_finds_again_what_it_measured():
    """What was measured of kernels that read and write in blocks says nothing of others."""
    (y,), x = channels()
    graph = optimize(make_graph([y], [x]))
    first = flow(graph, BLOCKED, TARGET, partition, nobody)
    laid = {c.subgraph.digest for c in partition(first.graph).calls}
    again = flow(graph, BLOCKED, TARGET, partition, lambda kernel: 1e-6 if kernel.digest in laid else None)
    assert again.graph.digest == first.graph.digest


def test_swept_cycles_know_how_things_lie():
    """Whole lines are read faster than what lies across them, and both faster than element by element."""
    x = nf.placeholder((64, 66, 66), name="x")
    r = nf.axis(9, "r")
    along = nf.compute((64, 66, 58), lambda c, p, q: nf.max(x[c, p, q + r], axis=[r]))
    across = nf.compute((66, 58, 64), lambda p, q, c: nf.max(x[c, p, q + r], axis=[r]))
    t = nf.placeholder((66, 66, 64), name="t")
    lines = nf.compute((66, 58, 64), lambda p, q, c: nf.max(t[p, q + r, c], axis=[r]))
    found = [swept(kernel_of(y.definition), WIDE) for y in (lines, along, across)]
    assert found == sorted(found) and found[2] > 1.5 * found[1]
    assert Layout((1, 2), 0, (), 1).shape((64, 66, 66)) == (66, 66, 64, 1)


def test_what_goes_by_rows_stays(monkeypatch):
    """Batch normalisation in training: the sums over a channel and what reads them are one kernel, a row a channel."""
    monkeypatch.setattr(flowing, "CLEARLY", 30.0)
    p = nn.Parameters("rows")
    x = nf.placeholder((4, 32, 24, 24), name="x")
    y = nn.conv_norm(p, "a", x, 32, 1)
    graph = optimize(make_graph([nf.mean(F.conv2d(y, p("w", 32, 32, 1, 1)))], [x]))
    found = flow(graph, BLOCKED, TARGET, partition, nobody)
    assert found.graph is graph and "of its kernels go by rows, as these lie" in str(found)
