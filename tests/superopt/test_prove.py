"""Proofs: TASO's axioms, what is refused and why, the weakest guards, the three tiers."""

from dataclasses import replace

import pytest

import neoflow as nf
from neoflow.expr import check
from neoflow.superopt import (
    Proof,
    Rule,
    Statement,
    Variable,
    apply,
    derive,
    hunt,
    name,
    places,
    prove,
    proved,
    read_rules,
    standard,
    weakest,
)

RULES = standard()
AXIOMS = [r.name for r in RULES.rules[:44]]
"""TASO's, in its order."""
QUICK = {r.name for r in RULES.rules[:44] if not any("4" in f.name or "conv" in f.name for f in r.families.values())}


@pytest.mark.parametrize(
    "axiom", [pytest.param(n, marks=[] if n in QUICK and len(n) % 3 == 0 else [pytest.mark.slow]) for n in AXIOMS]
)
def test_axiom(axiom):
    """For all sizes, by the prover, without a counterexample; `-v -m ""` lists them."""
    rule = RULES.by_name[axiom]
    found = proved(rule, count=4)
    assert isinstance(found, Rule) and found.proof is not None
    assert rule.proof is not None and (found.proof.tier, found.is_exact) == (rule.proof.tier, rule.is_exact)


def test_there_are_44_axioms():
    assert len(AXIOMS) == 44 and AXIOMS[-1] == "conv_of_enlarged" and AXIOMS[0] == "add_associative"


GROUPED = """neoflow rules 1
operator one(a[N, 2, W], b[1, 2, R]) [n<N, o<1, p<P] = sum[c<2, r<R](a[n, c, p + r] * b[o, c, r])
operator three(a[N, 2, W], b[3, 2, R]) [n<N, o<3, p<P] = sum[c<2, r<R](a[n, c, p + r] * b[o, c, r])
operator two(a[N, 2, W], b[2, 2, R]) [n<N, o<2, p<P] = sum[c<2, r<R](a[n, c, p + r] * b[o, c, r])
operator grouped(a[N, 4, W], b[4, 2, R]) [n<N, o<4, p<P] = \
sum[c<2, r<R](a[n, 2*div(o, 2) + c, p + r] * b[o, c, r])
operator channels(a[N, A, W], b[N, B, W]) [n<N, c<A + B, p<W] = select(c < A, a[n, c, p], b[n, c - A, p])
operator kernels(a[A, C, R], b[B, C, R]) [o<A + B, c<C, r<R] = select(o < A, a[o, c, r], b[o - A, c, r])

rule unequal
variables x[N, 2, W], y[1, 2, R], z[N, 2, W], w[3, 2, R]
source channels(one[P=P](x, y), three[P=P](z, w))
target grouped[P=P](channels(x, z), kernels(y, w))

rule equal
variables x[N, 2, W], y[2, 2, R], z[N, 2, W], w[2, 2, R]
source channels(two[P=P](x, y), two[P=P](z, w))
target grouped[P=P](channels(x, z), kernels(y, w))
"""


def test_merging_grouped_convolutions_is_wrong_but_for_equal_groups():
    """TASO marks it wrong; its release has it four times, without the guard."""
    unequal, equal = read_rules(GROUPED).rules
    assert not isinstance(prove(unequal.statement), Proof)
    assert hunt(unequal.statement) is not None
    assert isinstance(prove(equal.statement), Proof)


def test_the_other_axiom_that_taso_marks_wrong_is_wrong_without_extents():
    """Concatenation is associative. In TASO a split has no extents and undoes the last concatenation, so that x would
    be concat(x, y); here it says where it splits, and that equation is refused."""
    assert isinstance(prove(RULES.by_name["rows_associative"].statement), Proof)
    rows = RULES.by_name["rows_associative"].families["rows"]
    x, y = Variable("x", (name("A"), name("N"))), Variable("y", (name("B"), name("N")))
    assert not isinstance(prove(Statement(apply(rows, x, y), x)), Proof)


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(r.name, marks=[pytest.mark.slow] if r.name == "convs_of_two_sizes" else [])
        for r in RULES.rules
        if r.guards
    ],
)
def test_guards_are_found(rule):
    """The weakest, which what is written follows from; without guards a rule is refused."""
    statement = RULES.by_name[rule].statement
    bare = replace(statement, guards="")
    assert not isinstance(prove(bare), Proof)
    guards = weakest(bare)
    assert isinstance(guards, str) and guards
    found = replace(statement, guards=guards)
    assert isinstance(prove(found), Proof)
    assert statement.assumed().is_subset(found.assumed())


PLAIN = """neoflow rules 1
operator relu(a[M, N]) [i<M, j<N] = relu(a[i, j])
operator exp(a[M, N]) [i<M, j<N] = exp(a[i, j])
operator add(a[M, N], b[M, N]) [i<M, j<N] = a[i, j] + b[i, j]
operator mul(a[M, N], b[M, N]) [i<M, j<N] = a[i, j] * b[i, j]
operator padded(a[M, N]) from D [i<M + 2*D, j<N] = select((i >= D) & (i < M + D), a[i - D, j], 0.0)
operator transpose(a[M, N]) [i<N, j<M] = a[j, i]
operator first(a[M, N]) [i<P, j<N] = a[i, j]
operator mask() [i<M, j<N] = select(i < 1, -inf, 0.0)
operator negative() [i<M, j<N] = select(i < 1, inf, 0.0)

rule relu_of_padded
variables x[M, N]
source relu(padded[D=D](x))
target padded[D=D](relu(x))

rule exp_of_padded
variables x[M, N]
source exp(padded[D=D](x))
target padded[D=D](exp(x))

rule relu_of_add
variables x[M, N], y[M, N]
source relu(add(x, y))
target add(relu(x), relu(y))

rule symmetric
variables x[M, N]
source transpose(x)
target x

rule symmetric_and_square
variables x[M, M]
source transpose(x)
target x

rule longer
variables x[M, N]
source relu(x)
target first[P=M](first[P=M + 1](relu(x)))

rule unread
variables x[M, N], y[M, N]
source relu(x)
target add(relu(x), y)

rule impossible
variables x[M, N]
source relu(x)
target relu(x)
guards "M < 0"

rule masked
variables x[M, N]
source add(add(x, mask[M=M, N=N]()), negative[M=M, N=N]())
target x

rule twice
variables x[M, N], y[M, N]
source mul(add(x, y), add(x, y))
target add(add(mul(x, x), mul(y, y)), add(mul(x, y), mul(y, x)))
"""
CASES = read_rules(PLAIN).by_name


@pytest.mark.parametrize(
    "rule, answer",
    [
        ("relu_of_padded", "same, exact"),
        ("exp_of_padded", "no, its sides may differ where D > 0"),
        ("relu_of_add", "no, its sides may differ where its guards hold"),
        ("symmetric", "no, its sides are not of one shape"),
        ("symmetric_and_square", "no, its sides may differ where M >= 2"),
        ("longer", "no, its target has no meaning at some sizes of its source"),
        ("unread", "no, its target reads y, which its source does not"),
        ("impossible", "no, no sizes meet its guards"),
        ("twice", "same"),
        ("masked", "no, not known: arithmetic on infinity"),
    ],
)
def test_answers(rule, answer):
    found = prove(CASES[rule].statement)
    assert str(found) == answer
    if not isinstance(found, Proof):
        found = proved(CASES[rule], count=4)
        assert not isinstance(found, Rule)


def test_guards_that_do_not_parse_are_refused():
    statement = replace(CASES["symmetric"].statement, guards="M is nice")
    assert str(prove(statement)) == "no, the guards `M is nice` are no condition on its symbols"


def test_a_counterexample_is_said():
    found = proved(CASES["exp_of_padded"])
    assert not isinstance(found, Rule)
    assert "; at M = " in found.reason and "is 1 in the source and 0 in the target" in found.reason


def test_a_sum_that_is_too_large_is_derived():
    """Products of seven sums, in another order: 128 products are not multiplied out, the two halves are swapped."""
    add, mul = CASES["twice"].families["add"], CASES["twice"].families["mul"]
    sums = [apply(add, *(Variable(f"{c}{n}", (name("M"), name("N"))) for c in "xy")) for n in range(7)]
    left, right = sums[0], sums[4]
    for s in sums[1:4]:
        left = apply(mul, left, s)
    for s in sums[5:]:
        right = apply(mul, right, s)
    statement = Statement(apply(mul, left, right), apply(mul, right, left))
    assert str(prove(statement)) == "no, not known: a sum of more than 64 products"
    assert prove(statement, derive) == Proof("axioms", False)


def test_the_limit_of_one_question_is_its_own(monkeypatch):
    """What the library did before, outside of any limit, counts for nobody."""
    statement = RULES.by_name["rows_of_columns"].statement
    monkeypatch.setattr(places, "OPERATIONS", 1000)
    assert "does not answer within its limit" in str(prove(statement))
    monkeypatch.setattr(places, "OPERATIONS", 200_000)
    monkeypatch.setattr(check, "_OPERATIONS", 20_000)
    for _ in range(200):
        Statement(statement.target, statement.source).assumed()
    x = nf.placeholder((7,), name="x")
    assert nf.compute((3, 2), lambda i, j: x[(5 * i + 3 * j) // 2]).shape == (3, 2)
    for _ in range(200):
        Statement(statement.target, statement.source).assumed()
    assert isinstance(prove(statement), Proof)


def test_a_variable_has_one_shape():
    add = CASES["twice"].families["add"]
    x, wide = Variable("x", (name("M"), name("N"))), Variable("x", (name("M"), name("L")))
    assert str(prove(Statement(apply(add, x, wide), x))) == "no, a variable has two shapes"


def test_a_term_that_is_too_large_is_refused():
    """Squared sixty times, it is a product of 2^60."""
    mul, x = CASES["twice"].families["mul"], Variable("x", (name("M"), name("N")))
    t = x
    for _ in range(60):
        t = apply(mul, t, t)
    found = prove(Statement(t, x))
    assert str(found) == "no, not known: a term that has more than 2000 parts when it is inlined"


@pytest.mark.parametrize(
    "axiom",
    [
        pytest.param(n, marks=[] if n == "relu_of_rows" else [pytest.mark.slow])
        for n in ("mul_commutative", "relu_of_rows", "added_matmuls", "matmul_of_add", "transpose_of_add")
    ],
)
def test_what_follows_from_properties_is_derived(axiom):
    assert derive(RULES.by_name[axiom].statement).ok


@pytest.mark.slow
def test_what_does_not_follow_is_not_derived():
    for rule in ("relu_of_add", "exp_of_padded", "symmetric_and_square"):
        assert str(derive(CASES[rule].statement, 2000)) == "no, no derivation was found within 2000 ms"


def test_a_derivation_needs_z3(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "z3", None)
    found = derive(RULES.by_name["add_commutative"].statement)
    assert str(found) == "no, z3-solver, which looks for a derivation, is not installed"
