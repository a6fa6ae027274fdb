"""Groups of operators that overlap: which of them become one, and what is said of the others."""

import re

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import make_graph, run
from neoflow.graph.passes import BATCH

INNER, MANY = 32, 512
ROWS = 64


def matrices(count, rows=ROWS):
    """Side by side in one tensor."""
    whole = nf.placeholder((count, rows, INNER), name="x")
    return [whole[n] for n in range(count)]


def weight(name, width):
    return nf.placeholder((INNER, width), name=name)


def weights(count, width):
    """Side by side in one tensor."""
    whole = nf.placeholder((count, INNER, width), name="w")
    return [whole[n] for n in range(count)]


def product(x, w, name):
    k = nf.axis(INNER, "k")
    return nf.compute((x.shape[0], w.shape[1]), lambda i, j: nf.sum(x[i, k] * w[k, j], axis=[k]), name=name)


def graph_of(pairs):
    """Of products of these, called a, b, ..., and its inputs."""
    inputs = list(dict.fromkeys(i for pair in pairs for t in pair for i in (getattr(t, "inputs", None) or (t,))))
    ys = [product(x, w, name) for (x, w), name in zip(pairs, "abcdefghijklmnop", strict=False)]
    return make_graph([nf.exp(y[::2]) for y in ys], inputs), inputs


def batched(pairs):
    """The shapes of the contractions that the pass leaves, and its derivation; values stay."""
    graph, inputs = graph_of(pairs)
    after, derivation = run(graph, BATCH)
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape).astype(np.float32) for t in inputs}
    for a, b in zip(*(nf.evaluate(list(g.outputs), feeds, dtype="float64") for g in (graph, after)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    return shapes_of(after), derivation


def shapes_of(graph):
    return sorted(t.shape for t in graph.nodes if t.definition.has_reduction)


def refused(derivation):
    return [str(s) for s in derivation.refused if "groups that overlap" in s.reason]


def test_all_of_several_widths_rather_than_the_two_that_are_as_wide():
    """Two of three could be one along a new dimension, which is found first; concatenated all three can, and what they
    share is packed once for all."""
    (x,) = matrices(1, MANY)
    shapes, derivation = batched([(x, weight(n, width)) for n, width in zip("abc", (16, 24, 16), strict=True)])
    assert shapes == [(MANY, 16 + 24 + 16)]
    (no,) = refused(derivation)
    assert no.startswith("batch shared at ") and no.endswith("with widen shared of a, b, c")
    (yes,) = [s.reason for s in derivation.steps if s.rewrite.name == "widen shared"]
    assert yes.startswith("one for 3 takes about ") and yes.endswith("with batch shared of a, c")


def test_the_first_of_two_dimensions_is_left_where_the_second_is_cheaper():
    """Weights are wide and matrices narrow: what is found first shares a matrix, and packs both weights."""
    (x, y), (v, w) = matrices(2, 16), weights(2, 96)
    shapes, derivation = batched([(x, v), (x, w), (y, w)])
    (step,) = [s for s in derivation.steps if s.rewrite.name == "batch shared"]
    assert shapes == [(2, 16, 96), (16, 96)] and step.name == "b"
    (no,) = refused(derivation)
    assert no.startswith("batch shared at ") and no.endswith("with batch shared of b, c")
    assert "the 3 operators of groups that overlap would take about " in no
    assert step.reason.endswith("with batch shared of a, b")


def test_the_first_is_taken_where_the_estimate_says_little():
    """Weights are a little wider than matrices: the second takes less, but less than a tenth."""
    (x, y), (v, w) = matrices(2, 64), weights(2, 96)
    shapes, derivation = batched([(x, v), (x, w), (y, w)])
    (step,) = [s for s in derivation.steps if s.rewrite.name == "batch shared"]
    assert shapes == [(2, 64, 96), (64, 96)] and step.name == "a" and not refused(derivation)
    assert "the 3 operators of groups that overlap take about " in step.reason
    so, otherwise = map(float, re.findall(r"about ([\d.]+) us so, ([\d.]+) with", step.reason)[0])
    assert 0.9 * so < otherwise < so
    assert step.reason.endswith("with batch shared of b, c")


def test_rows_and_columns_of_a_grid_are_one_after_the_other():
    xs, ws = matrices(3), [weight(n, ROWS) for n in "vw"]
    shapes, derivation = batched([(x, w) for x in xs for w in ws])
    assert len(shapes) == 1 and sorted(shapes[0]) == sorted((2, 3, ROWS, ROWS))
    assert not any("overlap" in s.reason for s in (*derivation.steps, *derivation.refused))


def test_of_many_groups_the_first_is_taken():
    xs, ws = matrices(4), [weight(n, ROWS) for n in "stuv"]
    _, derivation = batched([(x, w) for n, x in enumerate(xs) for m, w in enumerate(ws) if (n + m) % 4])
    assert derivation.steps[0].reason.endswith("more than 5 groups overlap, of which it is the first")


@pytest.mark.parametrize(
    "left_out, shapes", [("widen shared", [(2, MANY, 16), (MANY, 24)]), ("batch shared", [(MANY, 56)])]
)
def test_what_is_left_out_is_no_rival(left_out, shapes):
    (x,) = matrices(1, MANY)
    graph, _ = graph_of([(x, weight(n, width)) for n, width in zip("abc", (16, 24, 16), strict=True)])
    after, derivation = run(graph, BATCH.without({left_out}))
    assert shapes_of(after) == shapes and not refused(derivation)
