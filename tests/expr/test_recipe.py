"""Recipes: replayed on other tensors, and what names become."""

import neoflow as nf
from neoflow.expr.normal import normal_form
from neoflow.expr.recipe import Name, derived, stand_ins
from neoflow.expr.tensor import Compute, topological


def test_names_follow_the_tensors():
    inside = derived(Name("", 1, ""), "d_", "_terms")
    assert isinstance(inside, Name) and inside == "d_$1_terms"
    twice = derived(inside, "d_", "_0")
    assert isinstance(twice, Name) and (twice.prefix, twice.position, twice.suffix) == ("d_d_", 1, "_terms_0")
    assert derived("w", "d_", "_terms") == "d_w_terms"


def test_a_name_is_no_pattern():
    """A tensor may be called like a place in a recipe."""
    x, w = nf.placeholder((3, 4), name="$1"), nf.parameter((4,), name="cost$0")
    dx, dw = nf.grad(nf.sum(nf.exp(x) * w), [x, w])
    assert (dx.name, dw.name) == ("d_$1", "d_cost$0")


def test_normal_form_over_other_tensors():
    x, y = nf.placeholder((3, 4), name="x"), nf.placeholder((3, 4), name="y")
    softmax = nf.expr("s[i,j] = exp(x[i,j]) / sum[k](exp(x[i,k]))", x=x)
    recipe = normal_form(softmax.definition)
    (result,) = recipe.instantiate([y], ["t"])
    assert isinstance(result, Compute) and result.name == "t"
    assert [t.name for t in topological([result]) if t is not y] == ["sum", "t"]
    assert [str(t.name) for t in stand_ins(softmax.definition)] == ["$0"]
