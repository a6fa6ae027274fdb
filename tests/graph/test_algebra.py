"""Every law of folding, from the table: it does what its name draws, and nothing changes for any value."""

import re

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import canonicalize, make_graph
from neoflow.graph.algebra import LAWS, fold, has_reciprocal

SPECIAL = np.float32([0.0, -0.0, 1.0, -1.0, 3.5, -2.75, 1e-40, 2.0**-149, 1e38, -3e38, np.inf, -np.inf, np.nan])


def tensor(text, x, y):
    """The expression of a law as a tensor over all pairs of special values."""
    indexed = re.sub(r"\b([xy])\b", r"\1[i]", re.sub(r"(?<![.\d])\d+(?![.\d])", r"\g<0>.0", text))
    return nf.expr(f"t[i] = {indexed}", **{n: v for n, v in (("x", x), ("y", y)) if n in text})


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_a_law_does_what_it_says(law):
    x, y = (nf.placeholder((SPECIAL.size**2,), name=n) for n in "xy")
    before, after = (tensor(side, x, y) if side != "x" else x for side in law.name.split(" -> "))
    folded = fold(before.definition, (None,) * len(before.inputs))
    assert law.name in folded.laws
    (found,) = canonicalize(make_graph([before], [x, y])).outputs
    (wanted,) = canonicalize(make_graph([after], [x, y])).outputs
    assert found is x if after is x else found.definition is wanted.definition
    feeds = {x: np.repeat(SPECIAL, SPECIAL.size), y: np.tile(SPECIAL, SPECIAL.size)}
    with np.errstate(all="ignore"):
        a, b = nf.evaluate([before, found], feeds)
    np.testing.assert_array_equal(a, b)
    is_number = ~np.isnan(a)
    np.testing.assert_array_equal(np.signbit(a[is_number]), np.signbit(b[is_number]))


@pytest.mark.parametrize("text", ["x * 0", "x + 0", "x - x", "x / 3", "x / x", "0 - x", "x * 2", "x + y", "-x * y"])
def test_what_is_not_exact_for_every_value_stays(text):
    x, y = nf.placeholder((3,), name="x"), nf.placeholder((3,), name="y")
    before = tensor(text, x, y)
    folded = fold(before.definition, (None,) * len(before.inputs))
    assert folded.body is before.definition.body and not folded.laws


def test_conditions_branches_and_sums_of_constants_fold():
    x, zero = nf.placeholder((4,), name="x"), nf.compute((4,), lambda i: 0.0)
    k = nf.axis(4, "k")
    chosen = nf.compute((4,), lambda i: nf.select(zero[i] > 0.5, x[i], nf.exp(zero[i])))
    equal = nf.compute((4,), lambda i: nf.select(x[i] > 0.0, zero[i], 0.0))
    total = nf.compute((4,), lambda i: nf.sum(zero[k] + 2.0, axis=[k]))
    graph = canonicalize(make_graph([chosen, equal, total], [x]))
    assert [str(t.definition.body) for t in graph.outputs] == ["1.0", "0.0", "8.0"]


def test_reciprocals_are_those_of_powers_of_two_in_range():
    assert has_reciprocal(8.0, "float32") and has_reciprocal(-0.25, "float16")
    assert not any(has_reciprocal(v, "float32") for v in (0.0, 3.0, 2.0**-149, 2.0**149, np.inf, np.nan))
