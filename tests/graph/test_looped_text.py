"""Graphs with recurrences as text that reads back."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.errors import TextError
from neoflow.graph import Graph, make_graph
from tests.random_recurrences import draw, gradients


def same(graph, feeds):
    """The graph that its text says: it computes the same bits, and its text is the same."""
    text = graph.to_text()
    again = Graph.from_text(text, graph.leaves)
    assert again.to_text() == text and again.digest == graph.digest
    for a, b in zip(nf.evaluate(again.outputs, feeds), nf.evaluate(graph.outputs, feeds), strict=True):
        np.testing.assert_array_equal(a, b)
    assert Graph.from_text(text).digest == graph.digest


def law(seeds):
    for seed in seeds:
        d = draw(seed)
        inputs = [t for t in d.feeds if not isinstance(t, nf.Parameter)]
        same(make_graph([*d.scanned, *gradients(d, d.scanned)], inputs), d.feeds)


def test_random_recurrences():
    law(range(4))


@pytest.mark.slow
def test_many_random_recurrences():
    law(range(4, 104))


def test_recurrences_inside_of_others():
    x = nf.placeholder((3, 2), name="x")

    def step(old, row):
        inner, rows = nf.scan(lambda h, _: (nf.sin(h) + row, h), old, length=2)
        return inner, rows

    last, ys = nf.scan(step, nf.zeros((2,)), x, reverse=True)
    graph = make_graph([last, ys, *nf.grad(nf.sum(last * last) + nf.sum(ys), [x])], [x])
    same(graph, {x: np.arange(6, dtype=np.float32).reshape(3, 2)})


TEXT = """neoflow graph 1
t "recurrence": placeholder float32[2]
x: placeholder float32[3, 2]
recurrence r0
h: placeholder float32[2]
row: placeholder float32[2]
new[i<2] = h[i] + row[i]
carried h = new
slices row
fixed
steps 3 reversed
last: last r0(t, x) 0
ys: stacked r0(t, x) of new
inputs t, x
outputs last, ys
"""


def test_as_it_is_written():
    graph = Graph.from_text(TEXT)
    feeds = dict(zip(graph.inputs, (np.ones(2, np.float32), np.arange(6, dtype=np.float32).reshape(3, 2)), strict=True))
    last, ys = nf.evaluate(graph.outputs, feeds)
    assert last.tolist() == [7, 10] and ys.tolist() == [[7, 10], [7, 9], [5, 6]]
    assert graph.inputs[0].name == "recurrence" and graph.to_text() == TEXT


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("carried h = new", "carried h = row1", "`row1` is no tensor above"),
        ("carried h = new", "carried new = new", "`new` is no placeholder"),
        ("new[i<2] = h[i] + row[i]", "new[i<1] = h[i] + row[i]", "what is carried is "),
        ("slices row", "slices", "a placeholder of its body that is not one of what is carried"),
        ("slices row", "slices row, row", "a placeholder of its body that is not one of what is carried"),
        ("steps 3", "steps 0", "recurrence `r0` has no steps"),
        ("last r0(t, x) 0", "last r1(t, x) 0", "`r1` is no recurrence above"),
        ("last r0(t, x) 0", "last r0(t, x) 1", "recurrence `r0` carries 1 tensors"),
        (
            "last r0(t, x) 0",
            "last r0(x, t) 0",
            "does not go through tensors of these numbers and kinds",
        ),
        ("last r0(t, x) 0", "last r0(t) 0", "does not go through tensors of these numbers and kinds"),
        ("of new", "of row", "`row` is nothing of the body that may be kept of every step"),
        ("of new", "of newer", "`newer` is nothing of the body that may be kept of every step"),
        ("recurrence r0\n", "recurrence r0\ncarried\nslices\nfixed\nsteps 1\nrecurrence r0\n", "`r0` is given above"),
        ("recurrence r0\n", "recurrence r\n" * 25, "is inside of more than 20 others"),
    ],
)
def test_refused(old, new, message):
    assert old in TEXT
    with pytest.raises(TextError, match=message):
        Graph.from_text(TEXT.replace(old, new))
