"""Columns summed while memory is read from one end to the other: a few terms of all outputs at once."""

from dataclasses import replace

import pytest

import neoflow as nf
from neoflow.graph import make_graph, optimize
from neoflow.loops import complete, default_schedule, legal, problem_of
from neoflow.loops.schedule import schedule_of
from neoflow.nn import functional as F
from neoflow.partition import partition
from neoflow.target import Target
from tests.codegen.kernels import TARGET, WIDE, check, check_subgraph, subgraph_of

pytestmark = pytest.mark.tvm
TWO = replace(TARGET, threads=2)


def summed(outputs, inputs, across, splits=3, target: Target = TWO):
    knobs = {"lane": "output", "parallel": True, "across": across, "splits": splits}
    return complete("reduction", problem_of(subgraph_of(outputs, inputs)), target, knobs)


@pytest.mark.parametrize("across", [2, 3, 8])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "float64"])
@pytest.mark.parametrize("shape", [(300, 70), (9, 33), (131, 64), (8, 16)])
def test_columns(shape, dtype, across):
    """Rows that no group divides, parts of different lengths, columns that are no whole vectors."""
    x, g = nf.placeholder(shape, dtype, name="x"), nf.placeholder(shape, dtype, name="g")
    y = nf.sum(x * g, axis=0)
    schedule = check([y], [x, g], summed([y], [x, g], across), scale=4.0, target=TWO)
    assert schedule["across"] == across and schedule["splits"] == 3


@pytest.mark.parametrize("across", [2, 5])
@pytest.mark.parametrize("splits", [1, 3])
def test_several_axes_and_what_follows(splits, across):
    """Terms along three axes, of which the first is in parts; a parameter's update after the sum."""
    x, p = nf.placeholder((5, 3, 7, 4, 19), name="x"), nf.placeholder((4, 19), name="p")
    y = p - nf.sum(x, axis=(0, 1, 2)) * 0.1
    assert check([y], [x, p], summed([y], [x, p], across, splits), target=TWO)["across"] == across


def test_one_output_of_one_vector():
    x = nf.placeholder((40, 16), name="x")
    y = nf.sum(x, axis=0)
    check([y], [x], summed([y], [x], 4, 2), target=TWO)


def test_no_sum_takes_more_additions_in_a_row_than_its_bound_allows():
    x = nf.placeholder((1 << 16, 32), name="x")
    problem = problem_of(subgraph_of([nf.sum(x, axis=0)], [x]))
    schedule = complete("reduction", problem, WIDE, {"lane": "output", "parallel": True, "across": 16, "splits": 16})
    assert legal(problem, schedule, WIDE).ok, "4,096 terms of a part are 256 groups"
    for knobs in ({"across": 2, "splits": 16}, {"across": 16, "splits": 4}):
        changed = schedule_of("reduction", {**dict(schedule.knobs), **knobs}, ())
        assert not legal(problem, changed, WIDE).ok


def test_what_does_not_add_up_side_by_side_is_not_summed_so():
    x = nf.placeholder((300, 70), name="x")
    for y, knobs in (
        (nf.max(x, axis=0), {"lane": "output", "parallel": True}),
        (nf.sum(x, axis=1), {"lane": "reduced", "parallel": True}),
        (nf.sum(x, axis=0), {"lane": "output", "parallel": False}),
    ):
        problem = problem_of(subgraph_of([y], [x]))
        schedule = complete("reduction", problem, TWO, knobs)
        assert schedule["across"] == 1
        assert not legal(problem, schedule_of("reduction", {**dict(schedule.knobs), "across": 2}, ()), TWO).ok


def test_long_columns_from_afar_are_summed_so():
    """A row longer than what a task sums side by side, of more memory than the cores' own caches hold."""

    def default(rows, columns, turned=False):
        x = nf.placeholder((columns, rows) if turned else (rows, columns), name="x")
        return default_schedule(subgraph_of([nf.sum(x, axis=1 if turned else 0)], [x]), WIDE)

    far = default(1 << 14, 1024)
    assert far["across"] == 8 and far["splits"] == 8 and not far["fetch"]
    assert default(64, 1 << 15)["across"] == 1, "sums of so many columns leave the first cache"
    assert default(512, 1024)["across"] == 1, "2 MB stay in the caches of two cores"
    assert default(1 << 16, 64)["across"] == 1, "a task sums whole rows as it is"
    assert default(1 << 14, 1024, turned=True)["across"] == 1


# --- several sums of one kernel


def kernel_of(roots, inputs):
    """The one kernel of these, by rows that are blocks of columns."""
    (subgraph,) = partition(optimize(make_graph(roots, inputs))).subgraphs
    assert subgraph.rows
    return subgraph


def gradients(rows, columns, dtype="float32"):
    """Sums that a normalised row's scale and shift have as gradients, and what they become by them."""
    x, g = nf.placeholder((rows, columns), dtype, name="x"), nf.placeholder((rows, columns), dtype, name="g")
    mean = nf.placeholder((rows, 1), dtype, name="mean")
    scale, shift = nf.sum(g * (x - mean), axis=0), nf.sum(g, axis=0)
    return [scale, shift], [x, g, mean]


def run(subgraph, across, target=TWO):
    schedule = complete("rows", problem_of(subgraph), target, {"parallel": True, "across": across})
    assert legal(problem_of(subgraph), schedule, target).ok
    check_subgraph(subgraph, schedule, target, atol=1e-4)
    return schedule


@pytest.mark.parametrize("across", [1, 2, 8])
@pytest.mark.parametrize(("rows", "columns"), [(301, 128), (77, 192), (9, 1024)])
def test_several_sums(rows, columns, across):
    assert run(kernel_of(*gradients(rows, columns)), across)["across"] == across


def test_what_becomes_of_several_sums():
    """Parameters after a step: the parts of all sums first, then the rest by rows."""
    sums, inputs = gradients(301, 128)
    parameters = [nf.placeholder(s.shape, name=f"p{n}") for n, s in enumerate(sums)]
    updated = [p - s * 0.1 for p, s in zip(parameters, sums, strict=True)]
    subgraph = kernel_of(updated, [*inputs, *parameters])
    assert len(subgraph.outputs) == 2
    run(subgraph, 8)


def test_rows_that_follow_from_each_other_are_not_summed_so():
    x = nf.placeholder((64, 96), name="x")
    subgraph = kernel_of([F.softmax(x)], [x])
    schedule = complete("rows", problem_of(subgraph), TWO, {"parallel": True})
    assert schedule["across"] == 1
    changed = schedule_of("rows", {**dict(schedule.knobs), "across": 2}, schedule.inner)
    assert not legal(problem_of(subgraph), changed, TWO).ok


def test_several_long_sums_from_afar_are_summed_so():
    def default(rows):
        return default_schedule(kernel_of(*gradients(rows, 1024)), WIDE)["across"]

    assert default(1 << 14) == 8 and default(256) == 1
