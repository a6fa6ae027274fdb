"""Winograd's minimal filtering of a correlation whose windows have few taps, or few results.

    y[p] = sum[c, r](x[c, p + r] * w[c, r])
        ->  V[a, t, c] = sum[j](B^T[a, j] * x[c, m*t + j])       U[a, c] = sum[r](G[a, r] * w[c, r])
            M[a, t] = sum[c](V[a, t, c] * U[a, c])               y[m*t + i] = sum[a](A^T[i, a] * M[a, t])

With two windows along each of them, whose taps may differ: of 4 x 4 results with 3 x 3 taps 144 multiplications are
left out at 36, of 4 results with 7 taps 28 at 10. Where the results are few and the taps many (the gradient of a
filter), tiles go along the taps and their number is summed over with the channels; where both are many (9 x 9 taps),
along both.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from neoflow.expr import affine
from neoflow.expr.ir import Apply, Axis, Expr, Read, Reduce
from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph.algorithms.form import Correlation, Window
from neoflow.graph.algorithms.operand import Operand, operand
from neoflow.graph.algorithms.points import Filtering, filtering
from neoflow.graph.algorithms.transforms import added, chosen, compute, rows, taken, transformed
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
    v = transformed(
        f"{t.name}_image", [c.filtering.data for c in cut], plan.points, image_axes, lambda at: _image(image, plan, at)
    )
    u = transformed(
        f"{t.name}_taps", [c.filtering.taps for c in cut], plan.points, taps_axes, lambda at: _taps(taps, plan, at)
    )
    kept, columns = {*form.batch, *form.rows, *by_result}, frozenset(form.columns)
    order = (*(a for a in image_axes if a in kept), *(a for a in taps_axes if a in columns))
    summed = tuple(a for a in image_axes if a not in kept)
    product = Apply("mul", (Read(v, (*plan.points, *image_axes)), Read(u, (*plan.points, *taps_axes))))
    m = compute(f"{t.name}_products", (*plan.points, *order), Reduce("sum", summed, product))
    return _results(t, form, plan, m, order)


def _some(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    return tuple(a for a in axes if a.extent > 1)


def _at(axis: Axis) -> Expr:
    return axis if axis.extent > 1 else affine.integer(0)


def _image(image: Operand, plan: _Plan, at: Sequence[int]) -> Expr:
    """The element of a tile of the image, under 0 where the tile goes beyond what any window reaches."""
    place: dict[Axis, Expr] = {}
    limits = []
    for tiling, (by_result, by_tap), n in zip(plan.tilings, plan.outer, at, strict=True):
        start = added(_times(_at(by_result), tiling.results), _times(_at(by_tap), tiling.taps))
        point = affine.simplify(added(start, affine.integer(n)))
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
        tap = affine.simplify(added(_times(_at(by_tap), tiling.taps), affine.integer(n)))
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

    values = rows([c.filtering.results for c in plan.tilings], product)
    y = compute(f"{t.name}_tiles", axes, chosen(within, values))
    parts = [
        (c.window.out, by_result, i) for c, (by_result, _), i in zip(plan.tilings, plan.outer, within, strict=True)
    ]
    return taken(t, y, axes, parts)


def _difference(a: Expr, b: Expr) -> Expr:
    return affine.simplify(Apply("sub", (a, b)))


def _times(a: Expr, n: int) -> Expr:
    return Apply("mul", (a, affine.integer(n)))
