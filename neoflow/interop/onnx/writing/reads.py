"""Reads as slices, transposes, reshapes and gathers.

The dimensions of a tensor that are read at common axes are a group, each of which becomes the group's axes by itself:

    x[b, 2 i + 1]         a slice with a step
    x[b, f // 4, f % 4]   a reshape, where the places in memory are all of the group, each once, in order
    x[b, 2 p + r]         a gather with a table of places, computed where that is large
    x[i, i], x[ids[b], c] the same, of a group of several dimensions, and with places that are data
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr.deep import Walk
from neoflow.expr.ir import Apply, Axis, Cast, Expr, Read
from neoflow.interop.onnx.writing.facts import has_reads
from neoflow.interop.onnx.writing.nodes import Nodes, Value

ValueOf = Callable[[Expr], Walk[Value]]


@dataclass(frozen=True)
class Group:
    """Dimensions with common axes. start, step: of the slice of a single one; axes: what the rest is in memory, or None
    where places have to be looked up."""

    dims: tuple[int, ...]
    start: int = 0
    step: int = 1
    axes: tuple[Axis, ...] | None = None

    @property
    def size(self) -> int:
        return math.prod(a.extent for a in self.axes or ())


def groups(read: Read) -> list[Group]:
    """The dimensions of what is read, in the order of the first of each group."""
    found: list[tuple[list[int], frozenset[Axis]]] = []
    for d, index in enumerate(read.indices):
        dims, axes = [d], frozenset(a for a in index.free if a.extent > 1)
        for other in [g for g in found if g[1] & axes]:
            found.remove(other)
            dims, axes = other[0] + dims, axes | other[1]
        found.append((sorted(dims), axes))
    return [_group(read, dims) for dims, _ in sorted(found, key=lambda g: g[0][0])]


def _group(read: Read, dims: Sequence[int]) -> Group:
    extents = [read.source.shape[d] for d in dims]
    flat: affine.Linear = ({}, 0)
    for n, d in enumerate(dims):
        flat = affine.combine(flat, affine.scale(affine.linear(read.indices[d]), math.prod(extents[n + 1 :])))
    terms, constant = affine.linear(affine.simplify(affine.from_linear(flat))) if len(dims) > 1 else flat
    if any(not isinstance(atom, Axis) for atom in terms):
        return Group(tuple(dims))
    ordered = sorted(affine.over_axes((terms, 0)).items(), key=lambda t: -abs(t[1]))
    axes, whole = tuple(a for a, _ in ordered), math.prod(extents)
    size = math.prod(a.extent for a in axes)
    step = ordered[-1][1] if ordered else 1
    is_dense = all(k == step * math.prod(a.extent for a in axes[n + 1 :]) for n, (_, k) in enumerate(ordered))
    last = constant + step * (size - 1)
    is_inside = min(constant, last) >= 0 and max(constant, last) < whole
    if not is_dense or not is_inside or (len(dims) > 1 and (step != 1 or size != whole)):
        return Group(tuple(dims))
    return Group(tuple(dims), constant, step, axes)


def write(nodes: Nodes, source: str, read: Read, value_of: ValueOf, is_guarded: bool, dtype: str) -> Walk[Value]:
    """The value of a read of the tensor `source`. is_guarded: places that are data may be outside where nothing takes
    what is read there."""
    shape = read.source.shape
    found = groups(read)
    name = _sliced(nodes, source, shape, found)
    order = [d for g in found for d in g.dims]
    name = nodes.transpose(name, order)
    after: list[int] = []
    axes: list[Axis | Group] = []
    for g in found:
        after += [a.extent for a in g.axes] if g.axes is not None else [math.prod(shape[d] for d in g.dims)]
        axes += g.axes if g.axes is not None else [g]
    before = [n for g in found for n in ([g.size] if g.axes is not None and len(g.dims) == 1 else _own(g, shape))]
    name = nodes.reshape(name, before, after)
    while any(isinstance(a, Group) for a in axes):
        at, group = next((n, a) for n, a in enumerate(axes) if isinstance(a, Group))
        place = yield _place(nodes, read, group, value_of, is_guarded)
        name = nodes.add("Gather", [name, place.name], axis=at)
        axes[at : at + 1] = place.axes
    return Value(name, tuple(a for a in axes if isinstance(a, Axis)), dtype)


def _own(group: Group, shape: Sequence[int]) -> list[int]:
    return [shape[d] for d in group.dims]


def _sliced(nodes: Nodes, name: str, shape: Sequence[int], found: Sequence[Group]) -> str:
    """What is left of single dimensions."""
    cut = [
        (g.dims[0], g)
        for g in found
        if g.axes is not None and len(g.dims) == 1 and (g.start, g.step, g.size) != (0, 1, shape[g.dims[0]])
    ]
    if not cut:
        return name
    starts = [g.start for _, g in cut]
    ends = [g.start + g.step * g.size if g.start + g.step * g.size >= 0 else -shape[d] - 1 for d, g in cut]
    return nodes.add(
        "Slice",
        [
            name,
            nodes.ints(starts),
            nodes.ints(ends),
            nodes.ints([d for d, _ in cut]),
            nodes.ints([g.step for _, g in cut]),
        ],
    )


def _place(nodes: Nodes, read: Read, group: Group, value_of: ValueOf, is_guarded: bool) -> Walk[Value]:
    """Where the group's elements are, in its dimensions as one. A place outside is one that nothing takes."""
    flat: Expr | None = None
    extents = _own(group, read.source.shape)
    for n, (d, extent) in enumerate(zip(group.dims, extents, strict=True)):
        index = read.indices[d]
        low, high = affine.bounds(index)
        if (low < 0 or high >= extent) and (is_guarded or not has_reads(index)):
            lowest = Apply("maximum", (_wide(index), affine.integer(0)))
            index = Apply("minimum", (lowest, affine.integer(extent - 1)))
        stride = math.prod(extents[n + 1 :])
        if flat is None:
            flat = _times(index, stride)
        else:
            flat = Apply("add", (_wide(flat), _wide(_times(index, stride))))
    assert flat is not None
    return (yield value_of(flat))


def _times(index: Expr, stride: int) -> Expr:
    return index if stride == 1 else Apply("mul", (_wide(index), affine.integer(stride)))


def _wide(index: Expr) -> Expr:
    return index if index.dtype == "int64" else Cast("int64", index)
