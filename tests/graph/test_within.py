"""Sums over samples that ride along with what makes a sample: where that is done and where not, and what it saves."""

from functools import partial

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import Pass, make_graph, optimize, run
from neoflow.graph.within import SumWithin
from neoflow.partition import cost_of, partition
from neoflow.partition.choose import LOSES, object_to

ALONE = Pass("alone", (SumWithin(),))
BATCH, CHANNELS, SPACE = 16, 30, 1600


def normalized(shape=(BATCH, CHANNELS, SPACE), dtype="float32"):
    """What the gradient of batch normalization is made of: two sums of d, and then d once more."""
    y, z, x = (nf.placeholder(shape, dtype, name=n) for n in "yzx")
    d = nf.select(y > 0, z, y * 0)
    beta, gamma = nf.sum(d, axis=[0, 2]), nf.sum(d * x, axis=[0, 2])
    last = nf.compute(shape, lambda b, c, p: d[b, c, p] - beta[c] - x[b, c, p] * gamma[c])
    return [beta, gamma, last], [y, z, x]


def rewritten(roots, inputs, row=ALONE):
    graph = optimize(make_graph(roots, inputs), ["sums within"])
    return graph, *run(graph, row)


def test_sums_over_samples_ride_along_with_what_makes_a_sample():
    """Where a row may not lie in pieces: by the reward channels are rows, and all of this is one kernel."""
    roots, inputs = normalized()
    graphs = [optimize(make_graph(roots, inputs), without) for without in (["sums within"], [])]
    before, after = (partition(g, choose=partial(object_to, besides=(LOSES,))) for g in graphs)
    large = BATCH * CHANNELS * SPACE * 4
    saved = sum(cost_of(c.subgraph).nbytes for c in before.calls) - sum(cost_of(c.subgraph).nbytes for c in after.calls)
    assert 0.9 * large < saved <= large
    riding = [c for c in after.calls if any(o.shape == (BATCH, CHANNELS) for o in c.outputs)]
    assert len(riding) == 1 and len(riding[0].outputs) == 3 and any(o.nbytes == large for o in riding[0].outputs)
    assert riding[0].subgraph.rows == 2


def test_values_stay():
    roots, inputs = normalized()
    graph, after, derivation = rewritten(roots, inputs)
    assert len(derivation.steps) == 2 and all("is not read again" in step.reason for step in derivation.steps)
    rng = np.random.default_rng(0)
    feeds = {i: rng.standard_normal(i.shape).astype(np.float32) for i in inputs}
    for a, b in zip(*(nf.evaluate(list(g.outputs), feeds, dtype="float64") for g in (graph, after)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-9)


def test_a_mean_that_a_variance_needs_is_no_gain():
    y, z = (nf.placeholder((BATCH, CHANNELS, SPACE), name=n) for n in "yz")
    x = y * z + y
    mean = nf.sum(x, axis=[0, 2], keepdims=True) * (1 / (BATCH * SPACE))
    centred = x - mean
    roots = [x, nf.sum(centred * centred, axis=[0, 2])]
    _, _, derivation = rewritten(roots, [y, z])
    assert not derivation.steps and any("in any case" in step.reason for step in derivation.refused)


def test_what_a_contraction_makes_is_made_by_its_tiles():
    y, z = (nf.placeholder((BATCH, CHANNELS, SPACE), name=n) for n in "yz")
    x = contracted(y, z) * y
    _, _, derivation = rewritten([nf.sum(x, axis=[0, 2]), nf.exp(x)], [y, z])
    assert not derivation.steps and any("not sample by sample" in step.reason for step in derivation.refused)


def test_short_rows_cost_more_than_to_read_again():
    _, _, derivation = rewritten(*normalized((BATCH, CHANNELS, 20)))
    assert not derivation.steps
    assert all("a sum for each of its samples takes about" in step.reason for step in derivation.refused)
    assert len(derivation.refused) == 2


def contracted(y, z):
    q = nf.axis(SPACE, "q")
    w = nf.compute((SPACE, SPACE), lambda i, j: y[0, 0, i] * z[0, 0, j])
    return nf.compute(y.shape, lambda b, c, p: nf.sum(y[b, c, q] * w[q, p], axis=[q]))


OTHERS = {
    "narrow": ("float16", lambda y, z: y * z + y, [0, 2]),
    "computed in place": ("float32", lambda y, z: y + 1.0, [0, 2]),
    "nothing behind what is kept": ("float32", lambda y, z: y * z + y, [0, 1]),
    "contracted": ("float32", contracted, [0, 2]),
    "moved": ("float32", lambda y, z: nf.concat([y, z], axis=2), [0, 2]),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_is_not_even_looked_at(case):
    dtype, make, over = OTHERS[case]
    y, z = (nf.placeholder((BATCH, CHANNELS, SPACE), dtype, name=n) for n in "yz")
    x = make(y, z)
    _, _, derivation = rewritten([nf.sum(x, axis=over), nf.exp(x)], [y, z])
    assert not derivation.steps and not derivation.refused


def test_what_only_sums_read_is_not_stored():
    y, z = (nf.placeholder((BATCH, CHANNELS, SPACE), name=n) for n in "yz")
    _, _, derivation = rewritten([nf.sum(y * z + y, axis=[0, 2])], [y, z])
    assert not derivation.steps and not derivation.refused
