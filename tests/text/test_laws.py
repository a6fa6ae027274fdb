"""Every value that has a text parses back to the equal value, and says the same text again."""

import pytest

import neoflow as nf
from neoflow.expr import Compute, Constant, Parameter
from neoflow.graph import Graph, same_graph
from neoflow.partition import Subgraph
from neoflow.target import Target
from tests.large import large_program
from tests.strategies import random_program
from tests.text.nouns import TARGET, Nouns, nouns_of


def assert_graph(graph: Graph) -> None:
    text = graph.to_text()
    fresh, known = Graph.from_text(text), Graph.from_text(text, graph.leaves)
    assert fresh.to_text() == known.to_text() == text
    assert fresh.digest == graph.digest
    assert same_graph(graph, known)
    assert same_graph(graph, fresh) == (not graph.leaves)
    place = {t: n for order in (graph.order, known.order) for n, t in enumerate(order)}
    for a, b in zip(graph.order, known.order, strict=True):
        if isinstance(a, Compute):
            assert (a.definition, a.name, a.axis_names, a.where) == (b.definition, b.name, b.axis_names, b.where)
            assert [place[i] for i in a.inputs] == [place[i] for i in b.inputs]
        elif isinstance(a, Constant):
            assert (type(b), a.digest, a.name, a.where) == (Constant, b.digest, b.name, b.where)
        else:
            assert a is b


def assert_law(nouns: Nouns) -> None:
    assert_graph(nouns.written)
    assert_graph(nouns.graph)
    for value in (*nouns.subgraphs, *nouns.schedules, nouns.plan):
        text = value.to_text()
        again = type(value).from_text(text)
        assert again == value
        assert again.to_text() == text
    for s in nouns.subgraphs:
        assert Subgraph.from_text(s.to_text()).family == s.family


def small(seed: int, **limits) -> Nouns:
    program = random_program(seed, **limits)
    return nouns_of(program.outputs, list(program.feeds))


def trained(seed: int) -> Nouns:
    """A step of training: parameters, updates, gradients."""
    program = large_program(seed, training=True)
    gradients = nf.grad(program.loss, program.parameters, allow_unused=True) if program.parameters else []
    updates = {p: p - 0.5 * g for p, g in zip(program.parameters, gradients, strict=True)}
    inputs = [t for t in program.feeds if not isinstance(t, Parameter)]
    return nouns_of([program.loss, *program.outputs], inputs, updates)


def test_random_programs():
    for seed in range(40):
        assert_law(small(seed))


def test_programs_of_the_size_of_models():
    for seed in range(3):
        assert_law(trained(seed))


@pytest.mark.slow
def test_ten_thousand_random_programs():
    for seed in range(10_000, 20_000):
        dtype = ("float32", "float32", "float64", "float16", "bfloat16")[seed % 5]
        assert_law(small(seed, dtype=dtype, tensors=(2, 5)))


@pytest.mark.slow
def test_many_programs_of_the_size_of_models():
    for seed in range(100, 160):
        assert_law(trained(seed))


def test_targets():
    for target in (TARGET, Target(), Target("cuda", "sm_90", 1, 16, 1 << 25, 4)):
        assert Target.from_text(target.to_text()) == target
