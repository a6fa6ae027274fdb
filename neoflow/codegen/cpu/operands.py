"""The two operands of a register tile, as it goes through them: packed along K, or read in place.

    PanelOperand    the side with N, in panels [K][vectors * lanes], or its own memory where that is contiguous along N
    RowOperand      the side with M, in tiles [K][rows], or its own memory where the address is linear

All of an operand is packed before the tasks, which share it; or each piece by the task that owns it, for itself.
What is not packed and does not lie in memory as a tile reads it is computed at each point of K of each tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx

from neoflow.codegen.cpu.addresses import along, base_of, lines_of, moves_of, place_of, stretches
from neoflow.codegen.cpu.packing import Packing
from neoflow.codegen.cpu.parts import Env, Packed, Run, Span
from neoflow.codegen.cpu.tiling import Panel, Rows, Tiling, lanes_left
from neoflow.codegen.cpu.transpose import turned, turned_block
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.frame import Frame
from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Axis, Expr, Read
from neoflow.loops.costs import LEAST_TURNED, MANY_CHUNKS
from neoflow.loops.nest import stride
from neoflow.loops.problem import is_turnable
from neoflow.loops.schedule import Schedule
from neoflow.loops.sides import contiguous_run, direct_read, size, vector_read

Value = emit.Value
Reader = Callable[[list, Env, Value, int], Value]
"""Takes the statements to add to, the axes' values, the point of K and the row, or the vector of the panel."""
Fetcher = Callable[[Env, Value], list]
"""Takes the axes' values and the point of K: brings it nearer."""

LINE_BYTES = 64
"""a line of the cache, on every x86-64 processor"""


@dataclass(frozen=True)
class Turned:
    """A read that strides along N, and the run along K where it is contiguous."""

    read: Read
    run: Run


class PanelOperand:
    """The side with N: packed, or contiguous along N and read in place.

    A panel is packed in vectors along N, chunks that never cross the end of N's last axis; or, where the side strides
    along N, in blocks turned in registers.
    """

    def __init__(self, frame: Frame, side: Expr, tiling: Tiling, element: str, schedule: Schedule, shared: bool):
        """shared: all panels are packed before the tasks, else one at a time."""
        self.is_shared = shared
        self.frame, self.side, self.tiling, self.panels, self.element = frame, side, tiling, tiling.panels, element
        self.packed = Packed.of(side, tiling.parts)
        self.turn, self.pack_loop = bool(schedule["turn"]), bool(schedule["pack_loop"])
        self.is_packed = bool(schedule["pack_panels"])
        panels = tiling.panels
        read = vector_read(side, panels.n, panels.lanes, element, panels.are_in_lines)
        self.in_place = None if self.is_packed else read
        self.packing = Packing(int(schedule["vector_points"]), panels.lanes)
        self.all_k, self.item_bytes = size(tiling.parts.k), dt.itemsize(element)
        self.distance = int(schedule["prefetch"]) if int(schedule["prefetch"]) * self.item_bytes >= LINE_BYTES else 0
        every = size(tiling.batch) * self.packing.padded(self.all_k) * panels.padded
        one = self.packing.padded(tiling.parts.points) * panels.width
        self.buffer = emit.buffer(every if shared else one, element, "panels", 64)

    def reader(self, statements: list, env: Env, panel: Panel, base: Value) -> Reader:
        """Gives a vector of the panel at a point of K; the panel is packed at `base`."""
        if self.in_place is not None:
            return self._reader_in_place(statements, env, panel, self.in_place)
        if not self.is_packed:
            return self._computed(statements, panel)

        def read(_: list, __: Env, k: Value, vector: int) -> Value:
            return emit.load(self.buffer, self._index(base, k, panel, vector * panel.lanes, panel.lanes))

        return read

    def _computed(self, statements: list, panel: Panel) -> Reader:
        """Computes the vector, as packing would."""
        places = self._places(statements, panel, panel.lanes)

        def read(out: list, e: Env, _: Value, vector: int) -> Value:
            begin = vector * panel.lanes
            mask = lanes_left(panel.valid - begin, panel.lanes)
            ev = self.frame.evaluator({**e, **places[begin]}, self.panels.n[-1], panel.lanes, mask=mask)
            value = emit.widen(ev.value(self.side), panel.lanes)
            out += ev.statements
            return value

        return read

    def _reader_in_place(self, statements: list, env: Env, panel: Panel, side: Read) -> Reader:
        source, k_axes = self.frame.inputs[side.slot], self.tiling.parts.k
        begins = [0] if self.panels.are_in_line else range(0, panel.valid, panel.lanes)
        places = [self.panels.place(statements, panel, emit.integer(b)) for b in begins]
        bases = [base_of(statements, side, {**env, **place}, k_axes) for place in places]
        if self.panels.are_in_line:
            moves = [emit.integer(b) for b in range(0, panel.valid, panel.lanes)]
        else:
            moves = [emit.integer(0), *(emit.bind(statements, b - bases[0], "move") for b in bases[1:])]
        there: list[tuple[tirx.Buffer, Value]] = []

        def read(out: list, e: Env, _: Value, vector: int) -> Value:
            if vector == 0:  # one address a point of K: there are too few registers for one of every vector
                address = along(side, bases[0], e, k_axes)
                if self.panels.are_in_line:
                    there[:] = [place_of(out, source, side, address)]
                else:
                    there[:] = [(emit.view(out, source, address), emit.integer(0))]
            [(held, first)] = there
            lanes = emit.ramp(first + moves[vector], 1, panel.lanes)
            mask = lanes_left(panel.valid - vector * panel.lanes, panel.lanes)
            return emit.load(held, lanes) if mask is None else emit.masked_load(out, held, lanes, mask)

        return read

    def _index(self, base: Value, k: Value, panel: Panel, begin: int | Value, lanes: int) -> Value:
        return emit.ramp(self.packing.at(base, k, panel.width, begin), 1, lanes)

    def base(self, env: Env, panel: Panel) -> Value:
        """Where the panel starts when all of them are packed."""
        all_k = self.packing.padded(self.all_k)
        batch = self.tiling.batch_number(env) * emit.integer(all_k * self.panels.padded)
        return batch + self.panels.padded_start(panel) * emit.integer(all_k)

    def fetcher(self, statements: list, env: Env, panel: Panel, base: Value) -> Fetcher:
        """Fetches a point of K of the panel, packed at `base` or in place; of a block of points a part of its lines."""
        begins = list(range(0, panel.valid, max(1, LINE_BYTES // self.item_bytes)))
        if self.in_place is None and not self.is_packed:
            return lambda _, __: []
        if self.in_place is None:
            width = emit.integer(panel.width)
            return lambda _, k: [emit.prefetch(self.buffer, base + k * width + emit.integer(b)) for b in begins]
        source, side, k_axes = self.frame.inputs[self.in_place.slot], self.in_place, self.tiling.parts.k
        if not self._begins_lines(side):
            begins.append(panel.valid - 1)  # the line that the last vector ends in
        places = [self.panels.place(statements, panel, emit.integer(b)) for b in begins]
        bases = [base_of(statements, side, {**env, **place}, k_axes) for place in places]
        return lambda e, _: [emit.prefetch(source, along(side, b, e, k_axes)) for b in bases]

    def fetch_next(self, env: Env, panel: Panel, number: Value, count: int) -> list:
        """Part `number` of `count` of what the panel behind this one reads in place: of each point of K the lines that
        this one does not end in. Behind the last one of a line there is something else."""
        if self.in_place is None or panel.valid < self.panels.width:
            return []
        out: list = []
        source, side, k_axes = self.frame.inputs[self.in_place.slot], self.in_place, self.tiling.parts.k
        base = base_of(out, side, {**env, **self.panels.place(out, panel, emit.integer(0))}, k_axes)
        each = math.ceil(self.all_k / count)
        first = emit.bind(out, number * emit.integer(each), "first")
        line, width = max(1, LINE_BYTES // self.item_bytes), self.panels.width

        def point(n: Value) -> list:
            body: list = []
            at = emit.digits(body, first + n, [a.extent for a in k_axes])
            address = along(side, base, dict(zip(k_axes, at, strict=True)), k_axes)
            ends = range(2 * width - 1, width - 1, -line)
            return [*body, *(emit.prefetch(source, address + emit.integer(end)) for end in ends)]

        return out + emit.loop(each, point, "next")

    def _begins_lines(self, side: Read) -> bool:
        """Whether every panel, read in place, begins with a line of memory."""
        terms, first = affine.linear(side.indices[0])
        steps = [step for a, step in affine.over_axes((terms, first)).items() if a is not self.panels.n[-1]]
        return all(step * self.item_bytes % LINE_BYTES == 0 for step in (*steps, first, self.panels.width))

    def begin(self, env: Env, span: Span, panel: Panel) -> Value:
        """Where the span of the panel is packed."""
        return (
            self.base(env, panel) + self.tiling.parts.skipped(span, panel.width) if self.is_shared else emit.integer(0)
        )

    def pack_shared(self, env: Env, span: Span) -> list:
        """The task of packing the span of one of all panels."""
        number = env[self.panels.axis]
        return self.panels.each(number, lambda panel: self.pack(env, panel, self.begin(env, span, panel), span))

    def pack(self, env: Env, panel: Panel, base: Value, span: Span) -> list:
        """The span of a panel, to `base`."""
        chunk, turned = self.panels.chunk, self._turned(panel) if self.turn else None
        if turned is not None:
            return self._pack_turned(env, panel, base, span, turned)
        chunks, left = divmod(panel.valid, chunk)
        if self.pack_loop and not left and chunks > MANY_CHUNKS:
            return self._pack_in_loop(env, panel, base, span)
        out: list = []
        places = self._places(out, panel, chunk)

        def point(e: Env, k: Value) -> list:
            body: list = []
            for begin, place in places.items():
                index = self._index(base, k, panel, begin, chunk)
                body += self._store({**e, **place}, index, chunk, lanes_left(panel.valid - begin, chunk))
            return body + self._zeros(base, k, panel, chunk)

        return out + self.packed.each_point(env, span, point)

    def _zeros(self, base: Value, k: Value, panel: Panel, chunk: int) -> list:
        """Of a point of K, the lanes of the panel's last vector that no chunk writes, which are multiplied with all
        others: what lies there may be denormal, and multiply-adds of such numbers take a hundred times as long on
        processors of Intel."""
        out: list = []
        begin = -(-panel.valid // chunk) * chunk
        while begin < panel.width:
            lanes = min(1 << (panel.width - begin).bit_length() - 1, 1 << panel.lanes.bit_length() - 1)
            zero = emit.splat(0.0, self.element, lanes)
            out.append(emit.store(self.buffer, self._index(base, k, panel, begin, lanes), zero))
            begin += lanes
        return out

    def _pack_in_loop(self, env: Env, panel: Panel, base: Value, span: Span) -> list:
        """A panel of a long expression in many narrow chunks: a loop over them, so that it is emitted once."""
        lanes = self.panels.chunk

        def chunk(c: Value) -> list:
            body: list = []
            begin = c * emit.integer(lanes)
            place = self.panels.place(body, panel, begin)

            def point(e: Env, k: Value) -> list:
                return self._store({**e, **place}, self._index(base, k, panel, begin, lanes), lanes)

            return body + self.packed.each_point(env, span, point)

        packed = emit.loop(panel.valid // lanes, chunk, "c")
        if panel.valid == panel.width:
            return packed
        return packed + self.packed.each_point(env, span, lambda _, k: self._zeros(base, k, panel, lanes))

    def _pack_turned(self, env: Env, panel: Panel, base: Value, span: Span, turned: Turned) -> list:
        """Squares of as many points of N, along all of the span, before the next ones: a core fetches few streams ahead
        by itself, and lines of rows that are a power of two apart share few places of its first cache. Where points of
        K are fetched ahead, so are those of the source: 0.965 of the time for 512 channels of 3x3 on Zen 4."""
        out: list = []
        for begin, place in self._places(out, panel, turned.run.lanes).items():
            is_last = begin + turned.run.lanes >= panel.valid
            out += self._pack_squares({**env, **place}, panel, (base, begin, is_last), span, turned)
        return out

    def _pack_squares(self, env: Env, panel: Panel, there: tuple[Value, int, bool], span: Span, turned: Turned) -> list:
        """The span at the points of N from `env` on. there: where the panel is packed, the place of these points in it,
        whether they are its last ones, which what is 0 follows."""
        read, run, lanes = turned.read, turned.run, turned.run.lanes
        source, step = self.frame.inputs[read.slot], stride(turned.read.indices[0], self.panels.n[-1])
        base, begin, is_last = there
        assert step is not None

        def index(k: Value) -> Value:
            return self._index(base, k, panel, begin, lanes)

        def zeros(k: Value) -> list:
            return self._zeros(base, k, panel, lanes) if is_last else []

        def point(e: Env, k: Value) -> list:
            return [*self._store(e, index(k), lanes), *zeros(k)]

        def block(e: Env, k: Value) -> list:
            ev = self.frame.evaluator(e)
            address = ev.index(read.indices[0])
            body = ev.statements
            corner = emit.bind(body, address, "base")
            if self.distance:
                body += [emit.prefetch(source, corner + emit.integer(n * step + self.distance)) for n in range(lanes)]
            vectors = turned_block(source, corner, step, lanes, body)
            for n, vector in enumerate(vectors):
                at = k + emit.integer(n * run.step)
                body += [emit.store(self.buffer, index(at), vector), *zeros(at)]
            return body

        return self.packed.each_block(env, span, run, block, point)

    def _turned(self, panel: Panel) -> Turned | None:
        """The side as a read that strides along N, and a long enough run along which it is contiguous."""
        read = direct_read(self.packed.side, self.element)
        if read is None:
            return None
        for run in self.packed.parts.runs(self.panels.chunk):
            whole = run.lanes >= LEAST_TURNED and panel.valid % run.lanes == 0
            if whole and is_turnable(read, self.panels.n[-1], run.along):
                return Turned(read, run)
        return None

    def _places(self, statements: list, panel: Panel, lanes: int) -> dict[int, Env]:
        """The N axes at every `lanes`-th point of the panel."""
        return {b: self.panels.place(statements, panel, emit.integer(b)) for b in range(0, panel.valid, lanes)}

    def _store(self, env: Env, index: Value, lanes: int, mask: Value | None = None) -> list:
        ev = self.frame.evaluator(env, self.panels.n[-1], lanes, mask=mask)
        value = emit.widen(ev.value(self.packed.side), lanes)
        return [*ev.statements, emit.store(self.buffer, index, value)]


class RowOperand:
    """The side with M: packed, or read in place where its address is linear.

    A tile is packed in vectors along a K axis where the side is contiguous along one, each spread out over the points.
    """

    def __init__(self, frame: Frame, side: Expr, tiling: Tiling, element: str, schedule: Schedule, tiles: int | None):
        """tiles: how many a task packs for itself; None when all of them are packed before."""
        self.is_shared = tiles is None
        self.frame, self.side, self.tiling, self.element = frame, side, tiling, element
        self.packed, self.packing = Packed.of(side, tiling.parts), Packing(int(schedule["row_points"]))
        self.copied = direct_read(self.packed.side, element)
        self.run = self._contiguous_run(frame.target.lanes(element)) if schedule["run"] else None
        self.turned = self.copied if schedule["turn_rows"] else None
        self.all_k, self.item_bytes = size(tiling.parts.k), dt.itemsize(element)
        self.is_packed = bool(schedule["pack"])
        self.in_place = None if self.is_packed else direct_read(side, element)
        every = size(tiling.batch) * tiling.row_tiles.count * self.packing.padded(self.all_k)
        points = every if tiles is None else tiles * self.packing.padded(tiling.parts.points)
        self.buffer = emit.buffer(points * len(tiling.row_tiles.whole), element, "tiles", 64)

    def base(self, env: Env, number: Value) -> Value:
        """Where row tile `number` starts when all of them are packed."""
        tiles = self.tiling.row_tiles
        flat = self.tiling.batch_number(env) * emit.integer(tiles.count) + number
        return flat * emit.integer(self.packing.padded(self.all_k) * len(tiles.whole))

    def fetcher(self, statements: list, env: Env, rows: Rows, base: Value) -> Fetcher:
        """Fetches a point of K of the tile at `env`, packed at `base` or in place."""
        line = max(1, LINE_BYTES // self.item_bytes)
        if self.in_place is None and not self.is_packed:
            return lambda _, __: []
        if self.in_place is None:
            begins, count = range(0, len(rows), line), emit.integer(len(rows))
            return lambda _, k: [emit.prefetch(self.buffer, base + k * count + emit.integer(b)) for b in begins]
        source, side, k_axes = self.frame.inputs[self.in_place.slot], self.in_place, self.tiling.parts.k
        first, moves = base_of(statements, side, env, k_axes), lines_of(moves_of(side, rows), line)
        return lambda e, _: [emit.prefetch(source, along(side, first, e, k_axes) + emit.integer(m)) for m in moves]

    def begin(self, env: Env, span: Span, number: Value, own: Value, rows: Rows) -> Value:
        """Where the span of row tile `number` is packed, `own` its number among those of the task."""
        if self.is_shared:
            return self.base(env, number) + self.tiling.parts.skipped(span, len(rows))
        points = self.packing.padded(self.tiling.parts.points)
        return own * emit.integer(points * len(self.tiling.row_tiles.whole))

    def pack_shared(self, env: Env, span: Span) -> list:
        """The task of packing the span of one of all row tiles."""
        number = env[self.tiling.row_tiles.axis]

        def pack(at: Env, rows: Rows) -> list:
            return self.pack({**env, **at}, rows, self.begin(env, span, number, emit.integer(0), rows), span)

        return self.tiling.row_tiles.each(number, pack)

    def pack(self, env: Env, rows: Rows, base: Value, span: Span) -> list:
        """The span of a row tile, to `base`."""
        packed, run = self.packed, self.run

        def index(k: Value, row: int | Value) -> Value:
            return self.packing.at(base, k, len(rows), row)

        def point(e: Env, k: Value) -> list:
            if self.copied is not None:
                return self._copy(e, rows, self.copied, lambda row: index(k, row))
            return rows.each(e, lambda at, r: self._store(at, index(k, r)))

        if run is None:
            return packed.each_point(env, span, point)

        def block(e: Env, k: Value) -> list:
            if self.turned is not None:
                return self._turn(e, rows, self.turned, run, base + k * emit.integer(len(rows)))
            step = run.step * len(rows) if self.packing.points == 1 else 1
            return rows.each(e, lambda at, r: self._store(at, index(k, r), run.along, run.lanes, step))

        return packed.each_block(env, span, run, block, point)

    def _copy(self, env: Env, rows: Rows, side: Read, index: Callable[[int], Value]) -> list:
        """A point of K at every row, each to its index: neighbours in memory in vectors, of which two may overlap."""
        out: list = []
        source, first = self._first(out, env, side)
        for row, move, count in stretches(moves_of(side, rows)):
            lanes = 1 << (min(count, self.frame.target.lanes(self.element)).bit_length() - 1)
            for begin in (*range(0, count - lanes, lanes), count - lanes):
                value = emit.load(source, emit.ramp(first + emit.integer(move + begin), 1, lanes))
                out.append(emit.store(self.buffer, emit.ramp(index(row + begin), self.packing.points, lanes), value))
        return out

    def _first(self, statements: list, env: Env, side: Read) -> tuple[tirx.Buffer, Value]:
        """What is read, and where its first row is."""
        ev = self.frame.evaluator(env)
        first = ev.index(side.indices[0])
        statements += ev.statements
        return self.frame.inputs[side.slot], emit.bind(statements, first, "base")

    def _turn(self, env: Env, rows: Rows, side: Read, run: Run, index: Value) -> list:
        """A block of the run at every row, to `index`: squares of it turned in registers, a vector of rows each."""
        out: list = []
        moves = moves_of(side, rows)
        source, first = self._first(out, env, side)
        zero = emit.splat(0.0, self.element, run.lanes)
        for begin in range(0, len(rows), run.lanes):
            some = [
                emit.bind(out, emit.load(source, emit.ramp(first + emit.integer(move), 1, run.lanes)))
                for move in moves[begin : begin + run.lanes]
            ]
            mask = lanes_left(len(some), run.lanes)
            for n, vector in enumerate(turned([*some, *[zero] * (run.lanes - len(some))], out)):
                at = emit.ramp(index + emit.integer(n * run.step * len(rows) + begin), 1, run.lanes)
                store = emit.store(self.buffer, at, vector)
                out.append(store if mask is None else emit.masked_store(self.buffer, at, vector, mask))
        return out

    def _store(self, env: Env, index: Value, along: Axis | None = None, lanes: int = 1, step: int = 1) -> list:
        """The side at `lanes` points along an axis, `step` elements apart from `index` on."""
        ev = self.frame.evaluator(env, along, lanes)
        value = emit.widen(ev.value(self.packed.side), lanes)
        return [*ev.statements, emit.store(self.buffer, emit.ramp(index, step, lanes), value)]

    def _contiguous_run(self, lanes: int) -> Run | None:
        """A K axis along which the side is contiguous, with a vector's length or half of one; in blocks of points that
        lie side by side, of as many."""
        k = self.packed.parts.k
        if self.packing.points > 1:
            return Run(k[-1], self.packing.points, 1, is_again=False)
        place = contiguous_run(self.packed.side, k, lanes)
        return None if place is None else self.packed.parts.runs(lanes)[place]

    def reader(self, statements: list, env: Env, rows: Rows, base: Value) -> Reader:
        """Gives a row at a point of K, of the tile at `env`, packed at `base`."""
        if self.in_place is not None:
            return self._reader_in_place(statements, env, rows, self.in_place)
        if not self.is_packed:
            return self._computed(rows)
        return lambda _, __, k, r: emit.load(self.buffer, self.packing.at(base, k, len(rows), r))

    def _computed(self, rows: Rows) -> Reader:
        """Computes the row, as packing would."""

        def read(out: list, e: Env, _: Value, r: int) -> Value:
            ev = self.frame.evaluator(rows.written_out(e)[r])
            value = ev.value(self.side)
            out += ev.statements
            return value

        return read

    def _reader_in_place(self, statements: list, env: Env, rows: Rows, side: Read) -> Reader:
        source, k_axes = self.frame.inputs[side.slot], self.tiling.parts.k
        base, moves = base_of(statements, side, env, k_axes), moves_of(side, rows)
        there: list[tuple[tirx.Buffer, Value]] = []

        def read(out: list, e: Env, _: Value, r: int) -> Value:
            if r == 0:
                there[:] = [place_of(out, source, side, along(side, base, e, k_axes))]
            [(held, index)] = there
            return emit.load(held, index + emit.integer(moves[r]))

        return read
