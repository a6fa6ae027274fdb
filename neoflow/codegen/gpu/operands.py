"""A side of a contraction on its way into shared memory: computed there where it is loaded, by all threads of a block.

Rows beyond the last one are those of the
last one again, which nobody stores; terms beyond the last one are 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx

from neoflow.codegen.gpu.grid import Value, called
from neoflow.codegen.gpu.layouts import Layout
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.frame import Frame
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Axis, Expr, Read
from neoflow.loops.sides import size

Env = dict[Axis, Value]


@dataclass(frozen=True)
class Place:
    """Where an operand's tiles are: a stage of both operands is `stride` elements, this one's are from `first` on."""

    buffer: tirx.Buffer
    first: int
    stride: int

    def at(self, stage: Value, index: Value) -> Value:
        return stage * emit.integer(self.stride) + index + emit.integer(self.first)


@dataclass(frozen=True)
class Operand:
    """A side, its own axes and those of K, how a tile of them lies in shared memory; `lanes` elements in an access."""

    frame: Frame
    side: Expr
    axes: tuple[Axis, ...]
    k: tuple[Axis, ...]
    layout: Layout
    threads: int
    lanes: int
    element: str
    is_copied: bool = False

    @property
    def slots(self) -> int:
        """Accesses of a thread for a tile."""
        return math.ceil(self._accesses / self.threads)

    @property
    def _accesses(self) -> int:
        return self.layout.rows * self.layout.terms // self.lanes

    def registers(self) -> emit.Registers:
        """For what is on its way."""
        return emit.Registers(self.slots, emit.STORAGE.get(self.element, self.element), self.lanes, "moved")

    def begin(self, out: list, thread: Value, first_row: Value, env: Env) -> list[Slot]:
        """What stays as it is from step to step, bound by statements that are added."""
        return [self._slot(out, thread, first_row, env, n) for n in range(self.slots)]

    def _slot(self, out: list, thread: Value, first_row: Value, env: Env, n: int) -> Slot:
        flat = emit.bind(out, emit.integer(n * self.threads) + thread, "slot")
        k, row = self.layout.point(flat, self.lanes)
        k, row = emit.bind(out, k, "k"), emit.bind(out, row, "row")
        rows = size(self.axes)
        here = first_row + row
        if rows % self.layout.rows:
            here = tirx.Min(here, emit.integer(rows - (1 if self.layout.along_k else self.lanes)))
        here = emit.bind(out, here, "here")
        at = dict(zip(self.axes, emit.digits(out, here, [a.extent for a in self.axes]), strict=True))
        is_there = None if self._accesses % self.threads == 0 else flat < emit.integer(self._accesses)
        return Slot(k, row, {**env, **at}, is_there)

    def fetch(self, slots: Sequence[Slot], step: Value, to: emit.Registers) -> list:
        """Computes the elements of a step; `to` holds them."""
        out: list = []
        for n, slot in enumerate(slots):
            found = self._loaded(slot, step, to, n)
            out += found if slot.is_there is None else emit.when(slot.is_there, found)
        return out

    def _loaded(self, slot: Slot, step: Value, to: emit.Registers, n: int) -> list:
        out: list = []
        env, is_term = self._term(out, slot, step)
        axis = self.k[-1] if self.layout.along_k else self.axes[-1]
        ev = self.frame.evaluator(env, axis, self.lanes)
        value = ev.stored(self.side, self.element)
        out += ev.statements
        if is_term is None:
            return [*out, to.put(n, value)]
        zero = emit.splat(0, to.element, self.lanes)
        return out + emit.when(is_term, [to.put(n, value)], [to.put(n, zero)])

    def _term(self, out: list, slot: Slot, step: Value) -> tuple[Env, Value | None]:
        """The axes' values at a slot, of a term that there is; and whether it is the slot's own, where in doubt."""
        terms, last = size(self.k), self.lanes if self.layout.along_k else 1
        k = emit.bind(out, step * emit.integer(self.layout.terms) + slot.k, "k")
        is_whole = terms % self.layout.terms == 0
        here = k if is_whole else emit.bind(out, tirx.Min(k, emit.integer(terms - last)), "here")
        at = dict(zip(self.k, emit.digits(out, here, [a.extent for a in self.k]), strict=True))
        return {**slot.env, **at}, None if is_whole else k < emit.integer(terms)

    def copy(self, slots: Sequence[Slot], step: Value, place: Place, stage: Value) -> list:
        """The elements of a step from memory to shared memory, of which nothing is known until they are waited for."""
        out: list = []
        for slot in slots:
            found = self._copied(slot, step, place, stage)
            out += found if slot.is_there is None else emit.when(slot.is_there, found)
        return out

    def _copied(self, slot: Slot, step: Value, place: Place, stage: Value) -> list:
        assert isinstance(self.side, Read)
        out: list = []
        env, is_term = self._term(out, slot, step)
        ev = self.frame.evaluator(env)
        given = emit.load(self.frame.inputs[self.side.slot], ev.index(self.side.indices[0]))
        index = place.at(stage, self.layout.index(slot.k, slot.row))
        to, source = tirx.address_of(emit.load(place.buffer, index)), tirx.address_of(given)
        nbytes = self.lanes * dt.itemsize(self.element)
        if is_term is None:
            return [*out, *ev.statements, called(f"nf_cp_async_{nbytes}", to, source)]
        return [*out, *ev.statements, called(f"nf_cp_async_zfill_{nbytes}", to, source, is_term)]

    def put(self, slots: Sequence[Slot], place: Place, stage: Value, given: emit.Registers) -> list:
        """What was computed, into shared memory."""
        out: list = []
        for n, slot in enumerate(slots):
            found = self._stored(slot, place, stage, given, n)
            out += found if slot.is_there is None else emit.when(slot.is_there, found)
        return out

    def _stored(self, slot: Slot, place: Place, stage: Value, given: emit.Registers, n: int) -> list:
        if self.lanes == 1 or self.layout.is_in_lines:
            index = place.at(stage, self.layout.index(slot.k, slot.row))
            return [emit.store(place.buffer, emit.ramp(index, 1, self.lanes), given.get(n))]
        out = []
        for j in range(self.lanes):
            next_k, next_row = (j, 0) if self.layout.along_k else (0, j)
            index = self.layout.index(slot.k + emit.integer(next_k), slot.row + emit.integer(next_row))
            out.append(emit.store(place.buffer, place.at(stage, index), given.lane(n, j)))
        return out


@dataclass(frozen=True)
class Slot:
    """An access of a thread: its point in the tile, the axes' values, whether it is one of the tile's at all."""

    k: Value
    row: Value
    env: Env
    is_there: Value | None
