"""Axes cut where conditions on them change: where, that nothing is chosen any more, that nothing else is computed."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.ir import Select, postorder
from neoflow.loops import default_schedule, nearest, problem_of
from neoflow.loops.cuts import MOST_PIECES, cuts, piece, work
from neoflow.loops.problem import NestProblem
from tests.codegen.kernels import TARGET, changed, check, subgraph_of

GATES = [nf.sigmoid, nf.tanh, nf.exp, lambda x: x * 2.0]


def gates(rows, columns, count, dtype="float32", axis=1) -> tuple[nf.Tensor, list[nf.Tensor]]:
    """Concatenated, as the gradient of what is cut into gates: each with a function of its own."""
    shape = (rows, columns)
    x = nf.placeholder((rows, count * columns) if axis else (count * rows, columns), dtype, name="x")
    parts: list[nf.Tensor] = [nf.placeholder(shape, dtype, name=f"p{n}") for n in range(count)]
    step = shape[axis]

    def value(i, j):
        at, found = (i, j)[axis], 0.0
        for n, part in enumerate(parts):
            here = (at >= n * step) & (at < (n + 1) * step)
            there = (i - n * step, j) if axis == 0 else (i, j - n * step)
            found = found + nf.select(here, part[there] * GATES[n % len(GATES)](x[i, j]), 0.0)
        return found

    return nf.compute(x.shape, value, name="y"), [x, *parts]


def nest_of(y, inputs):
    problem = problem_of(subgraph_of([y], inputs))
    assert isinstance(problem, NestProblem)
    return problem.nest


@pytest.mark.parametrize("axis", [0, 1])
def test_nothing_is_chosen_any_more(axis):
    nest = nest_of(*gates(16, 24, 4, axis=axis))
    boxes = cuts(nest)
    step = (16, 24)[axis]
    assert [b[axis] for b in boxes] == [(n * step, (n + 1) * step) for n in range(4)]
    pieces = [piece(nest, b) for b in boxes]
    assert not any(isinstance(n, Select) for p in pieces for _, _, value in p.outputs for n in postorder(value))
    assert sum(map(work, pieces)) < 0.5 * work(nest)
    assert sum(int(np.prod([a.extent for a in p.axes])) for p in pieces) == 16 * 24 * 4


def test_every_comparison_has_its_end():
    """Those of an axis times a number, from either side, and those that are never decided."""
    x = nf.placeholder((40,), name="x")
    for condition, end in (
        (lambda i: 2 * i < 17, 9),
        (lambda i: 3 * i >= 60, 20),
        (lambda i: 30 - i > 0, 30),
        (lambda i: -i <= -9, 9),
        (lambda i: i <= 25, 26),
        (lambda i: -2 * i + 21 <= 0, 11),
    ):
        y = nf.compute((40,), lambda i, c=condition: nf.select(c(i), nf.tanh(x[i]), x[i]), name="y")
        assert [b[0] for b in cuts(nest_of(y, [x]))] == [(0, end), (end, 40)]
        check([y], [x])
    for condition in (lambda i: i * i < 30, lambda i: i % 3 < 1, lambda i: x[i] < 0.5):
        y = nf.compute((40,), lambda i, c=condition: nf.select(c(i), nf.tanh(x[i]), x[i]), name="y")
        assert len(cuts(nest_of(y, [x]))) == 1


def test_what_stays_whole():
    """Where little is saved, where there would be many pieces, and where one would be shorter than a vector."""
    x = nf.placeholder((8, 64), name="x")
    chosen = nf.compute((8, 64), lambda i, j: nf.select(j < 32, x[i, j], 2.0 * x[i, j]))
    little = nf.tanh(nf.tanh(nf.tanh(nf.tanh(nf.tanh(nf.tanh(chosen))))))
    many, inputs = gates(4, 16, MOST_PIECES + 1)
    short = nf.compute((8, 64), lambda i, j: nf.select(j < 3, nf.tanh(x[i, j]), x[i, j]))
    for y, given in ((little, [x]), (many, inputs), (short, [x])):
        assert len(cuts(nest_of(y, given))) == 1
        assert not default_schedule(subgraph_of([y], given), TARGET)["cut"]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("rows", "columns", "count"), [(4, 32, 4), (5, 41, 3), (1, 100, 2), (3, 9, 4), (130, 48, 2)])
def test_it_computes_what_is_written(axis, rows, columns, count):
    y, inputs = gates(rows, columns, count, axis=axis)
    schedule = check([y], inputs)
    assert schedule["cut"]
    for knobs in ({"cut": False}, {"lanes": 8}, {"lanes": 1}, {"vectors": 3}, {"chunks": 2}, {"parallel": False}):
        other = nearest(problem_of(subgraph_of([y], inputs)), changed(schedule, **knobs), TARGET)
        assert other[next(iter(knobs))] == next(iter(knobs.values())) or "chunks" in knobs or "vectors" in knobs
        check([y], inputs, other)


def test_along_two_axes_and_with_several_outputs():
    x = nf.placeholder((20, 60), name="x")

    def value(i, j):
        inner = nf.select(j < 20, nf.tanh(x[i, j]), nf.exp(x[i, j]))
        return nf.select(i >= 7, inner, nf.sigmoid(x[i, j]) * inner)

    y = nf.compute((20, 60), value, name="y")
    z = nf.compute((20, 60), lambda i, j: y[i, j] + 1.0, name="z")
    assert len(cuts(nest_of(y, [x]))) == 4
    assert check([y, z], [x])["cut"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_other_types(dtype):
    y, inputs = gates(6, 40, 4, dtype)
    assert check([y], inputs)["cut"]


def test_what_goes_past_the_caches_begins_at_registers():
    """Of one and a half registers each, pieces begin within one; of two, none does."""
    lanes = TARGET.lanes("float32")
    for columns, may in ((lanes * 3 // 2, False), (2 * lanes, True)):
        y, inputs = gates(64, columns, 2)
        problem = problem_of(subgraph_of([y], inputs))
        schedule = nearest(problem, changed(default_schedule(subgraph_of([y], inputs), TARGET), stream=True), TARGET)
        assert schedule["cut"] and schedule["stream"] is may
        check([y], inputs, schedule)
