"""A choice for many things at once costs as little as any."""

from itertools import product

import numpy as np

from neoflow.rewriting import joint
from neoflow.rewriting.joint import Factor, choose
from tests.chance import Chance


def drawn(seed):
    """A few things with labels, and costs of one, two or three of them."""
    make = Chance(np.random.default_rng(seed))
    counts = [make.between(1, 3) for _ in range(make.between(1, 7))]
    factors = []
    for _ in range(make.between(1, 9)):
        things = tuple(make.shuffled(range(len(counts)))[: make.between(1, 3)])
        table = {x: float(make.rng.integers(0, 50)) for x in product(*(range(counts[n]) for n in things))}
        factors.append(Factor(things, table.__getitem__))
    return counts, factors


def cost(factors, labels):
    return sum(f.cost(tuple(labels[n] for n in f.things)) for f in factors)


def test_no_choice_costs_less():
    for seed in range(60):
        counts, factors = drawn(seed)
        found = choose(counts, factors)
        assert found.is_exact and found.cost == cost(factors, found.labels)
        assert found.cost == min(cost(factors, x) for x in product(*map(range, counts)))


def test_too_many_at_once_are_decided_by_going_round(monkeypatch):
    monkeypatch.setattr(joint, "MOST", 4)
    worse = 0
    for seed in range(40):
        counts, factors = drawn(seed)
        found = choose(counts, factors)
        assert found.cost == cost(factors, found.labels) <= cost(factors, [0] * len(counts))
        worse += not found.is_exact
    assert worse >= 5


def test_a_chain_of_many_is_exact():
    differ = [Factor((n, n + 1), lambda x: 3.0 * (x[0] != x[1])) for n in range(199)]
    ends = [Factor((0,), lambda x: 10.0 * (x[0] != 1)), Factor((199,), lambda x: 2.0 * (x[0] != 2))]
    found = choose([3] * 200, [*differ, *ends])
    assert found.is_exact and found.labels == (1,) * 200 and found.cost == 2.0
