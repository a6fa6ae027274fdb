"""What inlining multiplies, counted through chains: against the kernels that come of it."""

import pytest

import neoflow as nf
from neoflow.graph import make_graph
from neoflow.partition.copies import Copies, instructions
from neoflow.partition.graph_facts import Facts

X = nf.placeholder((64,), name="x")


def chain(steps, body, start=X):
    """The last of some computes, each a function of the one before: `body(i, before)`."""
    found = [start]
    for n in range(steps):
        t = found[-1]
        found.append(nf.compute((64,), lambda i, t=t: body(i, t), name=f"t{n}"))
    return found


def recomputed(tensors):
    """The counts when all but the last of some computes are recomputed."""
    copies = Copies(Facts.of(make_graph(tensors[-1:], [X])))
    for t in reversed(tensors[1:-1]):
        copies.recompute(t)
    return copies


def window(i, t):
    return t[(i + 63) % 64] + t[i] + t[(i + 1) % 64]


def test_points_of_windows_of_windows_are_a_wider_window():
    tensors = chain(5, window)
    copies = recomputed(tensors)
    assert [len(points) for t in tensors[-2:0:-1] for points in copies.of(t).values()] == [3, 5, 7, 9]


def test_what_is_read_twice_at_one_point_is_computed_once():
    tensors = chain(40, lambda i, t: t[i] * t[i] + t[i])
    copies = recomputed(tensors)
    assert [len(points) for points in copies.of(tensors[1]).values()] == [1]
    assert copies.instructions(tensors[-1]) == 40 * 2 and copies.nodes(tensors[-1]) == 40


def test_points_double_where_indices_do_not_meet():
    copies = recomputed(tensors := chain(6, lambda i, t: t[i // 2] + t[i // 3 + 1]))
    most = [len(points) for t in tensors[-2:0:-1] for points in copies.of(t).values()]
    assert most[:2] == [2, 4] and most[-1] > 8


def test_branches_that_are_never_taken_count_for_nothing():
    a = nf.compute((64,), lambda i: nf.exp(X[i]), name="a")
    b = nf.compute((64,), lambda i: nf.select(i < 63, a[nf.minimum(i + 1, 63)], X[i]), name="b")
    c = nf.compute((1,), lambda i: b[i + 63], name="c")
    copies = Copies(Facts.of(make_graph([c], [X])))
    copies.recompute(b)
    assert [len(points) for points in copies.of(a).values()] == [0]


def test_what_is_loaded_under_other_conditions_is_loaded_again():
    a = nf.compute((64,), lambda i: nf.exp(X[i]), name="a")
    b = nf.compute((64,), lambda i: nf.select(i >= 2, a[i - 2], 0.0) + nf.select(i >= 9, a[i - 2], 1.0), name="b")
    c = nf.compute((64,), lambda i: nf.select(i >= 2, a[i], 0.0) + a[i], name="c")
    copies = Copies(Facts.of(make_graph([b, c], [X])))
    assert {k.name: len(points) for k, points in copies.of(a).items()} == {"b": 2, "c": 1}


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (lambda i: X[i], 0),
        (lambda i: X[63 - i], 1),
        (lambda i: nf.exp(X[i]) + 1.0, 11),
        (lambda i: nf.select(i < 3, X[i], 0.0), 2),
    ],
)
def test_instructions_of_a_body(body, count):
    assert instructions(nf.compute((64,), body).definition) == count
