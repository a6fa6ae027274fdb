"""Rules made wrong on purpose: a swapped axis, a wrong split, a dropped guard, a padding off by one.

Each kind changes one place of the target, or one guard, so that the rule says something else. Half of them are of
square tensors, where shapes tell nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from neoflow.superopt import Application, Rule, Statement, Term, Variable, name
from neoflow.superopt.body import Body, Call, Choose, Family, Holds, Number, Over, Slot, inner
from neoflow.superopt.term import applications, unified, variables

Change = Callable[[random.Random, Rule], Rule | None]
Edit = Callable[[Application], Application | None]


def sabotaged(rules: list[Rule], seed: int, count: int) -> Iterator[tuple[str, Rule]]:
    """Different rules that are wrong on purpose, with the kind of the change."""
    chance, seen = random.Random(seed), {str(r.statement) for r in rules}
    while count:
        kind = chance.choice(sorted(KINDS))
        rule = chance.choice([r for r in rules if r.guards] if kind == "a dropped guard" else rules)
        changed = KINDS[kind](chance, square(rule) if chance.random() < 0.5 else rule)
        if changed is not None and str(changed.statement) not in seen:
            seen.add(str(changed.statement))
            count -= 1
            yield kind, changed


def swapped_axis(chance: random.Random, rule: Rule) -> Rule | None:
    """Two indices of a read stand in each other's place."""

    def swap(b: Body) -> Body | None:
        if not isinstance(b, Slot) or len(b.indices) < 2:
            return None
        i, j = chance.sample(range(len(b.indices)), 2)
        indices = list(b.indices)
        indices[i], indices[j] = indices[j], indices[i]
        return replace(b, indices=tuple(indices))

    return _in_family(chance, rule, swap)


def wrong_split(chance: random.Random, rule: Rule) -> Rule | None:
    """A part begins, or ends, one later than it should; or parts are in the wrong order."""

    def move(b: Body) -> Body | None:
        if not isinstance(b, Choose) or not isinstance(b.condition, Holds) or b.condition.is_equal:
            return None
        return replace(b, condition=replace(b.condition, form=b.condition.form + chance.choice((-1, 1))))

    if chance.random() < 0.5:
        return _in_family(chance, rule, move)
    return _in_application(chance, rule, lambda a: _reversed(a) if a.family.name in PARTS else None)


def dropped_guard(chance: random.Random, rule: Rule) -> Rule | None:
    """One of the guards is not there, or asks for less."""
    if not rule.guards:
        return None
    guards = rule.guards.split(" and ")
    n = chance.randrange(len(guards))
    weaker = [g for a, b in WEAKER for g in [guards[n].replace(a, b)] if g != guards[n]]
    kept = [*guards[:n], *chance.sample(weaker, min(1, len(weaker))), *guards[n + 1 :]]
    if chance.random() < 0.5:
        kept = guards[:n] + guards[n + 1 :]
    return replace(rule, statement=replace(rule.statement, guards=" and ".join(kept)), proof=None)


WEAKER = ((" = ", " >= "), (" = ", " <= "), ("mod 2 = 0", "mod 3 = 0"), ("mod 2 = 0", "mod 2 = 1"), (">= 2", ">= 1"))


def off_by_one(chance: random.Random, rule: Rule) -> Rule | None:
    """A window begins one element beside where it should."""

    def shift(b: Body) -> Body | None:
        if not isinstance(b, Slot) or not b.indices:
            return None
        d = chance.randrange(len(b.indices))
        if not b.indices[d].names or b.indices[d].alone:
            return None
        moved = b.indices[d] + chance.choice((-1, 1))
        return replace(b, indices=(*b.indices[:d], moved, *b.indices[d + 1 :]))

    return _in_family(chance, rule, shift)


def wrong_number(chance: random.Random, rule: Rule) -> Rule | None:
    """A padded value, or the one of a kernel of constants, is another."""

    def other(b: Body) -> Body | None:
        return Number(b.value + 1.0) if isinstance(b, Number) and abs(b.value) < 9 else None

    return _in_family(chance, rule, other)


def wrong_function(chance: random.Random, rule: Rule) -> Rule | None:
    """Another function, or another reduction."""

    def other(b: Body) -> Body | None:
        if isinstance(b, Call):
            return replace(b, fn={"add": "sub", "mul": "add", "relu": "abs"}.get(b.fn, "sub"))
        return replace(b, op={"sum": "max", "max": "min"}[b.op]) if isinstance(b, Over) else None

    return _in_family(chance, rule, other)


def swapped_arguments(chance: random.Random, rule: Rule) -> Rule | None:
    """Two arguments in each other's place, where that is another operator."""
    return _in_application(chance, rule, lambda a: None if a.family.name in SYMMETRIC else _reversed(a))


KINDS: dict[str, Change] = {
    "a swapped axis": swapped_axis,
    "a wrong split": wrong_split,
    "a dropped guard": dropped_guard,
    "a padding off by one": off_by_one,
    "a wrong number": wrong_number,
    "a wrong function": wrong_function,
    "swapped arguments": swapped_arguments,
}
PARTS = ("rows", "columns", "batches", "channels")
SYMMETRIC = ("add", "mul", "times", "add4")


def _stated(rule: Rule, source: Term, target: Term) -> Rule:
    return Rule(rule.name, Statement(source, target, rule.guards))


def square(rule: Rule) -> Rule:
    """The rule where all extents of variables are equal, so that shapes do not tell its axes apart."""
    alone = {f.alone for v in variables(rule.source).values() for f in v.shape} - {None}
    put = {s: name("N") for s in alone if s is not None}

    def sized(t: Term) -> Term:
        if isinstance(t, Variable):
            return Variable(t.name, tuple(f.put(put) for f in t.shape))
        return Application(t.family, tuple((s, f.put(put)) for s, f in t.sizes), tuple(map(sized, t.args)))

    return rule if rule.guards else _stated(rule, sized(rule.source), sized(rule.target))


def _in_family(chance: random.Random, rule: Rule, change: Callable[[Body], Body | None]) -> Rule | None:
    """The rule with one body of an operator of its target changed."""

    def edit(a: Application) -> Application | None:
        parts = list(inner(a.family.body))
        chance.shuffle(parts)
        for part in parts:
            new = change(part)
            if new is not None and new != part:
                family = replace(a.family, body=_replaced(a.family.body, part, new), name=f"{a.family.name}_changed")
                return _refamilied(a, family)
        return None

    return _in_application(chance, rule, edit)


def _refamilied(a: Application, family: Family) -> Application | None:
    """An application of a changed family, which may have lost symbols."""
    known = dict(a.sizes)
    return Application(family, tuple((s, known[s]) for s in family.symbols), a.args)


def _in_application(
    chance: random.Random, rule: Rule, change: Callable[[Application], Application | None]
) -> Rule | None:
    places = list(applications(rule.target))
    chance.shuffle(places)
    for a in places:
        new = change(a)
        if new is not None:
            return _stated(rule, rule.source, _instead(rule.target, a, new))
    return None


def _instead(term: Term, old: Application, new: Application) -> Term:
    if term is old:
        return new
    return term if isinstance(term, Variable) else replace(term, args=tuple(_instead(a, old, new) for a in term.args))


def _reversed(a: Application) -> Application | None:
    """The arguments the other way round, and what their shapes say."""
    if len(a.args) != 2 or len(a.args[0].shape) != len(a.args[1].shape) or a.args[0] == a.args[1]:
        return None
    found = unified(a.family.slots, [x.shape for x in a.args[::-1]])
    return replace(a, sizes=tuple((s, found.get(s, f)) for s, f in a.sizes), args=a.args[::-1])


def _replaced(b: Body, old: Body, new: Body) -> Body:
    if b is old:
        return new
    match b:
        case Call():
            return replace(b, args=tuple(_replaced(a, old, new) for a in b.args))
        case Choose():
            return replace(b, then=_replaced(b.then, old, new), other=_replaced(b.other, old, new))
        case Over():
            return replace(b, body=_replaced(b.body, old, new))
    return b
