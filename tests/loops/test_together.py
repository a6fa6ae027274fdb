"""Reductions of a row that have one loop: which may, which may not, and what the loop then is."""

import pytest

import neoflow as nf
from neoflow.graph import make_graph, optimize
from neoflow.loops import default_schedule, legal, problem_of
from neoflow.loops.nest import input_reads
from neoflow.loops.rows import loops, nests
from neoflow.loops.schedule import Schedule
from neoflow.partition import partition
from neoflow.target import Target
from tests.loops.test_template import TWO, changed

FEW = Target("cpu", "x86-64-v3", 2, 32, 1 << 19, 2)


def row_kernel(outputs, inputs):
    (subgraph,) = partition(optimize(make_graph(outputs, inputs))).subgraphs
    assert subgraph.rows
    return subgraph


def moments():
    """The two sums of a batch norm's gradient, and what needs both."""
    x, g = nf.placeholder((40, 300), name="x"), nf.placeholder((40, 300), name="g")
    ahead, along = nf.sum(g, axis=1, keepdims=True), nf.sum(g * x, axis=1, keepdims=True)
    return row_kernel([g - ahead / 300.0 - x * along / 300.0], [x, g])


def sizes(subgraph, schedule):
    """Of each loop how many reductions it has."""
    return [len(n.problem.nest.bodies) for n in loops(problem_of(subgraph), schedule)]


def test_two_sums_of_what_is_read_once_are_one_loop():
    subgraph = moments()
    schedule = default_schedule(subgraph, TWO)
    assert schedule["together"] and sizes(subgraph, schedule)[:2] == [2, 0]
    assert sizes(subgraph, changed(schedule, together=False))[:3] == [1, 1, 0]
    first, *_ = loops(problem_of(subgraph), schedule)
    apart = nests(problem_of(subgraph), schedule)
    assert first.numbers == tuple(n.number for n in apart[:2])
    (anchor, other) = first.problem.nest.others[0]
    assert anchor.slot == apart[1].number and other.axes == first.problem.nest.reduction.axes
    assert {r.slot for b in first.problem.nest.bodies for r in input_reads(b)} == {0, 1}
    fused = first.problem.fused({"fuse": first.problem.all_fused})
    assert fused.others[0][1].axes == fused.reduction.axes


def test_schedules_of_the_loops_are_as_many_as_these():
    subgraph = moments()
    schedule = default_schedule(subgraph, TWO)
    assert len(schedule.inner) == 3 and legal(problem_of(subgraph), schedule, TWO).ok
    short = Schedule("rows", changed(schedule, together=False).knobs, schedule.inner)
    assert "rows has 4 nests here, the schedule 3" in legal(problem_of(subgraph), short, TWO).reason


def test_a_sum_goes_up_past_what_follows_from_the_first():
    x, g = nf.placeholder((40, 300), name="x"), nf.placeholder((40, 300), name="g")
    scale = nf.rsqrt(nf.sum(g * g, axis=1, keepdims=True) + 1.0)
    ahead = nf.tanh(nf.sum(g * x, axis=1, keepdims=True))
    subgraph = row_kernel([g * scale * ahead, scale], [x, g])
    problem, schedule = problem_of(subgraph), default_schedule(subgraph, TWO)
    kinds = [n.problem.nest.reduction is not None for n in nests(problem, schedule)]
    assert kinds.index(False) < len(kinds) - 1 - kinds[::-1].index(True)  # something lies between the two sums
    assert max(sizes(subgraph, schedule)) == 2


def between(case):
    x, y = nf.placeholder((40, 300), name="x"), nf.placeholder((40, 300), name="y")
    total = nf.sum(x, axis=1, keepdims=True)
    match case:
        case "one needs the other":
            other = nf.sum((x - total) * (x - total), axis=1, keepdims=True)
        case "nothing is shared":
            other = nf.sum(y, axis=1, keepdims=True)
        case "another operation":
            other = nf.max(x, axis=1, keepdims=True)
        case _:
            z = nf.placeholder((40, 150), name="z")
            other = nf.sum(z, axis=1, keepdims=True) + nf.sum(z[:, :75], axis=1, keepdims=True)
            return row_kernel([x * total * other], [x, z])
    return row_kernel([x * total + y * other], [x, y])


@pytest.mark.parametrize(
    "case", ["one needs the other", "nothing is shared", "another operation", "not over the same axes"]
)
def test_what_stays_apart(case):
    subgraph = between(case)
    problem, schedule = problem_of(subgraph), default_schedule(subgraph, TWO)
    assert sum(n.problem.nest.reduction is not None for n in nests(problem, schedule)) >= 2
    assert not schedule["together"] and max(sizes(subgraph, schedule)) == 1
    refused = legal(problem, changed(schedule, together=True), TWO)
    assert "no nests share points and what they read" in refused.reason


def test_an_output_with_the_elements_of_an_input_is_not_stored_sooner():
    """It might take that input's place, which is read between the two."""
    x = nf.placeholder((40, 300), name="x")

    def kernel(weight):
        total = nf.sum(x, axis=1, keepdims=True)
        ahead = nf.sum(x * x, axis=1, keepdims=True)
        return row_kernel([x * total * weight, ahead], [x, weight])

    alike = kernel(nf.placeholder((40, 1), name="weight"))
    assert not default_schedule(alike, TWO)["together"]
    other = kernel(nf.placeholder((1, 1), name="weight"))
    assert default_schedule(other, TWO)["together"]


def stored_then_summed(case="plain"):
    """A row that is stored, and what it sums up to, twice."""
    x, y = nf.placeholder((40, 300), name="x"), nf.placeholder((40, 300), name="y")
    match case:
        case "plain":
            kept = nf.maximum(x, 0.0) * y
        case "chosen by data":
            kept = nf.select(x > 0.0, y, 0.0) * x
        case "against memory":
            kept = nf.maximum(x, 0.0) * y[:, ::-1]
        case _:
            kept = nf.compute((40, 300), lambda i, k: nf.select(k < 77, x[i, k], y[i, k]), name="kept")
    total, squares = nf.sum(kept, axis=1, keepdims=True), nf.sum(kept * kept, axis=1, keepdims=True)
    return row_kernel([kept, nf.tanh(total), nf.tanh(squares)], [x, y])


@pytest.mark.parametrize("case", ["plain", "chosen by data"])
def test_what_is_summed_up_is_stored_in_the_loop_that_sums_it_up(case):
    subgraph = stored_then_summed(case)
    schedule = default_schedule(subgraph, TWO)
    first, *rest = loops(problem_of(subgraph), schedule)
    assert len(first.problem.nest.bodies) == 2 and len(rest) == 2
    (number, address, value) = first.problem.nest.terms[0]
    assert first.along == (number,) and {r.slot for r in input_reads(value)} == {0, 1}
    assert all(r.slot != number for body in first.problem.nest.bodies for r in input_reads(body))
    assert address.free >= set(first.problem.nest.reduction.axes)
    apart = loops(problem_of(subgraph), changed(schedule, together=False))
    assert [n.problem.nest.reduction is None for n in apart] == [True, False, False, True, True]


@pytest.mark.parametrize("case", ["against memory", "under a condition"])
def test_what_needs_more_of_a_map_is_stored_before(case):
    subgraph = stored_then_summed(case)
    first, *_ = loops(problem_of(subgraph), default_schedule(subgraph, TWO))
    assert first.problem.nest.reduction is None


def test_what_is_read_elsewhere_is_stored_before():
    """Windows of a row, and the row itself as another sum's other side, are not where the loop is."""
    x = nf.placeholder((40, 300), name="x")
    kept = nf.tanh(x)
    apart = nf.sum(kept[:, :299] * kept[:, 1:], axis=1, keepdims=True)
    subgraph = row_kernel([kept, apart], [x])
    assert not default_schedule(subgraph, TWO)["together"]


def test_registers_hold_what_is_summed_together():
    x, *others = (nf.placeholder((40, 300), name=n) for n in "xabcdef")
    sums = [nf.sum(x * o, axis=1, keepdims=True) for o in others]
    subgraph = row_kernel([x * sum(sums)], [x, *others])
    inner = default_schedule(subgraph, FEW).inner[0]
    assert sizes(subgraph, default_schedule(subgraph, FEW))[0] == 6
    assert 6 * inner["unroll"] * inner["tile_rows"] <= FEW.registers
