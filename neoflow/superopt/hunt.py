"""Counterexamples: both sides of a statement at small sizes, by `evaluate`, from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from neoflow.errors import NeoflowError
from neoflow.expr.interp import evaluate
from neoflow.expr.tensor import Placeholder, Tensor
from neoflow.superopt import places
from neoflow.superopt.concrete import computed
from neoflow.superopt.forms import name
from neoflow.superopt.prove import Statement
from neoflow.superopt.term import variables

SMALL = (1, 2, 3, 4, 5, 7)
"""Sizes that are tried: 1, what divides and what leaves a remainder."""
TRIES = 400
"""Sizes that are drawn for one that meets the guards."""


@dataclass(frozen=True)
class Counterexample:
    """Sizes at which two sides differ, by how much, or why one of them has no value there."""

    sizes: tuple[tuple[str, int], ...]
    reason: str

    def __str__(self) -> str:
        return f"at {', '.join(f'{s} = {n}' for s, n in self.sizes) or 'all sizes'}: {self.reason}"


def sizes(statement: Statement, seed: int, count: int) -> Iterator[dict[str, int]]:
    """Small sizes that meet the guards and give the source a meaning, up to `count`, each once."""
    chance, allowed = random.Random(seed), statement.assumed()
    symbols = statement.symbols
    seen: set[tuple[int, ...]] = set()
    for _ in range(TRIES):
        if len(seen) == count:
            return
        drawn = {s: chance.choice(SMALL) for s in symbols}
        found = _nearest(allowed, drawn, chance)
        if found is None:
            return
        key = tuple(found[s] for s in symbols)
        if key not in seen and max(key, default=0) <= 4 * max(SMALL):
            seen.add(key)
            yield found
        if not symbols:
            return


def _nearest(allowed: places.Places, drawn: Mapping[str, int], chance: random.Random) -> dict[str, int] | None:
    """Sizes that are allowed, which agree with drawn ones in as many symbols, in a random order, as one can keep."""
    here = allowed
    for s in chance.sample(list(drawn), len(drawn)):
        for value in (drawn[s], *SMALL):
            kept = here & places.zero(name(s) - value)
            if not kept.is_empty():
                here = kept
                break
    found = places.one_of(here)
    return None if found is None else {s: found.get(s, n) for s, n in drawn.items()}


def values(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, np.ndarray]:
    """Random arrays of float64: quarters, so that sums and products are exact."""
    chance = np.random.default_rng(seed)
    return {n: chance.integers(-12, 13, s).astype(np.float64) / 4 for n, s in shapes.items()}


def differ(statement: Statement, at: Mapping[str, int], seed: int) -> str | None:
    """How the sides differ at some sizes, None where they are equal within rounding."""
    shapes = {n: tuple(f.value(at) for f in v.shape) for n, v in variables(statement.source).items()}
    given: dict[str, Tensor] = {n: Placeholder(s, "float64", n, None) for n, s in shapes.items()}
    try:
        sides = [computed(t, at, given, "float64") for t in (statement.source, statement.target)]
    except (NeoflowError, KeyError) as error:
        return f"a side has no meaning: {error}"
    if sides[0].shape != sides[1].shape:
        return f"the source is {sides[0].shape}, the target {sides[1].shape}"
    arrays = {given[n]: a for n, a in values(shapes, seed).items()}
    a, b = evaluate(sides, arrays)
    scale = 1e-9 * (1.0 + np.abs(a))
    with np.errstate(invalid="ignore"):
        wrong = ~((np.abs(a - b) <= scale) | (np.isnan(a) & np.isnan(b)) | (a == b))
    if not wrong.any():
        return None
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"element {where} is {a[where]:.6g} in the source and {b[where]:.6g} in the target"


def hunt(statement: Statement, seed: int = 0, count: int = 12) -> Counterexample | None:
    """A counterexample among `count` draws of small sizes and values, if there is one."""
    for n, at in enumerate(sizes(statement, seed, count)):
        reason = differ(statement, at, seed * 1000 + n)
        if reason is not None:
            return Counterexample(tuple(at.items()), reason)
    return None
