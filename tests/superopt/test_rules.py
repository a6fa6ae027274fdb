"""Rules as text: what is written is read, what is wrong is refused with its place."""

from dataclasses import replace

import pytest

import neoflow as nf
from neoflow.superopt import Proof, Rule, Statement, Variable, apply, name, read_rules, rules_of, standard
from neoflow.superopt.stored import STANDARD

RULES = standard()


def test_what_is_written_is_read():
    text = RULES.to_text()
    again = read_rules(text)
    assert again.to_text() == text
    assert [f.key for f in again.operators] == [f.key for f in RULES.operators]
    assert [(r.name, r.guards, r.proof) for r in again.rules] == [(r.name, r.guards, r.proof) for r in RULES.rules]


def test_rules_that_come_along_are_proved():
    assert all(r.proof is not None for r in RULES.rules)
    assert STANDARD.read_text().startswith("neoflow rules 1\n")


def test_a_rule_alone_has_its_operators():
    rule = RULES.by_name["matmul_of_add"]
    (again,) = read_rules(rules_of([rule]).to_text()).rules
    assert str(again) == str(rule) and set(again.families) == {"matmul", "add"}


def test_operators_of_one_name_are_one():
    x = Variable("x", (name("M"), name("N")))
    relu, first = RULES.by_name["relu_of_rows"].families["relu"], RULES.by_name["first_of_rows"].families["first"]
    rules = [
        Rule("one", Statement(apply(relu, x), apply(relu, x))),
        Rule("two", Statement(apply(replace(first, name="relu"), x, P=1), x)),
    ]
    with pytest.raises(nf.GraphError, match="two operators are called relu"):
        rules_of(rules)


def test_a_rule_goes_both_ways():
    rule = RULES.by_name["scale_of_mul"]
    back = rule.reversed()
    assert back is not None and back.name == "scale_of_mul_back" and back.source == rule.target
    assert RULES.by_name["first_of_rows"].reversed() is None


BASE = """neoflow rules 1
operator relu(a[M, N]) [i<M, j<N] = relu(a[i, j])
operator first(a[M, N]) [i<P, j<N] = a[i, j]
"""


@pytest.mark.parametrize(
    "more, message",
    [
        ("operator relu(a[M]) [i<M] = a[i]\n", "operator relu is there twice"),
        ("operator f(a[M], b[M]) [i<M] = b[i] + a[i]\n", "the arguments of f stand in the order in which its body"),
        ("operator f(a[M]) [i<M] = a[i + M]\n", "operator f reads outside its arguments at all sizes"),
        ("operator f(a[M]) [i<M] = a[i, i]\n", "a has 1 dimensions"),
        ("operator f(a[M]) [i<M] = foo(a[i])\n", "foo is no argument and no function"),
        ("operator f(a[M]) [i<M] = a[div(i, 0)]\n", "a divisor is at least 1"),
        ("operator f(a[M]) [i<M] = a[mod]\n", "`mod` cannot be the name of a symbol or an axis"),
        ("operator f(a[M]) [i<M] = select(i, a[i], 0.0)\n", "expected a comparison"),
        ("rule r\nvariables x[M, N]\nsource foo(x)\ntarget x\n", "foo is no operator of the text"),
        ("rule r\nvariables x[M, N]\nsource y\ntarget x\n", "y is no variable of the rule"),
        ("rule r\nvariables x[M, N]\nsource relu(x, x)\ntarget x\n", "relu takes 1 arguments, not 2"),
        ("rule r\nvariables x[M]\nsource relu(x)\ntarget x\n", "argument 0 of relu has 2 dimensions, not 1"),
        ("rule r\nvariables x[M, N]\nsource first(x)\ntarget x\n", r"first needs a size for P: first\[P=...\]"),
        ("rule r\nvariables x[M, N]\nsource relu[Q=1](x)\ntarget x\n", "relu has no symbol Q"),
        ('rule r\nvariables x[M, N]\nsource x\ntarget x\nguards "M >"\n', "guards are a condition on the symbols"),
        ('rule r\nvariables x[M, N]\nsource x\ntarget x\nguards "L > 1"\n', "guards are a condition on the symbols"),
        ("rule r\nvariables x[M, N]\nsource x\ntarget x\nproof trust\n", "a proof is one of same, bijection, axioms"),
        ("rule r\nvariables x\nsource x\ntarget x\nrule r\nvariables x\nsource x\ntarget x\n", "rule r is there twice"),
    ],
)
def test_what_is_no_rule(more, message):
    with pytest.raises(nf.TextError, match=message):
        read_rules(BASE + more)


def test_a_proof_is_said():
    assert str(Proof("same", True)) == "same, exact" and str(Proof("axioms", False)) == "axioms"
