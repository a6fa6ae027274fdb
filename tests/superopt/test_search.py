"""The search: the same as trying everything, worked examples found from rules alone, pieces and what lies between."""

import functools
import operator
import random

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.tensor import Compute, Parameter, structural_hash
from neoflow.graph import Editor, Graph, canonicalize, make_graph
from neoflow.superopt import Cost, Limits, Optimized, Rule, Rules, Search, proved, read_rules, standard, variables
from neoflow.superopt.concrete import computed
from neoflow.superopt.hunt import values
from neoflow.superopt.search import applied
from neoflow.superopt.sites import Sites
from neoflow.superopt.split import split
from tests.superopt.test_sequences import random_graph

RULES = standard()
GATES = """neoflow rules 1
operator add(a[M, N], b[M, N]) [i<M, j<N] = a[i, j] + b[i, j]
operator sub(a[M, N], b[M, N]) [i<M, j<N] = a[i, j] - b[i, j]
operator mul(a[M, N], b[M, N]) [i<M, j<N] = a[i, j] * b[i, j]
operator rest(a[M, N]) [i<M, j<N] = 1.0 - a[i, j]

rule mul_of_rest
variables x[M, N], y[M, N]
source mul(rest(x), y)
target sub(y, mul(x, y))

rule add_of_sub
variables x[M, N], y[M, N], z[M, N]
source add(x, sub(y, z))
target add(y, sub(x, z))

rule mul_of_sub
variables x[M, N], y[M, N], z[M, N]
source mul(x, sub(y, z))
target sub(mul(x, y), mul(x, z))
"""


def counted(graph: Graph) -> Cost:
    """An operator takes a second."""
    return Cost(float(len(graph.nodes)))


def elements(graph: Graph) -> Cost:
    """A product of matrices takes what it multiplies, everything else its elements."""
    return Cost(float(sum(len(t.definition.reduction_axes) * 4 * t.size + t.size for t in graph.nodes)))


def fed(graph: Graph) -> Cost:
    """What follows from parameters alone takes no time, as in inference."""
    late: set[int] = {t.uid for t in graph.inputs}
    for t in graph.nodes:
        if any(i.uid in late for i in t.inputs):
            late.add(t.uid)
    return Cost(float(sum(t.uid in late for t in graph.nodes)))


def kept(found: Optimized, seed: int = 0) -> None:
    """Values and gradients are those of the graph before, and its derivation replays."""
    before, after = found.written, found.graph
    leaves = list(dict.fromkeys([*before.inputs, *before.parameters]))
    arrays = {t: values({"x": t.shape}, seed + n)["x"].astype(t.dtype) for n, t in enumerate(leaves)}
    results = []
    for graph in (before, after):
        loss = functools.reduce(operator.add, (nf.sum(y * y, axis=tuple(range(y.rank))) for y in graph.outputs))
        grads = nf.grad(loss, leaves, allow_unused=True)
        results.append(nf.evaluate([*graph.outputs, *grads], arrays))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
    again = found.replay(before)
    assert structural_hash(again.roots, leaves) == structural_hash(after.roots, leaves)


def reachable(graph: Graph, rules: Rules, most: int) -> list[Graph] | None:
    """Every graph that rules make of one, each from all of its places; None where there are more."""
    sites, leaves, found, queue = Sites(rules.rules), graph.inputs, {}, [graph]
    while queue:
        here = queue.pop()
        key = structural_hash(here.roots, leaves)
        if key not in found:
            found[key] = here
            editor = Editor(here.roots, here.order)
            queue += [applied(here, p)[0] for t in here.nodes for p in sites.at(editor, t)]
        if len(found) > most:
            return None
    return list(found.values())


@pytest.mark.parametrize("seed, count", [(0, 2), pytest.param(1, 30, marks=pytest.mark.slow)])
def test_the_optimum_of_exhaustive_search(seed, count):
    """Of all graphs that rules lead to, for those that have few enough; and how many the search looked at of them."""
    chance, tried, all_of_them, looked_at = random.Random(seed), 0, 0, 0
    for n in range(3 * count):
        graph = canonicalize(random_graph(chance, 5))
        found = reachable(graph, RULES, 60)
        if found is None or len(found) < 2 or tried == count:
            continue
        tried += 1
        best = Search(RULES.rules, elements, Limits(alpha=1.5)).run(graph)
        assert best.after == min(map(elements, found)), f"graph {n}"
        assert best.stopped == "nothing is left to try"
        kept(best, n)
        all_of_them, looked_at = all_of_them + len(found), looked_at + best.graphs
    print(f"{tried} graphs with {all_of_them} that they can become, of which {looked_at} were costed")
    assert tried > count / 3 and looked_at <= all_of_them + tried


def gates() -> list[Rule]:
    found = [proved(rule) for rule in read_rules(GATES).rules]
    assert all(isinstance(rule, Rule) for rule in found)
    return [rule for rule in found if isinstance(rule, Rule)]


def test_the_recurrent_unit_in_three_operators():
    """SRU's f c + (1 - f) x, four element-wise operators, is f (c - x) + x: over one with f x in it twice."""
    f, c, x = (nf.placeholder((4, 3), name=n) for n in "fcx")
    graph = canonicalize(make_graph([f * c + (1.0 - f) * x], [f, c, x]))
    assert len(graph.nodes) == 4
    found = Search(gates(), counted, Limits(alpha=1.3)).run(graph)
    assert (found.after.seconds, found.stopped) == (3, "nothing is left to try")
    assert {s.rewrite.name.partition("_order")[0].removesuffix("_back") for s in found.steps} == {
        "mul_of_rest",
        "add_of_sub",
        "mul_of_sub",
    }
    kept(found)


def convolutions(name: str, at: dict[str, int]) -> Graph:
    """The source of a rule, and what no rule knows behind it; kernels are parameters."""
    source, leaves = RULES.by_name[name].source, {}
    for label, v in variables(source).items():
        make = nf.parameter if label in "wv" else nf.placeholder
        leaves[label] = make(tuple(f.value(at) for f in v.shape), name=label)
    fed = [t for t in leaves.values() if not isinstance(t, Parameter)]
    return canonicalize(make_graph([nf.tanh(computed(source, at, leaves, "float32"))], fed))


def test_kernels_are_enlarged_for_one_convolution():
    """3x3 and 1x1 of one image beside each other; how far the small one is enlarged follows from the guards."""
    at = {"N": 1, "C": 2, "H": 5, "W": 5, "O": 2, "B": 3, "R": 1, "S": 1, "P": 0, "Q": 0}
    found = Search(RULES.rules, fed, Limits(alpha=1.3, graphs=100)).run(convolutions("convs_of_two_sizes", at))
    assert (found.before.seconds, found.after.seconds) == (4, 2)
    assert "D = 1, E = 1" in str(found)
    kept(found)


def test_an_added_input_becomes_part_of_the_kernel():
    """ResNet's conv(x) + x."""
    at = {"N": 1, "C": 2, "H": 5, "W": 5, "R": 1, "S": 1}
    found = Search(RULES.rules, fed, Limits(graphs=60)).run(convolutions("conv_and_input", at))
    assert (found.before.seconds, found.after.seconds) == (3, 2)
    kept(found)


def chain(length: int) -> Graph:
    """Transposes in pairs, with what no rule knows in between."""
    x, y = (nf.placeholder((3, 3), name=n) for n in "xy")
    z = x
    for _ in range(length):
        z = nf.transpose(nf.transpose(nf.tanh(z * y)))
    return canonicalize(make_graph([z, nf.sigmoid(z)], [x, y]))


def test_a_graph_in_pieces():
    """Pieces of five operators end within a pair now and then: what lies across is found around the cuts."""
    graph = chain(4)
    found = Search(RULES.rules, counted, Limits(split=5)).run(graph)
    assert (len(graph.nodes), len(found.graph.nodes), found.stopped) == (17, 9, "nothing is left to try")
    assert found.pieces >= 3 and sum(len(move.pieces) for move in found.moves) > 1
    kept(found)
    assert found.after == Search(RULES.rules, counted).run(graph).after


@pytest.mark.parametrize("count", [6, pytest.param(400, marks=pytest.mark.slow)])
def test_pieces_are_convex(count):
    """Each compute is in one piece of few enough, and pieces come after what they read."""
    chance = random.Random(2)
    for _ in range(count):
        graph = canonicalize(random_graph(chance, 24))
        weights = {t.uid: chance.randrange(4) for t in graph.nodes}
        parts = split(graph.nodes, weights, 6)
        assert sorted(n for part in parts for n in part) == list(range(len(graph.nodes)))
        assert all(0 < len(part) <= 6 for part in parts)
        home = {graph.nodes[n].uid: k for k, part in enumerate(parts) for n in part}
        for t in graph.nodes:
            assert all(home[i.uid] <= home[t.uid] for i in t.inputs if isinstance(i, Compute))


def test_a_cut_is_where_it_breaks_least():
    """Between two bundles, through the neck; not through it where many rules use it."""
    x = [nf.placeholder((2, 2), name=f"x{n}") for n in range(4)]
    left = [nf.tanh(a) for a in x]
    neck = nf.concat(left, 0)
    right = nf.concat([nf.exp(neck), nf.tanh(neck), nf.sin(neck), nf.cos(neck)], 0)
    graph = canonicalize(make_graph([right], x))
    first, second = split(graph.nodes, {}, len(graph.nodes) - 1)
    assert graph.nodes[first[-1]] is neck and len(second) == 5
    dear = {neck.uid: 100}
    assert split(graph.nodes, dear, len(graph.nodes) - 1)[0] != first


@pytest.mark.parametrize("count", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_random_graphs_keep_their_values(count):
    """Whole and in pieces, forward and through gradients."""
    chance, steps = random.Random(3), 0
    for n in range(count):
        graph = canonicalize(random_graph(chance, 12))
        for most in (30, 4):
            found = Search(RULES.rules, elements, Limits(graphs=40, split=most, seed=n)).run(graph)
            assert found.after <= found.before == elements(graph)
            kept(found, n)
            steps += len(found.steps)
    assert steps >= count


def test_limits():
    graph = chain(2)
    assert Search(RULES.rules, counted, Limits(graphs=1)).run(graph).stopped == "the limit of 1 graphs"
    assert Search(RULES.rules, counted, Limits(seconds=0)).run(graph).stopped == "the time is up"
    assert Search(RULES.rules, counted, Limits(seconds=0, split=5)).run(graph).stopped == "the time is up"

    def wide(graph: Graph) -> Cost:
        return Cost(float(len(graph.nodes)), kernels=len(graph.nodes), peak=20 - len(graph.nodes))

    assert Search(RULES.rules, wide, Limits(peak=20 - 7)).run(graph).after.seconds == 7
    assert Search(RULES.rules, wide, Limits(kernels=5)).run(graph).after.seconds == 5
    with pytest.raises(nf.GraphError, match="a search has an alpha of 1 at least, a graph and pieces of two operators"):
        Limits(alpha=0.9)


def test_only_what_changed_is_matched_again():
    """Places of computes that a substitution does not touch are known."""
    graph = chain(5)
    search = Search(RULES.rules, counted, Limits(graphs=7))
    found = search.run(graph)
    assert search.sites.looked_at < found.graphs * len(graph.nodes) / 2
    assert "rules applied, by the estimate 2.1e+07 to" in found.summary
