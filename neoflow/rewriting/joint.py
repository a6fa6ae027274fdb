"""A choice for many things at once: the labels of the least sum of costs, where each cost depends on a few of them.

Things are eliminated one after the other, the one with the fewest neighbours first: what costs with it becomes one
table over its neighbours, of the least over its labels (dynamic programming over the graph of costs; exact, and quick
where that is nearly a tree). Where a table would be too large, what is left is decided by going round: each in turn
takes its best label beside those of the others, from the first labels on.
Source: R. Dechter, Bucket elimination (1999).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

MOST = 4096
"""Entries of a table at most."""
ROUNDS = 10
"""Rounds at most in which each takes its best label beside the others'; they end where nothing changes."""


@dataclass(frozen=True)
class Factor:
    """A cost that depends on the labels of `things`, which are numbers, each once; cost: of their labels in order."""

    things: tuple[int, ...]
    cost: Callable[[tuple[int, ...]], float]


@dataclass(frozen=True)
class Chosen:
    """labels: a number for each thing; is_exact: whether no other labels cost less."""

    labels: tuple[int, ...]
    cost: float
    is_exact: bool


def choose(counts: Sequence[int], factors: Sequence[Factor]) -> Chosen:
    """The labels of the least cost; counts: how many labels each thing has, 1 at least."""
    left, pending = set(range(len(counts))), list(factors)
    steps: list[tuple[int, tuple[int, ...], dict[tuple[int, ...], int]]] = []
    while left:
        near = {v: _near(v, pending) for v in left}
        v = min(left, key=lambda v: (math.prod(counts[n] for n in near[v]), v))
        if math.prod(counts[n] for n in (*near[v], v)) > MOST:
            break
        own, pending = [f for f in pending if v in f.things], [f for f in pending if v not in f.things]
        best: dict[tuple[int, ...], int] = {}
        table: dict[tuple[int, ...], float] = {}
        for beside in product(*(range(counts[n]) for n in near[v])):
            known = dict(zip(near[v], beside, strict=True))
            costs = [_sum(own, {**known, v: label}) for label in range(counts[v])]
            best[beside] = costs.index(min(costs))
            table[beside] = costs[best[beside]]
        pending.append(Factor(near[v], table.__getitem__))
        steps.append((v, near[v], best))
        left.remove(v)
    labels = _round(counts, sorted(left), pending)
    for v, near_v, best in reversed(steps):
        labels[v] = best[tuple(labels[n] for n in near_v)]
    return Chosen(tuple(labels[v] for v in range(len(counts))), _sum(factors, labels), not left)


def margin(thing: int, cost: float) -> Factor:
    """What it costs a thing to have any label but its first: what that has to save."""
    return Factor((thing,), lambda labels: cost if labels[0] else 0.0)


def cost_with(factors: Sequence[Factor], thing: int, labels: Sequence[int], label: int) -> float:
    """What costs with a thing when it has this label, and the others theirs."""
    at = [*labels[:thing], label, *labels[thing + 1 :]]
    return sum(f.cost(tuple(at[n] for n in f.things)) for f in factors if thing in f.things)


def cost_at(factors: Sequence[Factor], labels: Sequence[int]) -> float:
    """What all of them cost at these labels."""
    return sum(f.cost(tuple(labels[n] for n in f.things)) for f in factors)


def _near(v: int, factors: Sequence[Factor]) -> tuple[int, ...]:
    """What costs together with a thing."""
    return tuple(sorted({n for f in factors if v in f.things for n in f.things} - {v}))


def _sum(factors: Sequence[Factor], labels: dict[int, int]) -> float:
    return sum(f.cost(tuple(labels[n] for n in f.things)) for f in factors)


def _round(counts: Sequence[int], left: Sequence[int], factors: Sequence[Factor]) -> dict[int, int]:
    labels = dict.fromkeys(left, 0)
    for _ in range(ROUNDS if left else 0):
        before = dict(labels)
        for v in left:
            own = [f for f in factors if v in f.things]
            labels[v] = min(range(counts[v]), key=lambda label: _sum(own, {**labels, v: label}))
        if labels == before:
            break
    return labels
