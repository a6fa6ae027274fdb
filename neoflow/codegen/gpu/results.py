"""Where the sums of a block's threads go: into the outputs, or into partial sums that a second launch adds in order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx

from neoflow.codegen.gpu.grid import Grid, Value
from neoflow.codegen.gpu.operands import Env
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.blocks import Loop, cleared, in_blocks
from neoflow.codegen.tir.dialect import dialect
from neoflow.codegen.tir.frame import Frame
from neoflow.expr.ir import Axis
from neoflow.loops.gpu.blocks import USUAL_THREADS
from neoflow.loops.sides import Contraction, size


@dataclass(frozen=True)
class Sums:
    """A thread's sums: `rows` lines of `vectors` pieces of `width` neighbours.

    acc: what they are added in. at: where one is, by line, piece and place in it. row, column: the place in the block
    of a line, of a piece's first point.
    """

    acc: emit.Registers
    at: Callable[[int, int, int], Value]
    rows: int
    vectors: int
    width: int
    row: Callable[[Value], Value]
    column: Callable[[Value], Value]


@dataclass(frozen=True)
class Results:
    """lanes: of an access of the outputs. from_registers: written out for each vector, or a loop over a copy.

    partial: [part][batch][M][N] of sums, where K is in parts.
    """

    frame: Frame
    c: Contraction
    block_m: int
    block_n: int
    lanes: int
    from_registers: bool
    parts: int
    partial: tirx.Buffer

    def store(self, sums: Sums, part: Value, env: Env, first_row: Value, first_column: Value) -> list:
        """All of a thread's sums."""
        if self.parts > 1 or self.from_registers:
            return self._written_out(sums, part, env, first_row, first_column)
        places = list(itertools.product(range(sums.rows), range(sums.vectors), range(sums.width)))
        tile = emit.buffer(len(places), sums.acc.element, "tile", 16, dialect().registers)
        out = [emit.on_stack(tile)]
        out += [emit.store(tile, emit.integer(n), sums.at(*place)) for n, place in enumerate(places)]

        def row(i: Value) -> list:
            def vector(v: Value) -> list:
                start = (i * emit.integer(sums.vectors) + v) * emit.integer(sums.width)

                def at(j: Value) -> list:
                    value = emit.load(tile, emit.ramp(start + j, 1, self.lanes))
                    return self._point(env, first_row + sums.row(i), first_column + sums.column(v) + j, value)

                return emit.loop(sums.width // self.lanes, lambda j: at(j * emit.integer(self.lanes)), "j")

            return emit.loop(sums.vectors, vector, "v")

        return out + emit.loop(sums.rows, row, "i")

    def _written_out(self, sums: Sums, part: Value, env: Env, first_row: Value, first_column: Value) -> list:
        out: list = []
        for i in range(sums.rows):
            row = emit.bind(out, first_row + sums.row(emit.integer(i)), "row")
            for v in range(sums.vectors):
                column = emit.bind(out, first_column + sums.column(emit.integer(v)), "column")
                for j in range(0, sums.width, self.lanes):
                    value = self._together(out, sums, i, v, j)
                    place = column + emit.integer(j) if j else column
                    if self.parts > 1:
                        out += self._partial(part, env, row, place, value)
                    else:
                        out += self._point(env, row, place, value)
        return out

    def _together(self, out: list, sums: Sums, i: int, v: int, j: int) -> Value:
        """Sums that are neighbours as a vector."""
        if self.lanes == 1:
            return sums.at(i, v, j)
        joined = emit.Registers(1, sums.acc.element, self.lanes, "sum")
        out += joined.allocate()
        out += [joined.put_lane(0, n, sums.at(i, v, j + n)) for n in range(self.lanes)]
        return joined.get(0)

    def _point(self, env: Env, row: Value, column: Value, value: Value) -> list:
        """A vector of results."""
        out: list = []
        row, column = emit.bind(out, row, "row"), emit.bind(out, column, "column")
        inside: list = []
        at = {**env, **_digits(inside, self.c.m, row), **_digits(inside, self.c.n, column)}
        inside += self.frame.write(at, self.c.n[-1], self.lanes, value)
        return out + self._guarded(row, column, inside)

    def _guarded(self, row: Value, column: Value, inside: list) -> list:
        m, n = size(self.c.m), size(self.c.n)
        if n % self.block_n:
            inside = emit.when(column < emit.integer(n), inside)
        if m % self.block_m:
            inside = emit.when(row < emit.integer(m), inside)
        return inside

    # --- partial sums

    @property
    def points(self) -> int:
        """Of the outputs."""
        return size((*self.c.batch, *self.c.m, *self.c.n))

    def _partial(self, part: Value, env: Env, row: Value, column: Value, value: Value) -> list:
        flat = part
        for a in self.c.batch:
            flat = flat * emit.integer(a.extent) + env[a]
        index = (flat * emit.integer(size(self.c.m)) + row) * emit.integer(size(self.c.n)) + column
        return self._guarded(row, column, [emit.store(self.partial, emit.ramp(index, 1, self.lanes), value)])

    def combine(self) -> Grid:
        """The launch that adds the parts of each result in their order, and writes the outputs."""
        count = self.points // self.lanes
        axes = (*self.c.batch, *self.c.m, *self.c.n)

        def body(block: Value, thread: Value) -> list:
            out: list = []
            vector = emit.bind(out, block * emit.integer(USUAL_THREADS) + thread, "vector")
            acc = emit.Registers(1, str(self.partial.ty.dtype), self.lanes)
            first = emit.bind(out, vector * emit.integer(self.lanes), "first")

            def one(to: emit.Registers, part: list[Value]) -> list:
                index = emit.ramp(part[0] * emit.integer(self.points) + first, 1, self.lanes)
                return [to.put(0, to.get(0) + emit.load(self.partial, index))]

            inside = [*cleared(acc), *in_blocks(Loop.of([self.parts]), acc, one)]
            at = _digits(inside, axes, first)
            inside += self.frame.write(at, self.c.n[-1], self.lanes, acc.get(0))
            return out + (inside if count % USUAL_THREADS == 0 else emit.when(vector < emit.integer(count), inside))

        return Grid(math.ceil(count / USUAL_THREADS), USUAL_THREADS, body)


def _digits(out: list, axes: tuple[Axis, ...], flat: Value) -> Env:
    return dict(zip(axes, emit.digits(out, flat, [a.extent for a in axes]), strict=True))
