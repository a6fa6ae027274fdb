"""Reductions over windows: of outputs that read one side alike many are computed together, and addresses go up."""

import math

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.codegen.tir.phases import TASKS_A_THREAD
from neoflow.loops import complete, default_schedule, problem_of
from neoflow.loops.reduction import ascending
from neoflow.target import Target
from tests.codegen.kernels import TARGET, WIDE, check, subgraph_of

pytestmark = pytest.mark.tvm


def weights_gradient(batch, channels, rows, columns, window):
    """The gradient of a depthwise convolution's weights, as a sum over all that a window is over."""
    g = nf.placeholder((batch, channels, rows, columns), name="g")
    x = nf.placeholder((batch, channels, rows + window - 1, columns + window - 1), name="x")
    b, i, j = nf.axis(batch), nf.axis(rows), nf.axis(columns)
    y = nf.compute(
        (channels, window, window),
        lambda c, r, s: nf.sum(g[b, c, i, j] * x[b, c, i + r, j + s], axis=[b, i, j]),
    )
    return [y], [g, x]


@pytest.mark.parametrize("shape", [(2, 3, 7, 9, 3), (3, 2, 5, 37, 2), (1, 5, 4, 16, 5)])
@pytest.mark.parametrize(
    "knobs", [{}, {"tile_rows": 2}, {"tile_rows": 7, "unroll": 1}, {"splits": 2, "parallel": True}]
)
def test_windows_of_weights(shape, knobs):
    roots, inputs = weights_gradient(*shape)
    schedule = complete("reduction", problem_of(subgraph_of(roots, inputs)), TARGET, {"lane": "reduced", **knobs})
    check(roots, inputs, schedule, scale=16.0)


@pytest.mark.parametrize("shape", [(2, 3, 6, 9, 3), (1, 2, 12, 21, 3), (3, 2, 4, 16, 5), (1, 3, 7, 7, 3)])
@pytest.mark.parametrize("pads", [False, True])
def test_points_of_the_axis_before_the_lanes_together(shape, pads):
    """Every number that divides it; also where what is read is padded in place, which only masks say."""
    rows = shape[2]
    roots, inputs = padded_weights_gradient(shape) if pads else weights_gradient(*shape)
    problem = problem_of(subgraph_of(roots, inputs))
    taken = [n for n in range(1, rows + 1) if rows % n == 0]
    for steps in taken:
        schedule = complete("reduction", problem, TARGET, {"lane": "reduced", "steps": steps})
        assert check(roots, inputs, schedule, scale=16.0)["steps"] == steps


def padded_weights_gradient(shape):
    batch, channels, rows, columns, window = shape
    g = nf.placeholder((batch, channels, rows, columns), name="g")
    x = nf.placeholder((batch, channels, rows, columns), name="x")
    b, i, j, off = nf.axis(batch), nf.axis(rows), nf.axis(columns), window // 2

    def at(c, r, s):
        p, q = i + r - off, j + s - off
        inside = (p >= 0) & (p < rows) & (q >= 0) & (q < columns)
        return nf.sum(nf.select(inside, x[b, c, p, q], 0.0) * g[b, c, i, j], axis=[b, i, j])

    return [nf.compute((channels, window, window), at)], [g, x]


def test_windows_share_what_they_read():
    """Four rows of many, all of a few; none where windows go in steps of two along an axis that is not short."""
    for rows, steps in ((56, 4), (14, 14), (7, 7)):
        roots, inputs = weights_gradient(16, 8, rows, rows, 3)
        assert default_schedule(subgraph_of(roots, inputs), TARGET)["steps"] == steps
    g, x = nf.placeholder((16, 8, 28, 28), name="g"), nf.placeholder((16, 8, 57, 57), name="x")
    b, i, j = nf.axis(16), nf.axis(28), nf.axis(28)
    y = nf.compute((8, 3, 3), lambda c, r, s: nf.sum(g[b, c, i, j] * x[b, c, 2 * i + r, 2 * j + s], axis=[b, i, j]))
    assert default_schedule(subgraph_of([y], [g, x]), TARGET)["steps"] == 1


@pytest.mark.parametrize("name", ["max", "argmax", "sum"])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_any_reducer_of_several_outputs(name, rows):
    x = nf.placeholder((13, 45), name="x")
    y = getattr(nf, name)(x, axis=1)
    schedule = complete("reduction", problem_of(subgraph_of([y], [x])), TARGET, {"lane": "reduced", "tile_rows": rows})
    assert check([y], [x], schedule, scale=4.0)["tile_rows"] == rows


@pytest.mark.parametrize("shape", [(13, 45), (300,)])
def test_parts_of_several_outputs(shape):
    x = nf.placeholder((*shape, 70), name="x")
    y = nf.sum(x, axis=-1)
    knobs = {"lane": "reduced", "tile_rows": 3, "parallel": True, "splits": 2}
    schedule = complete("reduction", problem_of(subgraph_of([y], [x])), TARGET, knobs)
    assert check([y], [x], schedule, scale=4.0)["splits"] == 2


def test_what_reads_one_side_alike_is_computed_together():
    roots, inputs = weights_gradient(2, 8, 28, 28, 3)
    assert default_schedule(subgraph_of(roots, inputs), WIDE)["tile_rows"] == 9
    x, w = nf.placeholder((64, 512), name="x"), nf.placeholder((512,), name="w")
    for y in (nf.sum(x, axis=1), nf.sum(x * w, axis=1)):
        schedule = complete("reduction", problem_of(subgraph_of([y], [x, w])), TARGET, {"lane": "reduced"})
        assert schedule["tile_rows"] == 1


def turned(columns):
    x, w = nf.placeholder((3, columns), name="x"), nf.placeholder((3,), name="w")
    r = nf.axis(3)
    y = nf.compute((3, columns - 2), lambda i, j: nf.sum(x[i, j - r + 2] * w[r], axis=[r]))
    return [y], [x, w]


@pytest.mark.parametrize("columns", [5, 18, 66, 100])
def test_reads_that_go_down(columns):
    roots, inputs = turned(columns)
    nest = problem_of(subgraph_of(roots, inputs)).nest
    assert "2" in str(ascending(nest).reduction) and str(ascending(nest).reduction) != str(nest.reduction)
    assert str(ascending(ascending(nest)).reduction) == str(ascending(nest).reduction)
    for terms in (False, True):
        schedule = complete("reduction", problem_of(subgraph_of(roots, inputs)), TARGET, {"terms": terms})
        check(roots, inputs, schedule, scale=4.0)


@pytest.mark.parametrize("form", ["x", "x * y", "x * x", "x * scale", "exp(x) * y"])
@pytest.mark.parametrize("columns", [7, 17, 35])
def test_no_sum_takes_what_lies_behind_its_row(form, columns):
    """Where the last vector of a row ends, its lanes are of the next one: there of infinities and NaN."""
    x, y = nf.placeholder((4, columns), name="x"), nf.placeholder((4, columns), name="y")
    scale, j = nf.placeholder((4,), name="scale"), nf.axis(columns)
    bodies = {
        "x": lambda i: x[i, j],
        "x * y": lambda i: x[i, j] * y[i, j],
        "x * x": lambda i: x[i, j] * x[i, j],
        "x * scale": lambda i: x[i, j] * scale[i],
        "exp(x) * y": lambda i: nf.exp(x[i, j]) * y[i, j],
    }
    roots = [nf.compute((4,), lambda i: nf.sum(bodies[form](i), axis=[j]))]
    inputs = [t for t in (x, y, scale) if t.name in form]
    rng = np.random.default_rng(columns)
    feeds = {t: rng.standard_normal(t.shape).astype(np.float32) for t in inputs}
    for array in feeds.values():
        array[1], array[3] = np.inf, np.nan
    for lane in ("output", "reduced"):
        schedule = complete("reduction", problem_of(subgraph_of(roots, inputs)), TARGET, {"lane": lane})
        check(roots, inputs, schedule, feeds, scale=16.0)


@pytest.mark.parametrize("shape", [(7, 9, 13, 3), (400, 5, 2, 11), (3, 512, 1, 7), (129, 3, 3, 16), (2, 2, 2, 2)])
def test_short_rows_are_loops_inside_of_tasks(shape):
    """Of every shape each output is written once, by enough tasks where there are so many."""
    x = nf.placeholder((*shape, 2), name="x")
    k = nf.axis(2)
    y = nf.compute(shape, lambda a, b, c, d: nf.sum(x[a, b, c, d, k] * 2.0, axis=[k]))
    target = Target("cpu", TARGET.mcpu, 2, TARGET.vector_bytes, TARGET.l2_bytes, TARGET.fma_units)
    knobs = {"lane": "output", "fuse": 0, "tile_rows": 1, "parallel": True}
    subgraph = subgraph_of([y], [x])
    schedule = complete("reduction", problem_of(subgraph), target, knobs)
    check([y], [x], schedule, target=target)
    (entry,) = codegen.lower(subgraph, schedule, target, "k").code.entries
    rows = math.prod(shape[:3])
    assert min(rows, 2 * TASKS_A_THREAD) <= entry.tasks <= rows
