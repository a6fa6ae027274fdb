"""Boxes of a tensor that the hardware of sm_90 copies to shared memory by itself: of up to five dimensions, in lines.

    v[b, i, k] of float16, a tile of 128 rows by 64 terms    ->    dims (k, 1) (i, stride of i) (b, stride of b)
                                                                   a box of 64 x 128 x 1 from the tile's first point on

What lies outside of the tensor comes as zeros, so that no tile at an edge is guarded.

Source: PTX ISA 9, "Tensors" and "Tensor-map"; CUDA driver API, `cuTensorMapEncodeTiled`.
"""

from __future__ import annotations

from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr.ir import Axis, Expr, Read
from neoflow.loops.nest import stride

MOST_DIMS = 5
"""Of a tensor."""
BARRIER_BYTES = 8
"""In shared memory, of a stage."""
MULTIPLE = 16
"""Bytes of which the tensor's beginning and all but its fastest dimension are multiples."""


@dataclass(frozen=True)
class Dim:
    """`extent` points, `stride` elements apart."""

    extent: int
    stride: int


@dataclass(frozen=True)
class Boxes:
    """The tensor of a side, as tiles take boxes of it.

    start: its first element. rows, k: the points that tiles go along, the last dimension running fastest; batch: the
    other axes. is_along_k: which of the two groups has the contiguous one. box: of their last dimensions, that first.
    """

    read: Read
    start: int
    rows: tuple[Dim, ...]
    k: tuple[Dim, ...]
    batch: tuple[tuple[Axis, Dim], ...]
    is_along_k: bool
    box: tuple[int, int]

    @property
    def fast(self) -> tuple[Dim, ...]:
        return self.k if self.is_along_k else self.rows

    @property
    def slow(self) -> tuple[Dim, ...]:
        return self.rows if self.is_along_k else self.k

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The fastest one first; those that the address does not move along are none."""
        others = (*self.fast[:-1], *self.slow[:-1], *(d for _, d in self.batch))
        return (self.fast[-1], self.slow[-1], *(d for d in others if d.stride))


def boxes_of(
    read: Read, batch: tuple[Axis, ...], rows: tuple[Axis, ...], k: tuple[Axis, ...], along: str, tile: tuple[int, int],
    nbytes: int,
) -> Boxes | str:  # fmt: skip
    """Of a linear read, whose elements have so many bytes; or the reason why its tiles are no boxes.

    along: "k" or "rows", along which a line goes. tile: points of a line, and lines.
    """
    address = read.indices[0]
    start, is_along_k = affine.linear(address)[1], along == "k"
    others = tuple((a, Dim(a.extent, stride(address, a) or 0)) for a in batch if a.extent > 1)
    of_rows, of_k = merged(address, rows), merged(address, k)
    found = Boxes(read, start, of_rows, of_k, others, is_along_k, tile)
    if found.fast[-1].stride != 1:
        return f"no axis of {along} is contiguous in memory"
    if any(d.stride < 0 for d in found.dims) or found.slow[-1].stride == 0:
        return "a tensor's dimensions go forward in memory"
    for group, points in zip((found.fast, found.slow), tile, strict=True):
        if len(group) > 1 and group[-1].extent % points:
            return f"a tile's {points} points go over the end of an axis of {group[-1].extent}"
    if start * nbytes % MULTIPLE or any(d.stride * nbytes % MULTIPLE for d in found.dims[1:]):
        return f"it does not begin, or its lines do not, at multiples of {MULTIPLE} bytes"
    if len(found.dims) > MOST_DIMS:
        return f"it has {len(found.dims)} dimensions, and a tensor at most {MOST_DIMS}"
    return found


def merged(address: Expr, axes: tuple[Axis, ...]) -> tuple[Dim, ...]:
    """The points of axes as few dimensions, the last one running fastest: neighbours that lie as one are one.

    A group of one point is a dimension of one.
    """
    found: list[Dim] = []
    for a in reversed(axes):
        step = stride(address, a) or 0
        if a.extent == 1:
            continue
        if found and step == found[-1].stride * found[-1].extent:
            found[-1] = Dim(found[-1].extent * a.extent, found[-1].stride)
        else:
            found.append(Dim(a.extent, step))
    return tuple(reversed(found)) or (Dim(1, MULTIPLE),)
