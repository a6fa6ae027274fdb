"""The scatter template against NumPy: columns and none, tails, repeated targets, faults, element types."""

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.errors import RuntimeFault
from neoflow.graph import canonicalize, make_graph
from neoflow.loops import default_schedule
from neoflow.partition import partition
from neoflow.runtime.device.cpu import empty
from neoflow.target import cpu_target
from tests.codegen.kernels import loaded

pytestmark = pytest.mark.tvm
RNG = np.random.default_rng(0)


def compiled(outputs, inputs, threads=2):
    """One kernel of a one-kernel program."""
    (call,) = partition(canonicalize(make_graph(outputs, inputs))).calls
    target = cpu_target(threads)
    schedule = default_schedule(call.subgraph, target)
    [kernel] = loaded([codegen.lower(call.subgraph, schedule, target, "k")], target)

    def run(feeds):
        arrays = []
        for t in call.inputs:
            arrays.append(empty(t.shape, t.dtype))
            arrays[-1][...] = feeds[t]
        results = [empty(t.shape, t.dtype) for t in call.outputs]
        kernel(*arrays, *results)
        return results

    return run, schedule


def rows(count, width, table, dtype="float32"):
    ids = nf.placeholder((count,), "int64", name="ids")
    g = nf.placeholder((count, width), dtype, name="g")
    b, h = nf.axis(count, "b"), nf.axis(width, "h")
    return ids, g, nf.scatter((table, width), [b, h], (ids[b], h), g[b, h], name="t")


@pytest.mark.parametrize("width", [1, 3, 16, 37, 200])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows(width, threads, dtype):
    ids, g, t = rows(300, width, 50, dtype)
    run, _ = compiled([t], [ids, g], threads)
    feeds = {ids: RNG.integers(0, 50, 300), g: RNG.standard_normal((300, width)).astype(dtype)}
    (found,) = run(feeds)
    (wanted,) = nf.evaluate([t], feeds, dtype="float64")
    np.testing.assert_allclose(found, wanted, rtol=1e-4 if dtype == "float32" else 1e-12, atol=1e-4)


def test_columns_narrower_than_the_table_leave_zeros():
    ids = nf.placeholder((40,), "int64", name="ids")
    g = nf.placeholder((40, 20), name="g")
    b, h = nf.axis(40, "b"), nf.axis(20, "h")
    t = nf.scatter((1000, 33), [b, h], (ids[b], h), g[b, h] * 2.0)
    run, _ = compiled([t], [ids, g])
    feeds = {ids: RNG.integers(0, 1000, 40), g: RNG.standard_normal((40, 20)).astype(np.float32)}
    np.testing.assert_allclose(run(feeds)[0], nf.evaluate([t], feeds)[0], rtol=1e-5)


def test_no_columns():
    ids = nf.placeholder((40, 3), "int32", name="ids")
    g = nf.placeholder((40, 3), name="g")
    b, h = nf.axis(40, "b"), nf.axis(3, "h")
    t = nf.scatter((9,), [b, h], (ids[b, h],), g[b, h])
    run, schedule = compiled([t], [ids, g])
    assert schedule["lanes"] == 1
    feeds = {ids: RNG.integers(0, 9, (40, 3)).astype(np.int32), g: RNG.standard_normal((40, 3)).astype(np.float32)}
    np.testing.assert_allclose(run(feeds)[0], nf.evaluate([t], feeds)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bad", [-1, 50, 1 << 40])
def test_an_index_outside_is_an_error(bad):
    ids, g, t = rows(300, 37, 50)
    run, _ = compiled([t], [ids, g])
    feeds = {ids: RNG.integers(0, 50, 300), g: np.zeros((300, 37), np.float32)}
    feeds[ids][123] = bad
    with pytest.raises(RuntimeFault, match="index out of range: the scatter's target has extent 50 there"):
        run(feeds)


def test_integers_are_exact():
    ids = nf.placeholder((500,), "int64", name="ids")
    b = nf.axis(500, "b")
    t = nf.scatter((7,), [b], (ids[b],), nf.cast(b, "int32"))
    run, _ = compiled([t], [ids])
    feeds = {ids: RNG.integers(0, 7, 500)}
    np.testing.assert_array_equal(run(feeds)[0], nf.evaluate([t], feeds)[0])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_fault_inside_a_parallel_gather_is_not_lost(threads):
    ids, table = nf.placeholder((4000,), "int64", name="ids"), nf.placeholder((50, 64), name="table")
    run, schedule = compiled([nf.compute((4000, 64), lambda i, j: nf.exp(table[ids[i], j]))], [ids, table], threads)
    assert schedule["parallel"] is (threads == 2)
    feeds = {ids: np.zeros(4000, np.int64), table: np.zeros((50, 64), np.float32)}
    run(feeds)
    feeds[ids][3999] = -5
    with pytest.raises(RuntimeFault, match=r"index out of range: input [01] has extent 50 there"):
        run(feeds)
