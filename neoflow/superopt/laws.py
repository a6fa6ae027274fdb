"""Laws of the real numbers by which nested sums of products are brought to one form.

    sum[k<K](f) / K             =    f                              where f does not depend on k
    exp(a) exp(b)               =    exp(a + b)
    1 / sum[k](exp(a[k] + t))   =    exp(-t) / sum[k](exp(a[k]))    where t does not depend on k

Each is used where it is sure to hold at all places of a product; elsewhere that stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from neoflow.superopt import places
from neoflow.superopt.forms import Form, name
from neoflow.superopt.places import Places
from neoflow.superopt.products import Applied, Element, Extreme, Factor, Index, Power, Product, Sum


def counted(p: Product) -> Product:
    """A product without the axes that it does not depend on, of as many points as it is divided by."""
    for n, f in enumerate(p.factors):
        if not isinstance(f, Power) or f.power != -1:
            continue
        others = [g for m, g in enumerate(p.factors) if m != n]
        for k, extent in enumerate(f.extents):
            for axis in p.axes:
                rest = places.without(p.where, [axis])
                is_whole = (rest & places.inside(name(axis), extent)).is_subset(p.where)
                is_all = is_whole and p.where.is_subset(places.inside(name(axis), extent))
                if not is_all or not all(_is_without(g, [axis], places.inside(name(axis), extent)) for g in others):
                    continue
                left = (*f.extents[:k], *f.extents[k + 1 :])
                factors = (*(_dropped(g, axis) for g in others), *([Power(left, -1)] if left else []))
                return counted(Product(p.coefficient, tuple(a for a in p.axes if a != axis), rest, factors))
    return p


def merged(p: Product) -> Product:
    """A product with one exponential."""
    found = [f for f in p.factors if isinstance(f, Applied) and f.fn == "exp"]
    if len(found) < 2:
        return p
    whole = Applied("exp", (sum((f.args[0] for f in found), ()),))
    return Product(p.coefficient, p.axes, p.where, (*(f for f in p.factors if f not in found), whole))


def outside_of_inverse(s: Sum, where: Places) -> tuple[Sum, tuple[Factor, ...]]:
    """What is left of a sum, and the factors that come out of its inverse."""
    if len(s) != 1 or not s[0].axes:
        return s, ()
    (p,) = s
    found = [f for f in p.factors if isinstance(f, Applied) and f.fn == "exp"]
    if len(found) != 1:
        return s, ()
    stay, out = list[Product](), list[Product]()
    for t in found[0].args[0]:
        outer = places.without(t.where, p.axes)
        is_outer = where.is_subset(outer) and (p.where & outer).is_subset(t.where)
        is_outer = is_outer and all(_is_without(f, p.axes, p.where) for f in t.factors)
        if is_outer:
            factors = t.factors
            for a in p.axes:
                factors = tuple(_dropped(f, a) for f in factors)
            out.append(Product(-t.coefficient, t.axes, outer, factors))
        else:
            stay.append(t)
    if not out or not stay:
        return s, ()
    factors = tuple(Applied("exp", (tuple(stay),)) if f is found[0] else f for f in p.factors)
    return (Product(p.coefficient, p.axes, p.where, factors),), (Applied("exp", (tuple(out),)),)


def _is_without(f: Factor, axes: Sequence[str], among: Places) -> bool:
    """Whether a factor does not depend on axes, at places `among`: what it says of them, all of these meet."""
    if any(a in axes for i in _forms(f) for a in i.names):
        return False
    return all((places.without(w, axes) & among).is_subset(w) for w in _places(f))


def _forms(f: Factor) -> Iterator[Form]:
    match f:
        case Element():
            yield from f.indices
        case Power():
            yield from f.extents
        case Index():
            yield f.form
        case Applied():
            yield from (i for s in f.args for p in s for g in p.factors for i in _forms(g))
        case Extreme():
            yield from (i for piece in f.pieces for p in piece.value for g in p.factors for i in _forms(g))


def _places(f: Factor) -> Iterator[Places]:
    sums: Sequence[Sum] = ()
    match f:
        case Applied():
            sums = f.args
        case Extreme():
            yield from (piece.where for piece in f.pieces)
            sums = [piece.value for piece in f.pieces]
    for p in (p for s in sums for p in s):
        yield p.where
        yield from (w for g in p.factors for w in _places(g))


def _dropped(f: Factor, axis: str) -> Factor:
    """A factor that does not depend on an axis, nothing said of it any more."""

    def of(s: Sum) -> Sum:
        return tuple(
            Product(p.coefficient, p.axes, places.without(p.where, [axis]), tuple(_dropped(g, axis) for g in p.factors))
            for p in s
        )

    match f:
        case Applied():
            return Applied(f.fn, tuple(map(of, f.args)))
        case Extreme():
            from_pieces = (
                type(piece)(piece.axes, places.without(piece.where, [axis]), of(piece.value)) for piece in f.pieces
            )
            return Extreme(f.op, tuple(from_pieces))
    return f
