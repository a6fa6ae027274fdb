"""What need not be computed at every call: which kernels, and which not."""

import numpy as np

import neoflow as nf
from neoflow.graph import make_graph
from neoflow.partition import partition, prepared_first
from neoflow.partition.choose import object_to
from neoflow.partition.prepared import MOST

W, V = nf.parameter((8, 16), name="w"), nf.parameter((8, 16), name="v")
X = nf.placeholder((8, 16), name="x")


def stored(rule, facts, state, candidate):
    """Nothing is inlined, and no kernel takes another in."""
    return "so chosen" if rule != "views" else object_to(rule, facts, state, candidate)


def prepared(outputs, updates=None):
    """The names of what is prepared, and of what is left, in order."""
    graph = make_graph(outputs, [X], updates or {})
    cut = partition(graph, choose=stored)
    calls, count = prepared_first(graph, cut.calls, cut.views)
    assert sorted(c.name for c in calls) == sorted(c.name for c in cut.calls)
    return [c.name for c in calls[:count]], [c.name for c in calls[count:]]


def made(name, body, shape=(8, 16)):
    return nf.compute(shape, body, name=name)


def test_what_follows_from_parameters_alone_comes_first():
    y = made("y", lambda i, j: X[i, j] * 2.0)
    a = made("a", lambda i, j: nf.exp(W[i, j]))
    b = made("b", lambda i, j: a[i, j] + V[i, j])
    assert prepared([made("z", lambda i, j: y[i, j] * b[i, j])]) == (["a", "b"], ["y", "z"])


def test_what_the_program_returns_or_changes_is_computed_every_time():
    a = made("a", lambda i, j: nf.exp(W[i, j]))
    b = made("b", lambda i, j: nf.exp(V[i, j]))
    z = made("z", lambda i, j: X[i, j] * a[i, j] + b[i, j])
    assert prepared([z, b]) == (["a"], ["b", "z"])
    n = made("n", lambda i, j: W[i, j] - 1.0)
    assert prepared([z], {W: n}) == (["b"], ["a", "z", "n"])


def test_what_is_large_or_known_or_a_part_is_left():
    wide = made("wide", lambda i, j, k: W[i, j] + k, (8, 16, MOST + 1))
    c = nf.constant(np.arange(8.0, dtype=np.float32), name="c")
    known = made("known", lambda i: c[i] * 2.0, (8,))
    z = made("z", lambda i, j: X[i, j] * wide[i, j, 0] + known[i])
    assert prepared([z]) == ([], ["wide", "known", "z"])
    parts = [nf.compute((8, 16), lambda i, j, n=n: W[i, j] * float(n + 2), name=f"p{n}") for n in range(3)]
    whole = nf.stack([*parts], axis=0)
    total = made("total", lambda i, j: X[i, j] * whole[i // 3, i, j])
    first, rest = prepared([total])
    assert set(first) <= {"p0", "p1", "p2", "stack"} and "total" in rest
