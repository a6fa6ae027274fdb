"""Which narrow float the values of a float32 expression exactly are: what may be stored or multiplied as that.

float32(x)                    x                    x of float16 or bfloat16: read, or rounded to it
select(c, float32(x), 0)      select(c, x, 0)
relu(float32(x))              relu(x)
    round_tf32(float32(x))        x                    every narrow number is one of TF32
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from neoflow.expr import dtype as dt
from neoflow.expr.functions import ROUND_TF32
from neoflow.expr.ir import Apply, Cast, Const, Expr, Read, Select

NARROW = ("float16", "bfloat16")
CHOOSING = ("neg", "maximum", "minimum", "relu")
"""Functions whose results are of the type of what they are given, exactly."""


def is_held(e: Expr, dtype: str, read: Callable[[Read], bool] | None = None) -> bool:
    """Whether all values of a float expression are exactly of a narrow type; `read`: whether those of a read are."""
    match e:
        case Cast(arg=inner) if e.dtype == "float32":
            return is_held(inner, dtype, read)
        case Read():
            return e.dtype == dtype or (read is not None and read(e))
        case Cast():
            return e.dtype == dtype
        case Const():
            return holds(dtype, e.value)
        case Select():
            return is_held(e.then, dtype, read) and is_held(e.other, dtype, read)
        case Apply(fn=fn) if fn in CHOOSING or fn == ROUND_TF32:
            return all(is_held(a, dtype, read) for a in e.args)
    return False


def narrowed(e: Expr, dtype: str) -> Expr | None:
    """The expression as one of the narrow type that has the same values; None where it has others."""
    return _narrowed(e, dtype) if is_held(e, dtype) else None


def _narrowed(e: Expr, dtype: str) -> Expr:
    match e:
        case Cast(arg=inner) if e.dtype == "float32":
            return _narrowed(inner, dtype)
        case Apply(fn=fn) if fn == ROUND_TF32:
            return _narrowed(e.args[0], dtype)
        case Const():
            return Const(e.value, dtype)
        case Select():
            return Select(e.cond, _narrowed(e.then, dtype), _narrowed(e.other, dtype))
        case Apply():
            return Apply(e.fn, tuple(_narrowed(a, dtype) for a in e.args))
    return e


def holds(dtype: str, value: float | int | bool) -> bool:
    """Whether a number is one of the type."""
    with np.errstate(over="ignore"):
        return float(np.float64(value).astype(dt.NUMPY[dtype])) == float(value)
