"""What is derived of operators that nobody registered, and what is not."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import Editor, canonicalize, make_graph
from neoflow.superopt import Sites, family, properties, rules_about, standard
from neoflow.superopt.properties import KINDS
from neoflow.superopt.rewrite import rewritten

OPERATORS = {f.name: f for f in standard().operators}


def said(f) -> set[str]:
    return {str(p).split(" (")[0] for p in properties(f)}


@pytest.mark.parametrize(
    "operator, expected",
    [
        (
            "matmul",
            {
                "linear in argument 0",
                "linear in argument 1",
                "keeps zero in argument 0",
                "keeps zero in argument 1",
                "keeps zero in argument 0, argument 1",
                "passes in argument 0 along 0 to axis 0",
                "passes in argument 1 along 1 to axis 1",
                "sums in argument 0 along 1, argument 1 along 0",
                "homogeneous in argument 0",
                "homogeneous in argument 1",
            },
        ),
        (
            "relu",
            {
                "keeps zero in argument 0",
                "passes in argument 0 along 0 to axis 0",
                "passes in argument 0 along 1 to axis 1",
                "pointwise in argument 0",
                "homogeneous in argument 0",
            },
        ),
        (
            "add",
            {
                "linear in argument 0, argument 1",
                "keeps zero in argument 0, argument 1",
                "passes in argument 0 along 0, argument 1 along 0 to axis 0",
                "passes in argument 0 along 1, argument 1 along 1 to axis 1",
                "symmetric in argument 0, argument 1",
                "associative in argument 0, argument 1",
                "pointwise in argument 0, argument 1",
            },
        ),
        (
            "rows",
            {
                "linear in argument 0, argument 1",
                "keeps zero in argument 0, argument 1",
                "passes in argument 0 along 1, argument 1 along 1 to axis 1",
                "reindexing in argument 0, argument 1",
            },
        ),
        ("identity", set()),
    ],
)
def test_derived(operator, expected):
    assert said(OPERATORS[operator]) == expected


@pytest.mark.slow
def test_of_convolution_and_pooling():
    conv, pool, enlarge = (said(OPERATORS[n]) for n in ("conv", "pool_max", "enlarge"))
    assert {"linear in argument 0", "linear in argument 1", "sums in argument 0 along 1, argument 1 along 1"} <= conv
    assert {"passes in argument 0 along 0 to axis 0", "passes in argument 1 along 0 to axis 1"} <= conv
    assert not {"passes in argument 0 along 2 to axis 2"} & conv
    assert "homogeneous in argument 0" in pool and not any(p.startswith(("linear", "keeps")) for p in pool)
    assert {"keeps zero in argument 0", "reindexing in argument 0"} <= enlarge


X = nf.placeholder((3, 4), name="x")
W = nf.placeholder((4, 5), name="w")


@pytest.mark.parametrize(
    "tensor, some, none",
    [
        (  # a tropical layer
            nf.expr("y[i, j] = max[k](x[i, k] + w[k, j])", x=X, w=W),
            {"passes in argument 0 along 0 to axis 0", "passes in argument 1 along 1 to axis 1"},
            ("linear", "sums", "keeps zero in argument 0 "),
        ),
        (  # a distance to each of some points
            nf.expr("y[i, j] = sum[k]((x[i, k] - w[k, j]) * (x[i, k] - w[k, j]))", x=X, w=W),
            {"sums in argument 0 along 1, argument 1 along 0", "passes in argument 0 along 0 to axis 0"},
            ("linear in argument 0", "homogeneous"),
        ),
        (  # a gate
            nf.expr("y[i, k] = x[i, k] * sigmoid(x[i, k])", x=X),
            {"pointwise in argument 0", "keeps zero in argument 0", "passes in argument 0 along 1 to axis 1"},
            ("linear", "homogeneous"),
        ),
        (  # softmax of rows
            nf.expr("y[i, k] = exp(x[i, k]) / sum[l<4](exp(x[i, l]))", x=X),
            {"passes in argument 0 along 0 to axis 0"},
            ("linear", "pointwise", "passes in argument 0 along 1"),
        ),
        (  # a product with a state that begins at zero
            nf.expr("y[i, j] = sum[k<4](0.0 * w[k, j] + x[i, k] * 0.0)", x=X, w=W),
            {"zero", "keeps zero in argument 0"},
            ("pointwise",),
        ),
        (  # a product with zero is not all of it
            nf.expr("y[i, k] = x[i, k] + 0.0 * x[i, 0]", x=X),
            {"linear in argument 0", "keeps zero in argument 0"},
            ("zero",),
        ),
        (
            nf.expr("y[i, k] = x[i, k] + 1.0", x=X),
            {"pointwise in argument 0"},
            ("linear", "keeps zero", "homogeneous"),
        ),
    ],
)
def test_of_an_operator_defined_a_moment_ago(tensor, some, none):
    found = said(family(tensor.definition)[0])
    assert some <= found, found
    assert not [p for p in found if p.startswith(none)]


def test_what_is_zero_whatever_it_reads_is_a_rule():
    y = nf.expr("y[i, j] = sum[k<4](0.0 * w[k, j] + x[i, k] * 0.0)", x=X, w=W)
    (rule,) = (r for r in rules_about([family(y.definition)[0]]) if r.name.endswith("_zero"))
    assert str(rule.target).startswith("zeros") and not rule.is_exact and rule.reversed() is None
    graph = canonicalize(make_graph([nf.exp(y)], [X, W]))
    (site,) = Sites([rule]).at(Editor(graph.roots, graph.order), graph.nodes[0])
    after, derivation = rewritten(graph, site.rewrite, graph.nodes[0])
    assert not after.nodes[-1].inputs or all(not t.inputs for t in after.nodes[:-1])
    assert derivation.replay(graph).digest == after.digest
    (ones,) = nf.evaluate(list(after.outputs), {X: np.ones(X.shape), W: np.ones(W.shape)})
    np.testing.assert_array_equal(ones, np.ones((3, 5)))


def test_kinds():
    f = OPERATORS["mul"]
    found = properties(f)
    assert {p.kind for p in found} < set(KINDS)
    assert all(len(p.statements) == len(p.proofs) for p in found)
