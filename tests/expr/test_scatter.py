"""Scatter: what it means, what it refuses, and that graphs with it keep their values."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import make_graph, optimize
from neoflow.partition import partition

RNG = np.random.default_rng(0)


def rows(count=5, width=3, table=7):
    ids = nf.placeholder((count,), "int64", name="ids")
    g = nf.placeholder((count, width), name="g")
    b, h = nf.axis(count, "b"), nf.axis(width, "h")
    return ids, g, nf.scatter((table, width), [b, h], (ids[b], h), g[b, h] * 2.0, name="t")


def test_repeated_rows_add_up():
    ids, g, t = rows()
    feeds = {ids: np.array([3, 0, 3, 6, 3]), g: RNG.standard_normal((5, 3)).astype(np.float32)}
    (found,) = nf.evaluate([t], feeds)
    wanted = np.zeros((7, 3), np.float32)
    for b, row in enumerate(feeds[ids]):
        wanted[row] += 2 * feeds[g][b]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_it_means_the_guarded_sum():
    ids, g, t = rows()
    b = nf.axis(5, "b")
    plain = nf.compute((7, 3), lambda v, h: nf.sum(nf.select(ids[b] == v, g[b, h] * 2.0, 0.0), axis=[b]))
    feeds = {ids: RNG.integers(0, 7, 5), g: RNG.standard_normal((5, 3))}
    found, wanted = nf.evaluate([t, plain], feeds, dtype="float64")
    np.testing.assert_allclose(found, wanted)


def test_an_index_outside_is_a_fault():
    ids, g, t = rows()
    feeds = {ids: np.array([3, 0, 7, 6, 3]), g: np.zeros((5, 3), np.float32)}
    with pytest.raises(nf.RuntimeFault, match="t scatters to index 7 of dimension 0, whose extent is 7"):
        nf.evaluate([t], feeds)


def test_a_known_index_outside_is_refused():
    g = nf.placeholder((5,), name="g")
    b = nf.axis(5, "b")
    with pytest.raises(nf.ExpressionError, match=r"index 0 is `b \+ 3` = 7 at b=4, but the extent is 7"):
        nf.scatter((7,), [b], (b + 3,), g[b])


def test_it_is_only_a_whole_body():
    from neoflow.expr.close import define
    from neoflow.expr.ir import Apply, Axis, Const, Read, Scatter

    g = nf.placeholder((5,), name="g")
    b = nf.axis(5, "b")
    inner = Scatter((b,), (b,), Read(g, (b,)))
    with pytest.raises(nf.ExpressionError, match="scatters inside an expression"):
        define((5,), (Axis(0, 5),), Apply("add", (inner, Const(1, "float32"))), "y")


def test_rank_of_the_index():
    g = nf.placeholder((5,), name="g")
    b = nf.axis(5, "b")
    with pytest.raises(nf.ExpressionError, match="has 2 dimensions but scatters to 1 indices"):
        nf.scatter((7, 2), [b], (b,), g[b], name="t")


def test_it_prints():
    *_, t = rows()
    assert str(t).startswith("t[i<7, j<3] = scatter[r, s](g[r, s] * 2.0, at=[ids[r], s])")


def test_graph_and_kernels_keep_its_value():
    ids, g, t = rows()
    graph = optimize(make_graph([nf.exp(t)], [ids, g]))
    feeds = {ids: RNG.integers(0, 7, 5), g: RNG.standard_normal((5, 3))}
    (wanted,) = nf.evaluate([nf.exp(t)], feeds, dtype="float64")
    values = dict(feeds)
    for call in partition(graph).calls:
        inputs, outputs = call.subgraph.tensors()
        arrays = {i: values[s] for i, s in zip(inputs, call.inputs, strict=True)}
        values.update(zip(call.outputs, nf.evaluate(list(outputs), arrays, dtype="float64"), strict=True))
    np.testing.assert_allclose(values[graph.outputs[0]], wanted)
