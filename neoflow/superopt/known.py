"""Rules that follow from the properties of operators, for whatever a program is made of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace

from neoflow.superopt.body import Family
from neoflow.superopt.derive import exchange
from neoflow.superopt.properties import each_property
from neoflow.superopt.prove import Proof, Statement, prove
from neoflow.superopt.rule import Rule
from neoflow.superopt.term import Application, Term, Variable


def rules_about(families: Iterable[Family]) -> Iterator[Rule]:
    """A proved rule for everything that `properties` says of each family, and for each pointwise one beside each that
    moves elements. Operators have names of their own, so that rules of any programs go into one file."""
    known = {f.key: f for f in families}
    for f in known.values():
        for p in each_property(f):
            for n, (statement, proof) in enumerate(zip(p.statements, p.proofs, strict=True)):
                about = "_".join(str(part) for slot in p.slots for part in slot if part is not None)
                parts = (label_of(f), p.kind.replace(" ", "_"), about, str(n) if n else "")
                label = "_".join(part for part in parts if part)
                yield Rule(label, labelled(statement), proof)
    for moving in known.values():
        for f in known.values():
            found = exchange(f, moving)
            answer = prove(found) if found is not None else None
            if found is not None and isinstance(answer, Proof):
                yield Rule(f"{label_of(f)}_beside_{label_of(moving)}", labelled(found), answer)


def labelled(statement: Statement) -> Statement:
    """A statement whose operators are called by what they are, the same in every process."""
    return replace(statement, source=_labelled(statement.source), target=_labelled(statement.target))


def label_of(f: Family) -> str:
    """A name, and eight digits of the hash of what the family is."""
    return f"{f.name}_{hashlib.sha256(f.key.encode()).hexdigest()[:8]}"


def _labelled(term: Term) -> Term:
    if isinstance(term, Variable):
        return term
    family, letters = replace(term.family.canonical, name=label_of(term.family)), term.family.letters
    sizes = {letters[s]: f for s, f in term.sizes}
    return Application(family, tuple((s, sizes[s]) for s in family.symbols), tuple(map(_labelled, term.args)))
