"""Launches of the `gpu_contraction` template; see `loops.gpu.contraction`.

Here are the blocks, the steps of K and the register tile; `operands` loads, `results` stores.
"""

from __future__ import annotations

import math

from tvm import tirx

from neoflow.codegen.gpu.blocks import Blocks
from neoflow.codegen.gpu.grid import Grid, Grids, Value, dynamic, shared
from neoflow.codegen.gpu.operands import Env, Operand, Place
from neoflow.codegen.gpu.pipeline import Pipeline
from neoflow.codegen.gpu.results import Results, Sums
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.blocks import Loop, cleared, in_blocks
from neoflow.codegen.tir.frame import Buffers, Frame
from neoflow.loops.gpu.contraction import tile_of
from neoflow.loops.gpu.operands import sides
from neoflow.loops.gpu.tile import STATIC_BYTES, Tile, vector
from neoflow.loops.problem import NestProblem
from neoflow.loops.schedule import Schedule
from neoflow.loops.sides import Contraction, size


def lower_contraction(problem: NestProblem, schedule: Schedule, buffers: Buffers) -> Grids:
    """The launch of the blocks; with K in parts, one that adds these."""
    found, tile = sides(problem, schedule), tile_of(problem, buffers.target, schedule)
    return _Lowering(buffers.frame(found.nest), schedule, found.c, found.element, tile).grids()


class _Lowering:
    def __init__(self, frame: Frame, schedule: Schedule, c: Contraction, element: str, tile: Tile):
        self.c, self.tile, self.element = c, tile, element
        self.warp_n, self.unroll = int(schedule["warp_n"]), int(schedule["unroll"])
        steps = math.ceil(size(c.k) / tile.block_k)
        self.steps_each = math.ceil(steps / int(schedule["splits"]))
        self.steps, self.parts = steps, math.ceil(steps / self.steps_each)
        self.left = Operand(
            frame, c.left, c.m, c.k, tile.block_m, tile.block_k, tile.threads,
            schedule["left_along"] == "k", int(schedule["left_lanes"]), element, bool(schedule["left_copy"]),
        )  # fmt: skip
        self.right = Operand(
            frame, c.right, c.n, c.k, tile.block_n, tile.block_k, tile.threads,
            schedule["right_along"] == "k", int(schedule["right_lanes"]), element, bool(schedule["right_copy"]),
        )  # fmt: skip
        stride = self.left.elements + self.right.elements
        elements = tile.stages * stride
        self.dynamic_bytes = elements * tile.element_bytes
        if self.dynamic_bytes <= STATIC_BYTES:
            self.dynamic_bytes = 0
        memory = (dynamic if self.dynamic_bytes else shared)(elements, element, "tiles")
        self.places = (Place(memory, 0, stride), Place(memory, self.left.elements, stride))
        self.blocks = Blocks(c, tile.block_m, tile.block_n, self.parts, int(schedule["swizzle"]))
        partial = emit.buffer(self.parts * size((*c.batch, *c.m, *c.n)), element, "partial", 64)
        lanes, out_registers = int(schedule["store_lanes"]), schedule["store"] == "registers"
        self.results = Results(frame, c, tile.block_m, tile.block_n, lanes, out_registers, self.parts, partial)

    def grids(self) -> Grids:
        first = Grid(self.blocks.count, self.tile.threads, self._block, self.dynamic_bytes)
        if self.parts == 1:
            return Grids((first,))
        return Grids((first, self.results.combine()), (self.results.partial,))

    def _block(self, block: Value, thread: Value) -> list:
        out: list = []
        at = self.blocks.at(out, block)
        env: Env = at.env
        operands = [(self.left, self.places[0], at.first_row), (self.right, self.places[1], at.first_column)]
        begun = [(o, p, o.begin(out, thread, first, env)) for o, p, first in operands]
        first_step = emit.bind(out, at.part * emit.integer(self.steps_each), "first")
        pipeline = Pipeline(begun, self.tile.stages, first_step, self._length(first_step), self.steps)
        sums = self._sums(out, thread)
        row, column = self._places(out, thread)

        def leaf(acc: emit.Registers, step: list[Value]) -> list:
            return pipeline.step(step[0], lambda stage: self._multiply(acc, row, column, stage))

        loop = Loop(self._length(first_step), self.steps_each)
        out += [emit.on_stack(self.places[0].buffer), *pipeline.begin(), *cleared(sums.acc)]
        out += in_blocks([loop], sums.acc, leaf, terms=self.tile.block_k)
        return out + self.results.store(sums, at.part, env, at.first_row, at.first_column)

    def _length(self, first_step: Value) -> int | Value:
        """Steps of a part."""
        if self.steps % self.steps_each == 0:
            return self.steps_each
        return tirx.Min(emit.integer(self.steps_each), emit.integer(self.steps) - first_step)

    # --- the register tile

    def _places(self, out: list, thread: Value) -> tuple[Value, Value]:
        """The first row and column of a thread in its block."""
        t = self.tile
        wide, warps = emit.integer(self.warp_n), t.block_n // (t.thread_n * self.warp_n)
        lane, warp = tirx.truncmod(thread, emit.integer(32)), tirx.truncdiv(thread, emit.integer(32))
        row_warp, column_warp = tirx.truncdiv(warp, emit.integer(warps)), tirx.truncmod(warp, emit.integer(warps))
        row_lane, column_lane = tirx.truncdiv(lane, wide), tirx.truncmod(lane, wide)
        high, across = 32 // self.warp_n, self.warp_n
        row = row_warp * emit.integer(high * t.thread_m) + row_lane * emit.integer(self.left_vector)
        column = column_warp * emit.integer(across * t.thread_n) + column_lane * emit.integer(self.right_vector)
        return emit.bind(out, row, "row"), emit.bind(out, column, "column")

    @property
    def left_vector(self) -> int:
        return vector(self.tile.thread_m, self.tile.element_bytes)

    @property
    def right_vector(self) -> int:
        return vector(self.tile.thread_n, self.tile.element_bytes)

    def _sums(self, out: list, thread: Value) -> Sums:
        t, high, wide = self.tile, self.left_vector, self.right_vector
        row, column = self._places(out, thread)
        acc = emit.Registers(t.thread_m * t.thread_n, self.element, 1)
        rows_apart, columns_apart = emit.integer(32 // self.warp_n * high), emit.integer(self.warp_n * wide)

        def row_of(i: Value) -> Value:
            piece, within = tirx.truncdiv(i, emit.integer(high)), tirx.truncmod(i, emit.integer(high))
            return row + piece * rows_apart + within

        return Sums(acc, t.thread_m, t.thread_n // wide, wide, row_of, lambda v: column + v * columns_apart)

    # Accumulators are scalars: TVM takes two loads of a vector for one, whatever was stored in between.

    def _multiply(self, acc: emit.Registers, row: Value, column: Value, stage: Value) -> list:
        """The terms of a step in shared memory."""
        t, unroll = self.tile, min(self.unroll, self.tile.block_k)

        def terms(first: Value) -> list:
            return [s for u in range(unroll) for s in self._term(acc, row, column, stage, first, u)]

        return emit.loop(t.block_k // unroll, lambda n: terms(n * emit.integer(unroll)), "k")

    def _term(self, acc: emit.Registers, row: Value, column: Value, stage: Value, first: Value, u: int) -> list:
        t, high, wide = self.tile, self.left_vector, self.right_vector
        k = first + emit.integer(u)
        a = emit.Registers(t.thread_m // high, self.element, high, "a")
        b = emit.Registers(t.thread_n // wide, self.element, wide, "b")
        out = [*a.allocate(), *b.allocate()]
        sides = ((a, self.left, 0, row, 32 // self.warp_n), (b, self.right, 1, column, self.warp_n))
        for registers, operand, n, begin, apart in sides:
            line = k * emit.integer(operand.pitch) + begin
            for v in range(registers.count):
                index = self.places[n].at(stage, line + emit.integer(v * apart * registers.lanes))
                loaded = emit.load(self.places[n].buffer, emit.ramp(index, 1, registers.lanes))
                out.append(registers.put(v, loaded))
        for i in range(t.thread_m):
            for j in range(t.thread_n):
                n, x, y = i * t.thread_n + j, a.lane(i // high, i % high), b.lane(j // wide, j % wide)
                out.append(acc.put(n, emit.fma(x, y, acc.get(n))))
        return out
