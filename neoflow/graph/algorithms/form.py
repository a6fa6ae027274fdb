"""What a contraction is as a correlation: an image through which windows go, and the taps that are laid on it.

    y[b, o, p, q] = sum[c, r, s](x[b, c, p + r, q + s] * w[o, c, r, s])      windows (p, r), (q, s); image x, taps w

Found from the affine indices alone, whatever the order of axes: the gradients of a convolution are correlations too,
one with reversed taps, the other with few results and many taps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Axis, Expr, Read, Reduce, substitute
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Definition
from neoflow.graph.work import operands

DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Window:
    """An axis of the output and one of the taps which an image is read at the sum of; is_reversed: the difference."""

    out: Axis
    tap: Axis
    is_reversed: bool

    @property
    def reach(self) -> int:
        """Elements of the image along it."""
        return self.out.extent + self.tap.extent - 1


@dataclass(frozen=True)
class Correlation:
    """A sum over the windows' taps and `summed` of image * taps; the other axes by which of both has them."""

    image: Read
    taps: Read
    windows: tuple[Window, ...]
    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    summed: tuple[Axis, ...]


@remembered
def correlation(definition: Definition) -> Correlation | str:
    """A sum of products as a correlation; or why it is none."""
    found = two_reads(definition)
    if isinstance(found, str):
        return found
    a, b = (_without_ones(read, definition.reduction_axes) for read in found)
    if not (is_linear(a) and is_linear(b)):
        return "its operands are read at other than linear indices"
    axes, summed = ([x for x in those if x.extent > 1] for those in (definition.axes, definition.reduction_axes))
    for image, taps in ((a, b), (b, a)):
        windows = _windows(image, taps, axes, summed)
        if windows:
            return _grouped(image, taps, windows, axes, summed)
    return "no window goes through an operand"


def two_reads(definition: Definition) -> tuple[Read, Read] | str:
    """What a sum of products of two reads multiplies; or why it is none."""
    body = definition.body
    if not (isinstance(body, Reduce) and body.op == "sum" and body.dtype in DTYPES):
        return "it is no sum of floats"
    factors = operands(body.body)
    if len(factors) != 2:
        return "it is no sum of products of two"
    a, b = factors
    return (a, b) if isinstance(a, Read) and isinstance(b, Read) else "its operands are more than reads"


def _without_ones(read: Read, reduced: Sequence[Axis]) -> Read:
    """What is read where axes of one element are at 0: a window of one tap is none."""
    ones: dict[Expr, Expr] = {a: affine.integer(0) for a in reduced if a.extent == 1}
    return read.rebuild(tuple(affine.simplify(substitute(i, ones)) for i in read.indices)) if ones else read


def is_linear(read: Read) -> bool:
    """Whether every index is a sum of multiples of axes."""
    return all(i.dtype == dt.INDEX and all(isinstance(x, Axis) for x in affine.linear(i)[0]) for i in read.indices)


def _windows(image: Read, taps: Read, outer: Sequence[Axis], reduced: Sequence[Axis]) -> tuple[Window, ...]:
    """Every pair of axes, of the output and reduced, that the image is read at the sum of, and nowhere else."""
    forms = [affine.linear(i)[0] for i in image.indices]
    found: list[Window] = []
    for p in outer:
        if p in taps.free or p not in image.free:
            continue
        for r in reduced:
            if r not in taps.free or r not in image.free or any(w.tap is r for w in found):
                continue
            pairs = [(f.get(p, 0), f.get(r, 0)) for f in forms]
            if all(x == y for x, y in pairs) or all(x == -y for x, y in pairs):
                found.append(Window(p, r, any(x != y for x, y in pairs)))
                break
    return tuple(found)


def _grouped(
    image: Read, taps: Read, windows: tuple[Window, ...], axes: Sequence[Axis], reduced: Sequence[Axis]
) -> Correlation | str:
    inside = {a for w in windows for a in (w.out, w.tap)}
    crowded = [i for i in image.indices if len(i.free - inside) + bool(i.free & inside) > 1]
    if crowded or any(len(i.free) > 1 for i in taps.indices):
        return "an operand is read at a sum of other axes"
    rest = [a for a in axes if a not in inside]
    if any(a not in image.free and a not in taps.free for a in rest):
        return "its result is repeated along an axis"
    batch = tuple(a for a in rest if a in image.free and a in taps.free)
    rows = tuple(a for a in rest if a in image.free and a not in taps.free)
    columns = tuple(a for a in rest if a not in image.free)
    summed = tuple(a for a in reduced if a not in inside)
    if not all(a in image.free and a in taps.free for a in summed):
        return "an axis is summed over that one operand does not have"
    return Correlation(image, taps, windows, batch, rows, columns, summed)


def in_order(axes: Iterable[Axis], indices: Sequence[Expr]) -> tuple[Axis, ...]:
    """The axes in the order of the dimensions whose index they are in."""
    place = {a: n for n, i in enumerate(indices) for a in i.free}
    return tuple(sorted(axes, key=lambda a: place[a]))
