"""Selects by places: what is computed in a box only, and padded, and what is joined from parts along an axis.

y[i] = select(2 <= i < 8, F(i), c)                       ->    Pad(F over [2, 8), 2, n - 8, c)
y[i] = select(i < 3, F(i), select(i < 5, G(i), H(i)))    ->    Concat(F over [0, 3), G over [3, 5), H over [5, n))
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from neoflow import dtype as dt
from neoflow.expr.deep import Walk
from neoflow.expr.ir import Axis, Const, Expr, Select, same
from neoflow.interop.onnx.writing.facts import Span, box_of, has_reads, own_axes, renamed, span_of, truth, within
from neoflow.interop.onnx.writing.nodes import Value, held, position
from neoflow.interop.onnx.writing.nodes import joined as union_of
from neoflow.interop.onnx.writing.scope import Scope


def padded(scope: Scope, e: Select, is_guarded: bool) -> Walk[Value] | None:
    """The value of a select between an expression in a box and a number; None when it is no such select."""
    for inner, outer, holds in ((e.then, e.other, True), (e.other, e.then, False)):
        if isinstance(outer, Const) and has_reads(inner):
            box = box_of(e.cond, holds)
            if box is not None:
                return _padded(scope, inner, outer, box, is_guarded)
    return None


def _padded(scope: Scope, inner: Expr, fill: Const, box: Mapping[Axis, Span], is_guarded: bool) -> Walk[Value]:
    nodes = scope.nodes
    part, shorter = within(inner, box)
    value = yield scope.value(part, is_guarded)
    value = nodes.expanded(value, list(shorter.values()))
    axes = union_of([Value("", (*renamed(value.axes, shorter), *box), value.dtype)])
    scope.fits(axes)
    spans = [box.get(a, (0, a.extent)) for a in axes]
    name = nodes.reshape(value.name, value.shape, [high - low for low, high in spans])
    pads = [low for low, _ in spans] + [a.extent - high for a, (_, high) in zip(axes, spans, strict=True)]
    number = nodes.table(np.array(fill.value).astype(dt.NUMPY[held(fill.dtype)]))
    return Value(nodes.add("Pad", [name, nodes.ints(pads), number]), axes, inner.dtype)


def joined(scope: Scope, e: Select, is_guarded: bool) -> Walk[Value] | None:
    """The value of selects inside of each other, by the places of one axis; None when these are not side by side."""
    axes = own_axes(e.cond)
    if len(axes) != 1 or has_reads(e.cond):
        return None
    left = np.ones(axes[0].extent, np.bool_)
    parts: list[tuple[Span, Expr]] = []
    rest: Expr = e
    while isinstance(rest, Select) and same(own_axes(rest.cond), axes) and (holds := truth(rest.cond)) is not None:
        chosen, left = left & holds, left & ~holds
        if chosen.any():
            span = span_of(chosen)
            if span is None:
                return None
            parts.append((span, rest.then))
        rest = rest.other
    if left.any():
        span = span_of(left)
        if span is None:
            return None
        parts.append((span, rest))
    return _joined(scope, axes[0], sorted(parts, key=lambda p: p[0]), is_guarded) if parts else None


def _joined(scope: Scope, axis: Axis, parts: list[tuple[Span, Expr]], is_guarded: bool) -> Walk[Value]:
    nodes = scope.nodes
    values: list[tuple[Value, dict[Axis, Axis]]] = []
    for span, part in parts:
        inner, shorter = within(part, {axis: span})
        value: Value = yield scope.value(inner, is_guarded)
        values.append((nodes.expanded(value, list(shorter.values())), shorter))
    whole = [Value(v.name, renamed(v.axes, s), v.dtype) for v, s in values]
    axes = union_of([*whole, Value("", (axis,), parts[0][1].dtype)])
    scope.fits(axes)
    names = []
    for (value, shorter), (span, _) in zip(values, parts, strict=True):
        others = [a for a in axes if a is not axis]
        value = nodes.expanded(value, [*others, *shorter.values()])
        shape = [span[1] - span[0] if a is axis else a.extent for a in axes]
        names.append(nodes.reshape(value.name, value.shape, shape))
    name = names[0] if len(names) == 1 else nodes.add("Concat", names, axis=position(axes, axis))
    return Value(name, axes, values[0][0].dtype)
