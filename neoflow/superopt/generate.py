"""Rules that nobody states: all graphs of few operators over an alphabet, those with equal fingerprints proved equal.

Graphs are made bottom up, of variables of given shapes. One that has the fingerprint of an earlier one is a candidate
for a rule, and nothing is made of it: what would follow is implied by the smaller rule. Candidates that differ in the
names of variables are one. Source: Jia et al., TASO, 2019, section 3; there equal shapes are all that is looked at.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from neoflow.errors import GraphError
from neoflow.superopt import prints
from neoflow.superopt.body import Family
from neoflow.superopt.forms import Form, name
from neoflow.superopt.prove import Proof, Statement
from neoflow.superopt.rule import Rule
from neoflow.superopt.sites import swaps
from neoflow.superopt.stored import proved
from neoflow.superopt.term import Application, Term, Variable, applications, apply, variables
from neoflow.trace import tick

EXTENTS = {"A": 2, "B": 3, "C": 5, "D": 7}
"""What the symbols of shapes are where fingerprints are taken: distinct primes."""
SHAPES = ("A B", "A B", "A B", "B C", "B C", "C D", "C B")
"""Of the variables: three of one, and what products and concatenations need beside it."""
MOST = 2_000_000
"""Graphs that are kept: some 2 GB."""


@dataclass(frozen=True)
class Made:
    """A graph of an alphabet: operators are those of all its parts, each once."""

    term: Term
    values: prints.Values
    operators: frozenset[int]


@dataclass(frozen=True)
class Generated:
    """rules: proved. graphs: made at all; distinct: by fingerprint; candidates: pairs of equal ones. Of these are left:
    renamed, where names of variables do not count; ordered, where the order of arguments does not that an operator does
    not mind; general, which are no instance of another. refused: not proved. stopped: why it ended."""

    rules: tuple[Rule, ...]
    graphs: int
    distinct: int
    candidates: int
    renamed: int
    ordered: int
    general: int
    refused: int
    stopped: str

    def __str__(self) -> str:
        return (
            f"{self.graphs} graphs, {self.distinct} different ones, {self.candidates} pairs, {self.renamed} up to "
            f"names, {self.ordered} up to the order of arguments, {self.general} that are no instances of others, "
            f"{len(self.rules)} proved and {self.refused} refused: {self.stopped}"
        )


def generate(
    alphabet: Sequence[Family], operators: int, seconds: float | None = None, seed: int = 0, most: int = MOST
) -> Generated:
    """The rules between graphs of so many operators. seconds: for making graphs, and again for proofs. most: graphs
    that are kept."""
    until = None if seconds is None else time.monotonic() + seconds
    levels = [[_variable(n, shape, seed) for n, shape in enumerate(SHAPES)]]
    first = {prints.digest(m.values): m for m in levels[0]}
    pairs: dict[str, tuple[Term, Term]] = {}
    graphs, candidates, stopped = 0, 0, "all graphs were made"
    for count in range(1, operators + 1):
        levels.append([])
        for made in _made(alphabet, levels, count, graphs):
            tick()
            graphs += 1
            key = prints.digest(made.values)
            if key not in first:
                first[key] = made
                levels[count].append(made)
            else:
                candidates += 1
                pairs.setdefault(_renamed(made.term, first[key].term), (made.term, first[key].term))
            if len(first) == most or (until is not None and time.monotonic() > until):
                stopped = f"the limit of {most} graphs" if len(first) == most else "the time is up"
                break
        if stopped != "all graphs were made":
            break
    ordered = _ordered(pairs.values())
    general = _general(ordered)
    until = None if seconds is None else time.monotonic() + seconds
    rules: list[Rule] = []
    refused = 0
    for n, (source, target) in enumerate(general):
        tick()
        found = proved(Rule(f"generated_{n}", Statement(source, target)), seed, 4)
        if isinstance(found, Rule):
            rules.append(found)
        else:
            refused += 1
        if until is not None and time.monotonic() > until and n + 1 < len(general):
            stopped = f"{stopped}; {len(general) - n - 1} were not tried to prove, as the time is up"
            break
    counts = (graphs, len(first), candidates, len(pairs), len(ordered), len(general))
    return Generated(tuple(rules), *counts, refused, stopped)


def _variable(number: int, shape: str, seed: int) -> Made:
    v = Variable(f"x{number}", tuple(map(name, shape.split())))
    return Made(v, prints.random_values([EXTENTS[s] for s in shape.split()], seed, v.name), frozenset())


def _made(alphabet: Sequence[Family], levels: Sequence[Sequence[Made]], count: int, begin: int) -> Iterator[Made]:
    """Every application of `count` operators to different graphs of fewer."""
    fewer = [m for level in levels[:count] for m in level]
    number = itertools.count(begin)
    for f in alphabet:
        for args in itertools.product(fewer, repeat=len(f.slots)):
            operators = frozenset().union(*(a.operators for a in args))
            if len(operators) != count - 1:
                continue
            for sizes in _sizes(f, [a.term for a in args]):
                term = apply(f, *(a.term for a in args), **sizes)
                numbers = {s: form.value(EXTENTS) for s, form in term.sizes}
                try:
                    values = prints.value(f, numbers, [a.values for a in args])
                except GraphError:
                    continue
                yield Made(term, values, operators | {next(number)})


def _sizes(f: Family, args: Sequence[Term]) -> Iterator[dict[str, Form]]:
    """What symbols can be that arguments leave open: the parts that an extent of one is put together of. None where
    shapes do not agree."""
    found: dict[str, Form] = {}
    for slot, arg in zip(f.slots, args, strict=True):
        if len(slot) != len(arg.shape):
            return
        for symbol, there in zip(slot, arg.shape, strict=True):
            if symbol.alone is None or found.setdefault(symbol.alone, there) != there:
                return
    left = [s for s in f.symbols if s not in found]
    if not left:
        yield {}
        return
    whole = args[0].shape[0] if args and args[0].shape else None
    if whole is None or len(whole.terms) != 2 or whole.constant:
        return
    parts = [Form(((atom, k),)) for atom, k in whole.terms]
    begin = [s for s in left if s in f.offsets]
    for a, b in (parts, parts[::-1]):
        if len(left) - len(begin) == 1 and len(begin) <= 1:
            yield {s: b if s in begin else a for s in left}


def _renamed(source: Term, target: Term) -> str:
    """Both sides as text, variables in the order in which they are met."""
    names: dict[str, str] = {}

    def text(t: Term) -> str:
        if isinstance(t, Variable):
            return names.setdefault(t.name, f"v{len(names)}[{len(t.shape)}]")
        assert isinstance(t, Application)
        told = ",".join(f"{s}={f}" for s, f in t.told.items())
        return f"{t.family.key}{told}({', '.join(map(text, t.args))})"

    return f"{text(source)} = {text(target)}"


Pair = tuple[Term, Term]


def _ordered(pairs: Iterable[Pair]) -> list[Pair]:
    """Pairs that are left where arguments that may be swapped are in one order, and those that say that they may."""
    symmetric: dict[str, Proof | None] = {}
    found: dict[str, Pair] = {}
    for source, target in pairs:
        sides = _sorted(source, symmetric), _sorted(target, symmetric)
        if str(sides[0]) != str(sides[1]):
            found.setdefault(_renamed(*sides), sides)
        elif len(applications(source)) == 1:
            found.setdefault(_renamed(source, target), (source, target))
    return list(found.values())


def _sorted(term: Term, symmetric: dict[str, Proof | None]) -> Term:
    if isinstance(term, Variable):
        return term
    args = tuple(_sorted(a, symmetric) for a in term.args)
    if swaps(term.family, symmetric) is not None:
        args = tuple(sorted(args, key=str))
    return replace(term, args=args)


def _general(pairs: Sequence[Pair]) -> list[Pair]:
    """Pairs that are no instances of others: those of many variables and few operators are looked at first."""
    found: list[Pair] = []
    for pair in sorted(pairs, key=lambda p: (-len(variables(p[0])), len(applications(p[0])))):
        if not any(_is_instance(pair, other) or _is_instance(pair, other[::-1]) for other in found):
            found.append(pair)
    return sorted(found, key=lambda p: len(applications(p[0])))


def _is_instance(pair: Pair, general: Pair) -> bool:
    bound: dict[str, Term] = {}
    return all(_fits(g, t, bound) for g, t in zip(general, pair, strict=True))


def _fits(general: Term, t: Term, bound: dict[str, Term]) -> bool:
    if isinstance(general, Variable):
        return len(general.shape) == len(t.shape) and bound.setdefault(general.name, t) == t
    if isinstance(t, Variable) or general.family is not t.family or general.told.keys() != t.told.keys():
        return False
    return all(_fits(g, a, bound) for g, a in zip(general.args, t.args, strict=True))
