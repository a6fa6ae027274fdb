"""K, the axes summed over by a contraction: cut in parts, and the loops over one.

A point of K is counted from the start of its part, row-major: what is packed lies in that order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import tirx

from neoflow.codegen.cpu.entry import forget_registers
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.blocks import Loop, in_blocks, under
from neoflow.codegen.tir.frame import nested
from neoflow.expr.ir import Axis, Expr
from neoflow.loops.joined import joined
from neoflow.loops.sides import block_lanes, size

AGAIN = 3
"""Points left of a run from which a whole block is done instead: one takes about as long as three points."""

Value = emit.Value
Env = dict[Axis, Value]
PointBody = Callable[[Env, Value], list]
"""Takes the axes' values and the number of the point they are."""
SumBody = Callable[[emit.Registers, Env, Value], list]
"""Takes accumulators before them."""


def flat_number(first: Value, axes: Sequence[Axis], env: Env) -> Value:
    """Number of a point in row-major order, `first` being its digit before those of `axes`."""
    for a in axes:
        first = first * emit.integer(a.extent) + env[a]
    return first


@dataclass(frozen=True)
class Span:
    """A range of the first K axis, and all of the other K axes."""

    start: Value
    length: int | Value

    def times(self, steps: int) -> Span:
        """The same range of a first axis of which so many steps were one."""
        if steps == 1:
            return self
        length = self.length * steps if isinstance(self.length, int) else self.length * emit.integer(steps)
        return Span(self.start * emit.integer(steps), length)


@dataclass(frozen=True)
class Run:
    """A K axis to go along in blocks of `lanes`; neighbours along it are `step` points of K apart. is_again: whether a
    block may do points again that one before it has done."""

    along: Axis
    lanes: int
    step: int
    is_again: bool = True


@dataclass(frozen=True)
class Parts:
    """All of K in parts of `length` steps of its first axis."""

    k: tuple[Axis, ...]
    length: int

    @classmethod
    def of_blocks(cls, k: tuple[Axis, ...], length: int, points: int) -> Parts:
        """Parts of at least that length, each of whole blocks of so many points but for the last one."""
        step = points // math.gcd(points, size(k[1:]))
        return cls(k, min(k[0].extent, math.ceil(length / step) * step))

    @property
    def count(self) -> int:
        return math.ceil(self.k[0].extent / self.length)

    @property
    def rest(self) -> int:
        """Points of K in a step of the first axis."""
        return size(self.k[1:])

    @property
    def points(self) -> int:
        """Points of K in a part; the last one may have fewer."""
        return self.length * self.rest

    @property
    def axis(self) -> Axis:
        """The parts as a dimension of tasks."""
        return Axis(-2, self.count, "part")

    def part(self, env: Env) -> Span:
        """The part that a task works on."""
        start, extent = env.get(self.axis, emit.integer(0)) * emit.integer(self.length), self.k[0].extent
        if self.count * self.length == extent:
            return Span(start, self.length)
        return Span(start, tirx.Min(emit.integer(self.length), emit.integer(extent) - start))

    def over(self, axes: tuple[Axis, ...]) -> Parts:
        """The same parts of K over axes of which some are several of these joined."""
        return Parts(axes, self.length * (axes[0].extent // self.k[0].extent))

    def skipped(self, span: Span, width: int) -> Value:
        """Elements before the span where all of K is packed, `width` a point."""
        return span.start * emit.integer(self.rest * width)

    def runs(self, lanes: int) -> list[Run]:
        """Each K axis in blocks of a power of two, at most `lanes` and the length of the axis."""
        blocks = [block_lanes(a, lanes) for a in self.k]
        return [Run(a, block, size(self.k[n + 1 :])) for n, (a, block) in enumerate(zip(self.k, blocks, strict=True))]

    def each_point(self, env: Env, span: Span, body: PointBody) -> list:
        """`body(env, k)` at every point k of the span."""
        return under(self._loops(span), lambda at: self._at(env, span, at, body))

    def added(self, env: Env, span: Span, acc: emit.Registers, body: SumBody, unroll: int) -> list:
        """`body(accumulators, env, k)` at every point k of the span, in blocks of them.

        `unroll` points of the innermost axis are written out. No accumulator of a block but the ones that it adds to
        keeps its register.
        """

        def leaf(to: emit.Registers, at: list[Value]) -> list:
            return self._at(env, span, at, lambda e, k: body(to, e, k))

        return in_blocks(self._loops(span), acc, leaf, unroll, before=lambda: [forget_registers()])

    def _loops(self, span: Span) -> list[Loop]:
        return [Loop(span.length, self.length), *Loop.of([a.extent for a in self.k[1:]])]

    def _at(self, env: Env, span: Span, at: list[Value], body: PointBody) -> list:
        first, *rest = self.k
        here = {**env, first: span.start + at[0], **dict(zip(rest, at[1:], strict=True))}
        return body(here, flat_number(at[0], rest, here))

    def each_block(self, env: Env, span: Span, run: Run, block: PointBody, point: PointBody) -> list:
        """The span with the run's axis innermost: `block(env, k)` where each begins, `point` at what is left. Where its
        length is known, several points that are left are a block with those before them, which it does again."""
        first, *rest = self.k
        others = [a for a in rest if a is not run.along]

        def along(env: Env, within: Span) -> list:
            def at(offset: Value, body: PointBody) -> list:
                e = {**env, run.along: within.start + offset}
                return body(e, flat_number(e[first] - span.start, rest, e))

            lanes = emit.integer(run.lanes)
            out: list = []
            blocks, done, left = _blocks(out, within.length, run.lanes)
            out += _loop_if_any(blocks, lambda b: at(b * lanes, block), "b")
            is_known = isinstance(within.length, int) and within.length > run.lanes
            if run.is_again and is_known and within.length % run.lanes >= AGAIN:
                return out + at(emit.integer(within.length - run.lanes), block)
            return out + _loop_if_any(left, lambda i: at(done + i, point), "i")

        if run.along is first:
            return nested(others, env, lambda e: along(e, span))

        def step(offset: Value) -> list:
            at = {**env, first: span.start + offset}
            return nested(others, at, lambda e: along(e, Span(emit.integer(0), run.along.extent)))

        return emit.loop(span.length, step, "k")


@dataclass(frozen=True)
class Packed:
    """An operand as it is packed: over axes of K that are joined where it alone allows that.

    Points have the numbers that they have over the axes of `whole`.
    """

    side: Expr
    parts: Parts
    whole: Parts

    @classmethod
    def of(cls, side: Expr, whole: Parts) -> Packed:
        found = joined(side, whole.k)
        return cls(found.side, whole.over(found.axes), whole)

    def _span(self, span: Span) -> Span:
        return span.times(self.parts.k[0].extent // self.whole.k[0].extent)

    def each_point(self, env: Env, span: Span, body: PointBody) -> list:
        return self.parts.each_point(env, self._span(span), body)

    def each_block(self, env: Env, span: Span, run: Run, block: PointBody, point: PointBody) -> list:
        return self.parts.each_block(env, self._span(span), run, block, point)


def _blocks(statements: list, length: int | Value, lanes: int) -> tuple[int | Value, Value, int | Value]:
    """Whole blocks in a length, the points in them, the points left."""
    if isinstance(length, int):
        return length // lanes, emit.integer(length // lanes * lanes), length % lanes
    length = emit.bind(statements, length, "n")
    blocks = tirx.truncdiv(length, emit.integer(lanes))
    done = emit.bind(statements, blocks * emit.integer(lanes), "done")
    return blocks, done, length - done


def _loop_if_any(extent: int | Value, body: Callable[[Value], list], name: str) -> list:
    return [] if isinstance(extent, int) and not extent else emit.loop(extent, body, name)
