"""Sums up to each element."""

from __future__ import annotations

from neoflow.expr import dsl
from neoflow.expr.dsl import axis, read
from neoflow.expr.ir import Const, Expr
from neoflow.expr.shape.rearrange import ravel
from neoflow.expr.shape.tools import checked_dim, checked_tensor, make, replaced
from neoflow.expr.tensor import Tensor
from neoflow.expr.typed import Operand, fail

BLOCK = 16
"""Elements of a block: each element costs about so many additions, and its logarithm to this base is the passes."""


def cumsum(x: Tensor, axis: int | None = None) -> Tensor:
    """The sum of all elements up to each one along dimension `axis` (None: of the flattened x), in x's dtype.

    Sums within blocks of 16, then the running sums of the blocks' totals in the same way: about 17 n additions, and
    log16(n) tensors one after the other.
    """
    x = checked_tensor(x, "cumsum")
    if axis is None:
        x, axis = ravel(x), 0
    d = checked_dim(x, axis, "cumsum")
    if x.dtype == "bool":
        raise fail(f"cumsum takes numbers, but `{x.name}` is bool; cast it: nf.cast(..., 'int32')")
    return _running(x, d)


def _running(x: Tensor, d: int) -> Tensor:
    n, zero = x.shape[d], Const(0, x.dtype)
    if n <= 2 * BLOCK:
        k = axis(n, "k")
        return make(
            x.shape,
            lambda ix: dsl.sum(dsl.select(k <= ix[d], read(x, replaced(ix, d, k)), zero), axis=[k]),
            "cumsum",
        )
    blocks, k = -(-n // BLOCK), axis(BLOCK, "k")

    def inside(ix: tuple[Expr, ...]) -> Operand:
        at, wanted = ix[d] * BLOCK + k, k <= ix[d + 1]
        if n % BLOCK:
            wanted = wanted & (at < n)
        element = read(x, (*ix[:d], at, *ix[d + 2 :]))
        return dsl.sum(dsl.select(wanted, element, zero), axis=[k])

    within = make(replaced(x.shape, d, blocks, BLOCK), inside, "cumsum")
    totals = make(replaced(x.shape, d, blocks), lambda ix: read(within, replaced(ix, d, ix[d], BLOCK - 1)), "total")
    before = _running(totals, d)

    def body(ix: tuple[Expr, ...]) -> Operand:
        own = read(within, replaced(ix, d, ix[d] // BLOCK, ix[d] % BLOCK))
        return own + dsl.select(ix[d] >= BLOCK, read(before, replaced(ix, d, ix[d] // BLOCK - 1)), zero)

    return make(x.shape, body, "cumsum")
