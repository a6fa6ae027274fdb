"""What formulas of error bounds are made of: arithmetic in float64, doubts, the formats numbers are rounded to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Apply, Cast, Const, Expr, Select

WIDE = "float64"


@dataclass(frozen=True)
class Format:
    """A float type: `eps` from 1 to the next number, the `largest` one, `tiny` what a rounding loses at least,
    `whole`: integers up to it are all there."""

    eps: float
    largest: float
    tiny: float
    whole: float


def format_of(dtype: str) -> Format:
    info = ml_dtypes.finfo(dt.NUMPY[dtype])
    return Format(float(info.eps), float(info.max), 8 * float(info.smallest_subnormal), float(2 ** (info.nmant + 1)))


FORMATS = {d: format_of(d) for d in dt.FLOATS}


def computed_in(dtype: str) -> Format:
    """The type in which an expression of `dtype` is computed."""
    return FORMATS[WIDE if dtype == WIDE else "float32"]


def const(value: float) -> Const:
    return Const(value, WIDE)


ZERO, DOUBT = const(0.0), const(math.inf)


def wide(e: Expr) -> Expr:
    return e if e.dtype == WIDE else Cast(WIDE, e)


def add(*terms: Expr) -> Expr:
    first, *rest = terms
    for t in rest:
        first = Apply("add", (first, t))
    return first


def total(terms: Sequence[Expr | None]) -> Expr | None:
    there = [t for t in dict.fromkeys(terms) if t is not None]
    return add(*there) if there else None


def sub(a: Expr, b: Expr) -> Expr:
    return Apply("sub", (a, b))


def mul(a: Expr, b: Expr | float) -> Expr:
    return Apply("mul", (a, b if isinstance(b, Expr) else const(b)))


def size_of(e: Expr) -> Expr:
    return Apply("abs", (e,))


def larger(*args: Expr) -> Expr:
    first, *rest = args
    for a in rest:
        first = Apply("maximum", (first, a))
    return first


def below(a: Expr, b: Expr) -> Expr:
    return Apply("lt", (a, b))


def upto(a: Expr, b: Expr) -> Expr:
    return Apply("le", (a, b))


def both(a: Expr, b: Expr) -> Expr:
    return Apply("and", (a, b))


def finite(e: Expr) -> Expr:
    """|e|, and 0 for what is infinite or NaN."""
    size = size_of(wide(e))
    return Select(below(size, DOUBT), size, ZERO)


def if_doubt(error: Expr) -> Expr:
    """A doubt where `error` is one, no error elsewhere: what is left of it where the value is infinite."""
    return Select(below(error, DOUBT), ZERO, DOUBT)


def if_far(e: Expr) -> Expr:
    """The sine of a float32 beyond 2^30 is not computed."""
    size = size_of(e)
    return Select(both(upto(const(2.0**30), size), below(size, DOUBT)), DOUBT, ZERO)


def if_large(size: Expr) -> Expr:
    return Select(below(size, const(float(affine.INF))), ZERO, DOUBT)
