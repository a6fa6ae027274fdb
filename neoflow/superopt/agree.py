"""Where two nested sums of products agree: products are matched by bijections of their bound axes, for all extents.

    sum[k<A+B](x[i, k] * w[k, j])  at k < A          sum[k<A](x[i, k] * w[k, j])
    sum[k<A+B](y[i, k-A] * v[k-A, j])  at k >= A  =  sum[l<B](y[i, l] * v[l, j])           k = A + l

Elements of one variable are paired; that their indices are equal is a relation between the axes of the two products,
which the integer set library holds as it is, for every value of the symbols. Where it is a bijection the products
cancel; what is left of their places is matched further. What is left in the end is where the sums may differ: nothing,
in a proof. So the answer is exact where a pairing exists, and errs towards "may differ".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from neoflow.superopt import places
from neoflow.superopt.forms import Form, name
from neoflow.superopt.places import Places, Unknown
from neoflow.superopt.products import Applied, Element, Extreme, Factor, Index, Piece, Power, Product, Sum

MOST_PAIRINGS = 24
"""Of the factors of two products that are tried."""
MOST_STEPS = 4000
"""Pairs of products that are compared in one proof."""
SYMMETRIC = ("maximum", "minimum", "add", "mul")


class Comparison:
    """Compares sums; `steps` is what it took."""

    def __init__(self) -> None:
        self.steps = 0
        self.numbers = itertools.count()

    def differ(self, a: Sum, b: Sum, context: Places) -> Places:
        """The places of `context` at which two sums may differ."""
        minus = [Product(-p.coefficient, p.axes, p.where, p.factors) for p in b]
        return self.rest([*a, *minus], context)

    def rest(self, products: Sequence[Product], context: Places) -> Places:
        """The places of `context` at which a sum may be other than 0."""
        left = []
        for p in products:
            here = p.where & context
            if not here.is_empty():
                left.append((p, here))
        open_places: list[Places] = []
        while left:
            p, here = left.pop()
            for n, (q, there) in enumerate(left):
                if p.coefficient * q.coefficient >= 0:
                    continue
                met = self.cancelled(p, here, q, there, context)
                if met is None:
                    continue
                used_here, used_there = met
                here = (here - used_here).coalesce()
                left[n] = (q, (there - used_there).coalesce())
                total = p.coefficient + q.coefficient
                if total:
                    left.append((Product(total, q.axes, q.where, q.factors), used_there))
                if here.is_empty():
                    break
            left = [(q, there) for q, there in left if not there.is_empty()]
            if not here.is_empty():
                open_places.append(places.without(here, p.axes))
        return places.any_of(open_places) & context

    def cancelled(
        self, p: Product, here: Places, q: Product, there: Places, context: Places
    ) -> tuple[Places, Places] | None:
        """The places of two products that a bijection of their axes pairs, equal in all factors."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Unknown(f"more than {MOST_STEPS} pairs of products")
        if {*p.axes} & {*q.axes}:
            new = {a: places.fresh("w", self.numbers)[0] for a in q.axes}
            q, there = _renamed(q, new), places.renamed(there, new)
            back = {text: a for a, text in new.items()}
        else:
            back = {}
        for pairs in pairings(p.factors, q.factors):
            both = self.equal(pairs, here & there)
            if both.is_empty():
                continue
            both = self.bijective(both, p.axes, q.axes)
            if not both.is_empty():
                return places.without(both, q.axes), places.renamed(places.without(both, p.axes), back)
        return None

    def equal(self, pairs: Sequence[tuple[Factor, Factor]], both: Places) -> Places:
        """Of places in the axes of two products those at which paired factors are equal."""
        nested = []
        for f, g in pairs:
            match f, g:
                case Element(), Element():
                    both = both & _equal(f.indices, g.indices)
                case Power(), Power():
                    both = both & _equal(f.extents, g.extents)
                case Index(), Index():
                    both = both & places.zero(f.form - g.form)
                case _:
                    nested.append((f, g))
        for f, g in nested:
            if both.is_empty():
                break
            match f, g:
                case Applied(), Applied():
                    both = both & self.equal_calls(f, g, both)
                case Extreme(), Extreme():
                    both = both - self.differ_extremes(f, g, both)
        return both

    def equal_calls(self, f: Applied, g: Applied, both: Places) -> Places:
        orders = [g.args, g.args[::-1]] if f.fn in SYMMETRIC else [g.args]
        found = []
        for args in orders:
            wrong = [self.differ(a, b, both) for a, b in zip(f.args, args, strict=True)]
            found.append(both - places.any_of(wrong))
        return places.any_of(found)

    def differ_extremes(self, f: Extreme, g: Extreme, context: Places) -> Places:
        """Where two extremes may differ: of max and min every value of one must be among those of the other."""
        is_idempotent = f.op in ("max", "min")
        wrong: list[Places] = []
        mine, theirs = _of(f, context), _of(g, context, self.numbers)
        left_mine, left_theirs = [w for _, w in mine], [w for _, w in theirs]
        for (i, (p, _)), (j, (q, _)) in itertools.product(enumerate(mine), enumerate(theirs)):
            both = (mine[i][1] & theirs[j][1]) if is_idempotent else (left_mine[i] & left_theirs[j])
            both = both - self.differ(p.value, q.value, both)
            if not is_idempotent:
                both = self.bijective(both, p.axes, q.axes)
            if f.op == "sum":  # of ordered sums: each axis is its counterpart
                both = both & _in_order(p.axes, q.axes)
            left_mine[i] = left_mine[i] - places.without(both, q.axes)
            left_theirs[j] = left_theirs[j] - places.without(both, p.axes)
        wrong += [places.without(w, p.axes) for w, (p, _) in zip(left_mine, mine, strict=True)]
        wrong += [places.without(w, p.axes) for w, (p, _) in zip(left_theirs, theirs, strict=True)]
        return places.any_of(wrong) & context

    def bijective(self, both: Places, a: Sequence[str], b: Sequence[str]) -> Places:
        """Where a relation between axes is one to one; where it says nothing of some axes they are paired in order."""
        loose = self.ambiguous(both, b) | self.ambiguous(both, a)
        if loose.is_empty():
            return both
        free_a = [n for n in a if not self.ambiguous(both, [n]).is_empty()]
        free_b = [n for n in b if not self.ambiguous(both, [n]).is_empty()]
        if len(free_a) == len(free_b):
            for order in itertools.islice(itertools.permutations(free_b), MOST_PAIRINGS):
                tied = both & _in_order(free_a, order)
                if not tied.is_empty() and (self.ambiguous(tied, b) | self.ambiguous(tied, a)).is_empty():
                    return tied
        return both - loose

    def ambiguous(self, both: Places, axes: Sequence[str]) -> Places:
        """Where the other names leave more than one value to some axes."""
        if not axes:
            return places.nowhere()
        second = {a: places.fresh("u", self.numbers)[0] for a in axes}
        pairs = both & places.renamed(both, second)
        unequal = []
        for a, other in second.items():
            gap = name(a) - name(other)
            unequal += [places.at_least(gap, 1), places.at_least(gap.times(-1), 1)]
        return places.without(pairs & places.any_of(unequal), [*axes, *second.values()])


def pairings(a: Sequence[Factor], b: Sequence[Factor]) -> Iterator[list[tuple[Factor, Factor]]]:
    """Ways to pair factors of one kind."""
    groups_a, groups_b = _by_kind(a), _by_kind(b)
    if {k: len(v) for k, v in groups_a.items()} != {k: len(v) for k, v in groups_b.items()}:
        return
    kinds = sorted(groups_a)
    orders = [itertools.permutations(groups_b[k]) for k in kinds]
    for chosen in itertools.islice(itertools.product(*orders), MOST_PAIRINGS):
        yield [pair for k, order in zip(kinds, chosen, strict=True) for pair in zip(groups_a[k], order, strict=True)]


def _by_kind(factors: Sequence[Factor]) -> dict[str, list[Factor]]:
    found: dict[str, list[Factor]] = {}
    for f in factors:
        match f:
            case Element():
                kind = f"element {f.name}"
            case Applied():
                kind = f"call {f.fn} {len(f.args)}"
            case Extreme():
                kind = f"extreme {f.op}"
            case Power():
                kind = f"power {f.power} {len(f.extents)}"
            case Index():
                kind = "index"
        found.setdefault(kind, []).append(f)
    return found


def _equal(a: Sequence[Form], b: Sequence[Form]) -> Places:
    return places.all_of(places.zero(m - n) for m, n in zip(a, b, strict=True))


def _in_order(a: Sequence[str], b: Sequence[str]) -> Places:
    return places.all_of(places.zero(name(m) - name(n)) for m, n in zip(a, b, strict=False))


def _of(f: Extreme, context: Places, numbers: itertools.count | None = None) -> list[tuple[Piece, Places]]:
    """The pieces of an extreme that are anywhere in `context`; with names of their own where `numbers` is given."""
    found = []
    for p in f.pieces:
        if numbers is not None:
            new = {a: places.fresh("w", numbers)[0] for a in p.axes}
            value = tuple(_renamed(q, new) for q in p.value)
            p = Piece(tuple(new.values()), places.renamed(p.where, new), value)
        here = p.where & context
        if not here.is_empty():
            found.append((p, here))
    return found


def _renamed(p: Product, new: dict[str, str]) -> Product:
    put = {a: name(text) for a, text in new.items()}
    axes = tuple(new.get(a, a) for a in p.axes)
    factors = tuple(_factor(f, put, lambda s: places.renamed(s, new)) for f in p.factors)
    return Product(p.coefficient, axes, places.renamed(p.where, new), factors)


def _factor(f: Factor, put: dict[str, Form], change: Callable[[Places], Places]) -> Factor:
    """A factor with free names replaced."""

    def changed(s: Sum) -> Sum:
        return tuple(
            Product(p.coefficient, p.axes, change(p.where), tuple(_factor(g, put, change) for g in p.factors))
            for p in s
        )

    match f:
        case Element():
            return Element(f.name, tuple(i.put(put) for i in f.indices))
        case Applied():
            return Applied(f.fn, tuple(map(changed, f.args)))
        case Extreme():
            return Extreme(f.op, tuple(Piece(p.axes, change(p.where), changed(p.value)) for p in f.pieces))
        case Power():
            return Power(tuple(i.put(put) for i in f.extents), f.power)
    return Index(f.form.put(put))


def scaled(s: Sum, by: Fraction) -> Sum:
    return tuple(Product(p.coefficient * by, p.axes, p.where, p.factors) for p in s)
