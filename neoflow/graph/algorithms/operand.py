"""An operand of a correlation, its channels last in memory, to be read at any point of its windows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.close import define
from neoflow.expr.guards import conjuncts
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Select, postorder, substitute
from neoflow.expr.normal import conjunction
from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph.facts import is_move

LEAST_RUN = 16
"""Elements that lie side by side from which vectors along them pay: a register of the widest."""


@dataclass(frozen=True)
class Operand:
    """source: what is read, in the order of its dimensions `order`; under `conditions`, else it is 0.

    axes: of the operand that are no windows', in the order of memory; from position `inner` on they are its last ones.
    """

    source: Tensor
    order: tuple[int, ...]
    indices: tuple[Expr, ...]
    conditions: tuple[Expr, ...]
    axes: tuple[Axis, ...]
    inner: int

    def at(self, place: Mapping[Axis, Expr], limits: Sequence[tuple[Expr, int]]) -> Expr:
        """The element where axes have these values; 0 where one of the limits [0, n) is left."""
        mapping: dict[Expr, Expr] = {a: e for a, e in place.items()}
        conditions = [affine.simplify(substitute(c, mapping)) for c in self.conditions]
        conditions += [affine.simplify(Apply("lt", (i, affine.integer(n)))) for i, n in limits]
        conditions = [c for c in dict.fromkeys(conditions) if not (isinstance(c, Const) and c.value)]
        zero = Const(0, self.source.dtype)
        if any(isinstance(c, Const) for c in conditions):
            return zero
        indices = [affine.simplify(substitute(i, mapping)) for i in self.indices]
        read = Read(self.source, tuple(indices[d] for d in self.order))
        return Select(conjunction(tuple(conditions)), read, zero) if conditions else read


def operand(read: Read, source: Tensor, windows: Set[Axis], last: Set[Axis] | None) -> Operand:
    """What a closed read reads of `source`, as it is or moved so that vectors go along its channels.

    last: the axes that come last; None: where they lie if these are enough for a vector, else the most there are. What
    only pads a tensor is looked through.
    """
    indices, conditions = read.indices, tuple[Expr, ...]()
    if isinstance(source, Compute) and is_move(source.definition) and source.definition.reads:
        moved = _looked_through(source, indices)
        if moved is not None:
            source, indices, conditions = moved
    order = _order(source.shape, [i.free for i in indices], windows, last)
    place = [(d, a) for d in order for a in indices[d].free if a not in windows]
    axes = tuple(a for _, a in place)
    tail = 0
    while tail < len(order) and not (indices[order[-1 - tail]].free & windows):
        tail += 1
    inner_dims = set(order[len(order) - tail :])
    inner = sum(1 for d, _ in place if d not in inner_dims)
    if last is not None:
        inner = len(axes) - len([a for a in axes if a in last])
    return Operand(_transposed(source, order), order, indices, conditions, axes, inner)


def _looked_through(
    source: Compute, indices: tuple[Expr, ...]
) -> tuple[Tensor, tuple[Expr, ...], tuple[Expr, ...]] | None:
    """What a padding with zeros reads at these indices, and under which conditions; None of any other compute."""
    body = source.definition.body
    if not (isinstance(body, Select) and isinstance(body.other, Const) and body.other.value == 0):
        return None
    read, conditions = body.then, conjuncts(body.cond, True)
    if not isinstance(read, Read) or any(isinstance(n, Read) for c in conditions for n in postorder(c)):
        return None
    if not all(i.dtype == dt.INDEX and _is_shifted(i) for i in read.indices):
        return None
    mapping: dict[Expr, Expr] = dict(zip(source.definition.axes, indices, strict=True))
    moved = tuple(substitute(i, mapping) for i in read.indices)
    return source.inputs[read.slot], moved, tuple(substitute(c, mapping) for c in conditions)


def _is_shifted(index: Expr) -> bool:
    """Whether it is an axis and a constant, or a constant."""
    terms = affine.linear(index)[0]
    return len(terms) <= 1 and all(isinstance(a, Axis) for a in terms)


def _order(
    shape: tuple[int, ...], free: Sequence[Set[Axis]], windows: Set[Axis], last: Set[Axis] | None
) -> tuple[int, ...]:
    """The order of the dimensions in memory."""
    dims = range(len(shape))
    if last is None:
        tail = [d for d in dims if all(not free[e] & windows for e in range(d, len(shape)))]
        channels = [d for d in dims if not free[d] & windows]
        if math.prod(shape[d] for d in tail) >= LEAST_RUN or not channels:
            return tuple(dims)
        longest = max(channels, key=lambda d: (shape[d] >= LEAST_RUN and d > 0, shape[d], d))
        return (*(d for d in dims if d != longest), longest)
    return (*(d for d in dims if not free[d] & last), *(d for d in dims if free[d] & last))


def _transposed(source: Tensor, order: tuple[int, ...]) -> Tensor:
    """The tensor with its dimensions in another order."""
    if list(order) == sorted(order):
        return source
    shape = tuple(source.shape[d] for d in order)
    axes = tuple(Axis(n, e) for n, e in enumerate(shape))
    indices = tuple(axes[order.index(d)] for d in range(len(order)))
    return define(shape, axes, Read(source, indices), f"{source.name}_moved")
