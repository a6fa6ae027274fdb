"""Which narrow type both sides of a contraction are exactly of: what tensor cores multiply without another rounding."""

from __future__ import annotations

from dataclasses import replace

from neoflow.expr.narrow import NARROW, narrowed
from neoflow.loops.sides import Contraction


def narrow_sides(c: Contraction) -> tuple[str, Contraction] | None:
    """The type that both sides are exactly of, and the contraction of such sides."""
    for dtype in NARROW:
        left, right = narrowed(c.left, dtype), narrowed(c.right, dtype)
        if left is not None and right is not None:
            return dtype, replace(c, left=left, right=right)
    return None
