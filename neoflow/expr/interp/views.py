"""Reads that are affine in the axes, as strided views."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from neoflow.expr import affine
from neoflow.expr.interp.analysis import Border, border
from neoflow.expr.ir import Slot


def affine_view(
    slot: Slot,
    base: np.ndarray,
    forms: tuple[affine.Linear, ...],
    ranges: tuple[tuple[int, int], ...],
    padded: dict[tuple, np.ndarray],
    most: int,
    shared: Border,
) -> np.ndarray | None:
    """`base` read at affine indices, without a copy: element strides are coefficient times stride.

    Where indices leave the tensor (under a condition that makes this harmless) the view is of a copy with a
    border, kept in `padded`; None when that would have more than `most` elements. The border is that of all reads
    of the tensor together, `shared`, where there is room for it: then one copy does for all of them.
    """
    below, above = border(slot, forms)
    if any(below) or any(above):
        fitting = [b for b in (shared, (below, above)) if _size_within(slot, b) <= most]
        if not fitting:
            return None
        below, above = fitting[0]
        key = (slot.position, *below, *above)
        if key not in padded:
            padded[key] = np.pad(base, list(zip(below, above, strict=True)))
        base = padded[key]
    strides, origin = [0] * len(ranges), list[int]()
    for (terms, constant), low, stride in zip(forms, below, base.strides, strict=True):
        first = constant + low
        for axis, k in affine.over_axes((terms, constant)).items():
            first += k * ranges[axis.ident][0]
            strides[axis.ident] += k * stride
        origin.append(first)
    used = {axis.ident for form in forms for axis in affine.over_axes(form)}
    shape = [stop - start if d in used else 1 for d, (start, stop) in enumerate(ranges)]
    at: tuple[Any, ...] = (*origin, ...)
    return as_strided(base[at], shape, strides, writeable=False)


def _size_within(slot: Slot, border: Border) -> int:
    return math.prod(low + n + high for low, n, high in zip(border[0], slot.shape, border[1], strict=True))
