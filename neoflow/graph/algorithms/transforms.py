"""Small matrices that are no tensors: each of their rows is an expression of its own, of its nonzero terms alone.

`map` writes such expressions, chosen by an axis, out beside each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import reduce

from neoflow.expr import affine
from neoflow.expr.close import define
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Select, substitute
from neoflow.expr.tensor import Compute
from neoflow.graph.algorithms.points import Matrix

Point = tuple[int, ...]
"""Of each small matrix, a row or a column."""


def compute(name: str, axes: Sequence[Axis], body: Expr) -> Compute:
    """The tensor over these axes, which may have any numbers."""
    return define(tuple(a.extent for a in axes), tuple(axes), body, name)


def transformed(
    name: str,
    matrices: Sequence[Matrix],
    points: Sequence[Axis],
    axes: Sequence[Axis],
    item: Callable[[Sequence[int]], Expr],
) -> Compute:
    """The tensor over `points` and `axes` that is each matrix applied along one index of `item`."""
    return compute(name, (*points, *axes), chosen(points, rows(matrices, item)))


def rows(matrices: Sequence[Matrix], item: Callable[[Sequence[int]], Expr]) -> Mapping[Point, Expr]:
    """Each matrix applied along one index, the first one first; what two results share is one expression."""
    values: dict[Point, Expr] = {
        at: item(at) for at in itertools.product(*(range(len(matrix[0])) for matrix in matrices))
    }
    for d, matrix in enumerate(matrices):
        lines: dict[tuple[Point, Point], dict[int, Expr]] = {}
        for at, e in values.items():
            lines.setdefault((at[:d], at[d + 1 :]), {})[at[d]] = e
        values = {
            (*before, n, *behind): e
            for (before, behind), line in lines.items()
            for n, e in enumerate(_applied(matrix, [line[n] for n in range(len(line))]))
        }
    return values


def _applied(matrix: Matrix, line: Sequence[Expr]) -> list[Expr]:
    """A matrix times a vector. Two rows of the same magnitudes share the sums of equal and of opposite terms."""
    found: list[Expr | None] = [None] * len(matrix)
    for n, row in enumerate(matrix):
        if found[n] is not None:
            continue
        found[n] = _combined(row, line)
        other = next((o for o in range(n + 1, len(matrix)) if _is_mirrored(row, matrix[o])), None)
        if other is not None:
            equal = [a if a == b else Fraction(0) for a, b in zip(row, matrix[other], strict=True)]
            opposite = [a if a != b else Fraction(0) for a, b in zip(row, matrix[other], strict=True)]
            even, odd = _combined(equal, line), _combined(opposite, line)
            found[n], found[other] = Apply("add", (even, odd)), Apply("sub", (even, odd))
    return [e for e in found if e is not None]


def _is_mirrored(a: Sequence[Fraction], b: Sequence[Fraction]) -> bool:
    """Whether two rows have equal and opposite terms, and both of them."""
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x or y]
    return all(abs(x) == abs(y) for x, y in pairs) and 0 < sum(x == y for x, y in pairs) < len(pairs)


def _combined(row: Sequence[Fraction], line: Sequence[Expr]) -> Expr:
    """The sum of the nonzero terms; what has the same factor is added first."""
    by_size: dict[Fraction, list[tuple[Fraction, Expr]]] = {}
    for c, e in zip(row, line, strict=True):
        if c and not (isinstance(e, Const) and e.value == 0):
            by_size.setdefault(abs(c), []).append((c, e))
    if not by_size:
        return Const(0, line[0].dtype)
    return reduce(added, (_scaled(size, terms) for size, terms in sorted(by_size.items())))


def _scaled(size: Fraction, terms: Sequence[tuple[Fraction, Expr]]) -> Expr:
    """size * (the sum of terms, each with its sign)."""
    first = next((n for n, (c, _) in enumerate(terms) if c > 0), 0)
    sign = 1 if terms[first][0] > 0 else -1
    total = terms[first][1]
    for n, (c, e) in enumerate(terms):
        if n != first:
            total = Apply("add" if c * sign > 0 else "sub", (total, e))
    factor = size * sign
    return total if factor == 1 else Apply("mul", (total, Const(float(factor), total.dtype)))


def chosen(axes: Sequence[Axis], values: Mapping[Point, Expr]) -> Expr:
    """select(a == 0, select(b == 0, ..., ...), select(a == 1, ...))"""
    if not axes:
        return values[()]
    first, *rest = axes
    inner = [chosen(rest, {at[1:]: e for at, e in values.items() if at[0] == n}) for n in range(first.extent)]
    result = inner[-1]
    for n in reversed(range(first.extent - 1)):
        result = Select(Apply("eq", (first, affine.integer(n))), inner[n], result)
    return result


def taken(t: Compute, y: Compute, axes: Sequence[Axis], parts: Sequence[tuple[Axis, Axis, Axis]]) -> Compute:
    """The value of t, which lies in y over `axes`; parts: axes of t that are two there, and these, the outer first."""
    place: dict[Expr, Expr] = {}
    for a, outer, inner in parts:
        extent = affine.integer(inner.extent)
        place |= {outer: Apply("floordiv", (a, extent)), inner: Apply("mod", (a, extent))}
    read = Read(y, tuple(affine.simplify(substitute(a, place)) for a in axes))
    return define(t.shape, t.definition.axes, read, t.name)


def added(a: Expr, b: Expr) -> Expr:
    return Apply("add", (a, b))
