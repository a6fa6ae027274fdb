"""The rules that were generated and are kept: proved again, and beside the axioms of TASO."""

import random

import pytest

from neoflow.superopt import Rule, generated, hunt, proved, read_rules, standard, standard_alphabet
from neoflow.superopt.implied import Known, tree
from neoflow.superopt.prove import Proof
from neoflow.superopt.sites import swaps

RULES = generated()
AXIOMS = 44
COVERED = 42
"""The first rules of `standard.txt` are TASO's axioms."""


def test_text():
    assert read_rules(RULES.to_text()).to_text() == RULES.to_text()
    assert all(r.proof is not None for r in RULES.rules)


@pytest.mark.parametrize("count", [4, pytest.param(10**6, marks=pytest.mark.slow)])
def test_proved_again(count):
    """With the same guards and tiers; no counterexample at sizes that were not tried before."""
    some = random.Random(0).sample(RULES.rules, min(count, len(RULES.rules)))
    for rule in some:
        again = proved(rule, 1, 6)
        assert isinstance(again, Rule) and str(again) == str(rule), f"{rule}\n{again}"
        assert hunt(rule.statement, 2, 6) is None


def covered(rules) -> tuple[list[str], list[str], list[str]]:
    """Axioms that follow from rules in up to three steps, others, and those of operators that are not generated of."""
    alphabet = standard_alphabet()
    keys = {f.key for f in (*alphabet.operators, *(c.family for c in alphabet.constants))}
    proofs: dict[str, Proof | None] = {}
    known = Known(frozenset(f"{f.name}:{len(f.shape)}" for f in alphabet.operators if swaps(f, proofs) is not None))
    for rule in rules:
        known.add(tree(rule.source), tree(rule.target))
    yes, no, foreign = [], [], []
    for axiom in standard().rules[:AXIOMS]:
        if any(f.key not in keys for f in axiom.families.values()):
            foreign.append(axiom.name)
        else:
            (yes if known.follows(tree(axiom.source), tree(axiom.target)) else no).append(axiom.name)
    return yes, no, foreign


@pytest.mark.slow
def test_axioms_of_taso():
    """What generation finds by itself of what TASO's authors wrote down."""
    yes, no, foreign = covered(RULES.rules)
    print(f"{len(yes)} of {AXIOMS} found or implied: {', '.join(yes)}")
    print(f"not: {', '.join(no)}; of other operators: {', '.join(foreign)}")
    assert len(yes) >= COVERED and len(yes) + len(no) + len(foreign) == AXIOMS
