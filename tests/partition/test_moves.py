"""What only moves elements within rows is written with them; what moves others has a kernel of its own."""

from functools import partial

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import make_graph, optimize
from neoflow.partition import LOSES, object_for_gpu, object_to, partition
from tests.partition.test_fuse import run

B, C, P = 2, 16, 6


def padded(t, before=1):
    """One more element on each side of the last two dimensions."""
    shape = (*t.shape[:-2], *(n + 2 for n in t.shape[-2:]))

    def body(*at):
        *row, p, q = at
        inside = (p >= before) & (p < before + t.shape[-2]) & (q >= before) & (q < before + t.shape[-1])
        return nf.select(inside, t[(*row, p - before, q - before)], 0.0)

    return nf.compute(shape, body, name="padded")


def program(shape=(B, C, P, P), move=padded):
    """A map that is given back, and what moves it."""
    x = nf.placeholder(shape, name="x")
    t = nf.compute(shape, lambda *at: nf.exp(x[at]) + x[at], name="t")
    return x, [t, move(t)]


def divided(x, roots, **options):
    graph = optimize(make_graph(roots, [x]), ["pad guards"])
    return graph, partition(graph, **options)


def reasons(parts, is_ok=False):
    return [d.verdict.reason for d in parts.decisions if d.rule == "moves" and d.verdict.ok == is_ok]


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_padded_copy_is_written_with_what_it_is_of(before):
    x, roots = program(move=lambda t: padded(t, before))
    graph, parts = divided(x, roots)
    (call,) = parts.calls
    assert call.subgraph.rows == 2 and len(call.outputs) == 2
    assert reasons(parts, is_ok=True) == ["it moves what is made in the same rows, 2 dimensions of them"]
    assert len(divided(x, roots, without=["moves"])[1].calls) == 2
    feeds = {x: np.random.default_rng(before).uniform(-1, 1, x.shape)}
    values = run(parts, feeds)
    for t, wanted in zip(graph.outputs, nf.evaluate(list(graph.outputs), feeds, dtype="float64"), strict=True):
        np.testing.assert_allclose(values[t], wanted, rtol=1e-12, atol=1e-12)


def test_short_rows_are_taken_together():
    def widened(t):
        def body(b, c, p, q):
            return nf.select((q >= 1) & (q < 1 + P), t[b, c, p, q - 1], 0.0)

        return nf.compute((B, C, P, P + 2), body, name="widened")

    _, parts = divided(*program(move=widened))
    assert reasons(parts) == ["a row has 8 elements: loops across rows are faster"]
    assert reasons(parts, is_ok=True) == ["it moves what is made in the same rows, 2 dimensions of them"]
    assert [c.subgraph.rows for c in parts.calls] == [2]


def test_other_rows_short_ones_and_contractions_stay_apart():
    x, roots = program(move=lambda t: nf.transpose(t, (3, 2, 1, 0)))
    _, parts = divided(x, roots)
    assert reasons(parts) == ["they share no rows at which one reads the other"]
    _, parts = divided(*program((B, C, 2, 2)))
    too_few = "threads would share 2 rows of 256 elements"
    assert reasons(parts) == ["a row has 16 elements: loops across rows are faster", too_few]
    _, parts = divided(*program((1, 2, P, P)))
    assert reasons(parts)[0] == "threads would share 2 rows of 64 elements"
    _, parts = divided(*program((1, 8, 256, 256)), choose=partial(object_to, besides=(LOSES,)))
    assert "what lies between the nodes exceeds 262144 bytes a row" in reasons(parts)[0]
    w, k = nf.placeholder((C, C), name="w"), nf.axis(C, "k")
    x = nf.placeholder((B, C, P, P), name="x")
    y = nf.compute(x.shape, lambda b, c, p, q: nf.sum(w[c, k] * x[b, k, p, q], axis=[k]), name="y")
    graph = optimize(make_graph([y, padded(y)], [x, w]), ["pad guards"])
    assert reasons(partition(graph)) == ["y contracts: it needs loops of its own"]


def test_few_rows_stay_apart_on_a_gpu():
    x, roots = program()
    assert reasons(divided(x, roots, choose=object_for_gpu)[1])[0] == "threads would share 32 rows of 64 elements"


@pytest.mark.tvm
def test_the_compiled_kernel_computes_both():
    x, roots = program()
    f = nf.compile(roots, [x])
    assert len(f.plan.calls) == 1
    array = np.random.default_rng(0).uniform(-1, 1, x.shape).astype(np.float32)
    for found, wanted in zip(f(array), nf.evaluate(roots, {x: array}, dtype="float64"), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)
