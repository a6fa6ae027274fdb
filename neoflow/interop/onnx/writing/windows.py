"""Convolutions and pooling: reductions over windows of a tensor that is read at sums of a place and an offset.

    y[b,o,p,q] = sum[c,r,s](x[b, c, 2 p + r, q + 3 s] w[o,c,r,s])    ->    Conv(strides=[2, 1], dilations=[1, 3])
    y[b,c,p]   = max[r](x[b, c, 2 p + r])                            ->    MaxPool(kernel_shape=[R], strides=[2])

Axes of both operands that stay are groups, those of the image alone its batch. A tensor that is an image with numbers
around it is read as that image, and padded by the operator.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neoflow.expr import affine
from neoflow.expr.deep import Walk
from neoflow.expr.interp.contraction import as_product
from neoflow.expr.ir import Axis, Const, Expr, Read, Reduce, Select, Slot
from neoflow.expr.tensor import Compute, Tensor
from neoflow.interop.onnx.writing.facts import box_of, has_reads, own_axes
from neoflow.interop.onnx.writing.nodes import Value, among, held, without
from neoflow.interop.onnx.writing.scope import Scope


@dataclass(frozen=True)
class Window:
    """A dimension that is read at start + stride * place + dilation * offset."""

    dim: int
    place: Axis
    offset: Axis
    stride: int
    dilation: int
    start: int

    @property
    def stop(self) -> int:
        """Behind the last element that is read."""
        return self.start + self.stride * (self.place.extent - 1) + self.dilation * (self.offset.extent - 1) + 1


@dataclass(frozen=True)
class Image:
    """What windows are of: a tensor, the read of it with an axis in place of each window, and what is around it."""

    tensor: Tensor
    read: Read
    extents: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    others: tuple[Axis, ...]

    def pads(self) -> list[int]:
        return [*self.before, *self.after]


def _windows(read: Read, reduced: Collection[Axis]) -> list[Window] | None:
    """The dimensions that are windows; None where places are data, or something else mixes what is reduced with what
    stays, or there are none or more than operators have."""
    found = []
    for d, index in enumerate(read.indices):
        if has_reads(index):
            return None
        axes = own_axes(index)
        offsets = among(axes, reduced)
        if len(offsets) == len(axes) or not offsets:
            continue
        terms, start = affine.linear(index)
        places = without(axes, reduced)
        if len(axes) != 2 or set(terms) != set(axes) or min(terms.values()) < 1:
            return None
        found.append(Window(d, places[0], offsets[0], terms[places[0]], terms[offsets[0]], start))
    used = [a.ident for i in read.indices for a in own_axes(i)]
    if any(used.count(a.ident) > 1 for w in found for a in (w.place, w.offset)) or not 1 <= len(found) <= 3:
        return None
    return found


def padding(t: Tensor) -> tuple[Read, list[tuple[int, int]], float] | None:
    """Of a tensor that is another one with a number around it: what it reads, elements before and after in each
    dimension, the number."""
    if not isinstance(t, Compute):
        return None
    body = t.definition.body
    if not isinstance(body, Select) or not isinstance(body.then, Read) or not isinstance(body.other, Const):
        return None
    box, widths = box_of(body.cond, True), []
    if box is None:
        return None
    for n, (axis, index) in enumerate(zip(t.definition.axes, body.then.indices, strict=False)):
        low, high = box.get(axis, (0, axis.extent))
        if affine.simplify(index) is not affine.moved(affine.simplify(axis), -low):
            return None
        widths.append((low, axis.extent - high))
        if high - low != body.then.source.shape[n]:
            return None
    return (body.then, widths, body.other.value) if len(widths) == len(body.then.indices) == t.rank else None


def _image(scope: Scope, read: Read, windows: Sequence[Window], fill: float | None) -> Image:
    """fill: the number around an image that the operator knows; None: it pads nothing."""
    tensor = scope.tensor.inputs[read.slot]
    around, shape = [(0, 0)] * tensor.rank, tensor.shape
    known = padding(tensor) if fill is not None else None
    dims = [w.dim for w in windows]
    if known is not None and known[2] == fill and all(d in dims or w == (0, 0) for d, w in enumerate(known[1])):
        assert isinstance(tensor, Compute)
        around, tensor = known[1], tensor.inputs[known[0].slot]
        shape = tensor.shape
    indices: list[Expr] = list(read.indices)
    extents, before, after = [], [], []
    for w in windows:
        low, high, n = w.start - around[w.dim][0], w.stop - around[w.dim][0], shape[w.dim]
        if 0 < n - high < w.stride:  # too few elements for one more place, as the operators count
            high = n
        extents.append(min(high, n) - max(low, 0))
        before.append(max(0, -low))
        after.append(max(0, high - n))
        indices[w.dim] = affine.moved(affine.simplify(Axis(w.place.ident, extents[-1])), max(low, 0))
    others = tuple(without(own_axes(read), [a for w in windows for a in (w.place, w.offset)]))
    slot = Slot(read.slot, shape, read.dtype)
    return Image(tensor, Read(slot, tuple(indices)), tuple(extents), tuple(before), tuple(after), others)


def _arranged(scope: Scope, image: Image, value: Value, order: Sequence[Axis], windows: Sequence[Window]) -> str:
    """The image's elements: `order`, then space."""
    space = [Axis(w.place.ident, n) for w, n in zip(windows, image.extents, strict=True) if n > 1]
    return scope.nodes.arranged(value, [*order, *space])


def _common(windows: Sequence[Window], image: Image) -> dict[str, Any]:
    kernel = [w.offset.extent for w in windows]
    found: dict[str, Any] = {"kernel_shape": kernel, "strides": [w.stride for w in windows]}
    dilations = [w.dilation for w in windows]
    found |= {"dilations": dilations} if max(dilations) > 1 else {}
    return found | ({"pads": image.pads()} if any(image.pads()) else {})


def _size(axes: Sequence[Axis]) -> int:
    return math.prod(a.extent for a in axes)


# ------------------------------------------------------------------------------------------------------------ pooling


def pooled(scope: Scope, e: Reduce) -> Walk[Value] | None:
    """The largest of each window, or their sum; None for other reductions."""
    reduced = {a for a in e.axes if a.extent > 1}
    if e.op not in ("max", "sum") or not isinstance(e.body, Read) or held(e.dtype) != "float32":
        return None
    windows = _windows(e.body, reduced)
    if windows is None or {w.offset for w in windows} != reduced:
        return None
    if e.op == "sum" and any(w.dilation > 1 for w in windows):
        return None
    image = _image(scope, e.body, windows, -math.inf if e.op == "max" else 0.0)
    if any(p >= w.offset.extent for side in (image.before, image.after) for p, w in zip(side, windows, strict=True)):
        image = _image(scope, e.body, windows, None)
    return _pooled(scope, e, windows, image)


def _pooled(scope: Scope, e: Reduce, windows: Sequence[Window], image: Image) -> Walk[Value]:
    nodes, others = scope.nodes, image.others
    value = yield from scope.read(image.tensor, image.read)
    name = _arranged(scope, image, value, others, windows)
    sizes = (_size(others[:1]), _size(others[1:]), *image.extents)
    name = nodes.reshape(name, [*(a.extent for a in others), *image.extents], sizes)
    given = _common(windows, image)
    if e.op == "max":
        name = nodes.add("MaxPool", [name], **given)
    else:
        name = nodes.add("AveragePool", [name], count_include_pad=1, **given)
    places = [w.place for w in windows]
    after = [*(a.extent for a in others), *(a.extent for a in places)]
    name = nodes.reshape(name, [*sizes[:2], *(a.extent for a in places)], after)
    found = Value(name, (*others, *places), e.dtype)
    if e.op == "max":
        return found
    count = Value(nodes.table(np.array(_size([w.offset for w in windows]), np.float32)), (), e.dtype)
    return scope.applied("mul", [found, count], e.dtype)


# -------------------------------------------------------------------------------------------------------- convolution


def convolved(scope: Scope, e: Reduce) -> Walk[Value] | None:
    """A sum of products of windows and weights; None for other reductions."""
    if e.op != "sum" or held(e.dtype) != "float32":
        return None
    product = as_product(e.body, (), scope.analysis)
    reads = [f for f, _ in product.factors if isinstance(f, Read)]
    if len(reads) != 2 or len(product.factors) != 2 or product.masks or product.sign < 0:
        return None
    reduced = {a for a in e.axes if a.extent > 1}
    for x, w in (reads, reads[::-1]):
        windows = _windows(x, reduced)
        if windows is None or any(has_reads(i) for i in w.indices):
            continue
        weights = set(own_axes(w))
        both = set(own_axes(x)) | weights
        if all(v.offset in weights and v.place not in weights for v in windows) and reduced <= both:
            return _convolved(scope, x, w, windows, e)
    return None


def _convolved(scope: Scope, x: Read, w: Read, windows: Sequence[Window], e: Reduce) -> Walk[Value]:
    nodes, reduced = scope.nodes, {a for a in e.axes if a.extent > 1}
    image = _image(scope, x, windows, 0.0)
    value = yield from scope.read(image.tensor, image.read)
    weights = yield from scope.read(scope.tensor.inputs[w.slot], w)
    offsets, places = [v.offset for v in windows], [v.place for v in windows]
    value = scope.reduced("sum", value, without(among(image.others, reduced), weights.axes))
    others = among(image.others, value.axes)
    weights = scope.reduced("sum", weights, without(among(weights.axes, reduced), [*others, *offsets]))
    channels = among(others, reduced)
    groups = among(without(others, reduced), weights.axes)
    batch = without(others, [*reduced, *groups])
    filters = without(weights.axes, [*channels, *groups, *offsets])
    name = _arranged(scope, image, value, [*batch, *groups, *channels], windows)
    before = [a.extent for a in (*batch, *groups, *channels)] + [n for n in image.extents if n > 1]
    name = nodes.reshape(name, before, [_size(batch), _size(groups) * _size(channels), *image.extents])
    kernel = nodes.arranged(weights, [*groups, *filters, *channels, *offsets])
    kernel = nodes.reshape(
        kernel,
        [a.extent for a in (*groups, *filters, *channels, *offsets)],
        [_size(groups) * _size(filters), _size(channels), *(a.extent for a in offsets)],
    )
    given = _common(windows, image)
    if groups:
        given["group"] = _size(groups)
    name = nodes.add("Conv", [name, kernel], **given)
    stays = [*batch, *groups, *filters, *places]
    sizes = [a.extent for a in places]
    name = nodes.reshape(name, [_size(batch), _size(groups) * _size(filters), *sizes], [a.extent for a in stays])
    return Value(name, tuple(stays), e.dtype)
