"""The same elements in other places: reshaped, transposed, flipped, rolled, stretched."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from neoflow.expr.dsl import checked_dims, read
from neoflow.expr.given import checked_shape
from neoflow.expr.ir import Expr
from neoflow.expr.shape.tools import checked_dim, checked_int, checked_tensor, make
from neoflow.expr.tensor import Tensor
from neoflow.expr.typed import Operand, fail


def reshape(x: Tensor, shape: Sequence[int] | int, *more: int) -> Tensor:
    """The elements of x in row-major order under another shape; one extent may be -1 (what is left).

    Dimensions that stay are indexed by one axis, merged ones by `i // n` and `i % n`, split ones by `n*i + j`.
    """
    x = checked_tensor(x, "reshape")
    dims = [shape, *more] if isinstance(shape, (int, np.integer)) else list(shape)
    if not all(isinstance(n, (int, np.integer)) for n in dims):
        checked_shape(dims)
    dims = [n if isinstance(n, bool) else int(n) for n in dims]
    if dims.count(-1) > 1:
        raise fail(f"reshape to {tuple(dims)}: at most one extent may be -1")
    known = math.prod(n for n in dims if n != -1)
    if -1 in dims and known > 0 and x.size % known == 0:
        dims[dims.index(-1)] = x.size // known
    if -1 not in dims:
        dims = list(checked_shape(dims))
    if -1 in dims or math.prod(dims) != x.size:
        raise fail(
            f"{x.name} of shape {x.shape} has {x.size} elements and does not reshape to {tuple(dims)} "
            f"({math.prod(n for n in dims if n != -1)} elements{', times the extent -1' if -1 in dims else ''})"
        )

    def body(ix: tuple[Expr, ...]) -> Operand:
        indices: list[Operand] = [0] * x.rank
        for source, target in _groups(x.shape, tuple(dims)):
            linear = ix[target[0]]
            for d in target[1:]:
                linear = linear * dims[d] + ix[d]
            stride = math.prod(x.shape[d] for d in source)
            for n, d in enumerate(source):
                stride //= x.shape[d]
                part = linear // stride if stride > 1 else linear
                indices[d] = part % x.shape[d] if n else part
        return read(x, indices)

    return make(dims, body, "reshape")


def _groups(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Runs of dimensions of equal product, as (old, new) dimension numbers; dimensions of extent 1 are left out."""
    a = [d for d, n in enumerate(old) if n > 1]
    b = [d for d, n in enumerate(new) if n > 1]
    groups = []
    while a and b:
        source, target = [a.pop(0)], [b.pop(0)]
        p, q = old[source[0]], new[target[0]]
        while p != q:
            if p < q:
                source.append(a.pop(0))
                p *= old[source[-1]]
            else:
                target.append(b.pop(0))
                q *= new[target[-1]]
        groups.append((source, target))
    return groups


def ravel(x: Tensor) -> Tensor:
    """x as one dimension, in row-major order."""
    return reshape(x, (-1,))


def transpose(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """Dimension n of the result is dimension axes[n] of x; None reverses them."""
    x = checked_tensor(x, "transpose")
    order = list(range(x.rank))[::-1] if axes is None else [checked_dim(x, a, "transpose") for a in axes]
    if sorted(order) != list(range(x.rank)):
        raise fail(f"transpose of {x.name} (rank {x.rank}) takes each dimension once, not axes {tuple(order)}")
    place = [order.index(d) for d in range(x.rank)]
    return make([x.shape[d] for d in order], lambda ix: read(x, [ix[n] for n in place]), "transpose")


def swapaxes(x: Tensor, a: int, b: int) -> Tensor:
    """x with two dimensions exchanged."""
    order = list(range(checked_tensor(x, "swapaxes").rank))
    a, b = checked_dim(x, a, "swapaxes"), checked_dim(x, b, "swapaxes")
    order[a], order[b] = b, a
    return transpose(x, order)


def moveaxis(x: Tensor, source: int, destination: int) -> Tensor:
    """x with dimension `source` moved to place `destination`."""
    order = list(range(checked_tensor(x, "moveaxis").rank))
    source = checked_dim(x, source, "moveaxis")
    order.remove(source)
    order.insert(checked_dim(x, destination, "moveaxis"), source)
    return transpose(x, order)


def expand_dims(x: Tensor, axis: int | Sequence[int]) -> Tensor:
    """x with dimensions of extent 1 at the places `axis` of the result."""
    x = checked_tensor(x, "expand_dims")
    places = list(axis) if isinstance(axis, Iterable) else [axis]
    rank = x.rank + len(places)
    new = {checked_dim(x, a, "expand_dims", rank) for a in places}
    if len(new) != len(places):
        raise fail(f"expand_dims of {x.name}: places {tuple(places)} are not distinct")
    kept = [d for d in range(rank) if d not in new]
    shape = [1] * rank
    for d, n in zip(kept, x.shape, strict=True):
        shape[d] = n
    return make(shape, lambda ix: read(x, [ix[d] for d in kept]), "expand_dims")


def squeeze(x: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """x without the dimensions `axis`, which have extent 1 (None: all of extent 1)."""
    x = checked_tensor(x, "squeeze")
    gone = [d for d, n in enumerate(x.shape) if n == 1] if axis is None else checked_dims(x, axis)
    for d in gone:
        if x.shape[d] != 1:
            raise fail(f"squeeze of {x.name} {x.shape}: dimension {d} has extent {x.shape[d]}, not 1")
    kept = [d for d in range(x.rank) if d not in gone]
    place = {d: n for n, d in enumerate(kept)}

    def body(ix: tuple[Expr, ...]) -> Operand:
        return read(x, [ix[place[d]] if d in place else 0 for d in range(x.rank)])

    return make([x.shape[d] for d in kept], body, "squeeze")


def broadcast_to(x: Tensor, shape: Sequence[int]) -> Tensor:
    """x repeated to `shape` by NumPy's rule: dimensions are matched from the right, extent 1 stretches."""
    x = checked_tensor(x, "broadcast_to")
    dims = checked_shape(shape)
    own = dims[len(dims) - x.rank :] if len(dims) >= x.rank else ()
    if len(dims) < x.rank or any(n not in (1, m) for n, m in zip(x.shape, own, strict=True)):
        raise fail(f"{x.name} of shape {x.shape} does not broadcast to {dims}")
    skip = len(dims) - x.rank

    def body(ix: tuple[Expr, ...]) -> Operand:
        return read(x, [0 if n == 1 else i for n, i in zip(x.shape, ix[skip:], strict=True)])

    return make(dims, body, "broadcast_to")


def flip(x: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """x with the order along dimensions `axis` (None: all) reversed."""
    over = checked_dims(checked_tensor(x, "flip"), axis)

    def body(ix: tuple[Expr, ...]) -> Operand:
        return read(x, [x.shape[d] - 1 - i if d in over else i for d, i in enumerate(ix)])

    return make(x.shape, body, "flip")


def roll(x: Tensor, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Tensor:
    """x moved by `shift` along `axis`, elements that leave coming in again (None: of the flattened x)."""
    x = checked_tensor(x, "roll")
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    places = [axis] if isinstance(axis, (int, np.integer)) else list(axis)
    shifts = list(shift) if isinstance(shift, Sequence) else [shift] * len(places)
    if len(shifts) != len(places):
        raise fail(f"roll of {x.name}: {len(shifts)} shifts for {len(places)} axes")
    total = [0] * x.rank
    for d, s in zip(places, shifts, strict=True):
        total[checked_dim(x, d, "roll")] += checked_int(s, "a shift of roll")

    def body(ix: tuple[Expr, ...]) -> Operand:
        return read(x, [(i + -s % n) % n if s % n else i for i, s, n in zip(ix, total, x.shape, strict=True)])

    return make(x.shape, body, "roll")
