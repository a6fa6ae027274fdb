"""Reads that are affine in the axes, as strided views."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from neoflow.expr import affine
from neoflow.expr.ir import Axis, Slot


def affine_view(
    slot: Slot,
    base: np.ndarray,
    forms: tuple[affine.Linear, ...],
    ranges: tuple[tuple[int, int], ...],
    padded: dict[tuple, np.ndarray],
    most: int,
) -> np.ndarray | None:
    """`base` read at affine indices, without a copy: element strides are coefficient times stride.

    Where indices leave the tensor (under a condition that makes this harmless) the view is of a copy with a
    border, kept in `padded`; None when that would have more than `most` elements.
    """
    origin, below, above = [], [], []
    strides = [0] * len(ranges)
    for (terms, constant), extent in zip(forms, slot.shape, strict=True):
        low = high = first = constant
        for axis, k in terms.items():
            assert isinstance(axis, Axis)
            last = k * (axis.extent - 1)
            low, high, first = low + min(last, 0), high + max(last, 0), first + k * ranges[axis.ident][0]
        below.append(max(0, -low))
        above.append(max(0, high - extent + 1))
        origin.append(first + below[-1])
    if any(below) or any(above):
        wide = [b + n + a for b, n, a in zip(below, slot.shape, above, strict=True)]
        if math.prod(wide) > most:
            return None
        key = (slot.position, *below, *above)
        if key not in padded:
            padded[key] = np.pad(base, list(zip(below, above, strict=True)))
        base = padded[key]
    for form, stride in zip(forms, base.strides, strict=True):
        for axis, k in affine.over_axes(form).items():
            strides[axis.ident] += k * stride
    used = {axis.ident for form in forms for axis in affine.over_axes(form)}
    shape = [stop - start if d in used else 1 for d, (start, stop) in enumerate(ranges)]
    at: tuple[Any, ...] = (*origin, ...)
    return as_strided(base[at], shape, strides, writeable=False)
