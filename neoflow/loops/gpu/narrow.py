"""Which narrow type a side of a contraction is exactly of: what tensor cores may multiply without another rounding.

float32(x)             x                      x of float16 or bfloat16: read, or rounded to it
select(c, float32(x), 0)    ->    select(c, x, 0)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neoflow.expr import dtype as dt
from neoflow.expr.ir import Apply, Cast, Const, Expr, Read, Select
from neoflow.loops.sides import Contraction

NARROW = ("float16", "bfloat16")
_CHOOSING = ("neg", "maximum", "minimum", "relu")
"""Functions whose results are of the type of what they are given, exactly."""


def narrowed(side: Expr, dtype: str) -> Expr | None:
    """The side as an expression of the narrow type that has the same values; None where it has others."""
    match side:
        case Cast(arg=inner) if side.dtype == "float32":
            return narrowed(inner, dtype)
        case Read() | Cast():
            return side if side.dtype == dtype else None
        case Const():
            return Const(side.value, dtype) if _holds(dtype, side.value) else None
        case Select():
            then, other = narrowed(side.then, dtype), narrowed(side.other, dtype)
            return None if then is None or other is None else Select(side.cond, then, other)
        case Apply(fn=fn) if fn in _CHOOSING:
            args = tuple(a for a in (narrowed(a, dtype) for a in side.args) if a is not None)
            return Apply(fn, args) if len(args) == len(side.args) else None
    return None


def _holds(dtype: str, value: float | int | bool) -> bool:
    with np.errstate(over="ignore"):
        return float(np.float64(value).astype(dt.NUMPY[dtype])) == float(value)


def narrow_sides(c: Contraction) -> tuple[str, Contraction] | None:
    """The type that both sides are exactly of, and the contraction of such sides."""
    for dtype in NARROW:
        left, right = narrowed(c.left, dtype), narrowed(c.right, dtype)
        if left is not None and right is not None:
            return dtype, replace(c, left=left, right=right)
    return None
