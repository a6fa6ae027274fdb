"""The launch of a map that turns what it reads or writes in squares of shared memory; see `loops.gpu.turn`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx

from neoflow.codegen.gpu.grid import Grid, Grids, Value, barrier, divided, shared
from neoflow.codegen.gpu.terms import packed, spread
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.frame import Frame
from neoflow.codegen.tir.storage import to_storage
from neoflow.expr.ir import Axis, Expr
from neoflow.loops import costs
from neoflow.loops.gpu.turn import Square, square, tile_axes, turned
from neoflow.loops.schedule import Schedule

Env = dict[Axis, Value]


def lower_turned(frame: Frame, schedule: Schedule) -> Grids:
    """One launch."""
    return Grids((_Lowering(frame, schedule).grid(),))


def point(s: Square, flat: Value) -> tuple[Value, Value]:
    """Where an access begins: along the neighbours, and across them."""
    patch, within = divided(flat, s.banks)
    line, place = divided(patch, s.side // s.banks)
    across, along = divided(within, s.banks // s.lanes)
    return place * emit.integer(s.banks) + along * emit.integer(s.lanes), line * emit.integer(s.lanes) + across


@dataclass(frozen=True)
class _Held:
    """A square of the values of an expression; narrow ones are wider there."""

    value: Expr
    place: tirx.Buffer
    pitch: int

    def put(self, out: list, vector: Value, inner: Value, last: Value) -> list:
        """Neighbours along the inner axis from one point on."""
        element, lanes = str(self.place.ty.dtype), emit.lanes_of(vector)
        if emit.element_of(vector) == "bool":
            vector = tirx.Select(vector, emit.splat(1, element, lanes), emit.splat(0, element, lanes))
        elif emit.element_of(vector) != element:
            vector = tirx.Cast(emit.vector_type(element, lanes), vector)
        values = spread(out, vector) if lanes > 1 else [vector]
        return [emit.store(self.place, self._at(inner + emit.integer(n), last), v) for n, v in enumerate(values)]

    def get(self, out: list, lanes: int, inner: Value, last: Value) -> Value:
        """Neighbours along the last axis, as they are computed with."""
        values = [emit.load(self.place, self._at(inner, last + emit.integer(n))) for n in range(lanes)]
        vector = packed(out, values) if lanes > 1 else emit.held(out, values[0])
        if self.value.dtype == "bool":
            return tirx.NE(vector, emit.splat(0, str(self.place.ty.dtype), lanes))
        register = emit.REGISTER.get(self.value.dtype, self.value.dtype)
        same = emit.element_of(vector) == register
        return vector if same else tirx.Cast(emit.vector_type(register, lanes), vector)

    def _at(self, inner: Value, last: Value) -> Value:
        return inner * emit.integer(self.pitch) + last


class _Lowering:
    def __init__(self, frame: Frame, schedule: Schedule):
        self.frame, self.square = frame, square(frame.nest, schedule)
        self.threads, self.lanes = int(schedule["threads"]), int(schedule["lanes"])
        inner = int(schedule["inner"])
        self.inner, self.last = frame.nest.axes[inner], frame.nest.axes[-1]
        self.others = [a for n, a in enumerate(frame.nest.axes[:-1]) if n != inner]
        self.tiles = tile_axes(frame.nest, schedule)
        self.are_outputs = schedule["turn"] == "outputs"
        self.held = [self._square(e) for e in turned(frame.nest, schedule)]

    def _square(self, e: Expr) -> _Held:
        element = emit.REGISTER.get(e.dtype, e.dtype)
        element = element if element in _WORDS else "int32"
        return _Held(e, shared(self.square.side * self.square.pitch, element, "square"), self.square.pitch)

    def grid(self) -> Grid:
        def body(block: Value, thread: Value) -> list:
            out: list = [emit.on_stack(h.place) for h in self.held]
            *values, row, column = emit.digits(out, block, [a.extent for a in self.tiles])
            env = dict(zip(self.others, values, strict=True))
            side = emit.integer(self.square.side)
            first = (emit.bind(out, row * side, "first"), emit.bind(out, column * side, "first"))

            def put(is_whole: bool) -> list:
                return self._each(thread, lambda along, across: self._put(env, first, along, across, is_whole))

            def get(is_whole: bool) -> list:
                return self._each(thread, lambda along, across: self._get(env, first, across, along, is_whole))

            return [*out, *self._guarded(first, put), barrier(), *self._guarded(first, get)]

        return Grid(costs.points(self.tiles), self.threads, body)

    def _each(self, thread: Value, body: Callable[[Value, Value], list]) -> list:
        """Every access of a square, by some thread."""

        def one(n: Value) -> list:
            out: list = []
            flat = emit.bind(out, n * emit.integer(self.threads) + thread, "flat")
            along, across = point(self.square, flat)
            return out + body(emit.bind(out, along, "along"), emit.bind(out, across, "across"))

        return emit.loop(self.square.accesses // self.threads, one, "access")

    def _guarded(self, first: tuple[Value, Value], body: Callable[[bool], list]) -> list:
        """Without a guard for each access where a square has all of its points."""
        whole: Value | None = None
        for begin, axis in zip(first, (self.inner, self.last), strict=True):
            if axis.extent % self.square.side:
                fits = begin < emit.integer(axis.extent - self.square.side + 1)
                whole = fits if whole is None else tirx.And(whole, fits)
        return body(True) if whole is None else emit.when(whole, body(True), body(False))

    def _at(self, out: list, env: Env, first: tuple[Value, Value], inner: Value, last: Value) -> Env:
        """The axes at a point of the square."""
        found = {**env, self.inner: first[0] + inner, self.last: first[1] + last}
        return {a: emit.bind(out, v, "at") for a, v in found.items()}

    def _inside(self, at: Env, body: list, is_whole: bool) -> list:
        """Where there are points: an access is whole, or not there."""
        for axis in (self.inner, self.last):
            if axis.extent % self.square.side and not is_whole:
                body = emit.when(at[axis] < emit.integer(axis.extent), body)
        return body

    def _put(self, env: Env, first: tuple[Value, Value], inner: Value, last: Value, is_whole: bool) -> list:
        """What is held at an access along the inner axis."""
        out: list = []
        at = self._at(out, env, first, inner, last)
        ev = self.frame.evaluator(at, self.inner, self.lanes)
        values = [emit.bind(ev.statements, emit.widen(ev.value(h.value), self.lanes)) for h in self.held]
        stores = [s for h, v in zip(self.held, values, strict=True) for s in h.put(ev.statements, v, inner, last)]
        return out + self._inside(at, [*ev.statements, *stores], is_whole)

    def _get(self, env: Env, first: tuple[Value, Value], inner: Value, last: Value, is_whole: bool) -> list:
        """The outputs at an access along the last axis."""
        out: list = []
        at = self._at(out, env, first, inner, last)
        inside: list = []
        known = {h.value: h.get(inside, self.lanes, inner, last) for h in self.held}
        if not self.are_outputs:
            inside += self.frame.write(at, self.last, self.lanes, known=known)
            return out + self._inside(at, inside, is_whole)
        ev = self.frame.evaluator(at, self.last, self.lanes)
        stores = []
        for (_, address, value), target in zip(self.frame.nest.outputs, self.frame.outputs, strict=True):
            stored = emit.bind(ev.statements, to_storage(known[value], value.dtype))
            stores.append(emit.store(target, ev.index(address), stored))
        return out + self._inside(at, [*inside, *ev.statements, *stores], is_whole)


_WORDS = ("float32", "float64", "int32", "int64")
"""Types of 4 or 8 bytes."""
