"""Cotangents of slices: a tensor read at constant indices gets a term that is zero everywhere else.

    y[i] = F(A[3, i])    ->    s[z] = g[z] * dF/dA(z),   dA[u, z] = select(u == 3, s[z], 0)

A recurrence written out reads one slice after the other. Its terms are no sum over whole tensors, each zero but for one
slice, but the slices beside each other:

    select(u == 0, p0[z], 0) + select(u == 1, p1[z], 0)    ->    select(u == 0, p0[z], select(u == 1, p1[z], 0))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from neoflow.expr import affine
from neoflow.expr.close import define
from neoflow.expr.guards import conjuncts
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Select, same
from neoflow.expr.memo import remembered
from neoflow.expr.normal import conjunction
from neoflow.expr.tensor import Compute, Definition, Placeholder, Tensor, tensor_of

Place = Mapping[int, int]
"""Dimensions that have one index, and the index."""


def constant_dims(read: Read) -> Place:
    """The dimensions, of more than one element, that are read at a constant index."""
    pairs = zip(read.indices, read.source.shape, strict=True)
    return {d: int(i.value) for d, (i, n) in enumerate(pairs) if isinstance(i, Const) and n > 1}


def slice_read(read: Read, place: Place) -> Read:
    """The read of the slice at `place` as a tensor by itself."""
    kept = [d for d in range(len(read.indices)) if d not in place]
    shape, name = tuple(read.source.shape[d] for d in kept), tensor_of(read).name
    return Read(Placeholder(shape, read.dtype, name, None), tuple(read.indices[d] for d in kept))


def in_place(sliced: Tensor, shape: tuple[int, ...], place: Place, axes: tuple[Axis, ...], name: str) -> Compute:
    """The tensor of `shape` that is `sliced` at `place`, and zero elsewhere."""
    body = Select(_is_at(axes, place), Read(sliced, _others(axes, place)), Const(0, sliced.dtype))
    return define(shape, axes, body, name)


@dataclass
class Group:
    """Terms that are slices in the same dimensions: `slices` by the indices there."""

    dims: tuple[int, ...]
    terms: list[Tensor] = field(default_factory=list)
    slices: dict[tuple[int, ...], list[Tensor]] = field(default_factory=dict)


def beside_each_other(terms: Sequence[Tensor]) -> dict[tuple[int, ...], Group]:
    """Groups of two and more terms that are slices, by their dimensions."""
    found: dict[tuple[int, ...], Group] = {}
    for t in terms:
        place = _place(t.definition) if isinstance(t, Compute) else None
        if isinstance(t, Compute) and place is not None:
            group = found.setdefault(tuple(place), Group(tuple(place)))
            group.terms.append(t)
            group.slices.setdefault(tuple(place.values()), []).append(t.inputs[0])
    return {dims: group for dims, group in found.items() if len(group.terms) > 1}


def joined(group: Group, axes: tuple[Axis, ...], add: Callable[[list[Tensor]], Tensor], dtype: str) -> Expr:
    """The element at `axes` of the tensor that has the slices of a group where they belong; `add` adds those at one."""
    is_whole = len(group.slices) == math.prod(axes[d].extent for d in group.dims)
    result: Expr | None = None if is_whole else Const(0, dtype)
    for indices, found in reversed(group.slices.items()):
        place = dict(zip(group.dims, indices, strict=True))
        sliced = Read(add(found), _others(axes, place))
        result = sliced if result is None else Select(_is_at(axes, place), sliced, result)
    assert result is not None
    return result


@remembered
def _place(definition: Definition) -> Place | None:
    """Where the one slice of a definition made by `in_place` lies; None for any other."""
    match definition.body:
        case Select(cond=cond, then=Read() as read, other=Const(value=0)):
            place: dict[int, int] = {}
            for c in conjuncts(cond, True):
                index = _index(c)
                if index is None:
                    return None
                place.update([index])
            is_rest = same(read.indices, _others(definition.axes, place))
            return dict(sorted(place.items())) if is_rest and len(definition.slots) == 1 else None
    return None


def _index(condition: Expr) -> tuple[int, int] | None:
    """The dimension and its index, where a condition says no more than that."""
    if not (isinstance(condition, Apply) and condition.fn == "eq"):
        return None
    left, right = map(affine.linear, condition.args)
    terms, constant = affine.combine(left, right, -1)
    ((axis, factor),) = terms.items() if len(terms) == 1 else ((None, 0),)
    return (axis.ident, -constant * factor) if isinstance(axis, Axis) and abs(factor) == 1 else None


def _is_at(axes: tuple[Axis, ...], place: Place) -> Expr:
    return conjunction(tuple(Apply("eq", (axes[d], affine.integer(n))) for d, n in place.items()))


def _others(axes: tuple[Axis, ...], place: Place) -> tuple[Expr, ...]:
    return tuple(affine.simplify(a) for d, a in enumerate(axes) if d not in place)
