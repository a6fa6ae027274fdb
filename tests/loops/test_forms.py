"""Points of a short axis that have expressions of their own: stored apart, written out beside each other."""

from dataclasses import replace

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.expr.traits import MOST_FORMS, form_axes
from neoflow.graph import make_graph, optimize
from neoflow.loops import default_schedule, legal, problem_of, space
from neoflow.loops.schedule import schedule_of
from neoflow.partition import partition
from tests.loops.test_template import TWO


def transform(points=4, rows=3, width=32):
    """Each point of the first axis adds and subtracts others of what it reads."""
    x = nf.placeholder((rows, points + 1, width), name="x")

    def body(a, i, k):
        value = x[i, 0, k]
        for n in range(points - 1):
            value = nf.select(a == n, x[i, n, k] + x[i, n + 1, k] - 2.0 * x[i, points, k], value)
        return value

    return x, nf.compute((points, rows, width), body, name="v")


def kernel(y, *inputs):
    (call,) = partition(optimize(make_graph([y], list(inputs)))).calls
    return call.subgraph


def test_an_axis_of_forms_is_found_and_written_out():
    x, y = transform()
    assert [a.extent for a in form_axes(y.definition.body)] == [4]
    subgraph = kernel(y, x)
    schedule = default_schedule(subgraph, TWO)
    assert schedule["unroll"] == 1
    chosen = schedule_of("map", {**dict(schedule.knobs), "unroll": 0})
    texts = [codegen.lower(subgraph, legal_one, TWO, "k").text() for legal_one in (schedule, chosen)]
    assert ["== T.int64(2)" in text for text in texts] == [False, True]


def test_a_long_axis_is_none():
    _, y = transform(points=MOST_FORMS + 1)
    assert not form_axes(y.definition.body)


def test_any_short_axes_may_be_written_out():
    x = nf.placeholder((2, 3, 9, 40), name="x")
    subgraph = kernel(nf.compute((3, 2, 9, 40), lambda i, j, k, m: nf.exp(x[j, i, k, m]), name="y"), x)
    found = {int(s["unroll"]) for s in space(problem_of(subgraph), TWO)}
    assert {0, 1, 2, 3} <= found
    usual = default_schedule(subgraph, TWO)
    assert usual["unroll"] == 0 and legal(problem_of(subgraph), usual, TWO).ok


@pytest.mark.parametrize("width", (1, 5, 16, 37))
def test_the_values_are_those_of_the_choice(width):
    x, y = transform(width=width)
    value = np.random.default_rng(0).standard_normal(x.shape).astype("float32")
    np.testing.assert_allclose(nf.compile([y], [x])(value)[0], nf.evaluate([y], {x: value})[0], rtol=1e-5, atol=1e-5)


def test_forms_are_stored_and_read_what_lies_along_their_vectors():
    source = nf.placeholder((20, 5, 3), name="s")
    moved = nf.compute((3, 5, 20), lambda i, n, k: source[k, n, i], name="moved")

    def body(a, i, k):
        value = moved[i, 0, k]
        for n in range(3):
            value = nf.select(a == n, moved[i, n, k] + moved[i, n + 1, k] - 2.0 * moved[i, 4, k], value)
        return value

    v = nf.compute((4, 3, 20), body, name="v")
    z = nf.compute((3, 20, 4), lambda i, k, a: nf.relu(v[a, i, k]), name="z")
    decided = "\n".join(map(str, partition(optimize(make_graph([z], [source]))).decisions))
    assert "no, v would go across memory for each of its points" in decided
    assert "no, its points have expressions of their own, which are written out where it is stored" in decided


@pytest.mark.parametrize(
    ("rows", "width", "wanted"),
    [
        (640, 2048, {"wide": 16, "two threads": 16, "narrow": 8}),
        (640, 800, {"wide": 16, "two threads": 8, "narrow": 8}),
        (640, 200, {"wide": 8, "two threads": 4, "narrow": 8}),
        (64, 2048, {"wide": 16, "two threads": 16, "narrow": 8}),
        (63, 2048, {"wide": 4, "two threads": 4, "narrow": 4}),
    ],
)
def test_long_sums_go_along_as_much_of_a_row_as_there_are_registers_and_tasks_for(rows, width, wanted):
    x = nf.placeholder((rows, width), name="x")
    subgraph = kernel(nf.expr("y[j] = sum(x[i, j])", x=x), x)
    one = replace(TWO, threads=1)
    targets = {"wide": one, "two threads": TWO, "narrow": replace(one, mcpu="x86-64-v3", vector_bytes=32)}
    assert {name: default_schedule(subgraph, t)["unroll"] for name, t in targets.items()} == wanted
