"""Reads at constant indices become reads of slices where steps differ by them, and only there."""

import numpy as np

import neoflow as nf
from neoflow.graph import make_graph, run
from neoflow.graph.passes import READ_SLICES

X, Y = nf.placeholder((4, 2, 6), name="x"), nf.placeholder((6,), name="y")


def rewritten(*bodies, shape=(6,)):
    graph = make_graph([nf.compute(shape, body, name=f"t{n}") for n, body in enumerate(bodies)], [X, Y])
    after, derivation = run(graph, READ_SLICES)
    feeds = {t: np.random.default_rng(0).standard_normal(t.shape).astype(np.float32) for t in (X, Y)}
    for a, b in zip(nf.evaluate(after.outputs, feeds), nf.evaluate(graph.outputs, feeds), strict=True):
        np.testing.assert_array_equal(a, b)
    return after, derivation


def test_steps_that_differ_by_what_they_read_become_equal():
    after, derivation = rewritten(*(lambda i, n=n: X[n, 1, i] * Y[i] + X[n, 1, 5 - i] for n in range(3)))
    assert len({t.definition for t in after.outputs}) == 1
    assert [s.reason for s in derivation.steps] == ["others read x at other constant indices"] * 3
    assert sorted(t.name for t in after.nodes) == ["t0", "t1", "t2", "x_slice", "x_slice", "x_slice"]


def test_what_is_read_at_one_place_or_by_one_compute_stays():
    assert not rewritten(lambda i: X[0, 1, i] * Y[i], lambda i: X[0, 1, i] + Y[i])[1].steps
    assert not rewritten(lambda i: X[0, 1, i] * X[2, 0, i])[1].steps


def test_only_first_dimensions_are_taken_for_a_slice():
    after, _ = rewritten(
        lambda i, j: X[1, i, 3] * Y[j], lambda i, j: X[2, i, 3] * Y[j], lambda i, j: X[i, 0, j] + Y[j], shape=(2, 6)
    )
    shapes = [t.shape for t in after.nodes if t.name == "x_slice"]
    assert shapes == [(2, 6), (2, 6)]


def test_slices_stay_slices():
    assert not rewritten(*(lambda i, n=n: X[n, 1, i] for n in range(3)))[1].steps
