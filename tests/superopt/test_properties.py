"""What is derived of operators that nobody registered, and what is not."""

import pytest

import neoflow as nf
from neoflow.superopt import family, properties, standard
from neoflow.superopt.properties import KINDS

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


def test_kinds():
    f = OPERATORS["mul"]
    found = properties(f)
    assert {p.kind for p in found} < set(KINDS)
    assert all(len(p.statements) == len(p.proofs) for p in found)
