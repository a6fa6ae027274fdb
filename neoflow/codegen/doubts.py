"""Doubts: where rounding decides what an integer or a condition is, as an expression that is infinite there, else 0.

A comparison of two computed values that nearly agree, an index made of a float near a whole number, the position of
one of two elements that may be the largest, an int64 that leaves its range: any value is right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neoflow.codegen.formulas import (
    DOUBT,
    ZERO,
    add,
    below,
    both,
    const,
    if_doubt,
    if_large,
    larger,
    size_of,
    sub,
    total,
    upto,
    wide,
)
from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Apply, Axis, Cast, Expr, Read, Reduce, Select
from neoflow.expr.tensor import Definition


@dataclass(frozen=True)
class Doubts:
    """Of the body of `definition`. error: an expression's bound, None where it is exact. found: the bounds of what a
    read finds and of where."""

    error: Callable[[Expr], Expr | None]
    found: Callable[[Read], list[Expr | None]]
    definition: Definition

    def of(self, e: Expr) -> Expr | None:
        """Infinite where rounding decides what `e` is; None where it never does."""
        match e:
            case Read():
                return total(self.found(e))
            case Select():
                then, other = self.error(e.then), self.error(e.other)
                chosen = [None if then is None else Select(e.cond, then, ZERO)]
                chosen += [None if other is None else Select(e.cond, ZERO, other)]
                return total([self.error(e.cond), *chosen])
            case Cast() if dt.is_float(e.arg.dtype):
                return self._truncated(e)
            case Cast():
                return self.error(e.arg)
            case Reduce():
                return self._position(e) if e.op.startswith("arg") else self._whole_reduction(e)
            case Apply(fn="and" | "or"):
                first, second = (self.error(a) for a in e.args)
                if second is not None:
                    second = Select(e.args[0], *((second, ZERO) if e.fn == "and" else (ZERO, second)))
                return total([first, second])
            case Apply() if dt.is_float(e.args[0].dtype):
                return self._comparison(e)
            case Apply():
                return total([*map(self.error, e.args), self._overflow(e)])
        return None

    def _comparison(self, e: Apply) -> Expr | None:
        error = total([self.error(a) for a in e.args])
        if error is None:
            return None
        a, b = map(wide, e.args)
        is_near = both(upto(size_of(sub(a, b)), error), below(ZERO, error))
        return Select(is_near, DOUBT, if_doubt(error))

    def _truncated(self, e: Cast) -> Expr | None:
        error, value = self.error(e.arg), wide(e.arg)
        if error is None:
            return None
        if e.dtype == "bool":
            is_near = both(upto(size_of(value), error), below(ZERO, error))
            return Select(is_near, DOUBT, if_doubt(error))
        ends = [Cast(e.dtype, x) for x in (add(value, error), sub(value, error))]
        return Select(Apply("eq", tuple(ends)), if_doubt(error), DOUBT)

    def _position(self, e: Reduce) -> Expr | None:
        """An extreme's position is in doubt when two elements may be the extreme."""
        error = self.error(e.body)
        if error is None:
            return None
        value = wide(e.body)
        if e.op == "argmin":
            value = Apply("neg", (value,))
        last = max(a.ident for a in (*self.definition.axes, *self.definition.reduction_axes))
        fresh = {a: Axis(last + 1 + n, a.extent) for n, a in enumerate(e.axes)}
        least = Reduce("max", e.axes, sub(value, error))
        candidate = _substituted(upto(least, add(value, error)), fresh, least)
        count = Reduce("sum", tuple(fresh.values()), Select(candidate, const(1.0), ZERO))
        return Select(upto(count, const(1.0)), ZERO, DOUBT)

    def _whole_reduction(self, e: Reduce) -> Expr | None:
        error, large = self.error(e.body), None
        if e.dtype == dt.INDEX and e.op in ("sum", "prod") and _is_open(e.body):
            size = Reduce(e.op, e.axes, larger(size_of(wide(e.body)), const(0.0 if e.op == "sum" else 1.0)))
            large = if_large(size)
        return total([None if error is None else Reduce("max", e.axes, error), large])

    def _overflow(self, e: Apply) -> Expr | None:
        """int64 is simplified as if it never overflowed."""
        if e.dtype != dt.INDEX or e.fn not in ("add", "sub", "mul", "neg", "abs") or not _is_open(e):
            return None
        return if_large(size_of(Apply(e.fn, tuple(map(wide, e.args)))))


def _is_open(e: Expr) -> bool:
    """Whether nothing bounds an integer."""
    low, high = affine.bounds(e)
    return low <= -affine.INF or high >= affine.INF


def _substituted(e: Expr, axes: dict[Axis, Axis], kept: Expr) -> Expr:
    """`e` over other axes, but for the part `kept`."""
    new: dict[Expr, Expr] = {kept: kept}
    stack = [e]
    while stack:
        node = stack[-1]
        waiting = [] if node in new else [c for c in node.children if c not in new]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        if node not in new:
            moved = axes.get(node) if isinstance(node, Axis) else None
            new[node] = node.rebuild(tuple(new[c] for c in node.children)) if moved is None else moved
    return new[e]
