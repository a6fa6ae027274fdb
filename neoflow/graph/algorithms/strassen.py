"""Strassen's product of two matrices in halves: seven products of halves in place of eight.

    y[m, n] = sum[k](a[m, k] * b[k, n])
        ->  A[p, m, k] = sum[i, j](L[p, i, j] * a[(i, m), (j, k)])
            B[p, k, n] = sum[i, j](R[p, i, j] * b[(i, k), (j, n)])
            P[p, m, n] = sum[k](A[p, m, k] * B[p, k, n])
            y[(i, m), (j, n)] = sum[p](Y[i, j, p] * P[p, m, n])

(i, m): the element m of half i of an axis. One level: each of the halves is a large matrix still, whose products run as
fast as those of the whole, and what is added beforehand and after passes through memory once. Source: Strassen,
Gaussian Elimination is not Optimal, 1969; its roundings: Higham, Accuracy and Stability of Numerical Algorithms, 23.2.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from neoflow.expr import affine
from neoflow.expr.ir import Apply, Axis, Expr, Read, Reduce, substitute
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph.algorithms.form import is_linear, two_reads
from neoflow.graph.algorithms.points import Matrix
from neoflow.graph.algorithms.transforms import Point, added, chosen, compute, rows, taken, transformed
from neoflow.graph.work import size
from neoflow.verdict import Verdict

LEAST_SAVED = 12
"""Products that are left out for each element that is written or read more, from which it can pay: on two cores of Zen
3 it took 1.03 to 1.1 of the direct product's time at 11, broke even at 12 to 14, took 0.88 at 15 and 0.91 at 28."""


def _matrix(*rows: tuple[int, ...]) -> Matrix:
    return tuple(tuple(map(Fraction, row)) for row in rows)


LEFT = _matrix((1, 0, 0, 1), (0, 0, 1, 1), (1, 0, 0, 0), (0, 0, 0, 1), (1, 1, 0, 0), (-1, 0, 1, 0), (0, 1, 0, -1))
"""L: of each product, the factors of the quarters of a."""
RIGHT = _matrix((1, 0, 0, 1), (1, 0, 0, 0), (0, 1, 0, -1), (-1, 0, 1, 0), (0, 0, 0, 1), (1, 1, 0, 0), (0, 0, 1, 1))
"""R: of the quarters of b."""
RESULTS = _matrix((1, 0, 0, 1, -1, 0, 1), (0, 0, 1, 0, 1, 0, 0), (0, 1, 0, 1, 0, 0, 0), (1, -1, 1, 0, 0, 1, 0))
"""Y: of each quarter of the results, the factors of the products."""
GROWTH = Fraction(6)
"""How much larger intermediate values may be than those of the direct sum: the most, over the quarters of the results,
of sum |Y| (|L| 1) (|R| 1) / 2."""


@dataclass(frozen=True)
class Halved:
    """A sum of left * right: the axes that are halved, of the left operand's rows, of the right one's columns and of
    what is summed."""

    left: Read
    right: Read
    row: Axis
    column: Axis
    summed: Axis


@remembered
def halved(definition: Definition) -> Halved | str:
    """A sum of products as a product of matrices of even sides; or why it is none."""
    found = two_reads(definition)
    if isinstance(found, str):
        return found
    left, right = found
    for read in found:
        if not is_linear(read):
            return "its operands are read at other than linear indices"
        if len(read.free) < sum(len(i.free) for i in read.indices) or any(len(i.free) > 1 for i in read.indices):
            return "an operand is read at a sum of axes, or twice at one"
    if any(a not in left.free or a not in right.free for a in definition.reduction_axes):
        return "an axis is summed over that one operand does not have"
    halves = []
    for name, axes, sides in (
        ("rows", definition.axes, (True, False)),
        ("columns", definition.axes, (False, True)),
        ("what is summed", definition.reduction_axes, (True, True)),
    ):
        own = [a for a in axes if (a in left.free, a in right.free) == sides]
        even = next((a for a in own if a.extent % 2 == 0), None)
        if even is None:
            return f"{name} cannot be halved: {' x '.join(str(a.extent) for a in own) or 'there are none'}"
        halves.append(even)
    return Halved(left, right, *halves)


def pays(form: Halved, definition: Definition) -> Verdict:
    """Whether the products that are left out are many, beside what is written and read in halves."""
    sides, results, terms = _sides(form), size(definition.axes), size(definition.reduction_axes)
    moved = Fraction(11, 4) * sides + Fraction(7, 2) * results  # read once, 7/4 written; of results 3/4, 7/4, 1
    saved = results * terms / 8 / moved
    told = f"leaves out {float(saved):.1f} products for each element that it moves"
    return Verdict(saved >= LEAST_SAVED, told if saved >= LEAST_SAVED else f"{told}, of {LEAST_SAVED} at least")


def _sides(form: Halved) -> int:
    """Elements of both operands."""
    return sum(size(tuple(read.free)) for read in (form.left, form.right))


def build(t: Compute, inputs: Sequence[Tensor], form: Halved) -> Tensor:
    """The same value as t, which reads `inputs`."""
    names = itertools.count(1 << 16)
    product = Axis(next(names), len(LEFT))
    half = {a: Axis(next(names), a.extent // 2) for a in (form.row, form.column, form.summed)}

    def operand(read: Read, matrix: Matrix, first: Axis, second: Axis) -> Read:
        """Of all products what an operand's quarters, counted by halves of `first`, then of `second`, add up to."""
        own = tuple(half.get(a, a) for i in read.indices for a in i.free)

        def quarter(at: Sequence[int]) -> Expr:
            place: dict[Expr, Expr] = {first: _in(half, first, at[0] // 2), second: _in(half, second, at[0] % 2)}
            return Read(inputs[read.slot], tuple(affine.simplify(substitute(i, place)) for i in read.indices))

        name = f"{t.name}_{inputs[read.slot].name}_halves"
        return Read(transformed(name, [matrix], [product], own, quarter), (product, *own))

    factors = (
        operand(form.left, LEFT, form.row, form.summed),
        operand(form.right, RIGHT, form.summed, form.column),
    )
    kept = tuple(half.get(a, a) for a in t.definition.axes)
    summed = tuple(half.get(a, a) for a in t.definition.reduction_axes)
    products = compute(f"{t.name}_products", (product, *kept), Reduce("sum", summed, Apply("mul", factors)))
    return _results(t, form, half, products, kept)


def _in(half: Mapping[Axis, Axis], axis: Axis, which: int) -> Expr:
    """An element of a half of an axis."""
    return added(half[axis], affine.integer(which * half[axis].extent)) if which else half[axis]


def _results(t: Compute, form: Halved, half: Mapping[Axis, Axis], products: Compute, kept: tuple[Axis, ...]) -> Compute:
    """The quarters of the results, each where it belongs."""
    which = {form.row: Axis(1 << 17, 2), form.column: Axis((1 << 17) + 1, 2)}
    values = rows([RESULTS], lambda at: Read(products, (affine.integer(at[0]), *kept)))
    quarters: dict[Point, Expr] = {divmod(n, 2): e for (n,), e in values.items()}
    axes = [b for a in t.definition.axes for b in ((which[a], half[a]) if a in which else (a,))]
    y = compute(f"{t.name}_quarters", axes, chosen(tuple(which.values()), quarters))
    return taken(t, y, axes, [(a, i, half[a]) for a, i in which.items()])
