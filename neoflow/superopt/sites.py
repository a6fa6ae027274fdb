"""Where rules apply in a graph: both directions, arguments in any order an operator does not mind, sizes that follow
from guards."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph import Editor, Match
from neoflow.graph.rewrite import Site
from neoflow.superopt import places
from neoflow.superopt.body import Family
from neoflow.superopt.forms import Form, name
from neoflow.superopt.prove import Proof, Statement, prove
from neoflow.superopt.rewrite import Substitution, bound, sizes_of
from neoflow.superopt.rule import Rule
from neoflow.superopt.term import Application, Term, Variable, applications, parts, variables
from neoflow.verdict import Verdict

ORDERS = 8
"""Orders of arguments of one source: three operators that do not mind have as many."""


def both_ways(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Proved rules, those from right to left, and each with the arguments of its source in other orders.

    Left out is what would apply everywhere without end: a source that is a variable; what says no more than that an
    operator is symmetric, since all orders are tried anyhow; and what another rule says in other names.
    """
    symmetric: dict[str, Proof | None] = {}
    found = [r for rule in rules if rule.proof is not None for r in (rule, rule.reversed()) if r is not None]
    whole = [r for r in found if isinstance(r.source, Application) and not _only_swaps(r)]
    once = {_said(r): r for r in reversed([o for rule in whole for o in _orders(rule, symmetric)])}
    return tuple(reversed(once.values()))


def _only_swaps(rule: Rule) -> bool:
    a, b = rule.source, rule.target
    if not (isinstance(a, Application) and isinstance(b, Application) and a.family.key == b.family.key):
        return False
    return len(a.args) == 2 and a.args == b.args[::-1] and all(isinstance(v, Variable) for v in a.args)


def _said(rule: Rule) -> str:
    """A rule as text, its variables and symbols in the order in which they are met and so whatever they are called."""
    order = {label: f"v{n}" for n, label in enumerate(_met(rule.source))}
    known = variables(rule.source)
    forms = [f for label in order for f in known[label].shape]
    forms += [f for t in (rule.source, rule.target) for a in applications(t) for _, f in a.sizes]
    new = {s: f"s{n}" for n, s in enumerate(dict.fromkeys(s for f in forms for s in f.names))}
    put = {s: name(other) for s, other in new.items()}

    def text(t: Term) -> str:
        if isinstance(t, Variable):
            return order.get(t.name, t.name)
        sizes = dict(t.sizes)
        at = [str(sizes[s].put(put)) for s in t.family.symbols]
        return f"{t.family.key} at {at} ({', '.join(map(text, t.args))})"

    shapes = [str([str(f.put(put)) for f in known[label].shape]) for label in order]
    guards = re.sub(r"[A-Za-z_]\w*", lambda m: new.get(m[0], m[0]), rule.guards)
    return f"{shapes} {text(rule.source)} -> {text(rule.target)} where {guards}"


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


@dataclass(frozen=True)
class Around:
    """What is near a compute, as far as sources of rules reach. key: equal where the same is read in the same way;
    tensors: in an order that all of one key share, the compute first."""

    key: tuple[object, ...]
    tensors: tuple[Tensor, ...]


def around(editor: Editor, t: Compute, depth: int) -> Around:
    """What a compute reads itself, and what that reads, so many steps away."""
    number, tensors = {t.uid: 0}, [t]
    found: list[Tensor] = list(tensors)
    key: list[object] = []
    layer: list[Tensor] = [t]
    for _ in range(depth):
        following: list[Tensor] = []
        for near in layer:
            if not isinstance(near, Compute):
                key.append((near.shape, near.dtype))
                continue
            places = []
            for i in editor.inputs(near):
                if i.uid not in number:
                    number[i.uid] = len(found)
                    found.append(i)
                    following.append(i)
                places.append(number[i.uid])
            key.append((near.definition, *places))
        layer = following
    key += [(far.shape, far.dtype) for far in layer]
    return Around(tuple(key), tuple(found))


Known = tuple[Substitution, tuple[int, ...], str]
"""A site: the rewrite, which of the tensors around it binds, and why it is legal."""


class Sites:
    """Finds where rules are legal. What is around a compute says it: after a substitution only that is looked at which
    is as near to it as sources of rules reach, and is not as it was somewhere before."""

    def __init__(self, rules: Iterable[Rule]):
        self.rules = both_ways(rules)
        self.depth = max((_depth(rule.source) for rule in self.rules), default=0)
        self._known: dict[tuple[object, ...], tuple[Known, ...]] = {}
        self._rooted: dict[Definition, tuple[Rule, ...]] = {}
        self._sizes: dict[tuple[str, tuple[tuple[str, int], ...]], tuple[tuple[str, int], ...] | None] = {}
        self._verdicts: dict[tuple[int, tuple[tuple[str, int], ...]], Verdict] = {}
        """by the place of the rule in memory, and sizes"""
        self.looked_at = 0

    def at(self, editor: Editor, t: Compute) -> tuple[Site, ...]:
        """Every site at a compute of an editor in which nothing was replaced yet."""
        here = around(editor, t, self.depth)
        if here.key not in self._known:
            self.looked_at += 1
            number = {tensor.uid: n for n, tensor in enumerate(here.tensors)}
            sites = [p for rule in self._rules_at(t.definition) if (p := self._site(editor, t, rule)) is not None]
            self._known[here.key] = tuple(
                (s.rewrite, tuple(number[c.uid] for c in s.match.tensors), s.reason)
                for s in sites
                if isinstance(s.rewrite, Substitution)
            )
        return tuple(
            Site(rewrite, Match(_computes(here.tensors, at)), reason) for rewrite, at, reason in self._known[here.key]
        )

    def forget(self, least: int) -> None:
        """Keep only what was found last, so much."""
        for key in list(self._known)[: max(0, len(self._known) - least)]:
            del self._known[key]

    def _rules_at(self, definition: Definition) -> tuple[Rule, ...]:
        """The rules whose source is an operator of this definition, whatever that reads."""
        if definition not in self._rooted:
            roots = ((rule, rule.source) for rule in self.rules)
            self._rooted[definition] = tuple(
                rule
                for rule, root in roots
                if isinstance(root, Application) and sizes_of(root.family, definition) is not None
            )
        return self._rooted[definition]

    def _site(self, editor: Editor, t: Compute, rule: Rule) -> Site | None:
        found = bound(rule, editor, t, {})
        if found is None:
            return None
        given = self._given(rule, found.sizes)
        if given is None:
            return None
        rewrite, match = Substitution(rule.name, rule, given), Match(found.computes)
        key = id(rule), found.sizes
        if key not in self._verdicts:
            self._verdicts[key] = rewrite.legal(editor, match)
        verdict = self._verdicts[key]
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


def _computes(tensors: Sequence[Tensor], at: Iterable[int]) -> tuple[Compute, ...]:
    return tuple(t for n in at if isinstance(t := tensors[n], Compute))


def _depth(term: Term) -> int:
    """How many operators of a term are one inside another."""
    return 0 if isinstance(term, Variable) else 1 + max(map(_depth, term.args), default=0)


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
