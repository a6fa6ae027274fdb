"""Families some of whose arguments are one tensor."""

from neoflow.superopt import read_rules
from neoflow.superopt.same import positions, shared

FAMILIES = {
    f.name: f
    for f in read_rules("""neoflow rules 1
operator rows(a[A, N], b[B, N]) [i<A + B, j<N] = select(i < A, a[i, j], b[i - A, j])
operator matmul(a[M, K], b[K, N]) [i<M, j<N] = sum[k<K](a[i, k] * b[k, j])
operator scale(a[M, N], b) [i<M, j<N] = a[i, j] * b
operator odd(a[2*M, N], b[2*M + 1, N]) [i<M, j<N] = a[i, j] + b[2*i, j]
""").operators
}


def test_positions():
    assert positions(2, 2) == [(0, 1)] and positions(2, 1) == [(0, 0)]
    assert positions(3, 2) == [(0, 0, 1), (0, 1, 0), (0, 1, 1)]
    assert positions(1, 2) == [] and positions(6, 1) == []


def test_shared():
    one, put = shared(FAMILIES["rows"], (0, 0))
    assert str(one) == "rows(a[A, N]) [i<2*A, j<N] = select(i < A, a[i, j], a[i - A, j])"
    assert {s: str(f) for s, f in put.items()} == {"A": "A", "N": "N", "B": "A"}
    one, put = shared(FAMILIES["matmul"], (0, 0))
    assert one.slots[0][0] == one.slots[0][1] and len(set(map(str, put.values()))) == 1
    assert shared(FAMILIES["scale"], (0, 0)) is None and shared(FAMILIES["odd"], (0, 0)) is None
