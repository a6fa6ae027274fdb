"""What graphs are thought to take: part by part as at once, after any derivation as from nothing."""

import random

import numpy as np
import pytest

import neoflow as nf
from neoflow.devices import device
from neoflow.expr.tensor import structural_hash
from neoflow.graph import Editor, canonicalize, make_graph
from neoflow.nn import functional as F
from neoflow.partition import cost_of, partition
from neoflow.rewriting.beside import ROUNDS, in_turns
from neoflow.rewriting.estimates import Estimate, parts_of
from neoflow.rewriting.times import Times
from neoflow.roofs import STATED
from neoflow.superopt import standard
from neoflow.superopt.search import applied
from neoflow.superopt.sites import Sites
from tests.superopt.test_sequences import random_graph


def estimate(**more) -> Estimate:
    return Estimate(partition, Times(STATED), **more)


@pytest.mark.parametrize("count", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_after_derivations_as_from_nothing(count):
    """Sites, canonical forms and costs that go on from the graph before are those of the graph alone."""
    chance, sites, going_on = random.Random(4), Sites(standard().rules), estimate()
    steps = looked_at = 0
    for _ in range(count):
        graph = canonicalize(random_graph(chance, 16))
        for _ in range(6):
            editor = Editor(graph.roots, graph.order)
            found = [p for t in graph.nodes for p in sites.at(editor, t)]
            fresh = Sites(standard().rules) if steps % 5 == 0 else sites
            alone = [p for t in graph.nodes for p in fresh.at(editor, t)]
            assert [(p.rewrite, p.match.tensors, p.reason) for p in found] == [
                (p.rewrite, p.match.tensors, p.reason) for p in alone
            ]
            assert going_on(graph) == estimate()(graph)
            if not found:
                break
            graph, derivation = applied(graph, chance.choice(found))
            again = canonicalize(graph)
            assert structural_hash(again.roots, again.inputs) == structural_hash(graph.roots, graph.inputs)
            assert derivation.steps[0].rewrite is not None
            steps += 1
            looked_at += len(graph.nodes)
    assert steps >= count
    assert sites.looked_at < looked_at / 2, "what is as it was is not matched again"


def image(name="x", channels=8):
    return nf.placeholder((1, channels, 12, 12), name=name)


def test_only_what_changed_is_divided_again():
    """A part ends where a contraction reads; of equal parts one is divided."""
    x, kernels = image(), [nf.parameter((8, 8, 3, 3), name=f"w{n}") for n in range(4)]
    y = x
    for w in kernels:
        y = nf.relu(F.conv2d(y, w, None, 1, 1))
    graph = canonicalize(make_graph([y], [x]))
    counting = estimate()
    found = parts_of(graph, counting.is_free(graph))
    assert len(found) == 4 and sorted(n for p in found for n in p.at) == list(range(len(graph.nodes)))
    whole = counting.whole(graph)
    assert counting(graph).seconds == pytest.approx(counting.take(whole), rel=0.02) and counting.parts <= 2
    other = canonicalize(make_graph([nf.tanh(y)], [x]))
    before = counting.parts
    assert counting(other).kernels == counting(graph).kernels and counting.parts == before + 1


def test_what_is_prepared_takes_no_time():
    """In inference; a step that writes the parameters pays, and so does what is larger than what it is made of."""
    x, a, b = image(), nf.parameter((8, 8, 1, 1), name="a"), nf.parameter((8, 8, 1, 1), name="b")
    graph = canonicalize(make_graph([F.conv2d(x, a + b, None)], [x]))
    assert estimate()(graph).kernels == estimate()(graph).kernels == 1
    assert estimate(changed=(a,))(graph).kernels == estimate(prepares=False)(graph).kernels == 2
    assert sum(estimate().whole(graph).values()) == 1 and sum(estimate(changed=(b,)).whole(graph).values()) == 2
    v, row, column = nf.placeholder((4, 64), name="v"), nf.parameter((64, 1)), nf.parameter((1, 64))
    large = canonicalize(make_graph([v @ (row @ column)], [v]))
    assert estimate()(large).kernels == 2


def test_peaks_are_those_of_what_is_stored():
    x = nf.placeholder((64, 64), name="x")
    graph = canonicalize(make_graph([(x @ x) @ (x @ (x @ x))], [x]))
    assert estimate()(graph).peak == 3 * 64 * 64 * 4


def test_times_of_kernels():
    """Measured where that is known; what is not known is longer than thought by as much as what is."""
    x, y = nf.placeholder((32, 32), name="x"), nf.placeholder((16, 16), name="y")
    (a,), (b,), (c,) = (
        [k.subgraph for k in partition(make_graph([t], [i])).calls]
        for t, i in ((x @ x, x), (y @ y, y), (nf.tanh(x), x))
    )
    thought = {k: Times(STATED).thought(k) for k in (a, b, c)}
    assert thought == {k: cost_of(k).seconds(STATED) for k in (a, b, c)}
    times = Times(STATED, lambda kernel: 3 * thought[a] if kernel.digest == a.digest else None)
    assert times(a) == 3 * thought[a] and times(b) == thought[b]
    assert times.learn([a]) == 0
    assert times(b) == pytest.approx(3 * thought[b]) and times(c) == pytest.approx(3 * thought[c])
    assert times.learn([c], lambda kernel: 5 * thought[kernel]) == 1
    assert times(c) == 5 * thought[c] and times(b) == pytest.approx(3 * thought[b])
    assert times.measured(b) is None


def test_no_contraction_is_thought_to_multiply_faster_than_a_known_one():
    """Of a small one most is what is done beside the products, of a deep one nothing."""
    kernels = []
    for n, k in ((32, 32), (32, 4096)):
        x, w = nf.placeholder((n, k), name="x"), nf.placeholder((k, n), name="w")
        kernels += [c.subgraph for c in partition(make_graph([x @ w], [x, w])).calls]
    small, deep = kernels
    times = Times(STATED)
    assert times(deep) < 128 * times(small)
    times.learn([small], times.thought)
    assert times(small) == times.thought(small) and times(deep) == pytest.approx(128 * times(small))


@pytest.mark.tvm
def test_programs_in_turns():
    """A median each; labels are places in tables."""
    x, labels = nf.placeholder((4, 8), name="x"), nf.placeholder((4,), "int64", name="labels")
    table = nf.parameter((3, 8), init=np.ones((3, 8)), name="table")
    f = nf.compile([nf.take(table, labels) + x], [x, labels])
    runs = f.runs
    found = in_turns([f, f], device(), 0.0)
    assert len(found) == 2 and all(s > 0 for s in found) and f.runs - runs >= 2 * (ROUNDS + 2)
