"""A term as nested sums of products: what all of it computes at one point, its operators gone.

    sum       s ::= a tuple of products, which are added
    product   p ::= Product(coefficient, axes, where, factors)     the sum over `axes` at the places `where`
    factor    f ::= Element(name, indices)                         of a variable
                  | Applied(fn, sums)                              a function that is not linear
                  | Extreme(op, pieces)                            max, min, prod of the values of all pieces
                  | Power(extents, power) | Index(form)
    piece       ::= Piece(axes, where, sum)

What a body chooses by index is said by `where`: outside there is no product, so nothing is added. A concatenation is
the sum of its parts, and so is whatever is linear in one. Names of bound axes are unique.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from neoflow.expr.functions import FUNCTIONS
from neoflow.superopt import places
from neoflow.superopt.body import Body, Call, Choose, Count, Number, Over, Place, Slot, holds, opposite
from neoflow.superopt.forms import Form, name
from neoflow.superopt.laws import counted, merged, outside_of_inverse
from neoflow.superopt.places import Places, Unknown
from neoflow.superopt.products import Applied, Element, Extreme, Factor, Index, Piece, Power, Product, Sum
from neoflow.superopt.term import Term, Variable

MOST_PRODUCTS = 64
"""Of a sum, and pieces of an extreme; beyond, the proof gives up."""

MOST_PARTS = 2000
"""Of the bodies of a term, each as often as it is read."""


class Inliner:
    """Terms as sums of products. is_ordered: additions and products of numbers stay as they are written, as functions
    that are not taken apart, so that what agrees has the same bits."""

    def __init__(self, is_ordered: bool = False):
        self.is_ordered = is_ordered
        self.numbers = itertools.count()
        self.parts = 0

    def value(self, term: Term, indices: Sequence[Form], where: Places) -> Sum:
        """A term at one point, at places `where`."""
        if isinstance(term, Variable):
            return (Product(Fraction(1), (), where, (Element(term.name, tuple(indices)),)),)
        put = term.put | dict(zip(term.family.axes, indices, strict=True))
        return self.body(term.family.body, put, term.args, where)

    def body(self, b: Body, put: Mapping[str, Form], args: Sequence[Term], where: Places) -> Sum:
        self.parts += 1
        if self.parts > MOST_PARTS:
            raise Unknown(f"a term that has more than {MOST_PARTS} parts when it is inlined")
        match b:
            case Number():
                return _constant(b.value, where)
            case Count():
                factors = tuple(Power((f.put(put),), b.power) for f in b.extents)
                return (Product(Fraction(1), (), where, factors),)
            case Place():
                return (Product(Fraction(1), (), where, (Index(b.form.put(put)),)),)
            case Slot():
                return self.value(args[b.position], [f.put(put) for f in b.indices], where)
            case Choose():
                chosen = where & holds(b.condition, put)
                others = where & holds(opposite(b.condition), put)
                then = () if chosen.is_empty() else self.body(b.then, put, args, chosen)
                other = () if others.is_empty() else self.body(b.other, put, args, others)
                return _few(then + other)
            case Call():
                return self.call(b, put, args, where)
            case Over():
                return self.over(b, put, args, where)

    def call(self, b: Call, put: Mapping[str, Form], args: Sequence[Term], where: Places) -> Sum:
        values = [self.body(a, put, args, where) for a in b.args]
        if not self.is_ordered:
            if b.fn in ("add", "sub", "neg", "mul", "div"):
                _finite(values)
            match b.fn:
                case "add":
                    return _few(values[0] + values[1])
                case "sub":
                    return _few(values[0] + _scaled(values[1], Fraction(-1)))
                case "neg":
                    return _scaled(values[0], Fraction(-1))
                case "mul":
                    return _times(values[0], values[1])
                case "div":
                    return _times(values[0], _divisor(values[1], where))
                case "rsqrt":
                    return _divisor(_applied("sqrt", tuple(values), where), where)
        return _applied(b.fn, tuple(values), where)

    def over(self, b: Over, put: Mapping[str, Form], args: Sequence[Term], where: Places) -> Sum:
        own = {a: places.fresh("v", self.numbers) for a, _ in b.axes}
        axes = tuple(text for text, _ in own.values())
        ranges = [places.inside(own[a][1], n.put(put)) for a, n in b.axes]
        inner = where & places.all_of(ranges)
        value = self.body(b.body, {**put, **{a: f for a, (_, f) in own.items()}}, args, inner)
        if b.op == "sum" and not self.is_ordered:
            _finite([value])
            return tuple(counted(Product(p.coefficient, axes + p.axes, p.where, p.factors)) for p in value)
        pieces = _pieces(b.op, axes, inner, value)
        return (Product(Fraction(1), (), where, (Extreme(b.op, pieces),)),)


def _finite(values: Sequence[Sum]) -> None:
    """Raise `Unknown` for arithmetic on infinity, whose differences are no zeros."""
    if any(isinstance(f, Applied) and f.fn in ("inf", "-inf") for s in values for p in s for f in p.factors):
        raise Unknown("arithmetic on infinity")


def _few(found: Sum) -> Sum:
    if len(found) > MOST_PRODUCTS:
        raise Unknown(f"a sum of more than {MOST_PRODUCTS} products")
    return found


def _constant(value: float, where: Places) -> Sum:
    if math.isnan(value):
        raise Unknown("a number that is none")
    if math.isinf(value):
        return (Product(Fraction(1), (), where, (Applied("inf" if value > 0 else "-inf", ()),)),)
    return (Product(Fraction(value), (), where, ()),) if value else ()


def _scaled(s: Sum, by: Fraction) -> Sum:
    return tuple(Product(p.coefficient * by, p.axes, p.where, p.factors) for p in s)


def _times(a: Sum, b: Sum) -> Sum:
    found = []
    for p, q in itertools.product(a, b):
        meet = p.where & q.where
        if not meet.is_empty():
            product = Product(p.coefficient * q.coefficient, p.axes + q.axes, meet, p.factors + q.factors)
            found.append(counted(merged(product)))
    return _few(tuple(found))


def _divisor(s: Sum, where: Places) -> Sum:
    """One over a sum."""
    if len(s) == 1 and not s[0].factors and not s[0].axes and where.is_subset(s[0].where):
        return (Product(1 / s[0].coefficient, (), where, ()),)
    left, factors = outside_of_inverse(s, where)
    return tuple(
        Product(p.coefficient, p.axes, p.where, (*p.factors, *factors)) for p in _applied("inverse", (left,), where)
    )


def _applied(fn: str, args: tuple[Sum, ...], where: Places) -> Sum:
    """A function of sums; where none of these has anything to add it is the function of zeros."""
    if fn in _PLAIN and is_no_less_than_zero(args[0]):
        return args[0]
    some = places.any_of(places.without(p.where, p.axes) for s in args for p in s)
    here, empty = where & some, where - some
    found = () if here.is_empty() else (Product(Fraction(1), (), here, (Applied(fn, args),)),)
    if empty.is_empty():
        return found
    at_zero = _at_zero(fn, len(args))
    if at_zero is None:
        return (*found, Product(Fraction(1), (), empty, (Applied(fn, tuple(() for _ in args)),)))
    return found + _constant(at_zero, empty)


_PLAIN = ("relu", "abs")
"""What leaves numbers as they are that are not below 0."""
_AT_LEAST_ZERO = ("relu", "abs", "exp", "sigmoid", "sqrt", "rsqrt")
"""What gives no others."""


def is_no_less_than_zero(s: Sum) -> bool:
    """Whether a sum is so by its form: of squares, and of functions that give nothing else."""
    for p in s:
        odd = [f for n, f in enumerate(p.factors) if p.factors.count(f) % 2 and f not in p.factors[:n]]
        if p.coefficient < 0 or not all(map(_is_positive, odd)):
            return False
    return True


def _is_positive(f: Factor) -> bool:
    match f:
        case Applied(fn="inverse"):
            return is_no_less_than_zero(f.args[0])
        case Applied():
            return f.fn in _AT_LEAST_ZERO
        case Extreme(op="min" | "sum"):  # a max over nothing is below 0
            return all(is_no_less_than_zero(p.value) for p in f.pieces)
    return isinstance(f, Power)


def _at_zero(fn: str, arity: int) -> float | None:
    """The value of a function of zeros; None where that is no number, or not for floats."""
    row = FUNCTIONS.get(fn)
    if row is None or row.typing not in ("arith", "real", "single"):
        return None
    with np.errstate(all="ignore"):
        value = float(row.numpy(*(np.zeros(1, np.float32) for _ in range(arity)))[0])
    return value if math.isfinite(value) else None


def _pieces(op: str, axes: tuple[str, ...], inner: Places, value: Sum) -> tuple[Piece, ...]:
    """What an extreme is taken of: by places, at each of which the same products are added."""
    cells: list[tuple[Places, Sum]] = [(inner, ())]
    for p in value:
        own = places.without(p.where, p.axes)
        split = []
        for cell, products in cells:
            here, there = cell & own, cell - own
            if not here.is_empty():
                split.append((here, (*products, p)))
            if not there.is_empty():
                split.append((there, products))
        cells = split
        if len(cells) > MOST_PRODUCTS:
            raise Unknown(f"an extreme of more than {MOST_PRODUCTS} pieces")
    lowest = {"max": "-inf", "min": "inf"}.get(op)
    found: list[Piece] = []
    for cell, products in cells:
        only = products[0] if len(products) == 1 and not products[0].axes and products[0].coefficient == 1 else None
        match only.factors if only is not None else ():
            case (Applied(fn=fn, args=()),) if fn == lowest:
                continue
            case (Extreme(op=same, pieces=inside),) if same == op and op in ("max", "min"):
                found += [Piece(axes + p.axes, cell & p.where, p.value) for p in inside]
            case _:
                found.append(Piece(axes, cell, products))
    return tuple(found)


def point(term: Term) -> tuple[tuple[Form, ...], Places]:
    """A point of a term's result, and the places it goes through."""
    indices = tuple(name(f"o_{d}") for d in range(len(term.shape)))
    return indices, places.all_of(places.inside(i, n) for i, n in zip(indices, term.shape, strict=True))
