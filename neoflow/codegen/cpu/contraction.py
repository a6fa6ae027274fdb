"""Loops of the `contraction` template; see `loops.contraction`.

Here are the tasks and the register tile; `tiling` and `parts` cut the axes, `operands` packs, `results` stores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from neoflow.codegen.cpu.beside import Beside
from neoflow.codegen.cpu.blocks import Blocks, Some
from neoflow.codegen.cpu.entry import forget_registers
from neoflow.codegen.cpu.operands import Fetcher, PanelOperand, RowOperand
from neoflow.codegen.cpu.parts import Env, Parts, Span
from neoflow.codegen.cpu.passes import Passes
from neoflow.codegen.cpu.results import Results
from neoflow.codegen.cpu.riding import Added, Riding
from neoflow.codegen.cpu.tiling import Panel, Rows, block_points, tiling_of
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.blocks import cleared
from neoflow.codegen.tir.frame import Buffers, Frame, points
from neoflow.codegen.tir.phases import Phase, Phases, Scratch
from neoflow.expr.ir import Axis
from neoflow.loops.nest import stride
from neoflow.loops.problem import NestProblem
from neoflow.loops.schedule import Schedule
from neoflow.loops.sides import Contraction
from neoflow.loops.tile import Pieces, pieces, sides

Value = emit.Value


def lower_contraction(problem: NestProblem, schedule: Schedule, buffers: Buffers) -> Phases:
    """What is packed for all tasks, the tasks, the second pass over partial sums."""
    found = sides(problem, schedule)
    axes, formulas = found.lines
    count = len(found.nest.outputs)
    written = buffers.frame(replace(found.nest, outputs=formulas[:count], sums=formulas[count:]))
    written = replace(written, is_streamed=bool(schedule["stream"]))
    cut = pieces(problem, schedule)
    return _Lowering(buffers.frame(found.nest), schedule, found.c, found.element, written, axes, cut).phases()


class _Lowering:
    def __init__(
        self,
        frame: Frame,
        schedule: Schedule,
        c: Contraction,
        element: str,
        written: Frame,
        lines: tuple[Axis, ...],
        cut: Pieces,
    ):
        """written: the outputs over `lines`, which are the axes of N, some of them joined."""
        self.frame, self.c, self.element = frame, c, element
        self.parallel, self.unroll = bool(schedule["parallel"]), int(schedule["unroll"])
        self.distance, self.fetches_next = int(schedule["prefetch"]), bool(schedule["next_panel"])
        self.by_panels, self.inner = schedule["order"] == "panels", schedule["inner"]
        self.tiling = tiling_of(c, schedule)
        self.row_tiles, self.panels, self.parts = self.tiling.row_tiles, self.tiling.panels, self.tiling.parts
        blocks, groups = cut.tasks(schedule, frame.target.threads)
        self.blocks, self.groups = Blocks(-6, cut.tiles, blocks), Blocks(-9, cut.panels, groups)
        ahead = bool(schedule["ahead"])
        owned = None if self.by_panels or ahead else self.blocks.longest
        self.left = RowOperand(frame, c.left, self.tiling, element, schedule, owned)
        self.right = PanelOperand(frame, c.right, self.tiling, element, schedule, shared=ahead or not self.by_panels)
        length = math.ceil(c.k[0].extent / int(schedule["pack_parts"]))
        self.packing = Parts.of_blocks(c.k, length, block_points(schedule))
        self.passes = Passes(self.tiling, element, self.blocks, self.groups)
        is_turned = schedule["store"] == "turned"
        self.beside = Beside(written, self.panels.along(lines), c.m, is_turned) if schedule["fetch"] else None
        self.added = (
            Added(self.blocks, len(self.row_tiles.whole), -13),
            Added(self.groups, self.panels.width, -14),
        )
        way = str(schedule["store"])
        self.riding = Riding(frame, written, c, self.tiling.along(lines), self.added, element, way == "turned")
        if self.riding.partials:
            written = replace(written, riding=self.riding.add)
        self.results = Results(written, self.tiling.along(lines), element, way)

    def phases(self) -> Phases:
        found: list[Phase] = self.riding.clear(self.parallel)
        pieces, operands = [self.packing.axis], (self.left, self.right)
        if self.left.is_packed and self.left.is_shared:
            found.append(self._tasks([*self.c.batch, self.row_tiles.axis, *pieces], self._pack_left))
        if self.right.is_packed and self.right.is_shared:
            found.append(self._tasks([*self.c.batch, self.panels.axis, *pieces], self._pack_right))
        tasks = self._tasks(self._task_order(), self._task)
        found.append(replace(tasks, is_streamed=self.results.frame.is_streamed))
        if self.results.is_partial:
            found.append(self._tasks([*self.c.batch, *self.c.m], self.results.combine))
        found += self.riding.combine(self.parallel)
        packed = [Scratch(o.buffer, o.is_shared) for o in operands if o.is_packed]
        return Phases(tuple(found), (*packed, *self.passes.scratch, *self.results.scratch, *self.riding.scratch))

    def _tasks(self, dimensions: list[Axis], body: Callable[[Env], list]) -> Phase:
        total = math.prod(a.extent for a in dimensions)
        return Phase(total, lambda t: points(dimensions, t, body), self.parallel)

    # --- packing for all tasks

    def _pack_left(self, env: Env) -> list:
        return self.left.pack_shared(env, self.packing.part(env))

    def _pack_right(self, env: Env) -> list:
        return self.right.pack_shared(env, self.packing.part(env))

    # --- tasks

    def _task_order(self) -> list[Axis]:
        """Task dimensions such that consecutive tasks write near each other; parts of K outside, they share nothing.

        The blocks of the side that tasks pack are outside of those of the other one.
        """
        address = self.frame.nest.outputs[0][1]
        outer, other, axes = self.blocks.axis, self.groups.axis, self.c.m
        if self.by_panels:
            outer, other, axes = other, outer, self.c.n
        steps = [(max(stride(address, a) or 0 for a in axes), 1, outer)]
        steps += [(stride(address, a) or 0, 0, a) for a in self.c.batch]
        return [self.tiling.splits, *(a for _, _, a in sorted(steps, key=lambda s: (-s[0], s[1]))), other]

    def _task(self, env: Env) -> list:
        """A block of row tiles times a group of panels, in passes over K."""
        out: list = []
        tiles, panels = self.blocks.at(out, env), self.groups.at(out, env)

        return out + self.passes.each(env, lambda at: self._pass(at, self.parts.part(at), tiles, panels))

    def _pass(self, env: Env, span: Span, tiles: Some, panels: Some) -> list:
        """What the task packs of a block of K, and its tiles."""
        own_left = self.left.is_packed and not self.left.is_shared
        own_right = self.right.is_packed and not self.right.is_shared

        def tile(number: Value, panel: Panel, place: Value) -> list:
            def run(at: Env, rows: Rows) -> list:
                left = self.left.begin(env, span, tiles.first + number, number, rows)
                right = self.right.begin(env, span, panel)
                sums = (place * emit.integer(self.blocks.longest) + number) * emit.integer(self.passes.size)
                added = {**self.added[0].at(number), **self.added[1].at(place)}
                return fetched(panel, number) + self._tile({**env, **at, **added}, rows, panel, left, right, sums)

            return self.row_tiles.each(tiles.first + number, run)

        def fetched(panel: Panel, number: Value) -> list:
            return self.right.fetch_next(env, panel, number, self.blocks.longest) if self.fetches_next else []

        def each_panel(place: Value, body: Callable[[Panel], list]) -> list:
            return self.panels.each(panels.first + place, body)

        def through_tiles(place: Value) -> list:
            def body(panel: Panel) -> list:
                packed = self.right.pack(env, panel, emit.integer(0), span) if own_right else []
                return packed + emit.loop(tiles.count, lambda t: tile(t, panel, place), "t")

            return each_panel(place, body)

        def through_panels(number: Value) -> list:
            def body(place: Value) -> list:
                return each_panel(place, lambda panel: tile(number, panel, place))

            return emit.loop(panels.count, body, "n")

        def pack(number: Value) -> list:
            def run(at: Env, rows: Rows) -> list:
                base = self.left.begin(env, span, tiles.first + number, number, rows)
                return self.left.pack({**env, **at}, rows, base, span)

            return self.row_tiles.each(tiles.first + number, run)

        out = emit.loop(tiles.count, pack, "t") if own_left else []
        if self.inner == "tiles":
            return out + emit.loop(panels.count, through_tiles, "n")
        return out + emit.loop(tiles.count, through_panels, "t")

    # --- the register tile

    def _tile(self, env: Env, rows: Rows, panel: Panel, left: Value, right: Value, sums: Value) -> list:
        """One tile of the output: `left` and `right` are where the operands are packed, `sums` where it waits."""
        acc = emit.Registers(len(rows) * panel.vectors, self.element, self.panels.lanes)
        before = [] if self.beside is None else self.beside.fetch(env, rows, panel)
        out = [*before, forget_registers(), *cleared(acc)]
        right, left = emit.bind(out, right, "right"), emit.bind(out, left, "left")
        read_left, read_right = self.left.reader(out, env, rows, left), self.right.reader(out, env, panel, right)
        fetches = self._fetches(out, env, rows, panel, left, right)
        last = self.c.k[-1]

        def step(to: emit.Registers, e: Env, k: Value) -> list:
            body: list = []
            ahead = emit.integer(self.distance)
            for fetch in fetches:
                body += fetch({**e, last: e[last] + ahead}, k + ahead)
            vectors = [emit.bind(body, read_right(body, e, k, v), "b") for v in range(panel.vectors)]
            for r in range(len(rows)):
                a = emit.bind(body, emit.widen(read_left(body, e, k, r), acc.lanes), "a")
                for v, b in enumerate(vectors, r * panel.vectors):
                    body.append(to.put(v, emit.fma(a, b, to.get(v))))
            return body

        out += self.parts.added(env, self.parts.part(env), acc, step, self.unroll)
        return out + self.passes.after(env, acc, sums, self._store(env, rows, panel, acc))

    def _store(self, env: Env, rows: Rows, panel: Panel, acc: emit.Registers) -> list:
        def store() -> list:
            return self.results.store(env, rows, panel, acc)

        return self.riding.at_once(store) if self.results.way == "registers" else store()

    def _fetches(self, out: list, env: Env, rows: Rows, panel: Panel, left: Value, right: Value) -> list[Fetcher]:
        """What fetches a point of K of each operand of a tile, where that is asked for."""
        if self.distance == 1:
            return []
        return [self.left.fetcher(out, env, rows, left), self.right.fetcher(out, env, panel, right)]
