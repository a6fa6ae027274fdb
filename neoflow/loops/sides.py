"""A sum of products as a contraction: two sides, and the groups of axes they share or do not.

    out[batch, M, N] = sum over K of left[batch, M, K] * right[batch, N, K]

Pure analysis of a nest, without tvm: schedules are chosen from it, kernels are made from it.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read
from neoflow.loops.costs import NEAR_STEP, TILE_ROWS, UNROLLED_K
from neoflow.loops.nest import Nest, input_reads, is_data_dependent, is_index, pitch, stride

MOST_FACTORS, LEAST_RESULTS = 6, 16
"""Factors of a product that are divided among two sides, and results for which a register tile is worth its loops."""
ONE_VECTOR, NEAR_K = 8, 64
"""Points of N that leave registers free for what steps of K share, and of K whose operands of a tile all stay near."""


def size(axes: tuple[Axis, ...]) -> int:
    """Points of a product of axes."""
    return math.prod(a.extent for a in axes)


@dataclass(frozen=True)
class Contraction:
    """Axes of each group in the order of the nest; `left` is the side with M, `right` the one with N."""

    batch: tuple[Axis, ...]
    m: tuple[Axis, ...]
    n: tuple[Axis, ...]
    k: tuple[Axis, ...]
    left: Expr
    right: Expr

    def swapped(self) -> Contraction:
        return Contraction(self.batch, self.n, self.m, self.k, self.right, self.left)

    @property
    def flops(self) -> int:
        return 2 * size(self.batch) * size(self.m) * size(self.n) * size(self.k)


def factors_of(body: Expr) -> list[Expr]:
    """The factors of a product, a negation being a factor -1; of more than `MOST_FACTORS` the rest is left as it is."""
    found: list[Expr] = []
    stack = [body]
    while stack and len(found) + len(stack) <= MOST_FACTORS:
        e = stack.pop()
        if isinstance(e, Apply) and e.fn == "mul":
            stack += reversed(e.args)
        elif isinstance(e, Apply) and e.fn == "neg":
            found.append(Const(-1.0, body.dtype))
            stack.append(e.args[0])
        else:
            found.append(e)
    return found + stack[::-1]


def _product(factors: list[Expr]) -> Expr:
    result = factors[0]
    for f in factors[1:]:
        result = Apply("mul", (result, f))
    return result


def contractions_of(nest: Nest) -> tuple[Contraction, ...]:
    """The ways to split the body's factors into two sides that are worth a register tile, that which reuses most first.

    Reuse is the multiply-adds for each element of the sides and the result.
    """
    reduction = nest.reduction
    if reduction is None or reduction.op != "sum" or not dt.is_float(reduction.body.dtype) or not reduction.axes:
        return ()
    factors = factors_of(reduction.body)
    if not 2 <= len(factors) <= MOST_FACTORS or any(is_data_dependent(r) for r in input_reads(reduction.body)):
        return ()
    found: list[tuple[float, Contraction]] = []
    for sides in itertools.product((False, True), repeat=len(factors) - 1):
        left = [factors[0], *(f for f, right in zip(factors[1:], sides, strict=True) if not right)]
        right = [f for f, is_right in zip(factors[1:], sides, strict=True) if is_right]
        grouped = _grouped(nest, _product(left), _product(right)) if right else None
        if grouped is None:
            continue
        m, n, k = size(grouped.m), size(grouped.n), size(grouped.k)
        if min(m, n) >= 2 and m * n >= LEAST_RESULTS:
            found.append((m * n * k / (m * k + n * k + m * n), grouped))
    return tuple(c for _, c in sorted(found, key=lambda f: -f[0]))


def _grouped(nest: Nest, left: Expr, right: Expr) -> Contraction | None:
    assert nest.reduction is not None
    group: dict[tuple[bool, bool], list[Axis]] = {}
    for a in nest.axes:
        group.setdefault((a in left.free, a in right.free), []).append(a)
    if (False, False) in group:  # a result repeated along an axis
        return None
    axes = {key: tuple(found) for key, found in group.items()}
    batch, m, n = (axes.get(key, ()) for key in ((True, True), (True, False), (False, True)))
    return Contraction(batch, m, n, nest.reduction.axes, left, right)


def usual_last_n(c: Contraction, address: Expr) -> int:
    """The N axis along which the output is most nearly contiguous, by its place in the nest."""
    return _by_stride(c.n, address)[-1]


def _by_stride(axes: tuple[Axis, ...], address: Expr) -> list[int]:
    """Places of the axes, those that move the address furthest first."""
    return sorted(range(len(axes)), key=lambda n: -(stride(address, axes[n]) or 1 << 40))


def usual_last_k(c: Contraction, element: str) -> int:
    """A K axis along which the rows of a tile, read in place, do not overlap, by its place in the nest.

    LLVM would share what neighbouring steps both read and run out of registers, but for a tile of one vector a row,
    whose rows then lie in few lines. Of a short K it is the longest such axis: fewer and longer loops.
    """
    read, last = direct_read(c.left, element), len(c.k) - 1
    if read is None:
        return last
    if size(c.n) <= ONE_VECTOR:
        return next((n for n, a in enumerate(c.k) if stride(read.indices[0], a) == 1), last)
    free = [n for n, a in enumerate(c.k) if not any(overlap(read, a, row) for row in c.m)]
    if size(c.k) <= NEAR_K and free:
        return max(free, key=lambda n: (c.k[n].extent, n))
    return free[-1] if free else last


def near_last_k(c: Contraction, element: str, usual: int) -> int:
    """That axis, or one along which rows of a tile, read in place from far away, stay in a page for some steps.

    It is the longest one along which they do not overlap; where there is none, the last one. Along the images of a
    batch or their channels each row would come to another page at each step.
    """
    read = direct_read(c.left, element)
    if read is None:
        return usual
    steps = [pitch(read.indices[0], a, element) for a in c.k]
    if steps[usual] <= NEAR_STEP or c.k[usual].extent <= UNROLLED_K:
        return usual
    near = [n for n, step in enumerate(steps) if 0 < step <= NEAR_STEP]
    rows = tile_axes(c.m, TILE_ROWS)
    free = [n for n in near if not any(overlap(read, c.k[n], row) for row in rows)]
    if free:
        return max(free, key=lambda n: (c.k[n].extent, n))
    return near[-1] if near else usual


def tile_axes(m: tuple[Axis, ...], tile_rows: int) -> tuple[Axis, ...]:
    """The axes of M along which rows of a tile differ."""
    position, steps = row_box(m, tile_rows)
    return m[position if steps > 1 else position + 1 :]


def overlap(read: Read, a: Axis, b: Axis) -> bool:
    """Whether steps along one of the axes come to where a step along the other one does."""
    steps = [(abs(stride(read.indices[0], x) or 0), x.extent) for x in (a, b)]
    (short, extent), (long, _) = sorted(steps, key=lambda s: s[0])
    return short > 0 and long % short == 0 and long // short < extent


def ordered(c: Contraction, address: Expr, last_n: int, last_k: int, last_m: int | None = None) -> Contraction:
    """N and K in the order of the loops: N by how far its axes move the output, K as in the nest, but for the last; M
    as in the nest, but for the last where it is given."""
    n = [c.n[place] for place in _by_stride(c.n, address) if place != last_n]
    m = c.m if last_m is None else with_last(c.m, last_m)
    return Contraction(c.batch, m, (*n, c.n[last_n]), with_last(c.k, last_k), c.left, c.right)


def with_last(axes: tuple[Axis, ...], last: int) -> tuple[Axis, ...]:
    """The same axes, one of them behind the others."""
    return (*axes[:last], *axes[last + 1 :], axes[last])


def direct_read(side: Expr, element: str) -> Read | None:
    """The side itself, when it is one in-bounds read with a linear address: it needs no packing."""
    if not isinstance(side, Read) or side.dtype != element or element not in ("float32", "float64"):
        return None
    if is_data_dependent(side) or not is_index(side.indices[0]):
        return None
    low, high = affine.bounds(side.indices[0])
    linear = all(isinstance(atom, Axis) for atom in affine.linear(side.indices[0])[0])
    return side if linear and low >= 0 and high < math.prod(side.source.shape) else None


def vector_read(side: Expr, n: tuple[Axis, ...], lanes: int, element: str, in_lines: bool = False) -> Read | None:
    """The side itself, when vectors of `lanes` points of N lie in its memory as they are: it needs no packing."""
    read = direct_read(side, element)
    if read is None or chunk_lanes(n, lanes, in_lines) != lanes or stride(read.indices[0], n[-1]) != 1:
        return None
    return read


def contiguous_run(side: Expr, k: tuple[Axis, ...], lanes: int) -> int | None:
    """Position of a K axis along which the side is contiguous, with a vector's length or half of one."""
    steps = {a: [stride(r.indices[0], a) for r in input_reads(side)] for a in k}
    for n, a in enumerate(k):
        if 2 * block_lanes(a, lanes) >= lanes and all(s in (0, 1) for s in steps[a]) and 1 in steps[a]:
            return n
    return None


def block_lanes(axis: Axis, lanes: int) -> int:
    """The largest power of two not above `lanes` and the length of the axis."""
    return 1 << (min(lanes, axis.extent).bit_length() - 1)


def chunk_lanes(n: tuple[Axis, ...], lanes: int, in_lines: bool = False) -> int:
    """Widest vector along the last N axis that never crosses its end; where panels end there too, with one N axis or
    `in_lines`, what is behind the end is masked instead."""
    if len(n) == 1 or in_lines:
        return lanes
    return math.gcd(n[-1].extent, lanes)


def row_box(m: tuple[Axis, ...], limit: int) -> tuple[int, int]:
    """(position, length): rows of a tile are `length` of the axis at `position` times all of the axes after it.

    At most `limit` rows; the length is balanced, so that the last tile is not much shorter than the others.
    """
    position, inner = len(m) - 1, 1
    while position > 0 and inner * m[position].extent <= limit:
        inner *= m[position].extent
        position -= 1
    extent = m[position].extent
    longest = max(1, min(extent, limit // inner))
    return position, math.ceil(extent / math.ceil(extent / longest))
