"""The sums of a register tile, vectors along N, written in vectors along M: where the outputs are contiguous there."""

from __future__ import annotations

import math
from dataclasses import replace

from tvm import tirx

from neoflow.codegen.cpu.parts import Env
from neoflow.codegen.cpu.tiling import Panel, Panels, Rows, lanes_left
from neoflow.codegen.cpu.transpose import turned_block
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.frame import Frame
from neoflow.expr.ir import Axis

Value = emit.Value


class TurnedRows:
    """A register tile of `rows`, whose lines are its rows along the last axis of M.

    The tile goes to the stack, is turned there in squares, and a loop over its columns writes a vector of each line.
    """

    def __init__(self, frame: Frame, panels: Panels, rows: Rows, element: str, steps: int):
        """steps: of a whole tile, whose multiples tiles begin at."""
        self.panels, self.rows, self.element = panels, rows, element
        self.line = rows.inner[-1].extent if rows.inner else rows.steps
        """rows of a line"""
        self.lines = len(rows) // self.line
        square = min(frame.target.lanes(element), 1 << (self.line - 1).bit_length())
        self.lanes = math.gcd(panels.lanes, square)
        begins = math.gcd(0 if rows.inner else steps, self.lanes if self.line > self.lanes else 0)
        self.frame = replace(frame, begins=begins)

    def store(self, env: Env, panel: Panel, acc: emit.Registers) -> list:
        """Write the outputs of the tile at `env`."""
        begins = range(0, self.line, self.lanes)
        last = (self.lines - 1) * self.line + begins[-1] + self.lanes  # rows read, beyond the tile's own
        tile = emit.buffer(last * panel.width, self.element, "tile", 64)
        turned = emit.buffer(panel.width * self.lanes, self.element, "turned", 64)
        out = [emit.on_stack(tile), emit.on_stack(turned)]
        for n in range(last * panel.vectors):
            value = acc.get(n) if n < acc.count else emit.splat(0.0, self.element, acc.lanes)
            out.append(emit.store(tile, emit.ramp(emit.integer(n * acc.lanes), 1, acc.lanes), value))
        for line in range(self.lines):
            at = self._at(env, line)
            for begin in begins:
                out += self._turn(tile, turned, line * self.line + begin, panel)
                out += self._write({**at, self._axis: at[self._axis] + emit.integer(begin)}, begin, panel, turned)
        return out

    @property
    def _axis(self) -> Axis:
        return self.rows.m[-1]

    def _at(self, env: Env, line: int) -> Env:
        """Where a line begins."""
        step = self.rows.offsets()[line * self.line]
        return {**env, **{a: env[a] + emit.integer(n) for a, n in step.items()}}

    def _turn(self, tile: tirx.Buffer, turned: tirx.Buffer, row: int, panel: Panel) -> list:
        """`lanes` rows of the tile, from `row` on, as a vector of each column."""
        out: list = []
        for column in range(0, panel.width, self.lanes):
            base = emit.integer(row * panel.width + column)
            for n, vector in enumerate(turned_block(tile, base, panel.width, self.lanes, out)):
                place = emit.integer((column + n) * self.lanes)
                out.append(emit.store(turned, emit.ramp(place, 1, self.lanes), vector))
        return out

    def _write(self, env: Env, begin: int, panel: Panel, turned: tirx.Buffer) -> list:
        """The outputs of `lanes` rows at each column."""
        mask = lanes_left(self.line - begin, self.lanes)

        def column(n: Value) -> list:
            body: list = []
            at = {**env, **self.panels.place(body, panel, n)}
            result = emit.load(turned, emit.ramp(n * emit.integer(self.lanes), 1, self.lanes))
            return body + self.frame.write(at, self._axis, self.lanes, result, mask)

        return emit.loop(panel.valid, column, "c")
