"""Launches of the `gpu_scatter` template; see `loops.gpu.scatter`."""

from __future__ import annotations

import math

from tvm import tirx

from neoflow.architectures import WARP
from neoflow.codegen.gpu.atomics import Adding
from neoflow.codegen.gpu.grid import Grid, Grids, barrier, shared
from neoflow.codegen.gpu.words import words
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.evaluate import Evaluator
from neoflow.codegen.tir.frame import Buffers
from neoflow.codegen.tir.storage import to_storage
from neoflow.expr.ir import Axis
from neoflow.loops.gpu.blocks import USUAL_THREADS
from neoflow.loops.gpu.scatter import blocks_of, columns, points, rows
from neoflow.loops.nest import ScatterNest
from neoflow.loops.schedule import Schedule

Value = emit.Value


def lower_scatter(nest: ScatterNest, schedule: Schedule, buffers: Buffers) -> Grids:
    """One launch, or with parts of the points two; with atomics one for zeros before them."""
    if schedule["atomics"]:
        return Adding(nest, schedule, buffers).grids()
    return _Lowering(nest, schedule, buffers).grids()


class _Lowering:
    def __init__(self, nest: ScatterNest, schedule: Schedule, buffers: Buffers):
        self.nest, self.given = nest, buffers
        (self.output,) = buffers.outputs
        self.threads, self.width, self.rows = (int(schedule[k]) for k in ("threads", "width", "rows"))
        self.classes = self.threads // self.width
        self.columns, self.all_rows, self.points = columns(nest), rows(nest), points(nest)
        self.blocks = blocks_of(nest, schedule)
        self.element = emit.REGISTER.get(nest.value.dtype, nest.value.dtype)
        chunks = math.ceil(self.points / self.threads)
        self.chunks = math.ceil(chunks / int(schedule["splits"]))
        self.splits = math.ceil(chunks / self.chunks)
        self.partial = emit.buffer(self.splits * self.columns * self.all_rows, self.element, "partial", 64)
        self.sums = shared(self.rows * self.width, self.element, "sums")
        self.list, self.row_of = (shared(self.threads, "int32", name) for name in ("list", "row_of"))
        self.counts = shared(self.threads // WARP, "int32", "counts")

    def grids(self) -> Grids:
        first = Grid(self.splits * math.prod(self.blocks), self.threads, self._block)
        return Grids((first,)) if self.splits == 1 else Grids((first, self._combined()), (self.partial,))

    def _block(self, block: Value, thread: Value) -> list:
        out: list = [emit.on_stack(b) for b in (self.sums, self.list, self.row_of, self.counts)]
        part, row_block, column_block = emit.digits(out, block, [self.splits, *self.blocks])
        first_row = emit.bind(out, row_block * emit.integer(self.rows), "first")
        own = emit.bind(out, tirx.truncmod(thread, emit.integer(self.width)), "own")
        kind = emit.bind(out, tirx.truncdiv(thread, emit.integer(self.width)), "kind")
        column = emit.bind(out, column_block * emit.integer(self.width) + own, "column")

        def each_row(body: emit.Body) -> list:
            """The rows of the thread, as numbers in the block."""
            rounds, rest = divmod(self.rows, self.classes)
            all_of = emit.loop(rounds, lambda r: body(r * emit.integer(self.classes) + kind), "r") if rounds else []
            last = emit.integer(rounds * self.classes) + kind
            return all_of + (emit.when(kind < emit.integer(rest), body(last)) if rest else [])

        def place(row: Value) -> Value:
            return row * emit.integer(self.width) + own

        def chunk(c: Value) -> list:
            found: list = []
            number = emit.bind(found, part * emit.integer(self.chunks) + c, "number")
            point = emit.bind(found, number * emit.integer(self.threads) + thread, "point")
            count = self._listed(found, thread, point, first_row)
            add = emit.loop(count, lambda j: self._add(j, kind, column, place), "j")
            return [*found, *add, barrier()]

        zero = emit.splat(0, self.element)
        out += each_row(lambda r: [emit.store(self.sums, place(r), zero)])
        out += emit.loop(self.chunks, chunk, "chunk")

        def put(r: Value) -> list:
            row = first_row + r
            inside = tirx.And(row < emit.integer(self.all_rows), column < emit.integer(self.columns))
            at = row * emit.integer(self.columns) + column
            value = emit.load(self.sums, place(r))
            if self.splits > 1:
                base = part * emit.integer(self.all_rows * self.columns)
                return emit.when(inside, [emit.store(self.partial, base + at, value)])
            return emit.when(inside, self._put(at, value))

        return out + each_row(put)

    def _put(self, at: Value, value: Value) -> list:
        out: list = []
        stored = emit.bind(out, to_storage(value, self.nest.value.dtype))
        return [*out, emit.store(self.output, at, stored)]

    def _env(self, statements: list, point: Value) -> dict[Axis, Value]:
        axes = [a for a in self.nest.axes if a is not self.nest.columns]
        return dict(zip(axes, emit.digits(statements, point, [a.extent for a in axes]), strict=True))

    def _listed(self, statements: list, thread: Value, point: Value, first_row: Value) -> Value:
        """The points of a chunk whose rows are the block's, in order, are listed; how many there are."""
        row = emit.Registers(1, "int32", 1, "row")
        statements += [*row.allocate(), row.put(0, emit.integer(-1))]
        inside: list = []
        ev = Evaluator(self.given.inputs, self._env(inside, point), faults=self.given.faults)
        cut = -1 if self.nest.columns is not None else None
        address = ev.address(self.nest.shape[:cut], self.nest.targets[:cut], None)
        inside += [*ev.statements, row.put(0, address - first_row)]
        statements += emit.when(point < emit.integer(self.points), inside)
        mine = tirx.And(row.get(0) >= emit.integer(0), row.get(0) < emit.integer(self.rows))
        flag = emit.held(statements, tirx.Select(mine, emit.integer(1), emit.integer(0)), "mine")
        votes = emit.held(statements, words().votes(flag), "votes")
        lane, warp = tirx.truncmod(thread, emit.integer(WARP)), tirx.truncdiv(thread, emit.integer(WARP))
        count = words().count(votes)
        statements += [*emit.when(tirx.EQ(lane, emit.integer(0)), [emit.store(self.counts, warp, count)]), barrier()]
        before, total = (emit.Registers(1, "int32", 1, name) for name in ("before", "total"))
        for r in (before, total):
            statements += [*r.allocate(), r.put(0, emit.integer(0))]

        def warps(w: Value) -> list:
            found = emit.load(self.counts, w)
            earlier = emit.when(w < warp, [before.put(0, before.get(0) + found)])
            return [*earlier, total.put(0, total.get(0) + found)]

        statements += emit.loop(self.threads // WARP, warps, "w")
        before_lane = tirx.bitwise_not(emit.integer(-1) << lane)
        at = before.get(0) + words().count(votes & before_lane)
        listed: list = []
        at = emit.held(listed, at, "at")
        listed += [emit.store(self.list, at, point), emit.store(self.row_of, at, row.get(0))]
        statements += [*emit.when(tirx.EQ(flag, emit.integer(1)), listed), barrier()]
        return total.get(0)

    def _add(self, j: Value, kind: Value, column: Value, place: emit.Body) -> list:
        """The listed point of a number, to the element of the thread that has it."""
        out: list = []
        row = emit.held(out, emit.load(self.row_of, j), "row")
        body: list = []
        point = emit.held(body, emit.load(self.list, j), "point")
        env = self._env(body, point)
        if self.nest.columns is not None:
            env[self.nest.columns] = column
        ev = Evaluator(self.given.inputs, env, faults=self.given.faults)
        value = ev.value(self.nest.value)
        body += [*ev.statements, emit.store(self.sums, place(row), emit.load(self.sums, place(row)) + value)]
        belongs = True if self.classes == 1 else tirx.EQ(tirx.truncmod(row, emit.integer(self.classes)), kind)
        there = self.nest.columns is None or column < emit.integer(self.nest.columns.extent)
        return out + emit.when(belongs, emit.when(there, body))

    def _combined(self) -> Grid:
        """The second launch: the parts of an element in order."""
        size = self.all_rows * self.columns

        def body(block: Value, thread: Value) -> list:
            out: list = []
            at = emit.bind(out, block * emit.integer(USUAL_THREADS) + thread, "at")
            total = emit.Registers(1, self.element, 1)

            def add(n: Value) -> list:
                return [total.put(0, total.get(0) + emit.load(self.partial, n * emit.integer(size) + at))]

            sums = [*total.allocate(), total.put(0, emit.splat(0, self.element)), *emit.loop(self.splits, add, "part")]
            return out + emit.when(at < emit.integer(size), [*sums, *self._put(at, total.get(0))])

        return Grid(math.ceil(size / USUAL_THREADS), USUAL_THREADS, body)
