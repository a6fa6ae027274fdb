"""A side of a contraction read where it lies: the same values as packed, on shapes that are no multiple of a tile."""

import itertools

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.errors import ScheduleError
from neoflow.expr.interp import evaluate
from neoflow.loops import default_schedule
from neoflow.runtime.device.cpu import empty
from tests.codegen.kernels import TARGET, TOLERANCE, WIDE, changed, kernel, random_array, scheduled, subgraph_of

pytestmark = pytest.mark.tvm


def matmul(m, k, n, dtype="float32", epilogue=True):
    a, b, c = (nf.placeholder(s, dtype, name=x) for s, x in (((m, k), "a"), ((k, n), "b"), ((n,), "c")))
    r = nf.axis(k, "r")
    y = nf.compute((m, n), lambda i, j: nf.sum(a[i, r] * b[r, j], axis=[r]))
    return [nf.tanh(y + c) * 0.5, y] if epilogue else [y], [a, b, c] if epilogue else [a, b]


def batched(dtype="float32"):
    a, b = nf.placeholder((5, 9, 23), dtype, name="a"), nf.placeholder((5, 23, 41), dtype, name="b")
    r = nf.axis(23, "r")
    return [nf.compute((5, 9, 41), lambda q, i, j: nf.sum(a[q, i, r] * b[q, r, j], axis=[r]))], [a, b]


def two_axes(last, dtype="float32"):
    """N of two axes, read in its own order and over two axes of K."""
    a, b = nf.placeholder((19, 4, 6), dtype, name="a"), nf.placeholder((4, 3, 6, last), dtype, name="b")
    r, s = nf.axis(4, "r"), nf.axis(6, "s")
    return [nf.compute((19, 3, last), lambda i, p, q: nf.sum(a[i, r, s] * b[r, p, s, q], axis=[r, s]))], [a, b]


def check(outputs, inputs, **knobs):
    subgraph = subgraph_of(outputs, inputs)
    schedule = scheduled(subgraph, side="right", pack_panels=False, **knobs)
    assert schedule.template == "contraction"
    arrays = [random_array(t) for t in inputs]
    feeds = dict(zip(inputs, arrays, strict=True))
    results = [empty(t.shape, t.dtype) for t in outputs]
    kernel(subgraph, schedule)(*arrays, *results)
    for found, wanted in zip(results, evaluate(outputs, feeds, dtype="float64"), strict=True):
        scale = max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(found, wanted, atol=TOLERANCE[outputs[0].dtype] * scale)
    return subgraph, schedule


@pytest.mark.parametrize("m,k,n", [(20, 80, 75), (7, 33, 17), (33, 5, 128), (2, 300, 47), (64, 64, 64)])
@pytest.mark.parametrize("order", ["tiles", "panels"])
def test_a_matrix(m, k, n, order):
    for vectors, splits, pack in itertools.product((1, 3), (1, 3), (False, True)):
        check(*matmul(m, k, n), order=order, vectors=vectors, tile_rows=5, splits=splits, pack=pack)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_batch_and_several_axes(dtype):
    lanes = TARGET.lanes(dtype)
    for outputs, inputs in (batched(dtype), two_axes(2 * lanes, dtype), two_axes(lanes + 3, dtype)):
        for order in ("tiles", "panels"):
            check(outputs, inputs, order=order, vectors=2, tile_rows=4, splits=2)


def test_what_cannot_be_read_in_place_is_packed_by_default():
    """A side that strides along N, and one that is computed; either may be computed in each tile instead."""
    a, b, c = (nf.placeholder(s, name=n) for s, n in (((9, 23), "a"), ((37, 23), "b"), ((23, 37), "c")))
    r = nf.axis(23, "r")
    strided = nf.compute((9, 37), lambda i, j: nf.sum(a[i, r] * b[j, r], axis=[r]))
    computed = nf.compute((9, 37), lambda i, j: nf.sum(nf.exp(a[i, r]) * nf.exp(c[r, j]), axis=[r]))
    for outputs, inputs in (([strided], [a, b]), ([computed], [a, c])):
        assert scheduled(subgraph_of(outputs, inputs), side="right")["pack_panels"]
        _, schedule = check(outputs, inputs, order="tiles", splits=1)
        assert not schedule["pack_panels"]


def test_vectors_that_cross_the_ends_of_lines_are_packed():
    outputs, inputs = two_axes(TARGET.lanes("float32") + 3)
    subgraph, schedule = check(outputs, inputs, order="tiles", splits=1, in_lines=False)
    assert schedule["pack_panels"]
    with pytest.raises(ScheduleError, match="cross the ends of lines, and are put together in packing alone"):
        codegen.lower(subgraph, changed(schedule, pack_panels=False, turn=False, pack_loop=False), TARGET, "f")


def test_a_small_matrix_is_read_in_place_by_default():
    assert not default_schedule(subgraph_of(*matmul(20, 800, 200)), WIDE)["pack_panels"]
    assert default_schedule(subgraph_of(*matmul(1024, 1024, 1024)), WIDE)["pack_panels"]
