"""Loops of the `contraction` template; see `loops.contraction`.

Here are the tasks and the register tile; `tiling` and `parts` cut the axes, `operands` packs, `results` stores.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import tirx

from neoflow.codegen.cpu.entry import forget_registers
from neoflow.codegen.cpu.operands import PanelOperand, RowOperand
from neoflow.codegen.cpu.parts import Env
from neoflow.codegen.cpu.results import Results
from neoflow.codegen.cpu.tiling import Panel, Rows, tiling_of
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.blocks import cleared
from neoflow.codegen.tir.frame import Buffers, Frame, points
from neoflow.codegen.tir.phases import Phase, Phases, Scratch
from neoflow.expr.ir import Axis
from neoflow.loops.nest import stride
from neoflow.loops.problem import NestProblem
from neoflow.loops.schedule import Schedule
from neoflow.loops.sides import Contraction
from neoflow.loops.tile import sides

Value = emit.Value


def lower_contraction(problem: NestProblem, schedule: Schedule, buffers: Buffers) -> Phases:
    """What is packed for all tasks, the tasks, the second pass over partial sums."""
    found = sides(problem, schedule)
    return _Lowering(buffers.frame(found.nest), schedule, found.c, found.element).phases()


class _Lowering:
    def __init__(self, frame: Frame, schedule: Schedule, c: Contraction, element: str):
        self.frame, self.c, self.element = frame, c, element
        self.parallel, self.by_panels = bool(schedule["parallel"]), schedule["order"] == "panels"
        self.tiles_a_block, self.unroll = int(schedule["tiles"]), int(schedule["unroll"])
        self.tiling = tiling_of(c, schedule)
        self.row_tiles, self.panels, self.parts = self.tiling.row_tiles, self.tiling.panels, self.tiling.parts
        owned_tiles = None if self.by_panels else self.tiles_a_block
        self.left = RowOperand(frame, c.left, self.tiling, element, schedule, owned_tiles)
        self.right = PanelOperand(frame, c.right, self.tiling, element, schedule, shared=not self.by_panels)
        self.results = Results(frame, self.tiling, element, schedule["store"] == "registers")

    def phases(self) -> Phases:
        found: list[Phase] = []
        if self.by_panels:
            if self.left.is_packed:
                found.append(self._tasks([*self.c.batch, self.row_tiles.axis], self.left.pack_shared))
            found.append(self._tasks(self._in_output_order(self.panels.axis, self.c.n), self._panel_task))
        else:
            if self.right.is_packed:
                found.append(self._tasks([*self.c.batch, self.panels.axis], self.right.pack_shared))
            found.append(self._tasks(self._in_output_order(self._block_axis, self.c.m), self._block_task))
        if self.results.is_partial:
            found.append(self._tasks([*self.c.batch, *self.c.m], self.results.combine))
        packed = [Scratch(o.buffer, o.is_shared) for o in (self.left, self.right) if o.is_packed]
        return Phases(tuple(found), (*packed, *self.results.scratch))

    # --- tasks

    def _tasks(self, dimensions: list[Axis], body: Callable[[Env], list]) -> Phase:
        total = math.prod(a.extent for a in dimensions)
        return Phase(total, lambda t: points(dimensions, t, body), self.parallel)

    def _in_output_order(self, owner: Axis, axes: tuple[Axis, ...]) -> list[Axis]:
        """Task dimensions such that consecutive tasks write near each other; parts of K outside, they share nothing."""
        address = self.frame.nest.outputs[0][1]
        steps = [(max(stride(address, a) or 0 for a in axes), 1, owner)]
        steps += [(stride(address, a) or 0, 0, a) for a in self.c.batch]
        return [self.parts.axis, *(a for _, _, a in sorted(steps, key=lambda s: (-s[0], s[1])))]

    @property
    def _block_axis(self) -> Axis:
        """The blocks of row tiles as a dimension of tasks."""
        return Axis(-6, math.ceil(self.row_tiles.count / self.tiles_a_block), "block")

    def _panel_task(self, env: Env) -> list:
        """A task that owns a panel: packs it, then goes through every row tile."""
        span = self.parts.part(env)

        def body(panel: Panel) -> list:
            def tile(t: Value) -> list:
                def run(at: Env, rows: Rows) -> list:
                    left = self.left.base(env, t) + self.parts.skipped(span, len(rows))
                    return self._tile({**env, **at}, rows, panel, left, emit.integer(0))

                return self.row_tiles.each(t, run)

            packed = self.right.pack(env, panel, emit.integer(0), span) if self.right.is_packed else []
            return packed + emit.loop(self.row_tiles.count, tile, "t")

        return self.panels.each(env[self.panels.axis], body)

    def _block_task(self, env: Env) -> list:
        """A task that owns a block of row tiles: packs them, then goes through every panel."""
        span, tile_size = self.parts.part(env), emit.integer(self.parts.points * len(self.row_tiles.whole))
        first = env[self._block_axis] * emit.integer(self.tiles_a_block)
        count: int | Value = self.tiles_a_block
        if self.row_tiles.count % self.tiles_a_block:
            count = tirx.Min(emit.integer(self.tiles_a_block), emit.integer(self.row_tiles.count) - first)

        def each_tile(body: Callable[[Env, Rows, Value], list]) -> list:
            """`body(env, rows, where the tile is packed)` for each tile of the block."""

            def tile(t: Value) -> list:
                return self.row_tiles.each(first + t, lambda at, rows: body({**env, **at}, rows, t * tile_size))

            return emit.loop(count, tile, "t")

        def panel_loop(panel: Panel) -> list:
            right = self.right.base(env, panel) + self.parts.skipped(span, panel.width)
            return each_tile(lambda at, rows, left: self._tile(at, rows, panel, left, right))

        out: list = []
        if self.left.is_packed:
            out += each_tile(lambda at, rows, left: self.left.pack(at, rows, left, span))
        return out + emit.loop(self.panels.count, lambda number: self.panels.each(number, panel_loop), "n")

    # --- the register tile

    def _tile(self, env: Env, rows: Rows, panel: Panel, left: Value, right: Value) -> list:
        """One tile of the output: `left` and `right` are where the operands are packed."""
        acc = emit.Registers(len(rows) * panel.vectors, self.element, self.panels.lanes)
        out = [forget_registers(), *cleared(acc)]
        right, left = emit.bind(out, right, "right"), emit.bind(out, left, "left")
        read_left, read_right = self.left.reader(out, env, rows, left), self.right.reader(out, env, panel, right)

        def step(to: emit.Registers, e: Env, k: Value) -> list:
            body: list = []
            vectors = [emit.bind(body, read_right(body, e, k, v), "b") for v in range(panel.vectors)]
            for r in range(len(rows)):
                a = emit.bind(body, emit.widen(read_left(body, e, k, r), acc.lanes), "a")
                for v, b in enumerate(vectors, r * panel.vectors):
                    body.append(to.put(v, emit.fma(a, b, to.get(v))))
            return body

        out += self.parts.added(env, self.parts.part(env), acc, step, self.unroll)
        return out + self.results.store(env, rows, panel, acc)
