"""Sides of a contraction that come to shared memory by bulk copies: boxes of tensors, which the hardware walks itself.

    a launch of its own    the maps of the tensors, in global memory
    thread 0               for each step: so many bytes will come to this stage's barrier; the copies
    all threads            wait for the phase of the barrier

See `loops.gpu.boxes`. `device.cuh` has the instructions: TVM 0.27's table of them takes operands by registers alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm import tirx

from neoflow.architectures import WARP
from neoflow.codegen.gpu.grid import Grid, Value, barrier, called, warp_barrier
from neoflow.codegen.gpu.operands import Env, Place
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.frame import Frame
from neoflow.loops.gpu.boxes import BARRIER_BYTES, Boxes, Dim

TYPES = {"float16": "f16", "bfloat16": "bf16"}
MAP_BYTES = 128


@dataclass(frozen=True)
class Side:
    """place: where its tiles go, of so many elements and bytes: `pieces` boxes, one behind the other."""

    boxes: Boxes
    element: str
    place: Place
    elements: int
    nbytes: int

    @property
    def pieces(self) -> int:
        return self.elements // math.prod(self.boxes.box)


@dataclass(frozen=True)
class Bulk:
    """The sides, by their maps' numbers; `barriers`: where the first stage's is, in the sides' shared memory."""

    frame: Frame
    sides: tuple[Side, ...]
    stages: int
    barriers: int
    maps: tirx.Buffer

    @staticmethod
    def of(frame: Frame, sides: tuple[Side, ...], stages: int, barriers: int) -> Bulk:
        """With memory for the maps, wherever that begins."""
        return Bulk(frame, sides, stages, barriers, emit.buffer((len(sides) + 1) * MAP_BYTES, "int8", "maps", 64))

    # --- the maps

    def grid(self) -> Grid:
        """The launch that makes them."""
        return Grid(
            1, WARP, lambda _, thread: _by_first(thread, [s for n in range(len(self.sides)) for s in self._map(n)])
        )

    def _map(self, n: int) -> list:
        side, given = self.sides[n], (self.maps.data, emit.integer(n))
        found, dims = side.boxes, side.boxes.dims
        tensor = tirx.address_of(emit.load(self.frame.inputs[found.read.slot], emit.integer(found.start)))
        out = [called("nf_map_new", *given, tensor, emit.integer(len(dims)))]
        for number, dim in enumerate(dims):
            box = found.box[number] if number < len(found.box) else 1
            out.append(called(f"nf_map_dim_{number}", *given, emit.integer(dim.extent), emit.integer(box)))
        itemsize = side.nbytes // side.elements
        for number, dim in enumerate(dims[1:]):
            out.append(called(f"nf_map_stride_{number}", *given, tirx.const(dim.stride * itemsize, "int64")))
        return [*out, called(f"nf_map_end_{TYPES[side.element]}", *given)]

    # --- a block

    def begin(self, thread: Value) -> list:
        """What is done before the first copy: each stage's barrier is made."""
        made = [called("nf_map_acquire", self.maps.data, emit.integer(n)) for n in range(len(self.sides))]
        made += [called("nf_mbarrier_new", self._barrier(emit.integer(stage))) for stage in range(self.stages)]
        return [*_by_first(thread, made), barrier()]

    def copy(self, thread: Value, at: tuple[Value, ...], env: Env, step: Value, stage: Value) -> list:
        """Begin to bring a step of K. at: the first row of each side."""
        count = sum(side.nbytes for side in self.sides)
        out = [called("nf_mbarrier_expect", self._barrier(stage), emit.integer(count))]
        for n, first in enumerate(at):
            out += self._copied(n, first, env, step, stage)
        return [*_by_first(thread, out), warp_barrier()]

    def _copied(self, n: int, first: Value, env: Env, step: Value, stage: Value) -> list:
        side, out = self.sides[n], list[object]()
        found, line = side.boxes, side.boxes.box[0]
        k = _places(out, step * emit.integer(found.box[0] if found.is_along_k else found.box[1]), found.k)
        batch = [env[a] for a, _ in found.batch]
        for piece in range(side.pieces):
            rows = _places(out, first + emit.integer(piece * line), found.rows)
            fast, slow = (k, rows) if found.is_along_k else (rows, k)
            others = zip((*fast[:-1], *slow[:-1], *batch), self._others(found), strict=True)
            where = [fast[-1], slow[-1], *(place for place, dim in others if dim.stride)]
            index = side.place.at(stage, emit.integer(piece * math.prod(found.box)))
            to = tirx.address_of(emit.load(side.place.buffer, index))
            given = (to, self.maps.data, emit.integer(n), self._barrier(stage))
            out.append(called(f"nf_bulk_copy_{len(where)}", *given, *where))
        return out

    @staticmethod
    def _others(found: Boxes) -> tuple[Dim, ...]:
        """Dimensions of which a box has one point."""
        return (*found.fast[:-1], *found.slow[:-1], *(d for _, d in found.batch))

    def wait(self, step: Value, stage: Value) -> list:
        """Until what was brought for a step of this block is there."""
        turn = tirx.truncmod(tirx.truncdiv(step, emit.integer(self.stages)), emit.integer(2))
        return [called("nf_mbarrier_wait", self._barrier(stage), turn)]

    def _barrier(self, stage: Value) -> Value:
        side = self.sides[0]
        width = BARRIER_BYTES * side.elements // side.nbytes
        return tirx.address_of(emit.load(side.place.buffer, emit.integer(self.barriers) + stage * emit.integer(width)))


def _by_first(thread: Value, statements: list) -> list:
    """By the first thread of a block alone."""
    return emit.when(tirx.EQ(thread, emit.integer(0)), statements)


def _places(out: list, flat: Value, group: tuple[Dim, ...]) -> list[Value]:
    """A point of a group of axes by its dimensions; beyond the last one where there is none."""
    return emit.digits(out, flat, [d.extent for d in group]) if len(group) > 1 else [flat]
