"""Axes that are written out by their remainders: which, and that nothing else is computed then."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.loops import default_schedule, nearest, problem_of
from neoflow.loops.residues import split, widths
from tests.codegen.kernels import TARGET, changed, check, subgraph_of


def woven(rows, columns, by, dtype="float32"):
    """An array of which every by-th element along both dimensions is from another one, as an adjoint leaves it."""
    parts = [nf.placeholder((rows // by + 1, columns // by + 1), dtype, name=f"p{n}") for n in range(2 * by)]

    def value(i, j):
        found = parts[-1][i // by, j // by]
        for n in reversed(range(2 * by - 1)):
            here = (i % by == n // 2) & (j % by == n % by)
            found = nf.select(here, parts[n][i // by, j // by], found)
        return found + found

    return nf.compute((rows, columns), value, name="y"), parts


def test_nothing_is_chosen_any_more():
    y, parts = woven(6, 40, 2)
    nest = problem_of(subgraph_of([y], parts)).nest
    [region] = split(nest)
    assert list(widths(nest).values()) == [2, 2] and [a.extent for a in region.nest.axes] == [3, 20]
    assert region.together == 2 and len(region.nest.outputs) == 4
    assert not any("select" in str(value) for _, _, value in region.nest.outputs)


def test_what_is_left_at_the_ends_is_a_part_of_its_own():
    y, parts = woven(7, 41, 2)
    found = split(problem_of(subgraph_of([y], parts)).nest)
    assert [[a.extent for a in p.nest.axes] for p in found] == [[3, 20], [3], [20], []]
    assert [p.together for p in found] == [2, 1, 2, 1] and [p.has_last for p in found] == [True, False, True, False]
    written = sum(len(p.nest.outputs) * int(np.prod([a.extent for a in p.nest.axes])) for p in found)
    assert written == 7 * 41


@pytest.mark.parametrize(
    "body",
    [
        lambda x: nf.compute((8, 6), lambda i, j: x[i // 2, j // 2]),  # the same at all remainders
        lambda x: nf.compute((8, 6), lambda i, j: x[i % 2 + j // 5, i % 3]),  # by several numbers
        lambda x: nf.compute((8, 6), lambda i, j: x[(i + j) % 2, j // 2]),  # of several axes
        lambda x: nf.compute((8, 6), lambda i, j: x[i % 5, j // 2]),  # many remainders
    ],
)
def test_what_stays_as_it_is(body):
    x = nf.placeholder((9, 9), name="x")
    subgraph = subgraph_of([body(x)], [x])
    assert len(split(problem_of(subgraph).nest)) == 1 and not widths(problem_of(subgraph).nest)
    assert not default_schedule(subgraph, TARGET)["residues"]


@pytest.mark.parametrize("by", [2, 3])
@pytest.mark.parametrize(("rows", "columns"), [(4, 64), (7, 41), (3, 5), (9, 100), (2, 3)])
def test_it_computes_what_is_written(by, rows, columns):
    y, parts = woven(rows, columns, by)
    schedule = check([y], parts)
    assert schedule["residues"] == bool(min(rows, columns) >= by)
    for knobs in ({"residues": False}, {"lanes": 8}, {"lanes": 1}):
        other = nearest(problem_of(subgraph_of([y], parts)), changed(schedule, **knobs), TARGET)
        check([y], parts, other)


@pytest.mark.parametrize("dtype", ["bfloat16", "float64", "int32"])
def test_other_types_and_several_outputs_are_interleaved_too(dtype):
    y, parts = woven(6, 38, 2, dtype)
    z = nf.compute(y.shape, lambda i, j: y[i, j] + parts[0][i // 2, j // 2])
    check([y, z], parts)
