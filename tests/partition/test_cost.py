"""What kernels cost, by hand: bytes once, instructions as often as they are computed; and the objective over them."""

import pytest

import neoflow as nf
from neoflow.expr.tensor import Placeholder, topological
from neoflow.graph import make_graph
from neoflow.partition import Cost, cost_of, objective, partition, reward
from neoflow.roofs import Level, Roofs

X = nf.placeholder((8, 64), name="x")
ROOFS = Roofs(100.0, (Level("memory", None, 10.0),), start=1e-6)
K = nf.axis(64, "k")


def calls(outputs, **options):
    inputs = [t for t in topological(outputs) if isinstance(t, Placeholder)]
    return partition(make_graph(outputs, inputs), **options)


def costs(outputs, **options):
    return [cost_of(c.subgraph) for c in calls(outputs, **options).calls]


def test_a_map_moves_what_it_reads_and_writes():
    (cost,) = costs([nf.compute((8, 64), lambda i, j: X[i, j] * 2.0 + 1.0)])
    assert cost.nbytes == 2 * X.nbytes and cost.instructions == 8 * 64 * 2  # a load, a multiply-add
    (cost,) = costs([nf.compute((64,), lambda j: X[2, j] * X[3, j])])
    assert cost.nbytes == (2 + 1) * 64 * 4  # of x no more than is read


def test_what_is_looked_up_counts_the_rows_that_are_asked_for():
    table, ids = nf.placeholder((1000, 4), name="table"), nf.placeholder((5,), "int64", name="ids")
    (cost,) = costs([nf.compute((5, 4), lambda i, j: table[ids[i], j] * 2.0)])
    assert cost.nbytes == 5 * 4 * 4 + 5 * 8 + 5 * 4 * 4


def test_what_is_recomputed_counts_as_often_as_it_is():
    a = nf.compute((8, 64), lambda i, j: X[i, j] * X[i, j], name="a")
    own = nf.compute((8, 64), lambda i, j: a[i, j] + a[i, j] * 3.0)
    apart = nf.compute((8, 60), lambda i, j: a[i, j] + a[i, j + 4])
    (once,), (twice,) = costs([own]), costs([apart])
    assert twice.instructions - once.instructions == pytest.approx(
        2 * 8 * 60 * 3 + 8 * 60 * 3 - 8 * 64 * (2 + 3), abs=8 * 64 * 4
    )
    assert once.nbytes == twice.nbytes + 8 * 4 * 4


def test_the_objective_adds_the_seconds_of_kernels():
    s = nf.compute((8,), lambda i: nf.sum(X[i, K], axis=[K]), name="s")
    found = calls([nf.compute((8, 8), lambda i, j: s[i] * s[j])])
    assert len(found.calls) == 2
    each = [cost_of(c.subgraph) for c in found.calls]
    assert objective(found, ROOFS) == pytest.approx(sum(c.seconds(ROOFS) for c in each))
    assert each[0].nbytes == X.nbytes + 8 * 4


def test_a_reward_is_what_is_saved():
    both, one = [Cost(1000, 10), Cost(500, 10)], [Cost(700, 20)]
    assert reward(both, one, ROOFS) == pytest.approx(800 / 10 / 1e9 + 1e-6)
    assert reward(one, both, ROOFS) < 0
