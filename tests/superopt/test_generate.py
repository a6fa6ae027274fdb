"""Rules that nobody stated: found by fingerprints, proved, and used."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import canonicalize, make_graph
from neoflow.superopt import Limits, Rule, Search, generate, read_rules, rules_of, standard
from neoflow.superopt.prints import PRIME, digest, random_values, value
from tests.superopt.test_rewrite import kept
from tests.superopt.test_search import GATES, counted

OPERATORS = {f.name: f for f in standard().operators}
ALPHABET = [OPERATORS[n] for n in ("add", "mul", "relu", "transpose", "matmul", "rows", "columns", "first", "last")]


def holds(rule: Rule) -> bool:
    """Values and gradients are kept by it as a rewrite."""
    return kept(rule, 0, 1) > 0


def test_fingerprints():
    """Of arithmetic as in a field, of shapes, and of functions that keep zero."""
    a, b = (random_values((2, 3), 0, n) for n in "ab")
    sizes = {"M": 2, "N": 3}
    total = value(OPERATORS["add"], sizes, [a, b])
    np.testing.assert_array_equal(total, (a + b) % PRIME)
    assert digest(total) == digest(value(OPERATORS["add"], sizes, [b, a])) != digest(total.T)
    beside = value(OPERATORS["rows"], {"A": 2, "B": 2, "N": 3}, [a, b])
    np.testing.assert_array_equal(beside, np.concatenate([a, b]))
    c = random_values((3, 2), 0, "c")
    product = value(OPERATORS["matmul"], {"M": 2, "K": 3, "N": 2}, [a, c])
    np.testing.assert_array_equal(product, (a.astype(object) @ c.astype(object)) % PRIME)
    assert not value(OPERATORS["relu"], sizes, [np.zeros((2, 3), np.int64)]).any()
    at = {"N": 1, "C": 1, "H": 2, "W": 1, "R": 1, "S": 0}
    pooled = value(OPERATORS["pool_avg"], at, [a[:1, :2].reshape(1, 1, 2, 1)])
    np.testing.assert_array_equal(pooled.reshape(-1) * 3 % PRIME, [(a[0, 0] + a[0, 1]) % PRIME] * 2)


def test_two_operators():
    """All graphs of two operators; every count repeats, every rule reads back, some are sampled on numbers."""
    found = generate(ALPHABET, 2)
    assert str(found) == str(generate(ALPHABET, 2))
    assert found.stopped == "all graphs were made" and len(found.rules) >= 25
    assert found.graphs > found.distinct and found.candidates > found.renamed > found.ordered > found.general
    texts = {f"{r.source} = {r.target}" for r in found.rules}
    assert {"add(x1, x0) = add(x0, x1)", "transpose(transpose(x0)) = x0", "first[P=A](rows(x0, x6)) = x0"} <= texts
    assert "matmul(matmul(x0, x3), x5) = matmul(x0, matmul(x3, x5))" in texts
    assert read_rules(rules_of(found.rules).to_text()).to_text() == rules_of(found.rules).to_text()
    for rule in found.rules[::6]:
        assert holds(rule)


@pytest.mark.slow
def test_three_operators():
    """Distributive laws; each rule keeps values and gradients."""
    found = generate(ALPHABET, 3, 120)
    print(found)
    texts = {f"{r.source} = {r.target}" for r in found.rules}
    assert any("add(mul(" in t and "mul(add(" in t for t in texts)
    assert all(map(holds, found.rules))


@pytest.mark.slow
def test_the_recurrent_unit_by_generated_rules():
    """SRU's c f + (1 - f) x in three operators, by rules that nobody stated."""
    found = generate(read_rules(GATES).operators, 3, 120)
    f, c, x = (nf.placeholder((4, 3), name=n) for n in "fcx")
    graph = canonicalize(make_graph([f * c + (1.0 - f) * x], [f, c, x]))
    best = Search(found.rules, counted, Limits(alpha=1.3, graphs=300)).run(graph)
    assert best.after.seconds == 3
    print(best)


def test_limits():
    some = generate(ALPHABET[:2], 2, most=20)
    assert some.stopped == "the limit of 20 graphs" and some.distinct == 20
    none = generate(ALPHABET[:2], 2, seconds=0.0)
    assert none.stopped.startswith("the time is up")
