"""Winograd's minimal filtering of a correlation whose windows have few taps, or few results.

    y[p] = sum[c, r](x[c, p + r] * w[c, r])
        ->  V[a, t, c] = sum[j](B^T[a, j] * x[c, m*t + j])       U[a, c] = sum[r](G[a, r] * w[c, r])
            M[a, t] = sum[c](V[a, t, c] * U[a, c])               y[m*t + i] = sum[a](A^T[i, a] * M[a, t])

With two windows along each of them, whose taps may differ: of 4 x 4 results with 3 x 3 taps 144 multiplications are
left out at 36, of 4 results with 7 taps 28 at 10. Where the results are few and the taps many (the gradient of a
filter), tiles go along the taps and their number is summed over with the channels; where both are many (9 x 9 taps),
along both. The small matrices are no tensors: each point a has an expression of its own, with its nonzero terms alone,
and `map` writes these out beside each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

from neoflow.expr import affine
from neoflow.expr.close import define
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Reduce, Select, substitute
from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph.algorithms.form import Correlation, Window
from neoflow.graph.algorithms.operand import Operand, operand
from neoflow.graph.algorithms.points import Filtering, Matrix, filtering
from neoflow.verdict import Verdict

FEW = 7
"""Taps, or results, of a window that are one tile; so many that F(4, 7) has points."""
OF_MANY = 3
"""Taps of a tile where there are more of both."""
MOST_WINDOWS = 2
MOST_LEFT = 0.85
"""Part of the products that may be left: the transforms take some too."""
MOST_GROWTH = 512
"""How many times larger than the direct sum's its roundings may be, of whatever is allowed: three digits are left."""
LEAST_SUMMED = 8
"""Terms of the sum that is left, from which the transforms, a few additions an element, can pay."""


@dataclass(frozen=True)
class Tiling:
    """A window in tiles: F(results, taps), of which there are `tiles` along the results or along the taps."""

    window: Window
    results: int
    taps: int

    @property
    def filtering(self) -> Filtering:
        return filtering(self.results, self.taps)

    @property
    def tiles(self) -> tuple[int, int]:
        """Along the results, and along the taps."""
        return math.ceil(self.window.out.extent / self.results), math.ceil(self.window.tap.extent / self.taps)

    @property
    def products(self) -> int:
        """That are left of this window's."""
        return math.prod(self.tiles) * self.filtering.length

    def __str__(self) -> str:
        return f"F({self.results}, {self.taps})"


def tiling(window: Window, tile: int) -> Tiling | None:
    """Tiles of `tile` results of all taps, or of all results of `tile` taps, whatever leaves fewer products; or of
    `OF_MANY` taps where there are many of both. None where there are too few."""
    taps, results = window.tap.extent, window.out.extent
    found = [Tiling(window, tile, taps)] if taps <= FEW and results >= tile else []
    if results <= FEW and taps >= tile:
        found.append(Tiling(window, results, tile))
    if min(taps, results) > FEW:
        found.append(Tiling(window, tile, OF_MANY))
    return min(found, key=lambda t: (t.products, t.filtering.growth), default=None)


def tilings(form: Correlation, tile: int) -> tuple[Tiling, ...]:
    """Of each window that has tiles."""
    return tuple(t for t in (tiling(w, tile) for w in form.windows) if t is not None)


def pays(form: Correlation, tile: int) -> Verdict:
    """Whether the windows have tiles that round little enough, and the sum that is left is worth the transforms."""
    if len(form.windows) > MOST_WINDOWS:
        return Verdict(False, f"it has more than {MOST_WINDOWS} windows")
    cut = tilings(form, tile)
    for w in form.windows:
        if not any(t.window is w for t in cut):
            return Verdict(
                False, f"a window has {w.out.extent} results of {w.tap.extent} taps, too few for tiles of {tile}"
            )
    name, left = " x ".join(map(str, cut)), f"leaves {saved(form, tile):.2f} of its products"
    if saved(form, tile) > MOST_LEFT:
        return Verdict(False, f"{name} {left}, of {MOST_LEFT} at most")
    if growth(form, tile) > MOST_GROWTH:
        most = f"{float(growth(form, tile)):.3g} times the direct sum's roundings, {MOST_GROWTH} at most"
        return Verdict(False, f"{name} may have {most}")
    summed = math.prod(a.extent for a in form.summed) * math.prod(t.tiles[1] for t in cut)
    if summed < LEAST_SUMMED:
        return Verdict(False, f"{summed} terms are left of its sum, fewer than {LEAST_SUMMED}")
    return Verdict(True, f"{name} {left}")


def saved(form: Correlation, tile: int) -> float:
    """Products that are left, to those of the direct sum."""
    cut = tilings(form, tile)
    return math.prod(t.products / (t.window.out.extent * t.window.tap.extent) for t in cut)


def growth(form: Correlation, tile: int) -> Fraction:
    """How much larger than the direct sum's its intermediate values may be, and so its roundings: see `Filtering`."""
    return math.prod((t.filtering.growth for t in tilings(form, tile)), start=Fraction(1))


# --- the small graph


@dataclass(frozen=True)
class _Plan:
    """Axes of the tensors that are made: a point of the transform, a tile along the results and along the taps for each
    window. What has one point is no axis."""

    tilings: tuple[Tiling, ...]
    points: tuple[Axis, ...]
    outer: tuple[tuple[Axis, Axis], ...]


def build(t: Compute, inputs: Sequence[Tensor], form: Correlation, tile: int) -> Tensor:
    """The same value as t, which reads `inputs`, by the `tiling` of each window."""
    cut = tilings(form, tile)
    names = itertools.count(1 << 16)
    plan = _Plan(
        cut,
        tuple(Axis(next(names), c.filtering.length) for c in cut),
        tuple((Axis(next(names), c.tiles[0]), Axis(next(names), c.tiles[1])) for c in cut),
    )
    inside = {a for w in form.windows for a in (w.out, w.tap)}
    image = operand(form.image, inputs[form.image.slot], inside, None)
    taps = operand(form.taps, inputs[form.taps.slot], inside, frozenset(form.columns))
    by_result, by_tap = (tuple(p[n] for p in plan.outer) for n in (0, 1))
    image_axes = _some((*image.axes[: image.inner], *by_result, *by_tap, *image.axes[image.inner :]))
    taps_axes = _some((*taps.axes[: taps.inner], *by_tap, *taps.axes[taps.inner :]))
    v = _transformed(
        f"{t.name}_image", [c.filtering.data for c in cut], plan.points, image_axes, lambda at: _image(image, plan, at)
    )
    u = _transformed(
        f"{t.name}_taps", [c.filtering.taps for c in cut], plan.points, taps_axes, lambda at: _taps(taps, plan, at)
    )
    kept, columns = {*form.batch, *form.rows, *by_result}, frozenset(form.columns)
    order = (*(a for a in image_axes if a in kept), *(a for a in taps_axes if a in columns))
    summed = tuple(a for a in image_axes if a not in kept)
    product = Apply("mul", (Read(v, (*plan.points, *image_axes)), Read(u, (*plan.points, *taps_axes))))
    m = _compute(f"{t.name}_products", (*plan.points, *order), Reduce("sum", summed, product))
    return _results(t, form, plan, m, order)


def _some(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    return tuple(a for a in axes if a.extent > 1)


def _at(axis: Axis) -> Expr:
    return axis if axis.extent > 1 else affine.integer(0)


def _compute(name: str, axes: Sequence[Axis], body: Expr) -> Compute:
    """The tensor over these axes, which may have any numbers."""
    return define(tuple(a.extent for a in axes), tuple(axes), body, name)


def _image(image: Operand, plan: _Plan, at: Sequence[int]) -> Expr:
    """The element of a tile of the image, under 0 where the tile goes beyond what any window reaches."""
    place: dict[Axis, Expr] = {}
    limits = []
    for tiling, (by_result, by_tap), n in zip(plan.tilings, plan.outer, at, strict=True):
        start = _sum(_times(_at(by_result), tiling.results), _times(_at(by_tap), tiling.taps))
        point = affine.simplify(_sum(start, affine.integer(n)))
        w = tiling.window
        place |= {w.out: point, w.tap: affine.integer(w.tap.extent - 1 if w.is_reversed else 0)}
        limits.append((point, w.reach))
    return image.at(place, limits)


def _taps(taps: Operand, plan: _Plan, at: Sequence[int]) -> Expr:
    """A tap of a tile of them, 0 beyond the last one."""
    place: dict[Axis, Expr] = {}
    limits = []
    for tiling, (_, by_tap), n in zip(plan.tilings, plan.outer, at, strict=True):
        w = tiling.window
        tap = affine.simplify(_sum(_times(_at(by_tap), tiling.taps), affine.integer(n)))
        limits.append((tap, w.tap.extent))
        place[w.tap] = _difference(affine.integer(w.tap.extent - 1), tap) if w.is_reversed else tap
    return taps.at(place, limits)


def _results(t: Compute, form: Correlation, plan: _Plan, m: Compute, order: tuple[Axis, ...]) -> Compute:
    """The tiles of results in the order of the products, then each where it belongs."""
    within = tuple(Axis((1 << 17) + n, c.results) for n, c in enumerate(plan.tilings))
    own = {p[0]: i for p, i in zip(plan.outer, within, strict=True)}
    axes: list[Axis] = []
    for a in order:
        axes += [a, own.pop(a)] if a in own else [a]
    axes = [*own.values(), *axes]

    def product(at: Sequence[int]) -> Expr:
        return Read(m, (*map(affine.integer, at), *order))

    values = _rows([c.filtering.results for c in plan.tilings], product)
    y = _compute(f"{t.name}_tiles", axes, _chosen(within, values))
    place: dict[Expr, Expr] = {}
    for c, (by_result, _), i in zip(plan.tilings, plan.outer, within, strict=True):
        size = affine.integer(c.results)
        place |= {by_result: Apply("floordiv", (c.window.out, size)), i: Apply("mod", (c.window.out, size))}
    read = Read(y, tuple(affine.simplify(substitute(a, place)) for a in axes))
    return define(t.shape, t.definition.axes, read, t.name)


def _sum(a: Expr, b: Expr) -> Expr:
    return Apply("add", (a, b))


def _difference(a: Expr, b: Expr) -> Expr:
    return affine.simplify(Apply("sub", (a, b)))


def _times(a: Expr, n: int) -> Expr:
    return Apply("mul", (a, affine.integer(n)))


# --- transforms


Point = tuple[int, ...]


def _transformed(
    name: str,
    matrices: Sequence[Matrix],
    points: Sequence[Axis],
    axes: Sequence[Axis],
    item: Callable[[Sequence[int]], Expr],
) -> Compute:
    """The tensor over `points` and `axes` that is each matrix applied along one index of `item`."""
    return _compute(name, (*points, *axes), _chosen(points, _rows(matrices, item)))


def _rows(matrices: Sequence[Matrix], item: Callable[[Sequence[int]], Expr]) -> Mapping[Point, Expr]:
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
    return reduce(_sum, (_scaled(size, terms) for size, terms in sorted(by_size.items())))


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


def _chosen(axes: Sequence[Axis], values: Mapping[Point, Expr]) -> Expr:
    """select(a == 0, select(b == 0, ..., ...), select(a == 1, ...))"""
    if not axes:
        return values[()]
    first, *rest = axes
    inner = [_chosen(rest, {at[1:]: e for at, e in values.items() if at[0] == n}) for n in range(first.extent)]
    result = inner[-1]
    for n in reversed(range(first.extent - 1)):
        result = Select(Apply("eq", (first, affine.integer(n))), inner[n], result)
    return result
