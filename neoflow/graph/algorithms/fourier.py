"""A cyclic convolution by the discrete Fourier transform: what is a sum over a circle is a product at each frequency.

    y[b, i, n] = sum[j, k](x[b, j, k] * w[i, j, (n - k) % S])
        ->  X[f, e, b, j] = sum[k](x[b, j, k] * F[f, e, k])
            W[f, e, j, c, i] = sum[k](w[i, j, k] * G[f, e, c, k])
            Y[f, b, c, i] = sum[e, j](X[f, e, b, j] * W[f, e, j, c, i])
            y[b, i, n] = sum[f, c](Y[f, b, c, i] * B[f, c, n])

Reals have S // 2 + 1 frequencies that are not another's conjugate; e and c are real and imaginary parts. F and B have
cosines and sines; G has those of F as matrices of two rows and columns, so that a product by them is the complex one.
All of these are contractions, the product one that may go round in another circle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from weakref import WeakValueDictionary

import numpy as np

from neoflow.expr import dtype as dt
from neoflow.expr.close import define
from neoflow.expr.ir import Apply, Axis, Read, Reduce
from neoflow.expr.tensor import Compute, Constant, Definition, Placeholder, Tensor
from neoflow.graph.algorithms.cyclic import Cyclic, cyclic
from neoflow.graph.known import MOST_BYTES
from neoflow.graph.work import size
from neoflow.verdict import Verdict

MOST_SHARE = 0.75
"""Of the multiplications of the direct sum that may be left: what is between them moves all of it through memory."""
BLOCK = 512
"""Terms that a compiled sum adds to one accumulator, `docs/numbers.md`."""
_matrices: WeakValueDictionary[tuple[object, ...], Constant] = WeakValueDictionary()
"""So that equal transforms read the same tensor."""


def frequencies(points: int) -> int:
    """Of reals, those that are not another's conjugate."""
    return points // 2 + 1


def pays(form: Cyclic, definition: Definition) -> Verdict:
    """Whether clearly fewer multiplications are left, and the matrices are of a size that is kept."""
    nbytes = form.points * 2 * frequencies(form.points) * dt.itemsize(definition.body.dtype)
    if nbytes > MOST_BYTES:
        return Verdict(False, f"the matrix of its transform has {nbytes} bytes, of {MOST_BYTES} at most")
    share = left(form, definition)
    told = f"{frequencies(form.points)} frequencies of {form.points} points leave {share:.2f} of its products"
    return Verdict(share <= MOST_SHARE, told if share <= MOST_SHARE else f"{told}, of {MOST_SHARE} at most")


def left(form: Cyclic, definition: Definition) -> float:
    """Multiplications that are left, to those of the direct sum."""
    parts = 2 * frequencies(form.points)
    results, terms = math.prod(definition.shape), size(definition.reduction_axes)
    sides = sorted(math.prod(r.source.shape) for r in (form.turning, form.plain))
    moved = 2 * sides[0] + sides[1] + results
    products = 2 * parts * (results // form.points) * (terms // form.points)
    return (parts * moved + products) / (results * terms)


def growth(form: Cyclic, definition: Definition) -> Fraction:
    """How many times larger than the direct sum's its roundings may be, at least 1: with a(m) roundings of each term of
    a sum of m terms, S points and J terms at each of them

        (a(S) (2 s + 1) + a(2 J) sqrt 2) / a(S J),    s^2 = sum[f](C_f^2 + S_f^2) / S^2 over all S frequencies

    C_f and S_f: the sums of |cos| and |sin| of a row. By Parseval and Cauchy and Schwarz, `docs/numbers.md`. What
    goes round in circles of several axes multiplies them.
    """
    points, terms = form.points, size(definition.reduction_axes)
    angles = _angles(np.arange(points), np.arange(points), points)
    sums = np.square(abs(np.cos(angles)).sum(1)) + np.square(abs(np.sin(angles)).sum(1))
    spread = math.sqrt(float(sums.sum())) / points
    worst = _roundings(points) * (2 * spread + 1) + _roundings(2 * terms // points) * math.sqrt(2)
    own = max(Fraction(1), Fraction(worst / _roundings(terms)))
    product = _product(definition, [Placeholder(s.shape, s.dtype, "x", None) for s in definition.slots], form)
    within = _within(product.tensor.definition)
    return own if within is None else own * growth(within, product.tensor.definition)


def _roundings(terms: int) -> int:
    """Of each term of a sum, at most: in blocks."""
    levels = 1
    while BLOCK**levels < terms:
        levels += 1
    return min(terms, BLOCK * levels)


# --- the small graph


@dataclass(frozen=True)
class _Product:
    """tensor: at each frequency, over `axes`: among them the frequency `at`, the `part`, real or imaginary, and those
    of the result that do not go round."""

    tensor: Compute
    axes: tuple[Axis, ...]
    at: Axis
    part: Axis


def build(t: Compute, inputs: Sequence[Tensor], form: Cyclic) -> Tensor:
    """The same value as t, which reads `inputs`."""
    found = _product(t.definition, inputs, form)
    product: Tensor = found.tensor
    within = _within(found.tensor.definition)
    if within is not None:
        product = build(found.tensor, found.tensor.inputs, within)
    around, along = form.around, form.along
    offset = around.offset - around.tap_sign * along.tap_sign * along.offset
    matrix = _matrix(form.points, "back", t.dtype, around.sign, offset % form.points)
    body = Apply("mul", (Read(product, found.axes), Read(matrix, (found.at, found.part, form.out))))
    return define(t.shape, t.definition.axes, Reduce("sum", (found.at, found.part), body), t.name)


def _within(definition: Definition) -> Cyclic | None:
    """Another circle that a product goes round in."""
    form = cyclic(definition)
    return form if isinstance(form, Cyclic) and pays(form, definition).ok else None


def _product(definition: Definition, inputs: Sequence[Tensor], form: Cyclic) -> _Product:
    """The smaller operand's transform as matrices, times the other's, summed over what is summed beside the circle."""
    names = itertools.count(1 << 16)
    at, row, column = Axis(next(names), frequencies(form.points)), Axis(next(names), 2), Axis(next(names), 2)
    sides = [(form.turning, form.around), (form.plain, form.along)]
    is_turning = math.prod(form.turning.source.shape) < math.prod(form.plain.source.shape)
    (small, small_turn), (large, large_turn) = sides if is_turning else sides[::-1]
    is_conjugate = form.around.tap_sign == form.along.tap_sign
    dtype, results = definition.body.dtype, frozenset(definition.axes)
    forward = _matrix(form.points, "forward", dtype)
    rotating = _matrix(form.points, f"{'turning' if is_turning else 'plain'}{' conjugate' * is_conjugate}", dtype)
    before, behind = (
        [n for n, i in enumerate(small.indices) if n != small_turn.dim and i.free.isdisjoint(results) is is_summed]
        for is_summed in (True, False)
    )
    rest = [n for n in range(len(large.indices)) if n != large_turn.dim]
    first = _transformed(inputs[large.slot], large_turn.dim, forward, (rest,))
    second = _transformed(inputs[small.slot], small_turn.dim, rotating, (before, behind))
    factors = (
        Read(first, (at, row, *(large.indices[n] for n in rest))),
        Read(second, (at, row, *(small.indices[n] for n in before), column, *(small.indices[n] for n in behind))),
    )
    kept = [a for a in definition.axes if a is not form.out]
    place = next((n for n, a in enumerate(kept) if a in small.free), len(kept))
    axes = (at, *kept[:place], column, *kept[place:])
    summed = (row, *(a for a in definition.reduction_axes if a is not form.tap))
    body = Reduce("sum", summed, Apply("mul", factors))
    return _Product(define(tuple(a.extent for a in axes), axes, body, "frequencies"), axes, at, column)


def _transformed(t: Tensor, dim: int, matrix: Constant, groups: Sequence[Sequence[int]]) -> Compute:
    """A tensor times a matrix [frequency, part, ..., point] along one of its dimensions: the first two come first, then
    groups of the other dimensions, one of the matrix's other axes between two groups."""
    names = itertools.count()
    axes = [Axis(next(names), n) for n in t.shape]
    at, part, *between = (Axis(next(names), n) for n in matrix.shape[:-1])
    own = [at, part]
    for n, group in enumerate(groups):
        own += [*between[:n][-1:], *(axes[d] for d in group)]
    body = Apply("mul", (Read(t, tuple(axes)), Read(matrix, (at, part, *between, axes[dim]))))
    return define(tuple(a.extent for a in own), tuple(own), Reduce("sum", (axes[dim],), body), f"{t.name}_transform")


# --- matrices


def _matrix(points: int, kind: str, dtype: str, sign: int = 1, offset: int = 0) -> Constant:
    """forward: F[f, e, k], cosines, and sines downwards. back: B[f, c, n] of the point sign * n + offset, where a
    frequency whose conjugate is left out counts twice. plain, turning, and these of conjugates: F as the matrices
    [f, e, c, k] of complex numbers: parts of the other factor, parts of the product. The factor that only the tap goes
    through is the conjugate one."""
    key = points, kind, dtype, sign, offset
    found = _matrices.get(key)
    if found is None:
        at = np.arange(frequencies(points))
        angles = _angles(at, sign * np.arange(points) + offset, points)
        value = np.stack([np.cos(angles), -np.sin(angles)], axis=1)
        if kind == "back":
            value *= (np.where(2 * at % points == 0, 1, 2) / points)[:, None, None]
        elif kind != "forward":
            value = np.einsum("ecp,fpk->feck", _PRODUCTS[kind], value)
        found = _matrices.setdefault(
            key, Constant(value.astype(dt.NUMPY[dtype]), f"{kind.replace(chr(32), chr(95))}_{points}")
        )
    return found


_PRODUCTS = {
    "plain": [[[1, 0], [0, 1]], [[0, -1], [1, 0]]],
    "plain conjugate": [[[1, 0], [0, -1]], [[0, 1], [1, 0]]],
    "turning": [[[1, 0], [0, 1]], [[0, -1], [1, 0]]],
    "turning conjugate": [[[1, 0], [0, 1]], [[0, 1], [-1, 0]]],
}
"""[parts of the other factor, parts of the product, parts of the one that becomes matrices]"""


def _angles(at: np.ndarray, points: np.ndarray, extent: int) -> np.ndarray:
    """2 pi f k / S, the whole turns left out; longer than a double, so that cosines are rounded once."""
    turn = 8 * np.arctan(np.longdouble(1))
    return turn * (np.outer(at, points) % extent) / extent
