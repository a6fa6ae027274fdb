"""Launches of the `gpu_contraction` template; see `loops.gpu.contraction`.

`tiled` has the blocks and the steps of K; here is the register tile.
"""

from __future__ import annotations

from dataclasses import dataclass

from neoflow.architectures import WARP
from neoflow.codegen.gpu.grid import Grids, Value, divided
from neoflow.codegen.gpu.layouts import TermLines
from neoflow.codegen.gpu.operands import Place
from neoflow.codegen.gpu.results import Sums
from neoflow.codegen.gpu.tiled import Places, Tiled, places
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.frame import Buffers
from neoflow.loops.gpu.contraction import FAMILY
from neoflow.loops.gpu.operands import sides
from neoflow.loops.gpu.tile import Tile, vector
from neoflow.loops.problem import NestProblem
from neoflow.loops.schedule import Schedule


def lower_contraction(problem: NestProblem, schedule: Schedule, buffers: Buffers) -> Grids:
    """The launch of the blocks; with K in parts, one that adds these."""
    found, tile = sides(problem, schedule), FAMILY.tile(problem, buffers.target, schedule)
    element, frame = found.element, buffers.frame(found.nest)
    left = TermLines(tile.block_m, tile.block_k, schedule["left_along"] == "k", element)
    right = TermLines(tile.block_n, tile.block_k, schedule["right_along"] == "k", element)
    memory = places(left, right, element, tile)
    core = RegisterTile(tile, int(schedule["warp_n"]), int(schedule["unroll"]), element, left, right, memory)
    return Tiled(frame, schedule, found.c, tile, (left, right), element, element, core, memory).grids()


@dataclass
class RegisterTile:
    """`thread_m` x `thread_n` accumulators of a thread, in rows and columns of vectors apart from each other, so that
    the threads of a warp read neighbouring vectors.

    Accumulators are scalars: TVM takes two loads of a vector for one, whatever was stored in between.
    """

    tile: Tile
    warp_n: int
    unroll: int
    element: str
    left: TermLines
    right: TermLines
    memory: Places

    def __post_init__(self) -> None:
        self.warp_m = WARP // self.warp_n
        self.high, self.wide = (vector(n, self.tile.element_bytes) for n in (self.tile.thread_m, self.tile.thread_n))
        self.row: Value = emit.integer(0)
        self.column: Value = emit.integer(0)

    def begin(self, out: list, thread: Value) -> Sums:
        """Where a thread is in its block, and its sums."""
        t = self.tile
        warp, lane = divided(thread, WARP)
        row_warp, column_warp = divided(warp, t.block_n // (t.thread_n * self.warp_n))
        row_lane, column_lane = divided(lane, self.warp_n)
        row = row_warp * emit.integer(self.warp_m * t.thread_m) + row_lane * emit.integer(self.high)
        column = column_warp * emit.integer(self.warp_n * t.thread_n) + column_lane * emit.integer(self.wide)
        self.row, self.column = emit.bind(out, row, "row"), emit.bind(out, column, "column")
        acc = emit.Registers(t.thread_m * t.thread_n, self.element, 1)

        def row_of(i: Value) -> Value:
            piece, within = divided(i, self.high)
            return self.row + piece * emit.integer(self.warp_m * self.high) + within

        def column_of(v: Value) -> Value:
            return self.column + v * emit.integer(self.warp_n * self.wide)

        def at(i: int, v: int, j: int) -> Value:
            return acc.get(i * t.thread_n + v * self.wide + j)

        return Sums(acc, at, t.thread_m, t.thread_n // self.wide, self.wide, row_of, column_of)

    def publish(self) -> list:
        """Nothing: threads read what others have stored."""
        return []

    def finish(self, acc: emit.Registers) -> list:
        """Nothing: products are there at once."""
        return []

    def multiply(self, acc: emit.Registers, stage: Value) -> list:
        """The terms of a step in shared memory."""
        unroll = min(self.unroll, self.tile.block_k)

        def terms(first: Value) -> list:
            return [s for u in range(unroll) for s in self._term(acc, stage, first + emit.integer(u))]

        return emit.loop(self.tile.block_k // unroll, lambda n: terms(n * emit.integer(unroll)), "k")

    def _term(self, acc: emit.Registers, stage: Value, k: Value) -> list:
        t = self.tile
        a = emit.Registers(t.thread_m // self.high, self.element, self.high, "a")
        b = emit.Registers(t.thread_n // self.wide, self.element, self.wide, "b")
        out = [*a.allocate(), *b.allocate()]
        out += self._loaded(a, self.left, self.memory.left, stage, k, self.row, self.warp_m)
        out += self._loaded(b, self.right, self.memory.right, stage, k, self.column, self.warp_n)
        for i in range(t.thread_m):
            for j in range(t.thread_n):
                n, x = i * t.thread_n + j, a.lane(i // self.high, i % self.high)
                out.append(acc.put(n, emit.fma(x, b.lane(j // self.wide, j % self.wide), acc.get(n))))
        return out

    def _loaded(
        self, to: emit.Registers, layout: TermLines, place: Place, stage: Value, k: Value, begin: Value, apart: int
    ) -> list:
        """The vectors of a side for a term: every `apart`-th one from `begin` on."""
        out = []
        for v in range(to.count):
            index = place.at(stage, layout.index(k, begin + emit.integer(v * apart * to.lanes)))
            out.append(to.put(v, emit.load(place.buffer, emit.ramp(index, 1, to.lanes))))
        return out
