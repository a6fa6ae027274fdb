"""Offsets leave bodies that differ in nothing else, where they are many and what they read has memory; only there."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.tensor import Constant, topological
from neoflow.graph import contiguous_offset, make_graph, run
from neoflow.graph.offsets import FEW, MANY
from neoflow.graph.passes import MOVE_OFFSETS
from neoflow.partition import partition

X, Y, Z = nf.placeholder((6, 50), name="x"), nf.placeholder((6,), name="y"), nf.placeholder((300,), name="z")
U, V = nf.placeholder((40, 60), name="u"), nf.placeholder((40,), name="v")
INPUTS = (X, Y, Z, U, V)


def rewritten(outputs):
    """The graph after the pass and its derivation, the values being those of before."""
    graph = make_graph(outputs, INPUTS)
    after, derivation = run(graph, MOVE_OFFSETS)
    feeds = {t: np.random.default_rng(0).standard_normal(t.shape).astype(np.float32) for t in INPUTS}
    for a, b in zip(nf.evaluate(after.outputs, feeds), nf.evaluate(graph.outputs, feeds), strict=True):
        np.testing.assert_array_equal(a, b)
    return after, derivation


def steps(count, body, shape=(6,)):
    return [nf.compute(shape, lambda *axes, k=k: body(k, *axes), name=f"t{k}") for k in range(count)]


def bodies(graph):
    return {t.definition for t in graph.outputs}


@pytest.mark.parametrize(
    "body",
    [
        lambda k, i: X[i, k + 5 - i] * Y[i],
        lambda k, i: X[i, k] + X[5 - i, k + 3],
        lambda k, i: nf.tanh(Z[6 * k + i]),
        lambda k, i: Z[2 * i + k] * Z[2 * i + k + 1],
        lambda k, i: X[2, i + k] + nf.select(i >= 1, X[i - 1, k], Y[i]),
        lambda k, i: nf.select(Y[i] > 0, X[i, 40 - k + i], Z[k]),
    ],
)
def test_steps_that_read_elsewhere_become_equal(body):
    after, derivation = rewritten(steps(FEW + 1, body))
    assert len(bodies(after)) == 1
    (step,) = derivation.steps
    assert step.reason == f"{FEW + 1} bodies differ in the constants of addresses alone"
    found = partition(after, without={"sharing"})  # each step a kernel of its own
    assert len(found.subgraphs) == 1 and all(v.base in (X, Z) for v in found.views.values())
    assert all(contiguous_offset(t.definition) is not None for t in after.nodes if t.name.endswith("_run"))


@pytest.mark.parametrize(
    "body",
    [
        lambda k, i: nf.select((k - i >= 0) & (k - i < 60), U[i, k - i] * V[i], 1.0),
        lambda k, i: nf.select(k - i > 0, V[i], nf.select(i + 1 > k, 2.0, Z[i])),
        lambda k, i: nf.select((i >= 1) & (2 * i < k), V[i - 1] * V[i], Z[i + k]),
        lambda k, i: nf.select((i < k) | (i + 3 == k), V[i], nf.select(i - 1 >= k, Z[2 * i + k], 0.0)),
    ],
)
def test_steps_under_other_conditions_become_equal(body):
    made = steps(MANY + 8, body, (40,))
    after, derivation = rewritten(made)
    step = derivation.steps[0]
    assert step.reason == f"{len(step.at)} bodies differ in the constants of addresses and conditions alone"
    assert len(step.at) > MANY and len(bodies(after)) <= len(bodies(make_graph(made, INPUTS))) - len(step.at) + 1
    (table,) = {t for t in topological(after.outputs) if isinstance(t, Constant)}
    assert table.dtype == "int32" and len(table.shape) == 2 and MANY < table.shape[0] <= len(step.at)


def test_a_condition_that_stays_still_guards():
    """`i >= 1` is of all bodies, and proves by itself that U[i - 1, ...] is read inside."""
    after, _ = rewritten(steps(MANY + 2, lambda k, i: nf.select((i >= 1) & (i < k + 3), U[i - 1, k], V[i]), (40,)))
    (text,) = map(str, partition(after, without={"sharing"}).subgraphs)
    assert "select((i >= 1) & (cast(i, int32) < in0[0]), in1[60*i - 60], in2[i])" in text


def test_few_bodies_stay():
    assert not rewritten(steps(FEW, lambda k, i: X[i, k] * Y[i]))[1].steps
    assert not rewritten(steps(MANY, lambda k, i: nf.select(i < k, U[i, k], 0.0) * V[i], (40,)))[1].steps
    same = [nf.compute((6,), lambda i: X[i, 3] * Y[i], name=f"t{n}") for n in range(2 * MANY)]
    assert not rewritten(same)[1].steps


def test_runs_and_numbers_stay():
    after, _ = rewritten(steps(FEW + 1, lambda k, i: X[2, i + k], (9,)))
    assert all(t.name.startswith("t") for t in after.nodes)


def test_what_needs_a_condition_that_differs_stays():
    after, derivation = rewritten(steps(MANY + 2, lambda k, i: nf.select(i - k >= 0, Z[i - k] * 2.0, 0.0), (200,)))
    assert not derivation.steps and {s.reason for s in derivation.refused} == {
        "what they read has no memory, they are moves of one sum, or a condition that differs guards them"
    }
    assert len(bodies(after)) == MANY + 2


def test_what_is_moved_into_one_sum_stays():
    terms = steps(MANY + 1, lambda k, i, j: nf.select(i + j - k <= 0, X[i, j], 0.0), (6, 50))
    total = nf.compute((6, 50), lambda i, j: sum((t[i, j] for t in terms[1:]), terms[0][i, j]))
    assert not rewritten([total])[1].steps


def test_what_has_no_memory_is_read_as_it_was():
    turned = nf.compute((50, 6), lambda i, j: X[j, i], name="turned")
    assert not rewritten(steps(FEW + 1, lambda k, i: turned[k + i, i] * Y[i]))[1].steps
    table = nf.compute((50, 6), lambda i, j: X[j, i] * 2.0, name="table")
    after, _ = rewritten(steps(FEW + 1, lambda k, i: table[k + i, i] * Y[i]))
    assert len(bodies(after)) == 1
    assert {v.base.name for v in partition(after).views.values()} == {"table"}


def test_indices_from_data_stay():
    ids = nf.placeholder((6,), "int64", name="ids")
    made = steps(FEW + 1, lambda k, i: Z[ids[i] + k] * Y[i])
    graph = make_graph(made, [Z, Y, ids])
    assert not run(graph, MOVE_OFFSETS)[1].steps


def test_steps_in_a_chain_are_replaced_at_once():
    """Each reads the one before, and thousands of them take no longer than each a share."""
    h = Y
    for k in range(294):
        h = nf.compute((6,), lambda i, k=k, h=h: nf.tanh(h[i]) + Z[k + i], name=f"t{k}")
    after, derivation = rewritten([h])
    assert len(derivation.steps[0].at) == 294 and len({t.definition for t in after.nodes if t.name[0] == "t"}) == 1


def test_sums_over_windows_become_equal():
    r = nf.axis(4, "r")
    after, _ = rewritten(steps(FEW + 1, lambda k, i: nf.sum(Z[3 * k + i + r] * Z[r], axis=[r])))
    assert len(bodies(after)) == 1
