"""Conditions on axes, as few as say the same; and what several paths through conditions have in common."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from neoflow import dtype as dt
from neoflow.expr import affine
from neoflow.expr.guards import Guards
from neoflow.expr.ir import Apply, Axis, Const, Expr, postorder

FEW = 4
"""So many conditions stay as they were written."""
_TURNED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


def is_index_condition(cond: Expr) -> bool:
    """Whether a condition is one on axes and constants alone."""
    return all(isinstance(n, (Apply, Axis, Const)) and n.dtype in (dt.INDEX, "bool") for n in postorder(cond))


def factored(paths: tuple[Guards, ...]) -> tuple[Guards, list[Guards]]:
    """The conditions that paths have in common, and for each path the others."""
    common = frozenset.intersection(*map(frozenset, paths))
    return tuple(c for c in paths[0] if c in common), [tuple(c for c in p if c not in common) for p in paths]


def together(guards: Guards, more: Guards) -> Guards:
    """The conditions of both; when they are more than `FEW`, those on one linear form as the interval that is left.

    i != 0 & i != 1 & i != 2 & i >= 2    ->    i >= 3
    """
    all_of = guards + tuple(c for c in more if all(c is not g for g in guards))
    if len(all_of) <= FEW or len(all_of) == len(guards):
        return all_of
    spans: dict[frozenset[tuple[Expr, int]], _Span] = {}
    places: list[Expr | _Span] = []
    for c in all_of:
        form = comparison(c)
        if form is None:
            places.append(c)
            continue
        terms, fn, value = form
        span = spans.get(terms)
        if span is None:
            span = spans[terms] = _Span(dict(terms), *affine.form_bounds((dict(terms), 0)))
            places.append(span)
        span.cut(fn, value)
    if any(span.low > span.high for span in spans.values()):
        return all_of
    return tuple(c for p in places for c in (p.conditions() if isinstance(p, _Span) else (p,)))


def bounds_under(form: affine.Linear, guards: Guards) -> tuple[int, int]:
    """What `affine.form_bounds` says, of the points that meet those of the guards that are on one axis alone."""
    spans: dict[Expr, _Span] = {a: _Span({a: 1}, *affine.bounds(a)) for a in form[0] if isinstance(a, Axis)}
    for g in guards:
        found = comparison(g)
        ((axis, factor),) = found[0] if found is not None and len(found[0]) == 1 else ((None, 0),)
        if found is not None and axis in spans and factor == 1:
            spans[axis].cut(*found[1:])
    low = high = form[1]
    for atom, factor in form[0].items():
        first, last = affine.bounds(atom)
        if atom in spans and spans[atom].low <= spans[atom].high:
            first, last = spans[atom].low, spans[atom].high
        low, high = low + min(factor * first, factor * last), high + max(factor * first, factor * last)
    return low, high


@dataclass
class _Span:
    """The values of a linear form that some conditions leave: `low` to `high`, without those `excluded`."""

    terms: dict[Expr, int]
    low: int
    high: int

    def __post_init__(self) -> None:
        self.whole = (self.low, self.high)
        self.excluded: set[int] = set()

    def cut(self, fn: str, value: int) -> None:
        """Leave what is `fn` a value."""
        if fn == "ne":
            self.excluded.add(value)
        if fn in ("ge", "gt", "eq"):
            self.low = max(self.low, value + (fn == "gt"))
        if fn in ("le", "lt", "eq"):
            self.high = min(self.high, value - (fn == "lt"))
        while self.low in self.excluded:
            self.low += 1
        while self.high in self.excluded and self.high >= self.low:
            self.high -= 1

    def conditions(self) -> Iterator[Expr]:
        left = affine.from_linear((self.terms, 0))
        if self.low == self.high:
            yield Apply("eq", (left, affine.integer(self.low)))
            return
        if self.low > self.whole[0]:
            yield Apply("ge", (left, affine.integer(self.low)))
        if self.high < self.whole[1]:
            yield Apply("lt", (left, affine.integer(self.high + 1)))
        for value in sorted(v for v in self.excluded if self.low < v < self.high):
            yield Apply("ne", (left, affine.integer(value)))


def comparison(cond: Expr) -> tuple[frozenset[tuple[Expr, int]], str, int] | None:
    """A condition as a linear form of axes, its first coefficient positive, a comparison, a number; else None."""
    if not (isinstance(cond, Apply) and cond.fn in _TURNED and cond.args[0].dtype == dt.INDEX):
        return None
    left, right = map(affine.linear, cond.args)
    terms, constant = affine.combine(left, right, -1)
    if not terms or not all(isinstance(a, Axis) for a in terms):
        return None
    if terms[min(terms, key=lambda a: a.uid)] > 0:
        return frozenset(terms.items()), cond.fn, -constant
    return frozenset((a, -k) for a, k in terms.items()), _TURNED[cond.fn], constant
