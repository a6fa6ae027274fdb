"""Launches of the `gpu_tensor_core` template; see `loops.gpu.tensor_core`.

`tiled` has the blocks and the steps of K; here are the fragments of a warp. Which element of a fragment is in which
register of which thread, `device.cuh` says; `ldmatrix` puts it there from 16 bytes of a line that each thread names.
TF32 is float32 in memory, and rounded in those registers; not along K its elements are loaded one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from neoflow.architectures import WARP, architecture
from neoflow.codegen.gpu.grid import Grids, Value, called, divided
from neoflow.codegen.gpu.layouts import Swizzled
from neoflow.codegen.gpu.matrices import MATRICES, Matrices
from neoflow.codegen.gpu.operands import Place
from neoflow.codegen.gpu.results import Sums
from neoflow.codegen.gpu.tiled import Places, Tiled, places
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.frame import Buffers
from neoflow.loops.gpu.fragments import SQUARE, TensorTile
from neoflow.loops.gpu.tensor_core import FAMILY, narrow
from neoflow.loops.gpu.tensor_core import element as element_of
from neoflow.loops.problem import NestProblem
from neoflow.loops.schedule import Schedule


def lower_tensor_core(problem: NestProblem, schedule: Schedule, buffers: Buffers) -> Grids:
    """The launch of the blocks; with K in parts, one that adds these."""
    (dtype, found), element = narrow(problem, schedule), element_of(problem, schedule)
    tile, frame = FAMILY.tile(problem, buffers.target, schedule), buffers.frame(found.nest)
    left = Swizzled(tile.block_m, tile.block_k, schedule["left_along"] == "k", tile.element_bytes)
    right = Swizzled(tile.block_n, tile.block_k, schedule["right_along"] == "k", tile.element_bytes)
    memory = places(left, right, element, tile)
    is_short = architecture(buffers.target).capability < 80
    core = Fragments(tile, dtype, left, right, memory, is_short, MATRICES[buffers.target.kind])
    return Tiled(frame, schedule, found.c, tile, (left, right), element, found.element, core, memory).grids()


@dataclass
class Fragments:
    """`fragments_m` x `fragments_n` squares of 16 x 16 sums of a warp, each two of 16 x 8. is_short: instructions take
    half of the terms, as those of sm_75 do.

    Of lane 4 g + t, a square of 16 x 8 has (g, 2t) (g, 2t + 1) (g + 8, 2t) (g + 8, 2t + 1).
    """

    tile: TensorTile
    dtype: str
    left: Swizzled
    right: Swizzled
    memory: Places
    is_short: bool
    matrices: Matrices

    def __post_init__(self) -> None:
        self.row: Value = emit.integer(0)
        self.column: Value = emit.integer(0)
        self.lane: Value = emit.integer(0)

    def begin(self, out: list, thread: Value) -> Sums:
        """Where a warp is in its block, and a thread's sums."""
        t = self.tile
        warp, lane = divided(thread, WARP)
        row_warp, column_warp = divided(warp, t.warps[1])
        self.lane = emit.bind(out, lane, "lane")
        self.row = emit.bind(out, row_warp * emit.integer(SQUARE * t.fragments_m), "row")
        self.column = emit.bind(out, column_warp * emit.integer(SQUARE * t.fragments_n), "column")
        halves = 2 * t.fragments_n
        acc = emit.Registers(t.fragments_m * halves, "float32", 4)
        g, pair = divided(self.lane, 4)

        def row_of(i: Value) -> Value:
            return self.row + i * emit.integer(SQUARE // 2) + g

        def column_of(v: Value) -> Value:
            return self.column + v * emit.integer(SQUARE // 2) + pair * emit.integer(2)

        def at(i: int, v: int, j: int) -> Value:
            return acc.lane(i // 2 * halves + v, i % 2 * 2 + j)

        return Sums(acc, at, 2 * t.fragments_m, halves, 2, row_of, column_of)

    def publish(self) -> list:
        """Nothing: threads read what others have stored."""
        return []

    def finish(self, acc: emit.Registers) -> list:
        """Nothing: products are there at once."""
        return []

    def multiply(self, acc: emit.Registers, stage: Value) -> list:
        """The terms of a step in shared memory."""
        return emit.loop(self._steps, lambda n: self._terms(acc, stage, n * emit.integer(self.tile.terms)), "k")

    @property
    def _steps(self) -> int:
        return self.tile.block_k // self.tile.terms

    def _terms(self, acc: emit.Registers, stage: Value, k: Value) -> list:
        t = self.tile
        element = self.matrices.element(self.dtype)
        a = emit.Registers(t.fragments_m, element, 4, "a")
        b = emit.Registers(t.fragments_n, element, 4, "b")
        out = [*a.allocate(), *b.allocate()]
        for n in range(a.count):
            row = self.row + emit.integer(n * SQUARE)
            out += self._fragment(a, n, self.left, self.memory.left, stage, k, row, rows_first=True)
        for n in range(b.count):
            column = self.column + emit.integer(n * SQUARE)
            out += self._fragment(b, n, self.right, self.memory.right, stage, k, column, rows_first=False)
        for i in range(a.count):
            for j in range(2 * b.count):
                out += self._multiplied((acc, i * 2 * b.count + j), a, i, b, j // 2, j % 2 * 2)
        return out

    def _multiplied(
        self, sums: tuple[emit.Registers, int], a: emit.Registers, i: int, b: emit.Registers, j: int, half: int
    ) -> list:
        """A square of 16 x 8 with the terms of a fragment."""
        if not self.is_short:
            return self.matrices.multiply(self.dtype, sums, (a, i, 0), (b, j, half))
        return [s for n in range(2) for s in self.matrices.multiply_short(sums, (a, i, 2 * n), (b, j, half + n))]

    def _fragment(
        self,
        to: emit.Registers,
        n: int,
        layout: Swizzled,
        place: Place,
        stage: Value,
        k: Value,
        row: Value,
        rows_first: bool,
    ) -> list:
        """A fragment of 16 rows and 32 bytes of terms: four squares of 8 rows and a chunk.

        rows_first: the second square is that of the next 8 rows, as of a left side, or of the next terms.
        """
        load = self._by_lines if layout.is_turned and self.matrices.has_lines else self._by_words
        out = load(to, n, layout, place, stage, k, row, rows_first)
        return [*out, *self.matrices.loaded(self.dtype, to, n)]

    def _by_lines(
        self,
        to: emit.Registers,
        n: int,
        layout: Swizzled,
        place: Place,
        stage: Value,
        k: Value,
        row: Value,
        rows_first: bool,
    ) -> list:
        """Each thread names a line of a square."""
        square, line = divided(self.lane, ROWS)
        second, first = divided(square, 2)
        rows, terms = (first, second) if rows_first else (second, first)
        if layout.along_k:
            start = layout.chunk(row + rows * emit.integer(ROWS) + line, _chunk(layout, k) + terms)
        else:
            start = layout.chunk(k + terms * emit.integer(ROWS) + line, _chunk(layout, row) + rows)
        name = "nf_ldmatrix_x4" if layout.along_k else "nf_ldmatrix_x4_trans"
        return [called(name, to.address(n), tirx.address_of(emit.load(place.buffer, place.at(stage, start))))]

    def _by_words(
        self,
        to: emit.Registers,
        n: int,
        layout: Swizzled,
        place: Place,
        stage: Value,
        k: Value,
        row: Value,
        rows_first: bool,
    ) -> list:
        """Lane 4 g + t loads row g and word t of each square."""
        g, t = divided(self.lane, WORDS)
        out = []
        for square in range(4):
            second, first = divmod(square, 2)
            rows, terms = (first, second) if rows_first else (second, first)
            term = k + emit.integer(terms * layout.of_chunk) + t * emit.integer(layout.of_chunk // WORDS)
            value = self._word(layout, place, stage, term, row + emit.integer(rows * ROWS) + g)
            out.append(to.put_lane(n, square, self.matrices.word(self.dtype, value)))
        return out

    def _word(self, layout: Swizzled, place: Place, stage: Value, k: Value, row: Value) -> Value:
        """The elements of a word along K."""
        count = layout.of_chunk // WORDS
        at = [place.at(stage, layout.index(k + emit.integer(u), row)) for u in range(count)]
        if layout.along_k:
            return emit.load(place.buffer, emit.ramp(at[0], 1, count))
        values = [emit.load(place.buffer, index) for index in at]
        return values[0] if count == 1 else tirx.Shuffle(values, list(range(count)))


ROWS, WORDS = 8, 4
"""Of a square: its rows, and the words of each."""


def _chunk(layout: Swizzled, place: Value) -> Value:
    return tirx.truncdiv(place, emit.integer(layout.of_chunk))
