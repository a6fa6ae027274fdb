"""The most that an equation says: variables in place of what both sides have, and extents that need not be equal.

    add(relu(x), y) = add(y, relu(x))          ->    add(z, y) = add(y, z)
    matmul(x[A, B], w[B, C]) ... all [A, A]    ->    the shapes that the operators ask for, no more

Whether it still holds is asked of values over prime fields, and in the end of the prover.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from neoflow.superopt import prints
from neoflow.superopt.alphabet import EXTENTS, agreed
from neoflow.superopt.body import letters
from neoflow.superopt.forms import Form, form, name
from neoflow.superopt.prints import PRIMES
from neoflow.superopt.prove import Statement
from neoflow.superopt.term import Application, Term, Variable, applications, parts, variables

Pair = tuple[Term, Term]


def holds(pair: Pair, seed: int) -> bool:
    """Whether both sides have the same values over two prime fields."""
    known: dict[tuple[int, int], np.ndarray] = {}
    for p in PRIMES[:2]:
        a, b = (_value(t, seed, p, known) for t in pair)
        if a.shape != b.shape or (a != b).any():
            return False
    return True


def _value(term: Term, seed: int, p: int, known: dict[tuple[int, int], np.ndarray]) -> np.ndarray:
    for t in parts(term):
        if (id(t), p) in known:
            continue
        if isinstance(t, Variable):
            shape = [f.value(EXTENTS) for f in t.shape]
            known[id(t), p] = prints.random_values(shape, seed, t.name, p)[None]
        else:
            sizes = {s: f.value(EXTENTS) for s, f in t.sizes}
            known[id(t), p] = prints.value(t.family, sizes, [known[id(a), p] for a in t.args], p) % p
    return known[id(term), p]


def generalized(pair: Pair, seed: int) -> Pair:
    """With variables for what both sides have, and two for one that need not be the same, as long as it holds."""
    found = pair
    for k in itertools.count():
        better = next((p for p in _more_general(found, f"y{k}") if holds(p, seed)), None)
        if better is None:
            return found
        found = better
    raise AssertionError


def _more_general(pair: Pair, label: str) -> Iterator[Pair]:
    yield from _without_others(pair)
    source, target = ({str(a): a for a in applications(t)} for t in pair)
    common = [a for text, a in source.items() if text in target and all(str(t) != text for t in pair)]
    for a in sorted(common, key=lambda a: -len(parts(a))):
        v = Variable(label, a.shape)
        one, other = (_put(t, {str(a): v}) for t in pair)
        yield one, other
    for v in variables(pair[0]).values():
        places = [_places(t, v.name) for t in pair]
        if len(places[0]) == len(places[1]) == 2:
            new = Variable(label, v.shape)
            first = _at(pair[0], places[0][1], new)
            for place in places[1]:
                yield first, _at(pair[1], place, new)


def _without_others(pair: Pair) -> Iterator[Pair]:
    """Where each side reads a variable that the other one does not, so that neither matters: without one of them.

    first(rows(x, y)) = first(rows(x, z))    ->    first(rows(x, y)) = first(x)
    """
    read = [variables(t).keys() for t in pair]
    if read[0] <= read[1] or read[1] <= read[0]:
        return
    for k in (1, 0):
        for a in applications(pair[k]):
            if not variables(a).keys() <= read[1 - k]:
                for b in parts(a)[:-1]:
                    less = _in_place(pair[k], a, b)
                    if less is not None and less.shape == pair[k].shape:
                        yield (pair[0], less) if k else (less, pair[1])


def _in_place(t: Term, old: Application, new: Term) -> Term | None:
    """With another term in place of one, its shape aside, and sizes that follow; None where these disagree."""
    if t is old:
        return new
    if isinstance(t, Variable):
        return t
    args = [_in_place(a, old, new) for a in t.args]
    found = [a for a in args if a is not None]
    sizes = agreed(t.family, [a.shape for a in found]) if len(found) == len(args) else None
    if sizes is None:
        return None
    return Application(t.family, tuple((s, sizes.get(s, f)) for s, f in t.sizes), tuple(found))


def _put(t: Term, new: Mapping[str, Term]) -> Term:
    if str(t) in new:
        return new[str(t)]
    return t if isinstance(t, Variable) else replace(t, args=tuple(_put(a, new) for a in t.args))


def _places(t: Term, label: str) -> list[tuple[int, ...]]:
    """Where a variable is, by positions of arguments."""
    if isinstance(t, Variable):
        return [()] if t.name == label else []
    return [(n, *rest) for n, a in enumerate(t.args) for rest in _places(a, label)]


def _at(t: Term, place: tuple[int, ...], new: Term) -> Term:
    if not place:
        return new
    assert isinstance(t, Application)
    args = list(t.args)
    args[place[0]] = _at(args[place[0]], place[1:], new)
    return replace(t, args=tuple(args))


# ------------------------------------------------------------------------------------------------------------- shapes


def shaped_freely(pair: Pair) -> Pair | None:
    """The same with symbols of their own for all extents, equal only where operators ask for it; None where an extent
    would be a difference of others."""
    numbers = itertools.count()

    def fresh(symbols: tuple[str, ...]) -> dict[str, Form]:
        return {s: name(f"_{next(numbers)}") for s in symbols}

    known: dict[str, Variable] = {}
    for t in pair:
        for v in variables(t).values():
            known.setdefault(v.name, replace(v, shape=tuple(name(f"_{next(numbers)}") for _ in v.shape)))
    equations: list[tuple[Form, Form]] = []

    def free(t: Term) -> Term:
        if isinstance(t, Variable):
            return known[t.name]
        put = fresh(t.family.symbols)
        args = tuple(map(free, t.args))
        for slot, a in zip(t.family.slots, args, strict=True):
            equations.extend((f.put(put), g) for f, g in zip(slot, a.shape, strict=True))
        return Application(t.family, tuple(put.items()), args)

    sides = free(pair[0]), free(pair[1])
    equations += zip(sides[0].shape, sides[1].shape, strict=True)
    put = _solved(equations)
    if put is None:
        return None
    one, other = (_resized(t, put) for t in sides)
    return _lettered((one, other))


def _lettered(pair: Pair) -> Pair:
    """With symbols A, B ... in the order in which they are met."""
    one, other = pair
    names = [n for t in (one, other) for v in variables(t).values() for f in v.shape for n in f.names]
    names += [n for t in (one, other) for a in applications(t) for _, f in a.sizes for n in f.names]
    new = {n: name(letter) for n, letter in zip(dict.fromkeys(names), letters(), strict=False)}
    return _resized(one, new), _resized(other, new)


def tightened(pair: Pair, guards: str) -> Statement:
    """A statement under guards; those that say what a symbol is are put in its place."""
    left = []
    for part in guards.split(" and "):
        symbol, _, text = part.partition(" = ")
        found = _sum(text) if re.fullmatch(r"\w+ = [\w+\- ]+", part) and " or " not in guards else None
        if found is None or symbol in found.names:
            left.append(part)
        else:
            pair = _resized(pair[0], {symbol: found}), _resized(pair[1], {symbol: found})
            left = [_put_text(p, symbol, found) for p in left]
    return Statement(*pair, " and ".join(left))


def _put_text(part: str, symbol: str, found: Form) -> str:
    return re.sub(rf"\b{symbol}\b", f"({found})", part)


def _sum(text: str) -> Form | None:
    """A sum as the integer set library writes it; None for any other."""
    total = form(0)
    for sign, number, symbol in re.findall(r"([+-]?) ?(\d*)([A-Za-z_]\w*)?", text):
        if number or symbol:
            one = name(symbol).times(int(number or 1)) if symbol else form(int(number))
            total = total + one.times(-1 if sign == "-" else 1)
    return total


NAMES = ("x", "y", "z", "w", "v", "u", "t", "s")


def named(pair: Pair) -> Pair:
    """With variables x, y ... in the order in which they are met."""
    known = [*variables(pair[0]).values(), *variables(pair[1]).values()]
    labels = [*NAMES, *(f"x{n}" for n in range(len(known)))]
    new = {v.name: replace(v, name=label) for v, label in zip(dict.fromkeys(known), labels, strict=False)}
    return _with(pair[0], new), _with(pair[1], new)


def _with(t: Term, new: Mapping[str, Variable]) -> Term:
    return new[t.name] if isinstance(t, Variable) else replace(t, args=tuple(_with(a, new) for a in t.args))


def _solved(equations: list[tuple[Form, Form]]) -> dict[str, Form] | None:
    """Symbols by others, such that all equations hold."""
    put: dict[str, Form] = {}
    left = equations
    while left:
        rest = []
        for a, b in left:
            a, b = a.put(put), b.put(put)
            gap = a - b
            if gap == form(0):
                continue
            found = _one(gap)
            if found is None:
                rest.append((a, b))
                continue
            put = {s: f.put(dict([found])) for s, f in put.items()} | dict([found])
        if len(rest) == len(left):
            return None
        left = rest
    return put


def _one(gap: Form) -> tuple[str, Form] | None:
    """A symbol that is a sum of others where a form is 0."""
    for sign in (1, -1):
        for atom, k in gap.terms:
            rest = gap.times(-sign) + name(atom).times(sign * k) if isinstance(atom, str) and k == sign else None
            if rest is not None and rest.constant >= 0 and all(c > 0 for _, c in rest.terms):
                return str(atom), rest
    whole = [k for _, k in gap.terms]
    if len(whole) == 2 and whole[0] == -whole[1] and not gap.constant:
        return str(gap.terms[0][0]), name(str(gap.terms[1][0]))
    return None


def _resized(t: Term, put: Mapping[str, Form]) -> Term:
    if isinstance(t, Variable):
        return replace(t, shape=tuple(f.put(put) for f in t.shape))
    sizes = tuple((s, f.put(put)) for s, f in t.sizes)
    return Application(t.family, sizes, tuple(_resized(a, put) for a in t.args))
