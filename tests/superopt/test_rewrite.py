"""Proved rules as rewrites: where they match, why they do not, and that every value and gradient is kept."""

from dataclasses import replace

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.tensor import Compute, Placeholder
from neoflow.graph import Editor, Graph, make_graph
from neoflow.superopt import (
    Application,
    Rule,
    Statement,
    Variable,
    family,
    name,
    prove,
    read_rules,
    rewritten,
    rules_about,
    rules_of,
    standard,
    substitution,
    variables,
)
from neoflow.superopt.concrete import computed
from neoflow.superopt.hunt import sizes, values
from neoflow.superopt.properties import concatenation
from neoflow.superopt.rewrite import solved

RULES = standard()
X, Y, W = (nf.placeholder(s, name=n) for n, s in (("x", (4, 3)), ("y", (2, 3)), ("w", (3, 5))))


def test_a_rule_is_a_rewrite():
    """As a user wrote it; the derivation says what was done, and replays."""
    f = nf.relu(nf.concat([X, Y], 0))
    graph = make_graph([f @ W], [X, Y, W])
    rule = substitution(RULES.by_name["relu_of_rows"])
    new, derivation = rewritten(graph, rule, f)
    assert str(derivation) == (
        "0. relu_of_rows at 3 relu with 2: proved by bijection, exact, at A = 4, N = 3, B = 2\n"
        "stopped: one rule was applied"
    )
    assert derivation.replay(graph).digest == new.digest
    assert rule.drawing == "relu(rows(x, y))    ->    rows(relu(x), relu(y))"
    back = RULES.by_name["relu_of_rows"].reversed()
    again, _ = rewritten(new, substitution(back), new.nodes[-2])
    assert again.digest == graph.digest


def test_extents_of_one_and_equal_ones_match():
    a, b = nf.placeholder((1, 3), name="a"), nf.placeholder((3, 3), name="b")
    f = nf.relu(nf.concat([a, b], 0))
    new, derivation = rewritten(make_graph([f], [a, b]), substitution(RULES.by_name["relu_of_rows"]), f)
    assert "at A = 1, N = 3, B = 3" in str(derivation) and len(new.nodes) == 3


def test_guards_are_looked_at():
    def convs(first: int, second: int) -> Graph:
        x = nf.placeholder((1, 2, 6, 6), name="x")
        kernels = [nf.placeholder((2, 2, k, k), name=f"w{k}") for k in (first, second)]
        pair = RULES.by_name["added_convs_of_two_sizes"]
        at = {"N": 1, "C": 2, "H": 6, "W": 6, "O": 2, "R": first // 2, "S": first // 2}
        at |= {"P": second // 2, "Q": second // 2}
        f = computed(pair.source, at, dict(zip("xwv", (x, *kernels), strict=True)), "float32")
        return make_graph([f], [x, *kernels])

    rule = RULES.by_name["added_convs_of_two_sizes"]
    graph = convs(5, 3)
    new, derivation = rewritten(graph, substitution(rule, {"D": 1, "E": 1}), graph.nodes[-1])
    assert len(new.nodes) == 3 and "D = 1, E = 1" in str(derivation)
    with pytest.raises(nf.GraphError, match=r"do not meet the guards `R = P \+ D and S = Q \+ E`"):
        rewritten(graph, substitution(rule, {"D": 2, "E": 1}), graph.nodes[-1])
    with pytest.raises(nf.GraphError, match="nothing says how large D, E is"):
        rewritten(graph, substitution(rule), graph.nodes[-1])


def test_two_arguments_that_are_one_tensor():
    """x + x reads one tensor, and is an addition all the same; a concatenation of x and x is one of equal heights."""
    square = nf.placeholder((3, 3), name="square")
    cases = [
        (nf.relu(X) + nf.relu(X), "add_commutative"),
        (nf.relu(nf.concat([X, X], 0)), "relu_of_rows"),
        (nf.transpose(square @ square), "transpose_of_matmul"),
        (nf.concat([X + X, Y + Y], 0), "rows_of_adds"),
        (nf.transpose(X * X), "transpose_of_mul"),
    ]
    for y, label in cases:
        inputs = [X, Y, square]
        graph = make_graph([y], inputs)
        new, derivation = rewritten(graph, substitution(RULES.by_name[label]), graph.nodes[-1])
        assert derivation.replay(graph).digest == new.digest
        arrays = {t: np.random.default_rng(n).standard_normal(t.shape).astype(t.dtype) for n, t in enumerate(inputs)}
        for a, b in zip(nf.evaluate([y], arrays), nf.evaluate(list(new.outputs), arrays), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    other = make_graph([nf.relu(X)], [X])
    with pytest.raises(nf.GraphError, match="add_commutative does not match"):
        rewritten(other, substitution(RULES.by_name["add_commutative"]), other.nodes[-1])


def test_what_does_not_match():
    f = nf.relu(X)
    graph = make_graph([f], [X])
    with pytest.raises(nf.GraphError, match="relu_of_rows does not match relu"):
        rewritten(graph, substitution(RULES.by_name["relu_of_rows"]), f)
    unproved = replace(RULES.by_name["transpose_twice"].reversed(), proof=None)
    with pytest.raises(nf.GraphError, match="rule transpose_twice_back is not proved"):
        rewritten(graph, substitution(unproved), f)


def test_equations():
    n, m = name("N"), name("M")
    assert solved([(n + m, 7), (m.times(2) + 1, 5)], {}) == {"M": 2, "N": 5}
    assert solved([(n, 1), (n, 2)], {}) is None and solved([(n.times(2), 3)], {}) is None
    assert solved([(n + m, 7)], {}) == {} and solved([(n + m, 7)], {"M": 3}) == {"M": 3, "N": 4}


def kept(rule: Rule, seed: int, count: int) -> int:
    """Sizes at which values and gradients of both sides were compared, the rule as a rewrite of the graph of both."""
    compared = 0
    for n, at in enumerate(sizes(rule.statement, seed, count)):
        shapes = {v.name: tuple(f.value(at) for f in v.shape) for v in variables(rule.source).values()}
        given = {k: Placeholder(s, "float64", k, None) for k, s in shapes.items()}
        y = computed(rule.source, at, given, "float64")
        y = y if isinstance(y, Compute) else nf.tanh(y)
        new, _ = rewritten(make_graph([y], list(given.values())), substitution(rule, at), y)
        arrays = values(shapes, seed + n)
        results = []
        for side in (y, *new.outputs):
            weight = nf.constant(values({"r": side.shape}, n)["r"])
            loss = nf.sum(side * weight, axis=tuple(range(len(side.shape)))) if side.shape else side * weight
            grads = nf.grad(loss, list(given.values()), allow_unused=True) if given else []
            results.append(nf.evaluate([side, *grads], {given[k]: a for k, a in arrays.items()}))
        for a, b in zip(*results, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
        compared += 1
    return compared


DRAW = ("relu_of_rows", "added_matmuls", "matmul_associative", "rows_of_columns", "pairs_of_rows", "rows_again")


CASES = [pytest.param(r, marks=[] if r.name in DRAW else [pytest.mark.slow], id=r.name) for r in RULES.rules]


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_keeps_values_and_gradients(rule):
    """At random sizes and values, forward and through gradients; from right to left as well."""
    assert kept(rule, 0, 3) > 0
    back = rule.reversed()
    if back is not None:
        assert kept(back, 1, 2) > 0


def test_rules_follow_from_what_a_program_is_made_of():
    """Nothing is stated by anybody: a graph's own families give the rule that splits a tropical layer by rows."""
    tropical = nf.expr("y[i, j] = max[k](x[i, k] + w[k, j])", x=nf.concat([X, Y], 0), w=W)
    graph = make_graph([tropical], [X, Y, W])
    rules = list(rules_about(family(t.definition)[0] for t in graph.nodes))
    assert read_rules(rules_of(rules).to_text()).to_text() == rules_of(rules).to_text()
    split = [r for r in rules if "passes_0_0" in r.name and r.name.startswith("operator")]
    found = [rewritten(graph, substitution(r), tropical) for r in split if _matches(r, graph, tropical)]
    assert len(found) == 1 and len(found[0][0].nodes) == 3
    for r in rules:
        assert r.proof is not None and kept(r, 0, 1) == 1, r.name


def _matches(rule: Rule, graph: Graph, t: Compute) -> bool:
    return any(True for _ in substitution(rule).match(Editor(graph.roots, graph.order), t))


def test_of_an_operator_of_ones_own():
    """A layer that no library has: its rule is stated over its family, proved, and used."""
    tropical = nf.expr("y[i, j] = max[k](x[i, k] + w[k, j])", x=X, w=W)
    f, _ = family(tropical.definition)
    rows = concatenation(2, 0)
    m, n, k, j = map(name, "MNKJ")
    x, y, w = Variable("x", (m, k)), Variable("y", (n, k)), Variable("w", (k, j))

    def layer(a, height):
        return Application(f, tuple(zip(f.symbols, (height, k, j), strict=True)), (a, w))

    def above(a, b):
        sizes = tuple(zip(rows.symbols, (m, k if a is x else j, n), strict=True))
        return Application(rows, sizes, (a, b))

    statement = Statement(layer(above(x, y), m + n), above(layer(x, m), layer(y, n)))
    proof = prove(statement)
    rule = Rule("tropical_of_rows", statement, proof)
    assert rule.is_exact and kept(rule, 0, 3) == 3
