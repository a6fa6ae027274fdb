"""Every transformation that can be left out or asked for, from the table in `switches`: alone and with all others it
keeps values, on 10,000 random programs each, and it applies in so many of them."""

import numpy as np
import pytest

from neoflow.graph import make_graph, optimize
from neoflow.graph.algorithms import ALGORITHMS
from neoflow.partition import partition
from neoflow.rewriting import OPTIONAL
from neoflow.rewriting.asked import ASKED
from neoflow.rewriting.flowing import BLOCKED, SWAPPED, flow, nobody
from tests.attack.switches import LAWS, PROGRAMS_TO_FUSE, fused
from tests.attack.test_transformations import together
from tests.codegen.kernels import TARGET

GRAPHS, PARTS, FIRST = 10_000, 20, 500_000
NAMES = [pytest.param(name, marks=asked.marks) for name, asked in LAWS.items()]


def law(name, seeds):
    applied = sum(LAWS[name].holds(seed) > 0 for seed in seeds)
    print(f"{name}: applied in {applied} of {len(seeds)} programs")
    assert applied >= LAWS[name].share * len(seeds)


def test_every_switch_has_a_law():
    """`memory` is what `memory=` asks for; algorithms are chosen by a search."""
    assert LAWS.keys() == {*OPTIONAL, *ASKED, *(a.name for a in ALGORITHMS), "memory"}


@pytest.mark.parametrize("name", NAMES)
def test_values_stay(name):
    law(name, range(LAWS[name].few))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS), ids=lambda part: f"part{part}")
@pytest.mark.parametrize("name", NAMES)
def test_values_stay_in_ten_thousand_programs(name, part):
    size = GRAPHS // PARTS
    law(name, range(FIRST + part * size, FIRST + (part + 1) * size))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rule", PROGRAMS_TO_FUSE)
def test_kernels_of_graphs_of_the_size_of_a_model(rule, seed):
    """Passes and their rewrites are asked in `test_transformations`."""
    assert fused(rule, together, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [SWAPPED, BLOCKED])
def test_activations_of_graphs_of_the_size_of_a_model(kind, seed):
    case = together(seed)
    graph = optimize(make_graph(case.roots, list(case.feeds)))
    after = flow(graph, kind, TARGET, partition, nobody).graph
    for a, b in zip(case.values(after.outputs), case.values(graph.outputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)
