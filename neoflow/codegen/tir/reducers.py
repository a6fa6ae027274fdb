"""The reducers over registers: neutral state, one more value, merging two states, folding the lanes of a vector."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from tvm import tirx

from neoflow.codegen.tir import emit
from neoflow.codegen.tir.dialect import dialect
from neoflow.codegen.tir.functions import apply_function
from neoflow.expr import dtype as dt
from neoflow.expr.functions import ARG_REDUCERS, REDUCERS, identity
from neoflow.expr.ir import Apply, Expr, Reduce

Value = emit.Value


class Point(Protocol):
    """What an `Evaluator` is asked for."""

    statements: list

    def value(self, e: Expr) -> Value: ...

    def index(self, e: Expr) -> Value: ...

    def is_zero_outside(self, read: Expr) -> bool: ...


@dataclass(frozen=True)
class State:
    """Accumulators: one block of registers for each component (the value; for argmax and argmin also its position)."""

    pieces: tuple[emit.Registers, ...]
    neutral: tuple[Value, ...]

    @property
    def count(self) -> int:
        """Accumulators of each component."""
        return self.pieces[0].count

    def allocate(self) -> list:
        out: list = []
        for piece, value in zip(self.pieces, self.neutral, strict=True):
            out += piece.allocate() + [piece.put(n, value) for n in range(piece.count)]
        return out

    def values(self, n: int) -> list[Value]:
        return [piece.get(n) for piece in self.pieces]

    def put(self, n: int, values: list[Value]) -> list:
        """Store new values; all are computed before the first is stored."""
        out: list = []
        bound = [emit.kept(out, v) for v in values]
        return out + [piece.put(n, v) for piece, v in zip(self.pieces, bound, strict=True)]


class Reducer:
    """A `Reduce` node's operator on vectors."""

    def __init__(self, node: Reduce):
        self._node = node
        self._element = emit.REGISTER.get(node.body.dtype, node.body.dtype)
        self._is_arg = node.op in ARG_REDUCERS
        key = "int64" if self._element in ("float64", "int64") else "int32"
        self.elements = (key, "int32") if self._is_arg else (self._element,)

    def state(self, count: int, lanes: int) -> State:
        """`count` neutral accumulators of `lanes` lanes."""
        pieces = tuple(emit.Registers(count, e, lanes) for e in self.elements)
        return State(pieces, self._neutral())

    @property
    def is_rounded(self) -> bool:
        """Whether the error grows with the terms in a row, so that they are taken in blocks."""
        return self._node.op == "sum" and dt.is_float(self._element)

    def _neutral(self) -> tuple[Value, ...]:
        if self._is_arg:  # loses to every key, and to equal ones by its position
            worst = -(1 << (31 if self.elements[0] == "int32" else 63))
            return emit.splat(worst, self.elements[0]), emit.splat((1 << 31) - 1, "int32")
        return (emit.splat(identity(self._node.op, self._element), self._element),)

    def accumulate(self, state: State, n: int, ev: Point, mask: Value | None = None) -> list:
        """Take the body's value at the evaluator's point into accumulator `n`; lanes outside `mask` stay."""
        body, lanes = self._node.body, state.pieces[0].lanes
        if self._is_arg:
            key = emit.kept(ev.statements, self._key(emit.widen(ev.value(body), lanes)))
            position = ev.index(self._node.axes[0]) if self._node.axes else emit.integer(0)  # one of length 1 is gone
            new = self._better(state.values(n), [key, emit.widen(emit.narrow(position), lanes)])
        elif self._is_product and self._node.op == "sum" and isinstance(body, Apply):
            a, b = (emit.widen(ev.value(x), lanes) for x in body.args)
            new = [emit.fma(a, b, state.values(n)[0])]
        else:
            new = self._merged(state.values(n), [emit.widen(ev.value(body), lanes)])
        if mask is not None and not self._adds_zero_outside(ev):
            new = [tirx.Select(mask, fresh, old) for fresh, old in zip(new, state.values(n), strict=True)]
        return ev.statements + state.put(n, new)

    def _adds_zero_outside(self, ev: Point) -> bool:
        """Whether what a sum takes in lanes outside of the mask is 0, as what is loaded there is; no accumulator is -0,
        which that would change."""
        body = self._node.body
        factors = body.args if isinstance(body, Apply) and self._is_product else (body,)
        return self._node.op == "sum" and all(map(ev.is_zero_outside, factors))

    @property
    def _is_product(self) -> bool:
        body = self._node.body
        return isinstance(body, Apply) and body.fn == "mul" and body.dtype in ("float32", "float64")

    def merge(self, state: State, n: int, values: list[Value]) -> list:
        """Take another accumulator's `values` into accumulator `n`."""
        return state.put(n, self._merged(state.values(n), values))

    def _merged(self, old: list[Value], new: list[Value]) -> list[Value]:
        if self._is_arg:
            return self._better(old, new)
        if self._node.op in ("max", "min") and dt.is_float(self._element) and dialect().any_address:
            return [self._extreme(old[0], new[0])]
        return [apply_function(REDUCERS[self._node.op].function, [new[0], old[0]], False, [])]

    def _extreme(self, old: Value, new: Value) -> Value:
        """The larger or smaller, NaN where there is one, in three instructions: of zeros the one that came first.

        A comparison with NaN is false: an old one stays by the first choice, a new one comes by the second.
        """
        chosen = tirx.Select(new > old if self._node.op == "max" else new < old, new, old)
        return tirx.Select(new <= emit.splat(math.inf, self._element, emit.lanes_of(new)), chosen, new)

    def _better(self, old: list[Value], new: list[Value]) -> list[Value]:
        """The larger key, of equal ones the first position."""
        (a, i), (b, j) = old, new
        lanes = emit.lanes_of(a)
        yes, no = emit.splat(1, "int32", lanes), emit.splat(0, "int32", lanes)
        equal, ahead = tirx.Select(j < i, yes, no), tirx.Select(b > a, yes, no)
        take = tirx.NE(tirx.Select(tirx.EQ(a, b), equal, ahead), no)
        return [tirx.Select(take, b, a), tirx.Select(take, j, i)]

    def _key(self, x: Value) -> Value:
        """An integer that is larger for what argmax or argmin prefers: NaN first, -0 and 0 alike.

        Comparisons of floats with their NaN cases, chained over lanes, take LLVM exponential time.
        """
        lanes, element = emit.lanes_of(x), self.elements[0]
        largest = self._node.op == "argmax"
        if not dt.is_float(self._element):
            x = tirx.Cast(emit.vector_type(element, lanes), x)
            return x if largest else emit.splat(-1, element, lanes) - x
        bits = emit.reinterpret(element, x)
        width = 32 if element == "int32" else 64
        flip = bits >> emit.splat(width - 1, element, lanes)  # -1 for a key to be negated
        flip = flip if largest else flip ^ emit.splat(-1, element, lanes)
        key = (emit.magnitude(x) ^ flip) - flip
        return tirx.Select(emit.is_nan(x), emit.splat((1 << (width - 1)) - 1, element, lanes), key)

    def fold(self, state: State, statements: list, some: range | None = None) -> list[Value]:
        """One scalar from all lanes of some accumulators, of all without: neighbours first, then halves; statements are
        added."""
        rows = [state.values(n) for n in some or range(state.count)]
        while len(rows) > 1:
            rows = [
                self._named(self._merged(rows[n], rows[n + 1]), statements) if n + 1 < len(rows) else rows[n]
                for n in range(0, len(rows), 2)
            ]
        values = self._named(rows[0], statements)
        lanes = state.pieces[0].lanes
        while lanes > 1:
            lanes //= 2
            halves = [_halves(v, e, lanes) for v, e in zip(values, self.elements, strict=True)]
            merged = self._merged([h[0] for h in halves], [h[1] for h in halves])
            values = self._named(merged, statements)
        return values

    def _named(self, values: list[Value], statements: list) -> list[Value]:
        return [emit.bind(statements, v) for v in values]

    def result(self, values: list[Value]) -> Value:
        """The node's value in its register type."""
        return tirx.Cast(emit.vector_type(dt.INDEX, emit.lanes_of(values[1])), values[1]) if self._is_arg else values[0]


def _halves(x: Value, element: str, lanes: int) -> list[Value]:
    """The lower and the upper lanes."""
    if lanes == 1:
        return [tirx.Shuffle([x], [emit.integer(n)]) for n in (0, 1)]
    kind = emit.vector_type(element, lanes)
    return [tirx.call_intrin(kind, f"tirx.vector{half}", x) for half in ("low", "high")]
