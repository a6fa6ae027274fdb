"""Where the sums of a register tile go: into the outputs; with K in parts, into partial sums that are added later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tvm import tirx

from neoflow.codegen.cpu.parts import Env, flat_number
from neoflow.codegen.cpu.tiling import Panel, Rows, Tiling, lanes_left
from neoflow.codegen.cpu.turned import TurnedRows
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.blocks import Loop, cleared, in_blocks
from neoflow.codegen.tir.frame import Frame
from neoflow.codegen.tir.phases import Scratch
from neoflow.loops.nest import stride
from neoflow.loops.sides import size

Value = emit.Value


class Results:
    """The sums of a contraction, [split][batch][M][N padded to a vector] where they are partial."""

    def __init__(self, frame: Frame, tiling: Tiling, element: str, way: str):
        """way: "registers", the outputs are written out for every vector of a tile, which is a vector of each output;
        "stack", through a copy of the tile in memory; "turned", in vectors along M from such a copy."""
        self.way = way
        self.tiling, self.panels, self.element = tiling, tiling.panels, element
        self.frame = replace(frame, begins=0)  # chunks of panels
        self.row_axes = (*tiling.batch, *tiling.row_tiles.whole.m)
        self.is_partial = tiling.splits.extent > 1
        sums = tiling.splits.extent * size(self.row_axes) * self.panels.padded
        self.partial = emit.buffer(sums, element, "partial", 64)
        self.row = emit.buffer(self.panels.padded, element, "row", 64)

    @property
    def scratch(self) -> tuple[Scratch, ...]:
        """The partial sums, and a row of their totals for each thread."""
        return (Scratch(self.partial, is_shared=True), Scratch(self.row, is_shared=False)) if self.is_partial else ()

    def store(self, env: Env, rows: Rows, panel: Panel, acc: emit.Registers) -> list:
        """What the registers of the tile at `env` hold: row after row, the vectors of the panel."""
        if self.is_partial:
            return self._store_partial(env, rows, panel, acc)
        if self.way == "registers":
            return self._store_registers(env, rows, panel, acc)
        if self.way == "turned":
            steps = self.tiling.row_tiles.whole.steps
            return TurnedRows(self.frame, self.panels, rows, self.element, steps).store(env, panel, acc)
        return self._store_through_stack(env, rows, panel, acc)

    # --- outputs

    @property
    def _is_contiguous(self) -> bool:
        """Whether every output is contiguous along N."""
        return all(stride(address, self.panels.n[-1]) == 1 for _, address, _ in self.frame.nest.outputs)

    def _store_registers(self, env: Env, rows: Rows, panel: Panel, acc: emit.Registers) -> list:
        out: list = []
        lanes, axis = self.panels.lanes, self.panels.n[-1]
        places = [self.panels.place(out, panel, emit.integer(v * lanes)) for v in range(panel.vectors)]
        for r, row in enumerate(rows.written_out(env)):
            for v, place in enumerate(places):
                result, mask = acc.get(r * panel.vectors + v), lanes_left(panel.valid - v * lanes, lanes)
                out += self.frame.write({**row, **place}, axis, lanes, result, mask)
        return out

    def _store_through_stack(self, env: Env, rows: Rows, panel: Panel, acc: emit.Registers) -> list:
        """Through a copy of the registers, so that a long epilogue is emitted once."""
        tile = emit.buffer(len(rows) * panel.width, self.element, "tile", 64)
        out = [emit.on_stack(tile)]
        for n in range(acc.count):
            out.append(emit.store(tile, emit.ramp(emit.integer(n * acc.lanes), 1, acc.lanes), acc.get(n)))

        def row(at: Env, r: Value) -> list:
            return self._store_row(at, panel, lambda begin: r * emit.integer(panel.width) + begin, tile)

        return out + rows.each(env, row)

    def _store_row(self, env: Env, panel: Panel, index: Callable[[Value], Value], sums: tirx.Buffer) -> list:
        """The outputs at one row of a panel, whose point `begin` is `sums[index(begin)]`."""
        chunk = self.panels.chunk

        def write(begin: Value, lanes: int, mask: Value | None = None) -> list:
            body: list = []
            at = {**env, **self.panels.place(body, panel, begin)}
            result = emit.load(sums, emit.ramp(index(begin), 1, lanes))
            return body + self.frame.write(at, self.panels.n[-1], lanes, result, mask)

        whole, left = divmod(panel.valid, chunk)
        out = emit.loop(whole, lambda c: write(c * emit.integer(chunk), chunk), "c") if whole else []
        done = emit.integer(whole * chunk)
        if left and self._is_contiguous:
            out += write(done, chunk, lanes_left(left, chunk))
        elif left:
            out += emit.loop(left, lambda n: write(done + n, 1), "n")
        return out

    # --- partial sums

    def _partial_row(self, env: Env, split: Value) -> Value:
        """Where a row of partial sums starts."""
        return flat_number(split, self.row_axes, env) * emit.integer(self.panels.padded)

    def _store_partial(self, env: Env, rows: Rows, panel: Panel, acc: emit.Registers) -> list:
        out: list = []
        split = env[self.tiling.splits]
        for r, row in enumerate(rows.written_out(env)):
            base = self._partial_row(row, split) + self.panels.padded_start(panel)
            for v in range(panel.vectors):
                index = emit.ramp(base + emit.integer(v * acc.lanes), 1, acc.lanes)
                out.append(emit.store(self.partial, index, acc.get(r * panel.vectors + v)))
        return out

    def combine(self, env: Env) -> list:
        """The second pass over one row: the partial sums added in order, then the outputs."""
        lanes, splits = self.panels.lanes, self.tiling.splits.extent

        def add(v: Value) -> list:
            acc = emit.Registers(1, self.element, lanes)

            def one(to: emit.Registers, split: list[Value]) -> list:
                index = emit.ramp(self._partial_row(env, split[0]) + v * emit.integer(lanes), 1, lanes)
                return [to.put(0, to.get(0) + emit.load(self.partial, index))]

            out = [*cleared(acc), *in_blocks(Loop.of([splits]), acc, one)]
            return [*out, emit.store(self.row, emit.ramp(v * emit.integer(lanes), 1, lanes), acc.get(0))]

        def write(panel: Panel) -> list:
            return self._store_row(env, panel, lambda begin: self.panels.padded_start(panel) + begin, self.row)

        out = emit.loop(self.panels.padded // lanes, add, "v")
        return out + emit.loop(self.panels.count, lambda number: self.panels.each(number, write), "n")
