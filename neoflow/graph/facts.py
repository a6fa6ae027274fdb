"""What rewriting and fusion ask of a definition, remembered: how often it is evaluated, whether it contracts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.close import build
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Reduce, Scatter, Select, Slot, postorder, same
from neoflow.expr.memo import remembered
from neoflow.expr.recipe import derived
from neoflow.expr.tensor import Compute, Definition, Tensor


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


@remembered
def is_move(definition: Definition) -> bool:
    """One read at other indices, or 0 where a condition on the indices fails: a slice, a transpose, a padding."""
    body = definition.body
    moved = body.then if isinstance(body, Select) and isinstance(body.other, Const) else body
    reads = [n for n in postorder(body) if isinstance(n, Read)]
    return isinstance(moved, Read) and len(reads) == 1


def flat(indices: Iterable[Expr], shape: tuple[int, ...]) -> affine.Linear:
    """Where in memory a tensor of `shape` has the element at these indices, in elements."""
    form: affine.Linear = ({}, 0)
    for index, extent in zip(indices, shape, strict=True):
        form = affine.combine(affine.scale(form, extent), affine.linear(index))
    return form


def address(read: Read) -> affine.Linear:
    """Where in its source a read reads, in elements."""
    return flat(read.indices, read.source.shape)


@remembered
def contiguous_offset(definition: Definition) -> int | None:
    """Where in its source a compute that is a contiguous run of it begins, in elements; None for any other compute."""
    body = definition.body
    if not isinstance(body, Read):
        return None
    here = flat(definition.axes, definition.shape)
    difference = affine.simplify(affine.from_linear(affine.combine(address(body), here, -1)))
    return int(difference.value) if isinstance(difference, Const) else None


def run_of(source: Tensor, start: int, length: int) -> Compute:
    """`length` elements of a tensor that lie in memory from element `start` on."""
    at: Expr = Apply("add", (Axis(0, length), affine.integer(start)))
    indices: list[Expr] = []
    for extent in reversed(source.shape[1:]):
        indices.append(Apply("mod", (at, affine.integer(extent))))
        at = Apply("floordiv", (at, affine.integer(extent)))
    read = Read(Slot(0, source.shape, source.dtype), tuple(map(affine.simplify, (at, *reversed(indices)))))
    return build((length,), read, (source,), derived(source.name, suffix="_run"))
