"""What every template shares: the kernel's buffers, writing the outputs at a point, dividing work into tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tvm import tirx
from tvm.tirx import stmt as ts

from neoflow.codegen.tir import emit
from neoflow.codegen.tir.evaluate import Evaluator
from neoflow.codegen.tir.strided import interleaved_stores
from neoflow.expr.ir import Axis, Expr
from neoflow.loops.nest import Nest
from neoflow.target import Target

Value = emit.Value


@dataclass(frozen=True)
class Frame:
    """A nest with its buffers: `inputs` by value number, `outputs` in the order of the nest's outputs."""

    nest: Nest
    target: Target
    inputs: dict[int, tirx.Buffer]
    outputs: tuple[tirx.Buffer, ...]
    faults: emit.Faults
    outer: dict[Axis, Value] = field(default_factory=dict)
    """axes bound outside the nest"""
    instead: dict[int, Value] = field(default_factory=dict)
    """what an input is read at where it is not needed, if not at its first element"""
    begins: int = 1
    """what vectors begin at multiples of; 0: of their lanes"""
    starts: dict[int, Value] = field(default_factory=dict)
    """where in an input that is the element is which indices from data count from, if not its first"""
    together: int = 1
    """outputs that lie interleaved, element by element, along the lanes: each so many of them in their order"""
    further: dict[int, int] = field(default_factory=dict)
    """by value number, how many elements behind neighbours that are read others are fetched"""
    unsettled: frozenset[int] = frozenset()
    """by value number, of what others write a part meanwhile"""
    is_streamed: bool = False
    """whether whole vectors are stored past the caches"""
    totals: tuple[tirx.Buffer, ...] = ()
    """the buffers of the nest's totals"""
    terms: tuple[tirx.Buffer, ...] = ()
    """those of its terms"""
    riding: Callable[[Evaluator, dict[Axis, Value], int, Value | None], list] | None = None
    """what else is stored where outputs are: takes what computes them, where they are, the lanes and their mask"""

    def evaluator(
        self,
        env: dict[Axis, Value],
        lane_axis: Axis | None = None,
        lanes: int = 1,
        given: dict[Expr, Value] | None = None,
        mask: Value | None = None,
    ) -> Evaluator:
        known, rest = {**self.outer, **env}, (self.faults, self.instead, self.begins, self.starts, self.further)
        return Evaluator(self.inputs, known, lane_axis, lanes, given, mask, *rest, self.unsettled)

    def write(
        self,
        env: dict[Axis, Value],
        lane_axis: Axis | None = None,
        lanes: int = 1,
        result: Value | None = None,
        mask: Value | None = None,
        known: dict[Expr, Value] | None = None,
    ) -> list:
        """Compute every output at one point or vector of points and store it; `result` is the anchor's value there,
        `known` are values of other expressions.

        All outputs are computed before the first store, since an output may be the memory of an input.
        """
        given = dict(known or {})
        if self.nest.anchor is not None and result is not None:
            given[self.nest.anchor] = result
        ev = self.evaluator(env, lane_axis, lanes, given, mask)
        stores: list = []
        written = list(zip(self.nest.outputs, self.outputs, strict=True))
        for n in range(0, len(written), self.together):
            (_, address, _), target = written[n]
            values = [
                emit.bind(ev.statements, ev.stored(value, value.dtype))
                for (_, _, value), _ in written[n : n + self.together]
            ]
            index = ev.index(address)
            if len(values) > 1 and lanes > 1:
                stores += interleaved_stores(ev.statements, target, index, values, mask, self._store)
            elif len(values) > 1:
                stores += [emit.store(target, index + emit.integer(k), v) for k, v in enumerate(values)]
            elif mask is None:
                stores.append(self._store(target, index, values[0]))
            else:
                stores.append(emit.masked_store(target, index, values[0], mask))
        if self.riding is not None:
            stores += self.riding(ev, env, lanes, mask)
        return ev.statements + stores

    def write_terms(self, ev: Evaluator, mask: Value | None = None) -> list:
        """Compute what the nest stores at each point that it reduces over, and store it: where `ev` is."""
        stores: list = []
        for (_, address, value), target in zip(self.nest.terms, self.terms, strict=True):
            held = emit.bind(ev.statements, ev.stored(value, value.dtype))
            index = ev.index(address)
            plain = mask is None
            stores.append(emit.store(target, index, held) if plain else emit.masked_store(target, index, held, mask))
        found = ev.statements + stores
        ev.statements.clear()
        return found

    def _store(self, target: tirx.Buffer, index: Value, value: Value) -> ts.Stmt:
        return (emit.stream if self.is_streamed else emit.store)(target, index, value)


@dataclass(frozen=True)
class Buffers:
    """What a kernel is lowered for and into: `inputs` by value number, `outputs` in order, where failed checks go."""

    target: Target
    inputs: dict[int, tirx.Buffer]
    outputs: tuple[tirx.Buffer, ...]
    faults: emit.Faults

    def frame(
        self, nest: Nest, outer: dict[Axis, Value] | None = None, instead: dict[int, Value] | None = None
    ) -> Frame:
        """A nest with these buffers, under axes that are bound outside of it."""
        count = len(nest.outputs)
        found = Frame(nest, self.target, self.inputs, self.outputs[:count], self.faults, outer or {}, instead or {})
        return replace(found, totals=self.outputs[count:]) if nest.totals else found


@dataclass(frozen=True)
class Strip:
    """An axis cut into vectors: `blocks` whole ones of `lanes`, then `tail` points more."""

    axis: Axis
    lanes: int

    @property
    def blocks(self) -> int:
        return self.axis.extent // self.lanes

    @property
    def tail(self) -> int:
        return self.axis.extent % self.lanes

    def tail_mask(self) -> Value | None:
        """Lanes of the last vector that exist."""
        if self.lanes == 1:
            return None
        return emit.leading(self.tail, self.lanes)


def points(axes: Sequence[Axis], flat: Value, body: Callable[[dict[Axis, Value]], list]) -> list:
    """`body` at the `flat`-th point of the axes' product."""
    statements: list = []
    values = emit.digits(statements, flat, [a.extent for a in axes])
    return statements + body(dict(zip(axes, values, strict=True)))


def nested(
    axes: Sequence[Axis], env: dict[Axis, Value], body: Callable[[dict[Axis, Value]], list], unroll: int = 1
) -> list:
    """`body` under one serial loop for each axis; the innermost is written out when not longer than `unroll`."""
    if not axes:
        return body(env)
    first, *rest = axes
    if not rest and first.extent <= unroll:
        return [s for n in range(first.extent) for s in body({**env, first: emit.integer(n)})]
    return emit.loop(first.extent, lambda i: nested(rest, {**env, first: i}, body, unroll), "k")
