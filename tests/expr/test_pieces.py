"""Elements that need nothing of each other are computed some at a time: equal values and errors, less memory."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import neoflow as nf
from neoflow.errors import RuntimeFault
from neoflow.expr.interp import body, evaluate
from neoflow.expr.tensor import Compute, topological
from neoflow.graph import make_graph, optimize
from neoflow.tuning.choosing import candidates
from tests.strategies import random_program

ANALYSED = body.analysed


def at_once(outputs, feeds, dtype=None):
    """By the path of what is no such tensor: all elements of an expression before any of the next."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body, "analysed", lambda d: replace(ANALYSED(d), is_pointwise=False))
        return evaluate(outputs, feeds, dtype)


def agree(outputs, feeds, dtype=None):
    for a, b in zip(evaluate(outputs, feeds, dtype), at_once(outputs, feeds, dtype), strict=True):
        assert a.dtype == b.dtype and a.flags.c_contiguous
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [None, "float64"])
@pytest.mark.parametrize("elements", [1, 7, 64])
def test_random_programs_have_the_values_of_whole_expressions(elements, dtype, monkeypatch):
    """Divided however finely, down to single elements."""
    monkeypatch.setattr(body, "CACHED", elements)
    for seed in range(7000, 7016):
        program = random_program(seed, points=300)
        roots = program.with_gradients()
        agree(roots, program.feeds, dtype)
        assert any(ANALYSED(t.definition).is_pointwise for t in topological(roots) if isinstance(t, Compute))


def transforms():
    """What is computed beside the products of minimal filtering, of images with a border, and their gradients."""
    x, w = nf.placeholder((2, 8, 9, 11), name="x"), nf.placeholder((8, 8, 3, 3), name="w")
    y = nf.nn.functional.conv2d(x, w, padding=1)
    g = nf.placeholder(y.shape, name="g")
    graph = optimize(make_graph([y, *nf.vjp(y, [x, w], g)], [x, w, g]))
    return [c.graph for those in candidates(graph, 256.0).values() for c in those]


@pytest.mark.parametrize("special", [(), (np.nan, np.inf, -np.inf, 0.0)])
def test_transforms_with_borders_and_what_is_no_number(special, monkeypatch):
    monkeypatch.setattr(body, "CACHED", 100)
    rng = np.random.default_rng(4)
    for graph in transforms():
        feeds = {t: rng.standard_normal(t.shape).astype("float32") for t in graph.inputs}
        for array in feeds.values():
            array.reshape(-1)[rng.integers(0, array.size, len(special))] = special
        agree([t for t in graph.nodes if not t.definition.reduction_axes], feeds, "float64")


def test_a_border_is_that_of_all_reads_and_made_once(monkeypatch):
    made = []
    pad = np.pad
    monkeypatch.setattr(np, "pad", lambda *given: made.append(given[1]) or pad(*given))
    x = nf.placeholder((5, 6), name="x")
    around = [(i, j) for i in (-1, 0, 2) for j in (-2, 0, 1)]

    def value(r, c):
        inside = [
            nf.select((r + i >= 0) & (r + i < 5) & (c + j >= 0) & (c + j < 6), x[r + i, c + j], 0.0) for i, j in around
        ]
        return sum(inside[1:], inside[0])

    array = np.arange(30, dtype="float32").reshape(5, 6)
    (found,) = evaluate(nf.compute((5, 6), value), {x: array})
    wide = pad(array, ((1, 2), (2, 1)))
    np.testing.assert_array_equal(found, sum(wide[1 + i : 6 + i, 2 + j : 8 + j] for i, j in around))
    assert made == [[(1, 2), (2, 1)]]


def test_an_index_outside_is_said_as_it_is_of_whole_expressions(monkeypatch):
    monkeypatch.setattr(body, "CACHED", 2)
    x, n = nf.placeholder((6,), name="x"), nf.placeholder((3, 5), "int64", name="n")
    y = nf.compute((3, 5), lambda i, j: nf.select(i < 2, x[n[i, j]], 0.0) * 2.0)
    index = np.zeros((3, 5), np.int64)
    index[2, 1] = 6
    agree([y], {x: np.ones(6, np.float32), n: index})  # nobody gets there
    index[1, 3] = 7
    said = []
    for run in (evaluate, at_once):
        with pytest.raises(RuntimeFault, match="index 0 is 7 at i=1, j=3, but the extent is 6") as caught:
            run([y], {x: np.ones(6, np.float32), n: index})
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_what_is_read_for_the_last_time_is_let_go(monkeypatch):
    """A chain of forty expressions, each read twice, of which two are there at a time."""
    monkeypatch.setattr(body, "CACHED", 1 << 20)
    x = nf.placeholder((1 << 16,), name="x")

    def chain(i):
        e = x[i]
        for _ in range(40):
            e = e * 0.5 + nf.abs(e)
        return e

    y, array = nf.compute(x.shape, chain), np.ones(1 << 16, np.float32)

    def peak(run):
        tracemalloc.start()
        run([y], {x: array}, "float64")
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most / (8 * array.size)

    assert peak(evaluate) < 10 < 40 < peak(at_once)


def test_results_have_memory_of_their_own():
    """Also what is a feed, or a part of one, and what two roots are views of."""
    x = nf.placeholder((4, 6), name="x")
    same = nf.compute((4, 6), lambda i, j: x[i, j])
    turned = nf.compute((6, 4), lambda i, j: x[j, i])
    more = nf.compute((4, 6), lambda i, j: x[i, j] + 1.0)
    again = nf.compute((4, 6), lambda i, j: more[i, j])
    array = np.arange(24, dtype="float32").reshape(4, 6)
    found = evaluate([x, same, turned, more, again, more], {x: array})
    np.testing.assert_array_equal(found[4], array + 1)
    for n, a in enumerate(found):
        assert a.flags.writeable and a.flags.c_contiguous
        assert not any(np.shares_memory(a, b) for b in [array, *found[:n]])
