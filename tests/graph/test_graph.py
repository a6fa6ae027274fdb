"""Graph rewrites keep every value; canonical forms merge what is equal."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.ir import Read, Reduce, postorder
from neoflow.expr.tensor import Compute
from neoflow.graph import canonicalize, make_graph, pad_guards
from tests.strategies import random_program


def agree(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def law(rewrite, seed):
    """evaluate(before) == evaluate(after), with gradients among the roots."""
    program = random_program(seed)
    roots = program.with_gradients()
    graph = make_graph(roots, list(program.feeds))
    after = rewrite(graph)
    after.check()
    agree(
        nf.evaluate(after.outputs, program.feeds, dtype="float64"),
        nf.evaluate(graph.outputs, program.feeds, dtype="float64"),
    )


def full(graph):
    return canonicalize(pad_guards(canonicalize(graph)))


@pytest.mark.parametrize("seed", range(60))
def test_rewrites_keep_values(seed):
    law(full, seed)


@pytest.mark.slow
def test_rewrites_keep_values_of_many():
    for seed in range(1000, 3000):
        law(full, seed)


def test_canonical_is_normal_and_idempotent():
    for seed in range(20):
        program = random_program(seed)
        graph = full(make_graph(program.outputs, list(program.feeds)))
        for t in graph.nodes:
            body = t.definition.body
            inner = body.body if isinstance(body, Reduce) else body
            assert not any(isinstance(n, Reduce) for n in postorder(inner))
        assert full(graph).digest == graph.digest


def test_equal_computes_are_merged():
    x = nf.placeholder((4, 5), name="x")
    a, b = nf.exp(x) * 2.0, nf.exp(x) * 2.0
    graph = canonicalize(make_graph([a + b], [x]))
    assert len(graph.nodes) == 3


def test_constants_fold_and_copies_vanish():
    x = nf.placeholder((4, 5), name="x")
    one = nf.compute((4, 5), lambda i, j: 1.0)
    copy = nf.compute((4, 5), lambda i, j: (x * one)[i, j])
    graph = canonicalize(make_graph([nf.relu(copy)], [x]))
    assert [str(t.definition.body) for t in graph.nodes] == ["relu($0[axis0, axis1])"]


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


def test_guarded_contractions_share_one_padded_operand():
    g = nf.placeholder((2, 3, 5, 5), name="g")
    w = nf.placeholder((3, 4, 3, 3), name="w")
    x = nf.placeholder((2, 4, 11, 11), name="x")
    c, r, s = nf.axis(4, "c"), nf.axis(3, "r"), nf.axis(3, "s")
    y = nf.compute(
        (2, 3, 5, 5),
        lambda b, o, p, q: nf.sum(x[b, c, 2 * p + r, 2 * q + s] * w[o, c, r, s], axis=[c, r, s]),
    )
    (dx,) = nf.vjp(y, [x], g)
    graph = full(make_graph([dx], [g, w]))
    contractions = [t for t in graph.nodes if isinstance(t.definition.body, Reduce)]
    assert len(contractions) == 4
    for t in contractions:
        assert all(isinstance(f, Read) for f in t.definition.body.body.args), str(t)
    assert sum("padded" in t.name for t in graph.nodes) == 1
    feeds = {t: np.random.default_rng(0).standard_normal(t.shape) for t in (g, w)}
    agree(nf.evaluate(graph.outputs, feeds, dtype="float64"), nf.evaluate([dx], feeds, dtype="float64"))


def test_missing_input_is_named():
    x, y = nf.placeholder((3,), name="x"), nf.placeholder((3,), name="y")
    with pytest.raises(nf.GraphError, match="reads placeholder y, which is not among the inputs"):
        make_graph([x + y], [x])


def test_update_of_another_shape_is_refused():
    w = nf.parameter((3,), name="w")
    with pytest.raises(nf.GraphError, match=r"parameter w is float32\(3,\) but its update is float32\(2, 3\)"):
        make_graph([], [], {w: w + nf.parameter((2, 3), name="v")})


def test_update_of_a_placeholder_is_refused():
    x = nf.placeholder((3,), name="x")
    with pytest.raises(nf.GraphError, match="x is updated but is no parameter"):
        make_graph([], [x], {x: x * 2.0})


def test_order_respects_reads():
    program = random_program(3)
    graph = full(make_graph(program.outputs, list(program.feeds)))
    seen = set()
    for t in graph.order:
        if isinstance(t, Compute):
            assert all(i in seen for i in t.inputs)
        seen.add(t)
