"""Random terms beside each other: what is proved is equal on numbers, and what is equal on numbers is mostly proved."""

import itertools
import random

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.tensor import Placeholder
from neoflow.superopt import Proof, Statement, Variable, apply, hunt, name, prove, read_rules, variables
from neoflow.superopt.concrete import computed
from neoflow.superopt.hunt import values

ALPHABET = read_rules("""neoflow rules 1
operator add(a[M, N], b[M, N]) [i<M, j<N] = a[i, j] + b[i, j]
operator sub(a[M, N], b[M, N]) [i<M, j<N] = a[i, j] - b[i, j]
operator mul(a[M, N], b[M, N]) [i<M, j<N] = a[i, j] * b[i, j]
operator matmul(a[M, K], b[K, N]) [i<M, j<N] = sum[k<K](a[i, k] * b[k, j])
operator tropical(a[M, K], b[K, N]) [i<M, j<N] = max[k<K](a[i, k] + b[k, j])
operator relu(a[M, N]) [i<M, j<N] = relu(a[i, j])
operator transpose(a[M, N]) [i<N, j<M] = a[j, i]
operator backwards(a[M, N]) [i<M, j<N] = a[M - i - 1, j]
operator lower(a[M, N]) [i<M, j<N] = select(i >= 1, a[i - 1, j], 0.0)
operator sums(a[M, N]) [i<M, j<N] = sum[k<N](select(k <= j, a[i, k], 0.0))
operator ends(a[M, N], b[M, N]) [i<M, j<N] = select(i < 1, a[i, j], b[i, j])
""").operators
N = name("N")
VARIABLES = [Variable(n, (N, N)) for n in "xyz"]


def random_term(chance: random.Random, operators: int):
    """A term of so many operators over square tensors, where every two have one shape."""
    if not operators:
        return chance.choice(VARIABLES)
    f = chance.choice(ALPHABET)
    left = chance.randrange(operators)
    counts = (operators - 1,) if len(f.slots) == 1 else (left, operators - 1 - left)
    return apply(f, *(random_term(chance, n) for n in counts))


def fingerprint(term, seed: int) -> bytes:
    """What it is of some numbers at N = 3."""
    given = {v.name: Placeholder((3, 3), "float64", v.name, None) for v in VARIABLES}
    arrays = values({v.name: (3, 3) for v in VARIABLES}, seed)
    (found,) = nf.evaluate([computed(term, {"N": 3}, given, "float64")], {given[n]: a for n, a in arrays.items()})
    return (np.round(found, 6) + 0.0).tobytes()


def readable(a, b) -> Statement | None:
    """That two terms are equal, the one with more variables first."""
    names_a, names_b = variables(a).keys(), variables(b).keys()
    return Statement(a, b) if names_a >= names_b else Statement(b, a) if names_b >= names_a else None


@pytest.mark.parametrize("count, seed", [(60, 3), pytest.param(3000, 4, marks=pytest.mark.slow)])
def test_what_is_proved_is_equal(count, seed):
    chance = random.Random(seed)
    terms = {str(t): t for _ in range(count) for t in [random_term(chance, chance.randint(1, 4))]}
    alike: dict[bytes, list] = {}
    for t in terms.values():
        alike.setdefault(fingerprint(t, seed), []).append(t)
    equal = [(g[0], t) for g in alike.values() for t in g[1:]]
    proved, missed = 0, list[str]()
    for a, b in equal:
        statement = readable(a, b)
        if statement is None:
            continue
        if isinstance(prove(statement), Proof):
            proved += 1
            assert hunt(statement, seed, 4) is None, f"{a} = {b}"
        elif hunt(statement, seed, 8) is None:
            missed.append(f"{a} = {b}")
    shuffled = chance.sample(list(terms.values()), len(terms))
    for a, b in itertools.islice(zip(shuffled, terms.values(), strict=True), count // 3):
        statement = readable(a, b)
        if statement is not None and isinstance(prove(statement), Proof):
            assert hunt(statement, seed, 8) is None, f"{a} = {b}"
    print(f"{len(terms)} terms: {proved} equations proved, {len(missed)} that hold on numbers are not")
    print(*missed, sep="\n")
    assert len(missed) <= proved // 10
