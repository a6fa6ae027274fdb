"""Sums of one product are summed once, and what was centred adds up to nothing; what differs stays as it is."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.tensor import Compute, topological
from neoflow.graph import CANONICALIZE, make_graph, run
from neoflow.graph.passes import SHARE_SUMS
from tests.graph.programs import norms

B, C, P = 3, 4, 5
X, Y = (nf.placeholder((B, C, P), name=n) for n in "xy")
W, V = (nf.placeholder((C,), name=n) for n in "wv")
FEEDS = {t: np.random.default_rng(n).uniform(-1, 1, t.shape).astype("float32") for n, t in enumerate((X, Y, W, V))}


def column(body, name="s"):
    """The sum over the batch and space of a body over [b, c, p]."""
    b, p = nf.axis(B, "b"), nf.axis(P, "p")
    return nf.compute((C,), lambda c: nf.sum(body(b, c, p), axis=[b, p]), name=name)


def shared(*roots):
    """The sums after the pass, as text, and its derivation; the values stay."""
    graph = run(make_graph(list(roots), [t for t in topological(roots) if not isinstance(t, Compute)]), CANONICALIZE)[0]
    after, derivation = run(graph, SHARE_SUMS)
    for a, b in zip(nf.evaluate(after.outputs, FEEDS), nf.evaluate(graph.outputs, FEEDS), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    return [str(t).partition(" = ")[2] for t in after.nodes if t.definition.has_reduction], derivation


def test_what_does_not_depend_on_the_axes_leaves_sums_of_one_product():
    a = column(lambda b, c, p: X[b, c, p] * W[c] * Y[b, c, p], "a")
    d = nf.compute((B, C, P), lambda b, c, p: Y[b, c, p] * V[c], name="d")
    sums, derivation = shared(a, column(lambda b, c, p: 2.0 * d[b, c, p] * X[b, c, p], "e"))
    assert len(sums) == 1 and "sums the same product" in str(derivation)


def test_a_vector_with_ones_around_it_is_the_same_sum():
    whole = nf.sum(X * 0.5, axis=(0, 2), keepdims=True)
    sums, _ = shared(nf.exp(whole), column(lambda b, c, p: X[b, c, p] * W[c]))
    assert len(sums) == 1


def test_what_was_centred_over_the_same_axes_adds_up_to_nothing():
    centred = X - nf.mean(X, (0, 2), keepdims=True)
    sums, derivation = shared(column(lambda b, c, p: W[c] * Y[b, c, p] - V[c] * centred[b, c, p]))
    assert sums == ["sum[r, s](y[r, i, s])    # float32[4]"] and "adds up to nothing" in str(derivation)


def centred_over(over, name="s"):
    centred = X - nf.mean(X, over, keepdims=True)
    return column(lambda b, c, p: Y[b, c, p] - centred[b, c, p], name)


@pytest.mark.parametrize(
    "root",
    [
        lambda: centred_over((0,)),
        lambda: column(lambda b, c, p: Y[b, c, p] - (X[b, c, p] - W[c])),
        lambda: column(lambda b, c, p: Y[b, c, p] * 2.0 - X[b, c, p] * 3.0),
        lambda: nf.sum(X * nf.reshape(W, (1, C, 1)), axis=(0, 2)),
        lambda: nf.compute((B, C), lambda b, c: nf.sum(X[b, c, (p := nf.axis(P, "p"))] * W[c], axis=[p])),
    ],
    ids=["over another axis", "another's mean", "two products", "nobody shares", "along rows"],
)
def test_what_is_another_sum_stays(root):
    _, derivation = shared(root())
    assert not any(str(s.rewrite) == "share sums" for s in derivation.steps)


def test_batch_norm_takes_four_sums_where_it_took_seven():
    gamma, beta, mean, variance = (nf.parameter((C,), name=n) for n in ("gamma", "beta", "mean", "variance"))
    y = nf.nn.functional.batch_norm(X, gamma, beta, mean, variance).y
    loss = nf.sum(y * Y)
    graph = make_graph(nf.grad(loss, [gamma, beta]) + nf.vjp(y, [X], Y), [X, Y])
    sums = [t for t in run(run(graph, CANONICALIZE)[0], SHARE_SUMS)[0].nodes if t.definition.has_reduction]
    assert [t.shape for t in sums] == [(C,)] * 4


def test_the_program_of_the_laws_has_norms_with_what_is_shared():
    found = set()
    for seed in range(6):
        case = norms(seed)
        _, derivation = run(run(make_graph(case.roots, list(case.feeds)), CANONICALIZE)[0], SHARE_SUMS)
        found |= {step.rewrite for step in derivation.steps}
    assert found >= set(SHARE_SUMS.rewrites)
