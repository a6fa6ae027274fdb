"""An operand with zeros between its points, and around them, along some of its dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Select
from neoflow.expr.normal import conjunction
from neoflow.expr.tensor import Tensor
from neoflow.graph.algorithms.transforms import compute


@dataclass(frozen=True)
class Apart:
    """Points that lie `step` apart from 0 on, zeros elsewhere, from `low` to `high`, both included."""

    step: int
    low: int
    high: int

    @property
    def extent(self) -> int:
        return self.high - self.low + 1


def spread(source: Tensor, apart: Mapping[int, Apart], suffix: str) -> Tensor:
    """The tensor with its points apart along these dimensions; itself where that changes nothing.

    y[u] = select((u + low) % step == 0 & 0 <= u + low < step * n, x[(u + low) // step], 0)
    """
    shape = tuple(apart[d].extent if d in apart else n for d, n in enumerate(source.shape))
    axes = tuple(Axis(d, n) for d, n in enumerate(shape))
    indices, conditions = list[Expr](axes), list[Expr]()
    for d, own in apart.items():
        point = affine.simplify(Apply("add", (axes[d], affine.integer(own.low))))
        step, end = affine.integer(own.step), affine.integer(own.step * source.shape[d])
        conditions.append(Apply("eq", (Apply("mod", (point, step)), affine.integer(0))))
        conditions += [Apply("ge", (point, affine.integer(0))), Apply("lt", (point, end))]
        indices[d] = affine.simplify(Apply("floordiv", (point, step)))
    left = [c for c in map(affine.simplify, conditions) if not (isinstance(c, Const) and c.value)]
    if not left and shape == source.shape:
        return source
    read = Read(source, tuple(indices))
    body = Select(conjunction(tuple(left)), read, Const(0, source.dtype)) if left else read
    return compute(f"{source.name}_{suffix}", axes, body)
