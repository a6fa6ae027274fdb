"""Contractions of which parts are never read: what is read is computed, in a few boxes.

    y[t, j] = sum[k](x[t, k] * w[j, k]);  a[j] = y[0, j];  b[j] = y[1, j];  r[j] = y[1, j + n]        (j < n)
        ->  y1[t, j] = sum[k](x[t, k] * w[j, k])    (j < n);    y2[t, j] = sum[k](x[t + 1, k] * w[j + n, k])    (t < 1)
            a[j] = y1[0, j];  b[j] = y1[1, j];  r[j] = y2[0, j]

Many steps of one rule at once (a split of the outputs, its slices, what nobody reads), none of which pays alone. The
sums are the same ones, so their bits may differ by their schedules alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr.close import build, define
from neoflow.expr.ir import Apply, Axis, Expr, Read, substitute
from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph import Graph, Step, canonicalize, is_contraction
from neoflow.graph.cost import SURE

UNREAD = "unread"
"""The name of this transformation."""
MOST_BOXES = 4
"""Of a contraction: each is a kernel."""

Box = tuple[tuple[int, int], ...]
"""Of each dimension the first index and the one behind the last."""


@dataclass(frozen=True)
class Narrowed:
    """A move of a search: of contractions only what is read is computed."""

    steps: tuple[Step, ...] = ()
    """Rules that were applied: none."""

    def replay(self, graph: Graph) -> Graph:
        """The same on an equal graph."""
        return only_read(graph)

    def __str__(self) -> str:
        return "what nobody reads of contractions is not computed"


@dataclass(frozen=True)
class _Slice:
    """Where in a contraction a slice of it lies, or a slice of one: of each dimension of the contraction its first
    index there, and the dimension of the slice that goes along it, if any."""

    tensor: Compute
    place: tuple[tuple[int, int | None], ...]

    @property
    def box(self) -> Box:
        return tuple((first, first + (1 if d is None else self.tensor.shape[d])) for first, d in self.place)


def only_read(graph: Graph) -> Graph:
    """The graph whose contractions compute what is read of them; the same where that is nearly all."""
    readers: dict[Tensor, list[Compute]] = {}
    for t in graph.nodes:
        for i in dict.fromkeys(t.inputs):
            readers.setdefault(i, []).append(t)
    roots, edit = set(graph.roots), dict[Tensor, Tensor]()
    for t in graph.nodes:
        if t in roots or not is_contraction(t.definition):
            continue
        found = _slices(t, readers, roots)
        if found and (boxes := boxes_of([s.box for s in found], t.size)) is not None:
            made = [_narrow(t, box) for box in boxes]
            for s in found:
                n = next(n for n, box in enumerate(boxes) if _is_inside(s.box, box))
                edit[s.tensor] = _read(s, made[n], boxes[n])
    return canonicalize(graph.replace(edit)) if edit else graph


def _slices(t: Compute, readers: Mapping[Tensor, Sequence[Compute]], roots: set[Tensor]) -> list[_Slice] | None:
    """All slices that are read of a contraction; None where anything reads it otherwise."""
    found: list[_Slice] = []
    whole = _Slice(t, tuple((0, d) for d in range(len(t.shape))))
    stack = [whole]
    while stack:
        here = stack.pop()
        inner = [_slice_of(here, r) for r in readers.get(here.tensor, ())]
        known = [s for s in inner if s is not None]
        if len(known) == len(inner) and here.tensor not in roots and known:
            stack += known
        elif here is whole:
            return None
        else:
            found.append(here)
    return found


def _slice_of(source: _Slice, t: Compute) -> _Slice | None:
    """What a compute is of a contraction that is a run of a slice along each dimension; None for another one."""
    body = t.definition.body
    if not isinstance(body, Read) or len(t.inputs) != 1:
        return None
    at: list[tuple[int, int | None]] = []
    for index in body.indices:
        terms, first = affine.linear(index)
        axes = [a for a, step in terms.items() if step]
        if any(terms[a] != 1 or not isinstance(a, Axis) for a in axes) or len(axes) > 1:
            return None
        axis = axes[0] if axes else None
        at.append((first, axis.ident if isinstance(axis, Axis) else None))
    used = [d for _, d in at if d is not None]
    if len(used) != len(set(used)):
        return None
    place = tuple((f, None) if d is None else (f + at[d][0], at[d][1]) for f, d in source.place)
    return _Slice(t, place)


def boxes_of(read: Sequence[Box], size: int) -> list[Box] | None:
    """A few boxes that hold all that is read, each whole in one of them, with surely fewer points than there are; cut
    along one dimension."""
    best: list[Box] | None = None
    for d in range(len(read[0])):
        found = list(_cut(read, d))
        is_whole = len(found) <= MOST_BOXES and all(any(_is_inside(r, b) for b in found) for r in read)
        if is_whole and (best is None or _effort(found) < _effort(best)):
            best = found
    return best if best is not None and _points(best) <= (1 - SURE) * size else None


def _cut(read: Sequence[Box], d: int) -> Iterator[Box]:
    """Cut where a box that is read begins or ends along a dimension; neighbours that are needed alike are one."""
    ends = sorted({end for box in read for end in box[d]})
    last: Box | None = None
    for low, high in itertools.pairwise(ends):
        here = [box for box in read if box[d][0] < high and box[d][1] > low]
        if not here:
            continue
        hull = [(min(b[n][0] for b in here), max(b[n][1] for b in here)) for n in range(len(read[0]))]
        box = (*hull[:d], (low, high), *hull[d + 1 :])
        if last is not None and last[d][1] == low and (*last[:d], *last[d + 1 :]) == (*box[:d], *box[d + 1 :]):
            last = (*box[:d], (last[d][0], high), *box[d + 1 :])
            continue
        if last is not None:
            yield last
        last = box
    if last is not None:
        yield last


def _is_inside(inner: Box, outer: Box) -> bool:
    return all(o[0] <= i[0] and i[1] <= o[1] for i, o in zip(inner, outer, strict=True))


def _points(boxes: Sequence[Box]) -> int:
    return sum(math.prod(high - low for low, high in box) for box in boxes)


def _effort(boxes: Sequence[Box]) -> tuple[int, int]:
    """Points; of as many, the fewest elements along the sides, which is what operands are read by."""
    return _points(boxes), sum(high - low for box in boxes for low, high in box)


def _narrow(t: Compute, box: Box) -> Compute:
    """A compute at the points of a box."""
    definition, shape = t.definition, tuple(high - low for low, high in box)
    at: dict[Expr, Expr] = {a: Axis(len(shape) + n, a.extent) for n, a in enumerate(definition.reduction_axes)}
    for n, (a, (low, _)) in enumerate(zip(definition.axes, box, strict=True)):
        at[a] = _shifted(Axis(n, shape[n]), low)
    return build(shape, substitute(definition.body, at), t.inputs, t.name)


def _read(s: _Slice, source: Compute, box: Box) -> Compute:
    """A slice, from what is computed of the box around it."""
    axes = tuple(Axis(n, e) for n, e in enumerate(s.tensor.shape))
    indices = tuple(
        affine.integer(first - low) if d is None else _shifted(axes[d], first - low)
        for (first, d), (low, _) in zip(s.place, box, strict=True)
    )
    return define(s.tensor.shape, axes, Read(source, indices), s.tensor.name)


def _shifted(axis: Axis, by: int) -> Expr:
    return affine.simplify(Apply("add", (axis, affine.integer(by)))) if by else axis
