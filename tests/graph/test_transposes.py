"""Transposes folded into what reads them: values stay, and nothing reads one."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.tensor import Compute
from neoflow.graph import make_graph, optimize
from neoflow.graph.transposes import fold_transposes, is_transpose
from tests.chance import Chance
from tests.graph.programs import PROGRAMS


def reads_some(graph):
    reads = (i for t in graph.nodes for i in t.inputs if isinstance(i, Compute))
    return any(is_transpose(i.definition) for i in reads)


def law(seed):
    """How many random programs had transposes that were read."""
    count, make = 0, Chance(np.random.default_rng(seed))
    for program in PROGRAMS:
        case = program(seed)
        roots = [nf.transpose(abs(nf.transpose(r))) if len(r.shape) > 1 else r for r in case.roots]
        if len(roots[0].shape) > 2:
            roots.append(abs(nf.transpose(roots[0], tuple(make.shuffled(range(len(roots[0].shape)))))))
        graph = make_graph(roots, list(case.feeds))
        graph = optimize(graph) if make.chance(0.5) else graph
        after = fold_transposes(graph)
        after.check()
        count += reads_some(graph)
        assert not reads_some(after)
        for a, b in zip(case.values(graph.roots), case.values(after.roots), strict=True):
            np.testing.assert_array_equal(a, b)
    return count


def test_values_stay():
    assert sum(map(law, range(2))) >= 5


@pytest.mark.slow
def test_values_stay_in_many_programs():
    assert sum(map(law, range(100, 120))) >= 50


def test_what_is_a_transpose():
    x = nf.placeholder((4, 4, 1), name="x")
    assert is_transpose(nf.transpose(x, (1, 0, 2)).definition)
    same = nf.compute((4, 4, 1), lambda i, j, k: x[i, j, k])
    diagonal = nf.compute((4, 4, 1), lambda i, j, k: x[i, i, k])
    back = nf.compute((4, 4, 1), lambda i, j, k: x[3 - j, i, k])
    assert not any(is_transpose(t.definition) for t in (same, diagonal, back))


def test_a_graph_without_any_is_itself():
    x = nf.placeholder((4, 5), name="x")
    graph = make_graph([nf.exp(x)], [x])
    assert fold_transposes(graph) is graph
