"""Slices that are put together again: where that is one read, and where not."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import Pass, make_graph, run
from neoflow.graph.join import JoinSlices, cases

X = nf.placeholder((4, 3, 5), name="x")


def joined(y, inputs=(X,)):
    """What a body reads after the rewrite; values stay."""
    graph = make_graph([y], list(inputs))
    after, derivation = run(graph, Pass("join", (JoinSlices(),)))
    feeds = {t: np.random.default_rng(0).standard_normal(t.shape).astype(np.float32) for t in inputs}
    for a, b in zip(nf.evaluate(graph.outputs, feeds), nf.evaluate(after.outputs, feeds), strict=True):
        np.testing.assert_array_equal(a, b)
    return str(after.outputs[0].definition.body) if derivation.steps else None


@pytest.mark.parametrize("axis", range(3))
def test_a_stack_of_slices_in_order_is_the_whole_turned(axis):
    own = ["axis0", "axis1", "axis2"]
    first, *rest = [own[axis], *(own[:axis] + own[axis + 1 :])]
    assert joined(nf.stack([X[n] for n in range(4)], axis=axis)) == f"$0[{first}, {', '.join(rest)}]"


def test_in_steps_backwards_and_as_runs():
    assert joined(nf.stack([X[3], X[1]])) == "$0[3 - 2*axis0, axis1, axis2]"
    assert joined(nf.stack([X[:, n] for n in (0, 2)])) == "$0[axis1, 2*axis0, axis2]"
    assert joined(nf.concat([X[:1], X[1:3], X[3:]])) == "$0[axis0, axis1, axis2]"
    i = nf.compute((4, 3, 5), lambda i, j, k: nf.select(i >= 2, X[i, j, k], nf.select(i > 0, X[i, j, k], X[i, j, k])))
    assert joined(i) == "$0[axis0, axis1, axis2]"


def test_other_orders_and_other_tensors_stay():
    z = nf.placeholder((3, 5), name="z")
    assert joined(nf.stack([X[0], X[1], X[3]])) is None
    assert joined(nf.stack([X[0], z]), (X, z)) is None
    assert joined(nf.concat([X[2:], X[:2]])) is None
    assert joined(nf.compute((4, 3), lambda i, j: nf.select(i < j, X[i, j, 0], X[i, j, 1]))) is None


def test_what_data_decide_stays():
    ids = nf.placeholder((3,), "int64", name="ids")
    y = nf.compute((2, 3), lambda i, j: nf.select(i < 1, X[ids[j], j, 0], X[ids[j], j, 1]))
    assert cases(y.definition) is None
