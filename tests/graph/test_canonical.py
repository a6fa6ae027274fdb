"""Canonical form: what each rewrite takes, and what it leaves alone."""

import numpy as np

import neoflow as nf
from neoflow.expr.ir import Reduce, postorder
from neoflow.graph import canonicalize, make_graph, optimize
from tests.strategies import random_program


def bodies(graph):
    return [str(t.definition.body) for t in graph.nodes]


def test_canonical_is_normal():
    for seed in range(20):
        program = random_program(seed)
        for t in optimize(make_graph(program.outputs, list(program.feeds))).nodes:
            body = t.definition.body
            inner = body.body if isinstance(body, Reduce) else body
            assert not any(isinstance(n, Reduce) for n in postorder(inner))


def test_a_reduction_inside_a_body_is_hoisted_and_one_at_its_root_is_not():
    x = nf.placeholder((4,), name="x")
    k = nf.axis(4, "k")
    inside = nf.compute((4,), lambda i: nf.exp(x[i]) / nf.sum(nf.exp(x[k]), axis=[k]))
    alone = nf.compute((), lambda: nf.sum(nf.exp(x[k]), axis=[k]))
    assert bodies(canonicalize(make_graph([inside], [x]))) == [
        "sum[axis0](exp($0[axis0]))",
        "exp($0[axis0]) / $1",
    ]
    graph = make_graph([alone], [x])
    assert canonicalize(graph).outputs[0] is alone


def test_what_is_scattered_stays_a_tensor_or_a_constant():
    """A constant is put into the scatter; it is not hoisted out of it again."""
    ids, g = nf.placeholder((5,), "int64", name="ids"), nf.placeholder((5,), name="g")
    ones = nf.compute((5,), lambda i: 1.0)
    b = nf.axis(5, "b")
    twice, counts = (nf.scatter((7,), [b], (ids[b],), value) for value in (g[b] * 2.0, ones[b]))
    graph = canonicalize(make_graph([twice, counts], [ids, g]))
    assert [body.split("(")[0] for body in bodies(graph)] == ["$0[axis0] * 2.0", "scatter[axis1]", "scatter[axis1]"]
    assert "(1.0, " in bodies(graph)[-1] and "2.0" not in bodies(graph)[1]


def test_equal_computes_are_merged_and_others_are_not():
    x, y = nf.placeholder((4, 5), name="x"), nf.placeholder((4, 5), name="y")
    a, b = nf.exp(x) * 2.0, nf.exp(x) * 2.0
    assert len(canonicalize(make_graph([a + b], [x])).nodes) == 3
    assert len(canonicalize(make_graph([nf.exp(x) + nf.exp(y)], [x, y])).nodes) == 3
    first, second = a - nf.exp(y), nf.exp(y) - a
    assert len(canonicalize(make_graph([first, second], [x, y])).nodes) == 5


def test_of_equal_computes_the_first_gives_the_name():
    x = nf.placeholder((4,), name="x")
    made = [nf.compute((4,), lambda i: nf.exp(x[i]), name=f"e{n}") for n in range(5)]
    (only,) = canonicalize(make_graph(made, [x])).nodes
    assert only.name == "e0"


def test_constants_fold_and_copies_vanish():
    x = nf.placeholder((4, 5), name="x")
    one = nf.compute((4, 5), lambda i, j: 1.0)
    copy = nf.compute((4, 5), lambda i, j: (x * one)[i, j])
    graph = canonicalize(make_graph([nf.relu(copy)], [x]))
    assert bodies(graph) == ["relu($0[axis0, axis1])"]


def test_a_slice_a_transpose_and_a_broadcast_are_no_copies():
    x = nf.placeholder((4, 4), name="x")
    moved = [
        nf.compute((3, 4), lambda i, j: x[i, j]),
        nf.compute((4, 4), lambda i, j: x[j, i]),
        nf.compute((4, 4), lambda i, j: x[i, 0]),
    ]
    graph = make_graph([nf.exp(t) for t in moved], [x])
    assert len(canonicalize(graph).nodes) == 6


def test_a_copy_that_is_returned_is_what_it_copies():
    x = nf.placeholder((4,), name="x")
    copy = nf.compute((4,), lambda i: x[i])
    assert canonicalize(make_graph([copy], [x])).outputs[0] is x


def test_folding_is_exact_for_every_value():
    """Divisors whose reciprocal is none of the type, zeros with a sign, casts that wrap."""
    x = nf.placeholder((5,), name="x")
    n = nf.compute((5,), lambda i: nf.cast(nf.cast(300, "int32"), "int8"))
    roots = [x / 2.0**-149, x / 2.0**-100, x / 2.0**140, x - (-0.0), x - 0.0, n, nf.cast(x, "int32")]
    feeds = {x: np.float32([0.0, -0.0, 2.0**-149, 2.0**20, -3.0])}
    for a, b in zip(
        nf.evaluate(canonicalize(make_graph(roots, [x])).outputs, feeds), nf.evaluate(roots, feeds), strict=True
    ):
        np.testing.assert_array_equal(a, b)
        if a.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(a), np.signbit(b))
