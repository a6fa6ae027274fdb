"""What a program costs, counted from its expressions: arithmetic, and bytes if each tensor moved once.

The rules, so that a count can be checked by hand:

    trips        a body counts once for each point of its tensor, a reduction's body once for each point of its axes
                 as well; a node used several times inside one body counts once
    a * b + c    is one multiply-add, and so is each trip of a sum whose body is a product; a third factor is one more
    otherwise    every function is one operation (exp as much as +), and so is each trip of a reduction
    select       counts its more expensive branch; its condition counts as nothing
    free         integer arithmetic on axes, indices (a reduction inside one does count), casts, constants
    bytes        every tensor that some compute reads is read once, every computed tensor is written once
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from neoflow import dtype as dt
from neoflow.expr.deep import Walk, run
from neoflow.expr.ir import Apply, Axis, Cast, Const, Expr, Read, Reduce, Scatter, Select, postorder
from neoflow.expr.memo import remembered
from neoflow.expr.recurrence import Looped, runs_of
from neoflow.expr.tensor import Compute, Definition, Tensor, topological


@dataclass(frozen=True)
class OpCount:
    """Cost of a program; `bytes_read` and `bytes_written` as if each tensor moved once."""

    multiply_adds: int = 0
    other: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def flops(self) -> int:
        """Operations, a multiply-add being two."""
        return 2 * self.multiply_adds + self.other

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written

    def __add__(self, more: OpCount) -> OpCount:
        return OpCount(
            self.multiply_adds + more.multiply_adds,
            self.other + more.other,
            self.bytes_read + more.bytes_read,
            self.bytes_written + more.bytes_written,
        )


def count_ops(tensors: Tensor | Sequence[Tensor]) -> OpCount:
    """Cost of computing `tensors` and all they need, each tensor once, by the rules above."""
    total = OpCount()
    read: dict[Tensor, None] = {}
    order = topological([tensors] if isinstance(tensors, Tensor) else list(tensors))
    for t in order:
        if isinstance(t, Compute):
            total += count_definition(t.definition) + OpCount(bytes_written=t.nbytes)
            read.update(dict.fromkeys(t.inputs))
    for whole in runs_of(order):
        r = whole.recurrence
        kept = [t.of for t in order if isinstance(t, Looped) and t.run is whole]
        step = count_ops([*r.then, *kept])
        total += OpCount(*(r.steps * n for n in (step.multiply_adds, step.other, step.bytes_read, step.bytes_written)))
    return total + OpCount(bytes_read=sum(t.nbytes for t in read))


@remembered
def count_definition(definition: Definition) -> OpCount:
    """Arithmetic of one compute, over all its points."""
    cost = run(_Counter(definition.body).cost(definition.body, set()))
    points = 1 if isinstance(definition.body, Scatter) else math.prod(definition.shape)
    return OpCount(points * cost.multiply_adds, points * cost.other)


@dataclass(frozen=True)
class _Cost:
    """`is_product`: the last operation is a multiplication, counted in `other`, that an addition can absorb."""

    multiply_adds: int = 0
    other: int = 0
    is_product: bool = False

    @property
    def flops(self) -> int:
        return 2 * self.multiply_adds + self.other

    def plus(self, more: _Cost) -> _Cost:
        return _Cost(self.multiply_adds + more.multiply_adds, self.other + more.other)

    def accumulated(self) -> _Cost:
        """With one addition after it."""
        if self.is_product:
            return _Cost(self.multiply_adds + 1, self.other - 1)
        return _Cost(self.multiply_adds, self.other + 1)


_FREE = _Cost()


class _Counter:
    def __init__(self, body: Expr):
        self.reading: set[Expr] = set()
        """nodes that depend on data"""
        for e in postorder(body):
            if isinstance(e, Read) or any(c in self.reading for c in e.children):
                self.reading.add(e)

    def cost(self, e: Expr, seen: set[Expr]) -> Walk[_Cost]:
        """Of `e` in one trip of the loops around it, apart from what `seen` has counted already."""
        if e in seen:
            return _FREE
        seen.add(e)
        match e:
            case Const() | Axis():
                return _FREE
            case Read():
                return (yield self._reductions_only(e.indices, seen))
            case Cast():
                return (yield self.cost(e.arg, seen))
            case Apply() if dt.is_float(e.dtype) or e in self.reading:
                return (yield from self._apply(e, seen))
            case Apply():
                return _FREE
            case Select():
                first, second = set(seen), set(seen)
                then, other = (yield self.cost(e.then, first)), (yield self.cost(e.other, second))
                seen |= second if other.flops > then.flops else first
                return other if other.flops > then.flops else then
            case Scatter():
                trips = math.prod(a.extent for a in e.axes)
                each = (yield self.cost(e.body, set())).accumulated()
                return _Cost(trips * each.multiply_adds, trips * each.other)
            case Reduce():
                trips = math.prod(a.extent for a in e.axes)
                body = yield self.cost(e.body, set())
                each = body.accumulated() if e.op == "sum" else _Cost(body.multiply_adds, body.other + 1)
                return _Cost(trips * each.multiply_adds, trips * each.other)
        raise TypeError(type(e).__name__)

    def _apply(self, e: Apply, seen: set[Expr]) -> Walk[_Cost]:
        costs: list[_Cost] = []
        for a in e.args:
            costs.append((yield self.cost(a, seen)))
        if e.fn in ("add", "sub"):
            absorbed = next((n for n, c in enumerate(costs) if c.is_product), 0)
            costs[absorbed] = costs[absorbed].accumulated()
            return costs[0].plus(costs[1])
        total = _FREE
        for c in costs:
            total = total.plus(c)
        return _Cost(total.multiply_adds, total.other + 1, e.fn == "mul")

    def _reductions_only(self, indices: tuple[Expr, ...], seen: set[Expr]) -> Walk[_Cost]:
        """What indices cost: nothing but the reductions in them."""
        total = _FREE
        for e in indices:
            if e in self.reading and e not in seen:
                inner = self.cost(e, seen) if isinstance(e, Reduce) else self._reductions_only(e.children, seen)
                total = total.plus((yield inner))
        return total
