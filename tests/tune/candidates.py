"""Subgraphs and trials for tests of tuning; no compiler."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

import neoflow as nf
from neoflow.loops import problem_of, space
from neoflow.partition import Subgraph
from neoflow.target import Target
from neoflow.tune import Trial
from tests.loops.programs import subgraphs

TARGET = Target("cpu", "znver4", 2, 64)


@lru_cache(maxsize=32)
def product(m: int = 16, k: int = 24, n: int = 32) -> Subgraph:
    """A matrix product."""
    a, b = nf.placeholder((m, k), name="a"), nf.placeholder((k, n), name="b")
    (found,) = subgraphs([nf.expr("y[m,n] = sum(a[m,k] * b[k,n])", a=a, b=b)], [a, b])
    return found


@lru_cache(maxsize=32)
def softmax(rows: int = 9, columns: int = 50) -> Subgraph:
    """A row kernel."""
    a = nf.placeholder((rows, columns), name="a")
    (found,) = subgraphs([nf.nn.functional.softmax(a)], [a])
    return found


def trials(subgraph: Subgraph, count: int, seed: int = 0, target: Target = TARGET) -> list[Trial]:
    """So many of different schedules, most of them ok, with times between 1 and 2 ms."""
    rng, schedules = np.random.default_rng(seed), space(problem_of(subgraph), target)
    found: dict = {}
    while len(found) < count:
        found[schedules.sample(rng)] = None
    return [
        Trial(s, "ok", 1e-3 * (1 + float(rng.random())), 0.01)
        if n % 5
        else Trial(s, "deadline", None, 0.0, "it took more than 2 s")
        for n, s in enumerate(found, 1)
    ]
