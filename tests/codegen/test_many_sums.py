"""Many sums in one kernel: their terms are loops, and what they hold has names that TVM's printer need not count up."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.devices import resolve_target
from neoflow.graph import make_graph
from neoflow.loops import complete, default_schedule, legal, problem_of
from neoflow.loops.row_nests import MOST_TOGETHER
from neoflow.loops.rows import loops
from neoflow.loops.schedule import schedule_of
from neoflow.partition import partition

ROWS, COLUMNS = 16, 512


def program(count):
    """Sums over the rows of products that share one factor, and their inputs."""
    x = nf.placeholder((ROWS, COLUMNS), name="x")
    others = [nf.placeholder((ROWS, COLUMNS), name=f"y{n}") for n in range(count)]
    return [nf.sum(x * y, axis=0) for y in others], [x, *others]


def kernel(count):
    (call,) = partition(make_graph(*program(count))).calls
    return call.subgraph


def apart(subgraph, target):
    """Its default, with a loop for each sum."""
    return complete("rows", problem_of(subgraph), target, {"together": False})


@pytest.mark.parametrize(("count", "is_written"), [(4, True), (40, False)])
def test_terms_of_many_sums_are_not_written_out(count, is_written):
    schedule = apart(kernel(count), resolve_target("cpu"))
    assert schedule.template == "rows" and {bool(s["terms"]) for s in schedule.inner} == {is_written}


def test_few_sums_have_one_loop():
    """As many as registers hold."""
    problem, target = problem_of(kernel(40)), resolve_target("cpu")
    schedule = default_schedule(kernel(40), target)
    assert [len(n.problem.nest.bodies) for n in loops(problem, schedule)] == [MOST_TOGETHER] * 5


@pytest.mark.tvm
def test_few_values_of_a_kernel_have_one_name():
    subgraph, target = kernel(40), resolve_target("cpu")
    usual = apart(subgraph, target)
    inner = tuple(schedule_of(s.template, {**dict(s.knobs), "terms": True}) for s in usual.inner)
    written = replace(usual, inner=inner)
    assert legal(problem_of(subgraph), written, target).ok
    lowered = codegen.lower(subgraph, written, target, "kernel")
    names = Counter(
        re.sub(r"_\d+$", "", name) for name in re.findall(r"^ *(\w+) = T.alloc_buffer", lowered.text(), re.M)
    )
    assert sum(names.values()) > 2000 and max(names.values()) <= 1024


@pytest.mark.tvm
def test_they_are_right():
    sums, inputs = program(40)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((ROWS, COLUMNS)).astype(np.float32) for _ in inputs]
    for got, y in zip(nf.compile(sums, inputs)(*arrays), arrays[1:], strict=True):
        np.testing.assert_allclose(got, (arrays[0] * y).sum(0), rtol=1e-4, atol=1e-5)
