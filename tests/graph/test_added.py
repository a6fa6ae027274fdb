"""What is added first: which functions are linear, how far down, and where it does not pay."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import Pass, make_graph, run
from neoflow.graph.added import AddFirst, is_linear

N = 64
K = nf.axis(N, "k")
A, B, C, W = (nf.placeholder((N, N), name=n) for n in "abcw")


def added(outputs, inputs=(A, B, C, W)):
    """The graph after the rewrite, and its derivation; values stay."""
    graph = make_graph(outputs, list(inputs))
    after, derivation = run(graph, Pass("add", (AddFirst(),)))
    feeds = {t: np.random.default_rng(0).standard_normal(t.shape) for t in inputs}
    values = (nf.evaluate(list(g.outputs), feeds, dtype="float64") for g in (graph, after))
    for a, b in zip(*values, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    return after, derivation


def product(x):
    return nf.compute((N, N), lambda i, j: nf.sum(x[i, K] * W[K, j], axis=[K]))


def total(*ts):
    return nf.compute(ts[0].shape, lambda *i: sum((t[i] for t in ts[1:]), ts[0][i]))


def test_products_with_the_same_weights_are_one_of_the_sum():
    after, derivation = added([total(product(A), product(B), product(C))])
    assert [t.definition.has_reduction for t in after.nodes] == [False, True]
    assert derivation.steps[0].reason.startswith("one of it for 3, of their sum, spares about ")


def test_functions_of_functions_are_looked_through():
    def twice(x):
        return nf.compute((N, N // 2), lambda i, j: product(product(x))[i, 2 * j])

    after, _ = added([total(twice(A), twice(B), A[:, :32])])
    assert sum(t.definition.has_reduction for t in after.nodes) == 2


def test_the_rest_of_a_sum_stays():
    after, _ = added([total(product(A), C, product(B))])
    assert sum(t.definition.has_reduction for t in after.nodes) == 1


@pytest.mark.parametrize(
    "body, linear",
    [
        (lambda x, i, j: x[j, i] * 2.0 - x[i, j], True),
        (lambda x, i, j: -x[i, j] / W[i, j], True),
        (lambda x, i, j: nf.select(i < j, x[i, j], 0.0), True),
        (lambda x, i, j: nf.select(W[i, j] > 0.0, x[i, j] * W[j, i], x[j, i]), True),
        (lambda x, i, j: nf.sum(x[i, K] * W[K, j], axis=[K]), True),
        (lambda x, i, j: nf.select(x[i, j] > 0.0, x[i, j], 0.0), False),
        (lambda x, i, j: nf.max(x[i, K] + 0.0 * W[i, j], axis=[K]), False),
        (lambda x, i, j: x[i, j] + 1.0, False),
        (lambda x, i, j: x[i, j] * x[j, i], False),
        (lambda x, i, j: W[i, j] / x[i, j], False),
        (lambda x, i, j: nf.tanh(x[i, j]), False),
    ],
)
def test_what_is_linear(body, linear):
    t = nf.compute((N, N), lambda i, j: body(A, i, j))
    assert is_linear(t.definition, frozenset([t.inputs.index(A)])) == linear


def test_what_is_cheap_is_computed_where_it_is_read():
    half = [nf.compute((N, N), lambda i, j, x=x: x[j, i] * 0.5) for x in (A, B)]
    _, derivation = added([total(*half)])
    (refused,) = derivation.refused
    assert not derivation.steps and refused.reason.startswith("to add first would spare about ")


def test_narrow_types_and_terms_that_others_read_stay():
    narrow = [nf.placeholder((N, N), "bfloat16", name=n) for n in "ab"]
    w = nf.placeholder((N, N), "bfloat16", name="w")
    terms = [nf.compute((N, N), lambda i, j, x=x: nf.sum(x[i, K] * w[K, j], axis=[K])) for x in narrow]
    graph = make_graph([total(*terms)], [*narrow, w])
    assert not run(graph, Pass("add", (AddFirst(),)))[1].steps
    first = product(A)
    assert not added([total(first, product(B)), nf.exp(first)])[1].steps


def test_a_function_of_a_product_and_of_another_tensor():
    steps = nf.placeholder((3, N, N), name="steps")
    part = nf.compute((N, N), lambda i, j: steps[1, i, j])
    turned = [nf.compute((N, N), lambda i, j, x=x: 2.0 * x[j, i]) for x in (product(A), part)]
    added([total(*turned)], (A, W, steps))
