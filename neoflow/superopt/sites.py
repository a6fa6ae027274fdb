"""Where rules apply in a graph: both directions, arguments in any order an operator does not mind, sizes that follow
from guards."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from neoflow.expr.tensor import Compute
from neoflow.graph import Editor, Match
from neoflow.graph.rewrite import Site
from neoflow.superopt import places
from neoflow.superopt.body import Family
from neoflow.superopt.forms import Form, name
from neoflow.superopt.prove import Proof, Statement, prove
from neoflow.superopt.rewrite import Substitution, bound
from neoflow.superopt.rule import Rule
from neoflow.superopt.term import Application, Term, Variable, applications, parts, variables

ORDERS = 8
"""Orders of arguments of one source: three operators that do not mind have as many."""


def both_ways(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Proved rules, those from right to left, and each with the arguments of its source in other orders.

    Left out is what would apply everywhere without end: a source that is a variable.
    """
    symmetric: dict[str, Proof | None] = {}
    found = [r for rule in rules if rule.proof is not None for r in (rule, rule.reversed()) if r is not None]
    whole = [r for r in found if isinstance(r.source, Application)]
    return tuple(o for rule in whole for o in _orders(rule, symmetric))


def _orders(rule: Rule, symmetric: dict[str, Proof | None]) -> Iterator[Rule]:
    """A rule and, as far as they match elsewhere, those whose sources have their arguments in other orders."""
    yield rule
    where = [a for a in applications(rule.source) if swaps(a.family, symmetric) is not None]
    seen = {_shape_of(rule.source)}
    choices = itertools.islice(itertools.product((False, True), repeat=len(where)), 1, ORDERS)
    for n, chosen in enumerate(choices):
        turned = {id(a) for a, is_turned in zip(where, chosen, strict=True) if is_turned}
        source = _turned(rule.source, turned)
        if (shape := _shape_of(source)) in seen:
            continue
        seen.add(shape)
        assert rule.proof is not None
        proofs = [p for a in where if id(a) in turned and (p := symmetric[a.family.key]) is not None]
        exact = rule.is_exact and all(p.is_exact for p in proofs)
        statement = replace(rule.statement, source=source)
        yield Rule(f"{rule.name}_order{n + 1}", statement, replace(rule.proof, is_exact=exact))


def swaps(f: Family, known: dict[str, Proof | None]) -> Proof | None:
    """The proof that an operator of two arguments does not mind their order, if there is one."""
    if f.key not in known:
        known[f.key] = None
        if len(f.slots) == 2 and f.slots[0] == f.slots[1]:
            sizes = tuple((s, name(s)) for s in f.symbols)
            x, y = (Variable(label, shape) for label, shape in zip("xy", f.slots, strict=True))
            proof = prove(Statement(Application(f, sizes, (x, y)), Application(f, sizes, (y, x))))
            known[f.key] = proof if isinstance(proof, Proof) else None
    return known[f.key]


def _turned(term: Term, which: set[int]) -> Term:
    made: dict[int, Term] = {}
    for t in parts(term):
        made[id(t)] = t
        if isinstance(t, Application):
            args = tuple(made[id(a)] for a in t.args)
            made[id(t)] = replace(t, args=args[::-1] if id(t) in which else args)
    return made[id(term)]


def _shape_of(term: Term) -> str:
    """A source as text, its variables in the order in which they are met and so whatever they are called."""
    order = {label: f"v{n}" for n, label in enumerate(_met(term))}
    shapes = {label: v.shape for label, v in variables(term).items()}

    def text(t: Term) -> str:
        if isinstance(t, Variable):
            return order[t.name]
        return f"{t.family.key}({', '.join(map(text, t.args))})"

    return f"{text(term)} {[(order[n], len(s)) for n, s in shapes.items()]}"


def _met(term: Term) -> list[str]:
    if isinstance(term, Variable):
        return [term.name]
    return list(dict.fromkeys(n for a in term.args for n in _met(a)))


class Sites:
    """Finds where rules are legal. What is known of a compute stays while it and all that it needs stay: after a
    substitution only what follows from it is looked at again."""

    def __init__(self, rules: Iterable[Rule]):
        self.rules = both_ways(rules)
        self._known: dict[int, tuple[Compute, tuple[Site, ...]]] = {}
        self._sizes: dict[tuple[str, tuple[tuple[str, int], ...]], tuple[tuple[str, int], ...] | None] = {}
        self.looked_at = 0

    def at(self, editor: Editor, t: Compute) -> tuple[Site, ...]:
        """Every site at a compute of an editor in which nothing was replaced yet."""
        if t.uid not in self._known:
            self.looked_at += 1
            self._known[t.uid] = t, tuple(p for rule in self.rules if (p := self._site(editor, t, rule)) is not None)
        return self._known[t.uid][1]

    def forget(self, least: int) -> None:
        """Keep only what was found of the youngest computes, so many."""
        for uid in list(self._known)[: max(0, len(self._known) - least)]:
            del self._known[uid]

    def _site(self, editor: Editor, t: Compute, rule: Rule) -> Site | None:
        found = bound(rule, editor, t, {})
        if found is None:
            return None
        given = self._given(rule, found.sizes)
        if given is None:
            return None
        rewrite, match = Substitution(rule.name, rule, given), Match(found.computes)
        verdict = rewrite.legal(editor, match)
        return Site(rewrite, match, verdict.reason) if verdict.ok else None

    def _given(self, rule: Rule, sizes: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...] | None:
        """What the guards say of sizes that a source leaves open; None where they leave a choice."""
        left = [s for s in rule.statement.symbols if s not in dict(sizes)]
        if not left:
            return ()
        key = rule.name, sizes
        if key not in self._sizes:
            self._sizes[key] = _determined(rule.statement, dict(sizes), left)
        return self._sizes[key]


def _determined(statement: Statement, sizes: Mapping[str, int], left: list[str]) -> tuple[tuple[str, int], ...] | None:
    here = statement.assumed() & places.all_of(_is(s, n) for s, n in sizes.items())
    found = places.one_of(here)
    if found is None or any(s not in found for s in left):
        return None
    only = places.all_of(_is(s, found[s]) for s in left)
    return tuple((s, found[s]) for s in left) if here.is_subset(only) else None


def _is(symbol: str, n: int) -> places.Places:
    equal: Form = name(symbol) - n
    return places.zero(equal)
