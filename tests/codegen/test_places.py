"""Equalities of data with the places of lanes: right for any data, as lanes compared with a constant."""

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.expr.dsl import equal, not_equal
from neoflow.loops import complete, problem_of
from tests.codegen.kernels import TARGET, WIDE, loaded, subgraph_of

pytestmark = pytest.mark.tvm
SIZE, LAST = 77, np.iinfo(np.int64)
LABELS = np.array([0, 1, 15, 16, 31, 75, 76, 77, -1, LAST.min, LAST.max, (1 << 32) + 5, -(1 << 32) + 64, 38], np.int64)

PLACES = {
    "a class": lambda v: lambda i, j: equal(v[i], j),
    "another class": lambda v: lambda i, j: not_equal(j, v[i]),
    "every second": lambda v: lambda i, j: equal(2 * j + 1, v[i]),
    "backwards": lambda v: lambda i, j: equal(v[i], SIZE - 1 - j),
    "by row": lambda v: lambda i, j: equal(v[i] + i, 3 * j),
    "at a half": lambda v: lambda i, j: equal(v[i], j // 2),
    "data by lane": lambda v: lambda i, j: equal(v[j % len(LABELS)], j),
}


def test_labels_are_compared_with_places():
    lowered, wanted = [], []
    for program in PLACES.values():
        v = nf.placeholder(LABELS.shape, "int64", name="v")
        holds = program(v)
        y = nf.compute((len(LABELS), SIZE), lambda i, j, holds=holds: nf.select(holds(i, j), -0.5, 0.25))
        subgraph = subgraph_of([y], [v])
        for lanes in (1, 4, *(n * TARGET.lanes("int64") for n in (1, 2))):
            schedule = complete("map", problem_of(subgraph), TARGET, {"lanes": lanes})
            lowered.append(codegen.lower(subgraph, schedule, TARGET, f"k{len(lowered)}"))
            wanted += nf.evaluate([y], {v: LABELS})
    for kernel, expected in zip(loaded(lowered), wanted, strict=True):
        found = np.full_like(expected, np.nan)
        kernel(LABELS, found)
        np.testing.assert_array_equal(found, expected)
    assert all(len(np.unique(w)) == 2 for w in wanted)


def test_lanes_are_compared_with_a_constant():
    v = nf.placeholder(LABELS.shape, "int64", name="v")
    y = nf.compute((len(LABELS), SIZE), lambda i, j: nf.select(equal(v[i], j), -0.5, 0.25))
    subgraph = subgraph_of([y], [v])
    text = codegen.lower(subgraph, complete("map", problem_of(subgraph), WIDE, {"lanes": 16}), WIDE, "k").text()
    assert "T.Ramp(0, 1, 16)" in text and "int64x16" in text
