"""Arcs of sine, cosine and tangent, which the language has no functions for, by a rational approximation."""

from __future__ import annotations

import math
from collections.abc import Sequence

from neoflow import language as nf
from neoflow.expr.tensor import Tensor
from neoflow.interop.onnx.operators.row import Row

_ABOVE = (
    -8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1, -1.228866684490136173410e2,
    -6.485021904942025371773e1,
)  # fmt: skip
_BELOW = (
    1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2, 4.853903996359136964868e2,
    1.945506571482613964425e2,
)  # fmt: skip
"""atan(x) = x + x z P(z) / Q(z) with z = x^2, for |x| <= 0.66. Source: Moshier, Methods and Programs for Mathematical
Functions, 1989 (Cephes)."""
_FAR, _NEAR = 1 + math.sqrt(2), 0.66
"""Beyond the first the arc is pi/2 less that of 1/x; between both, pi/4 more than that of (x - 1) / (x + 1)."""


def _polynomial(z: Tensor, coefficients: Sequence[float]) -> Tensor:
    found = z * 0.0 + coefficients[0]
    for c in coefficients[1:]:
        found = found * z + c
    return found


def _arctan(x: Tensor) -> Tensor:
    a = nf.abs(x)
    is_far, is_near = a > _FAR, a <= _NEAR
    small = nf.select(is_far, -1.0 / a, nf.select(is_near, a, 1.0 - 2.0 / (a + 1.0)))
    start = nf.select(is_far, a * 0.0 + math.pi / 2, nf.select(is_near, a * 0.0, a * 0.0 + math.pi / 4))
    start = nf.select(nf.equal(a, math.inf), nf.full((), math.pi / 2, x.dtype), start)
    z = small * small
    found = start + (small + small * (z * _polynomial(z, _ABOVE) / _polynomial(z, _BELOW)))
    return nf.select(x < 0.0, -found, found)


def _arcsin(x: Tensor) -> Tensor:
    return _arctan(x / nf.sqrt((1.0 - x) * (1.0 + x)))


def _arccos(x: Tensor) -> Tensor:
    return 2.0 * _arctan(nf.sqrt((1.0 - x) / (1.0 + x)))


ROWS = (Row("Atan", _arctan), Row("Asin", _arcsin), Row("Acos", _arccos))
