"""Families some of whose arguments are one tensor."""

import itertools

from neoflow.superopt import read_rules
from neoflow.superopt.same import MOST_ARGUMENTS, MOST_SAME, positions, shared

FAMILIES = {
    f.name: f
    for f in read_rules("""neoflow rules 1
operator rows(a[A, N], b[B, N]) [i<A + B, j<N] = select(i < A, a[i, j], b[i - A, j])
operator matmul(a[M, K], b[K, N]) [i<M, j<N] = sum[k<K](a[i, k] * b[k, j])
operator scale(a[M, N], b) [i<M, j<N] = a[i, j] * b
operator odd(a[2*M, N], b[2*M + 1, N]) [i<M, j<N] = a[i, j] + b[2*i, j]
""").operators
}


def every_way(arguments, inputs):
    """By all sequences of numbers: those in which the first of each number comes after all smaller ones."""
    ways = itertools.product(range(inputs), repeat=arguments)
    return [w for w in ways if list(dict.fromkeys(w)) == list(range(inputs))]


def test_positions():
    assert list(positions(2, 2)) == [(0, 1)] and list(positions(2, 1)) == [(0, 0)]
    for arguments, same in itertools.product(range(1, 7), range(MOST_SAME + 1)):
        if arguments > same:
            assert list(positions(arguments, arguments - same)) == every_way(arguments, arguments - same)
    assert not list(positions(1, 2)) and not list(positions(6, 1))


def test_many_arguments_take_no_memory():
    """A join of 13 parts, asked for all its ways at once, took 24 GB."""
    assert list(positions(300, 300)) == [tuple(range(300))] and not list(positions(300, 298))
    assert sum(1 for _ in positions(MOST_ARGUMENTS, MOST_ARGUMENTS - MOST_SAME)) == 1705


def test_shared():
    one, put = shared(FAMILIES["rows"], (0, 0))
    assert str(one) == "rows(a[A, N]) [i<2*A, j<N] = select(i < A, a[i, j], a[i - A, j])"
    assert {s: str(f) for s, f in put.items()} == {"A": "A", "N": "N", "B": "A"}
    one, put = shared(FAMILIES["matmul"], (0, 0))
    assert one.slots[0][0] == one.slots[0][1] and len(set(map(str, put.values()))) == 1
    assert shared(FAMILIES["scale"], (0, 0)) is None and shared(FAMILIES["odd"], (0, 0)) is None
