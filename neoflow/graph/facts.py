"""What rewriting and fusion ask of a definition, remembered: how often it is evaluated, whether it contracts."""

from __future__ import annotations

import math
from functools import lru_cache

from neoflow.expr import dtype as dt
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Reduce, Scatter, Select, postorder, same
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Definition


@lru_cache(maxsize=64)
def own_indices(shape: tuple[int, ...]) -> tuple[Expr, ...]:
    """The indices of the point at which a compute of `shape` is evaluated."""
    return tuple(Const(0, dt.INDEX) if n == 1 else Axis(d, n) for d, n in enumerate(shape))


def reads_at_own_point(read: Read, shape: tuple[int, ...]) -> bool:
    """Whether a read in a compute of `shape` is of the element at the same indices of a tensor of that shape."""
    return read.source.shape == shape and same(read.indices, own_indices(shape))


@remembered
def points(definition: Definition) -> int:
    """How often the body is evaluated."""
    outer = () if isinstance(definition.body, Scatter) else definition.shape
    return math.prod(outer) * math.prod(a.extent for a in definition.reduction_axes)


@remembered
def is_contraction(definition: Definition) -> bool:
    """A float sum of a product of two or more reads with reuse: each operand is read more than once."""
    return contracts(definition.body, points(definition))


def contracts(body: Expr, total: int) -> bool:
    """`is_contraction` of a body that is evaluated at so many points."""
    if not (isinstance(body, Reduce) and body.op == "sum" and dt.is_float(body.dtype)):
        return False
    product = body.body.then if isinstance(body.body, Select) else body.body
    reads = [n for n in postorder(product) if isinstance(n, Read)]
    is_product = isinstance(product, Apply) and product.fn == "mul"
    return is_product and len(reads) >= 2 and all(total >= 4 * max(1, math.prod(r.source.shape)) for r in reads)
