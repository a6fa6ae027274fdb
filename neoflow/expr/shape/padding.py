"""Elements added around a tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from neoflow.expr import dsl
from neoflow.expr.dsl import read
from neoflow.expr.ir import Expr
from neoflow.expr.shape.tools import checked_constant, checked_tensor, make, replaced
from neoflow.expr.tensor import Tensor
from neoflow.expr.typed import Operand, fail


def pad(x: Tensor, width: Any, mode: str = "constant", value: float = 0) -> Tensor:
    """x with elements added around it.

    width: an integer, a pair (before, after), or a pair for each dimension.
    mode: "constant" (of `value`), "edge" (the outermost element), "reflect" (mirrored, the outermost element once)
    or "symmetric" (mirrored, the outermost element twice).
    """
    x = checked_tensor(x, "pad")
    widths = _widths(x, width)
    if mode == "constant":
        return _pad_constant(x, widths, value)
    if mode not in ("edge", "reflect", "symmetric"):
        raise fail(f"pad has no mode {mode!r}; there are constant, edge, reflect and symmetric")
    for d, (before, after) in enumerate(widths):
        if before or after:
            x = _pad_mirror(x, d, before, after, mode)
    return x


def _widths(x: Tensor, width: Any) -> list[tuple[int, int]]:
    """(before, after) for each dimension, from what NumPy accepts."""
    try:
        pairs = np.broadcast_to(np.asarray(width), (x.rank, 2))
    except ValueError:
        pairs = None
    if pairs is None or not np.issubdtype(pairs.dtype, np.integer) or (pairs < 0).any():
        raise fail(
            f"pad of {x.name} (rank {x.rank}) takes a width >= 0, a pair (before, after), or such a pair for each "
            f"dimension, not {width!r}"
        )
    return [(int(a), int(b)) for a, b in pairs]


def _pad_constant(x: Tensor, widths: list[tuple[int, int]], value: float) -> Tensor:
    fill = checked_constant(value, x.dtype, "pad")

    def body(ix: tuple[Expr, ...]) -> Operand:
        inside: Operand | None = None
        for i, n, (before, after) in zip(ix, x.shape, widths, strict=True):
            for condition in ([i >= before] if before else []) + ([i < before + n] if after else []):
                inside = condition if inside is None else inside & condition
        element = read(x, [i - before if before else i for i, (before, _) in zip(ix, widths, strict=True)])
        return element if inside is None else dsl.select(inside, element, fill)

    return make([a + n + b for n, (a, b) in zip(x.shape, widths, strict=True)], body, "pad")


def _pad_mirror(x: Tensor, d: int, before: int, after: int, mode: str) -> Tensor:
    n = x.shape[d]
    most = {"edge": max(before, after), "reflect": n - 1, "symmetric": n}[mode]
    if max(before, after) > most:
        raise fail(
            f"pad of {x.name} {x.shape} by {(before, after)} in dimension {d}: mode {mode} mirrors at most {most} "
            "elements"
        )

    def body(ix: tuple[Expr, ...]) -> Operand:
        i = ix[d] - before
        low = {"edge": 0, "reflect": before - ix[d], "symmetric": before - 1 - ix[d]}[mode]
        high = {"edge": n - 1, "reflect": 2 * n - 2 - i, "symmetric": 2 * n - 1 - i}[mode]
        result: Operand = read(x, replaced(ix, d, i))
        if after:
            result = dsl.select(ix[d] < before + n, result, read(x, replaced(ix, d, high)))
        if before:
            result = dsl.select(ix[d] < before, read(x, replaced(ix, d, low)), result)
        return result

    return make(replaced(x.shape, d, before + n + after), body, "pad")
