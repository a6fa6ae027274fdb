"""Axes that are read in blocks become two: which, and what stays as it is."""

import neoflow as nf
from neoflow.expr.ir import Axis
from neoflow.graph import make_graph
from neoflow.loops import default_schedule, problem_of
from neoflow.loops.operands import lies_packed
from neoflow.loops.tile import sides
from neoflow.partition import partition
from tests.codegen.kernels import TARGET, WIDE

X, P = nf.placeholder((64, 96), name="x"), nf.placeholder((8, 96, 16), name="p")
K = nf.axis(96, "k")


def kernel(body, shape=(64, 128)):
    y = nf.compute(shape, lambda i, j: nf.sum(body(i, j), axis=[K]), name="y")
    (call,) = partition(make_graph([nf.tanh(y)], [X, P])).calls
    return call.subgraph


def extents(subgraph):
    nest = problem_of(subgraph).nest
    return [a.extent for a in nest.axes], [a.extent for a in nest.reduction.axes]


def test_a_packed_operand_is_read_where_it_lies():
    found = kernel(lambda i, j: X[i, K] * P[j // 16, K, j % 16])
    assert extents(found) == ([64, 8, 16], [96])
    problem, schedule = problem_of(found), default_schedule(found, TARGET)
    assert schedule["side"] == "right" and not schedule["pack_panels"]
    for lanes, vectors in ((16, 1), (16, 2), (16, 3), (8, 2), (8, 1)):
        assert lies_packed(problem, {**dict(schedule.knobs), "lanes": lanes, "vectors": vectors})
    assert not lies_packed(problem, {**dict(schedule.knobs), "lanes": 8, "vectors": 3})
    read = sides(problem, schedule).right_read
    assert all(isinstance(a, Axis) for a in read.indices[0].free)


def test_reduced_axes_are_read_in_blocks_too():
    found = kernel(lambda i, j: X[i, K] * P[j // 16, 16 * (K // 16) + K % 16, j % 16])
    assert extents(found) == ([64, 8, 16], [96])
    q = nf.placeholder((6, 128, 16), name="q")
    y = nf.compute((64, 128), lambda i, j: nf.sum(X[i, K] * q[K // 16, j, K % 16], axis=[K]), name="y")
    (call,) = partition(make_graph([y], [X, q])).calls
    assert extents(call.subgraph) == ([64, 128], [6, 16])


def test_blocks_of_two_widths_or_of_another_axis_stay():
    two = kernel(lambda i, j: X[i, K] * P[j // 16, K, j % 16] * P[j // 32, K, (j % 32) // 2])
    shifted = kernel(lambda i, j: X[i, K] * P[(j + 1) // 17, K, (j + 1) % 16])
    assert extents(two) == extents(shifted) == ([64, 128], [96])


def test_packed_rows_go_along_panels_as_these_lie_in_memory():
    x, weights = nf.placeholder((1, 64, 15, 15), name="x"), nf.placeholder((8, 64, 3, 3, 32), name="weights")
    turned = nf.placeholder((8, 3, 3, 64, 32), name="turned")
    c, a, b = nf.axis(64, "c"), nf.axis(3, "a"), nf.axis(3, "b")
    for p, read, wanted in (
        (weights, lambda j: weights[j // 32, c, a, b, j % 32], [64, 3, 3]),
        (turned, lambda j: turned[j // 32, a, b, c, j % 32], [3, 3, 64]),
    ):
        shape = (1, 256, 13, 13)
        y = nf.compute(shape, lambda n, j, h, w, of=read: nf.sum(x[n, c, h + a, w + b] * of(j), axis=[c, a, b]))
        (call,) = partition(make_graph([y], [x, p])).calls
        schedule = default_schedule(call.subgraph, WIDE)
        assert (schedule["side"], schedule["pack"], schedule["pack_panels"]) == ("right", True, False)
        assert [k.extent for k in sides(problem_of(call.subgraph), schedule).c.k] == wanted
