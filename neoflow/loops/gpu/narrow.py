"""Which type both sides of a contraction are exactly of: what tensor cores multiply without another rounding.

float16 and bfloat16 are multiplied as they are. Of TF32 the sides are float32 expressions that a kernel rounds after
they are loaded, which gives the same as rounding where the program does:

    select(c, round_tf32(x), 0)    ->    select(c, x, 0)        rounding is monotone and odd, and keeps 0
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neoflow.expr.functions import FUNCTIONS, ROUND_TF32
from neoflow.expr.ir import Apply, Const, Expr, Select
from neoflow.expr.narrow import CHOOSING, NARROW, is_held, narrowed
from neoflow.graph import TF32
from neoflow.loops.sides import Contraction

MEMORY = {TF32: "float32"}
"""The type of an operand in memory, where it is not that which is multiplied."""


def narrow_sides(c: Contraction) -> tuple[str, Contraction] | None:
    """The type that both sides are exactly of, and the contraction of such sides."""
    for dtype in (*NARROW, TF32):
        left, right = (unrounded(e) if dtype == TF32 else narrowed(e, dtype) for e in (c.left, c.right))
        if left is not None and right is not None:
            return dtype, replace(c, left=left, right=right)
    return None


def unrounded(e: Expr) -> Expr | None:
    """A float32 expression that is the given one after it is rounded to TF32; None where there is none."""
    match e:
        case Apply(fn=fn) if fn == ROUND_TF32:
            return e.args[0]
        case Const():
            rounded = FUNCTIONS[ROUND_TF32].numpy(np.float32(e.value))
            return e if e.dtype == "float32" and rounded == e.value else None
        case Select():
            then, other = unrounded(e.then), unrounded(e.other)
            return None if then is None or other is None else Select(e.cond, then, other)
        case Apply(fn=fn) if fn in CHOOSING and e.dtype == "float32":
            args = tuple(a for a in map(unrounded, e.args) if a is not None)
            return Apply(fn, args) if len(args) == len(e.args) else None
    return e if e.dtype == "float32" and any(is_held(e, d) for d in NARROW) else None
