"""The `contraction` template: a register tile of `rows` x `vectors` accumulators over packed or direct operands.

    pack what is packed globally
    for task in parallel(batch x splits x owner):       owner: panels of N, or blocks of row tiles of M
        pack what this task owns
        for each panel of N, each row tile of M:
            acc = 0; for k in K: acc[r][v] += left[r, k] * right[k, v]
            outputs at the tile = epilogue(acc)           in partial sums first when splits > 1

The side with N lies in panels [K][vectors * lanes]; the side with M is read in place where its address is linear, or
packed in tiles [K][rows].  Knobs: side, which factor side has the lanes; rows, vectors, lanes; order, "panels" when a
task owns panels and packs them itself, else "tiles"; tiles, row tiles a block; pack, whether M is packed; splits of K;
unroll, up to which the innermost K axis is written out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx

from neoflow.codegen import emit
from neoflow.codegen.frame import Frame, nested, points
from neoflow.codegen.sides import (
    Contraction,
    arranged,
    chunk_lanes,
    direct_read,
    find_contraction,
    row_box,
    size,
)
from neoflow.codegen.structure import input_reads, stride
from neoflow.codegen.transpose import is_turnable, turned_block
from neoflow.errors import ScheduleError
from neoflow.expr import affine
from neoflow.expr.ir import Axis, Read, postorder
from neoflow.tune.schedule import Schedule

Value = emit.Value
Env = dict[Axis, Value]
PointBody = Callable[[Env, Value], list]
BlockBody = Callable[[Env, Value, int], list]


def lower_contraction(frame: Frame, schedule: Schedule) -> list:
    """Statements of the kernel."""
    found = find_contraction(frame.nest)
    if found is None:
        raise ScheduleError("the subgraph is no sum of products with two sides")
    sided = found.swapped() if schedule["side"] == "left" else found
    assert frame.nest.reduction is not None
    element = emit.REGISTER.get(frame.nest.reduction.body.dtype, frame.nest.reduction.body.dtype)
    return _Lowering(frame, schedule, arranged(sided, frame.nest.outputs[0][1], element), element).statements()


@dataclass(frozen=True)
class Rows:
    """A row tile: `count` steps of the M axis at `position` and all of the M axes after it."""

    m: tuple[Axis, ...]
    position: int
    count: int

    @property
    def inner(self) -> tuple[Axis, ...]:
        return self.m[self.position + 1 :]

    def __len__(self) -> int:
        return self.count * size(self.inner)

    def offsets(self) -> list[dict[Axis, int]]:
        """Each row as constant steps from the tile's first."""
        found = []
        for row in range(len(self)):
            step, rest = {}, row
            for a in reversed(self.inner):
                rest, step[a] = divmod(rest, a.extent)
            step[self.m[self.position]] = rest
            found.append(step)
        return found


@dataclass(frozen=True)
class Panel:
    """A panel of N: `vectors` registers wide, of which `valid` lanes exist."""

    vectors: int
    valid: int


@dataclass(frozen=True)
class Run:
    """A K axis to go along in blocks of `lanes`."""

    along: Axis
    lanes: int


@dataclass(frozen=True)
class Turned(Run):
    """A right side to be packed in blocks of `lanes` x `lanes`, contiguous along the run."""

    read: Read


class _Lowering:
    def __init__(self, frame: Frame, schedule: Schedule, c: Contraction, element: str):
        self.frame, self.c, self.element = frame, c, element
        self.lanes, self.vectors = int(schedule["lanes"]), int(schedule["vectors"])
        self.lanes_of_element = frame.target.lanes(element)
        self.parallel, self.by_panels = bool(schedule["parallel"]), schedule["order"] == "panels"
        self.tiles_a_block, self.unroll = int(schedule["tiles"]), int(schedule["unroll"])
        self._rows(int(schedule["rows"]))
        self._panels()
        self._split(int(schedule["splits"]))
        self.direct = None if schedule["pack"] else direct_read(c.left, self.element)
        self._buffers()

    def _rows(self, limit: int) -> None:
        if not self.c.m or limit < 1 or self.vectors < 1 or self.lanes < 1:
            raise ScheduleError("a register tile needs rows, vectors and lanes")
        position, count = row_box(self.c.m, limit)
        extent = self.c.m[position].extent
        self.row_tile = Rows(self.c.m, position, count)
        self.row_tail = Rows(self.c.m, position, extent % count) if extent % count else None
        self.outer_m = self.c.m[:position]
        self.tile_axis = Axis(-3, math.ceil(extent / count), "tile")
        self.tile_count = size(self.outer_m) * self.tile_axis.extent
        if len(self.row_tile) * self.vectors > 64:
            raise ScheduleError(f"{len(self.row_tile)} rows of {self.vectors} vectors are no register tile")

    def _panels(self) -> None:
        width, total = self.lanes * self.vectors, size(self.c.n)
        self.width, self.whole_panels = width, total // width
        left = total % width
        self.last_panel = Panel(math.ceil(left / self.lanes), left) if left else None
        self.panel_count = self.whole_panels + (1 if left else 0)
        self.padded_n = self.whole_panels * width + (self.last_panel.vectors * self.lanes if self.last_panel else 0)
        self.chunk = chunk_lanes(self.c.n, self.lanes)

    def _split(self, splits: int) -> None:
        first = self.c.k[0].extent
        self.part = math.ceil(first / max(1, splits))
        self.splits = math.ceil(first / self.part)
        self.split_axis = Axis(-2, self.splits, "part")
        self.k_rest = size(self.c.k[1:])
        self.part_k = self.part * self.k_rest  # points of K in a part, the last one may have fewer

    def _buffers(self) -> None:
        k, rows = size(self.c.k), len(self.row_tile)
        batch = size(self.c.batch)
        panels = self.part_k * self.width if self.by_panels else batch * k * self.padded_n
        self.panels = emit.buffer(panels, self.element, "panels", 64)
        tiles = batch * self.tile_count * k * rows if self.by_panels else self.tiles_a_block * self.part_k * rows
        self.tiles = None if self.direct is not None else emit.buffer(tiles, self.element, "tiles", 64)
        partial = self.splits * batch * size(self.c.m) * self.padded_n
        self.partial = emit.buffer(partial, self.element, "partial", 64) if self.splits > 1 else None

    # --- the whole kernel

    def statements(self) -> list:
        body: list = []
        batch = [*self.c.batch]
        if self.by_panels:
            if self.tiles is not None:
                body += [emit.in_workspace(self.tiles)]
                body += self._tasks([*batch, self._tile_dimension], self._pack_tile_globally)
        else:
            body += [emit.in_workspace(self.panels)]
            body += self._tasks([*batch, self._panel_dimension], self._pack_panel_globally)
        if self.partial is not None:
            body = [emit.in_workspace(self.partial), *body]
        if self.by_panels:
            body += self._tasks(self._in_output_order(self._panel_dimension, self.c.n), self._panel_task)
        else:
            body += self._tasks(self._in_output_order(self._block_dimension, self.c.m), self._block_task)
        if self.partial is not None:
            body += self._tasks([*batch, *self.c.m], self._combine)
        return body

    def _tasks(self, dimensions: list[Axis], body: Callable[[Env], list]) -> list:
        total = math.prod(a.extent for a in dimensions)
        return emit.loop(total, lambda t: points(dimensions, t, body), "task", self.parallel)

    def _in_output_order(self, owner: Axis, axes: tuple[Axis, ...]) -> list[Axis]:
        """Task dimensions such that consecutive tasks write near each other; parts of K outside, they share nothing."""
        address = self.frame.nest.outputs[0][1]
        steps = [(max(stride(address, a) or 0 for a in axes), 1, owner)]
        steps += [(stride(address, a) or 0, 0, a) for a in self.c.batch]
        return [self.split_axis, *(a for _, _, a in sorted(steps, key=lambda s: (-s[0], s[1])))]

    @property
    def _panel_dimension(self) -> Axis:
        return Axis(-4, self.panel_count, "panel")

    @property
    def _tile_dimension(self) -> Axis:
        return Axis(-5, self.tile_count, "rowtile")

    @property
    def _block_dimension(self) -> Axis:
        return Axis(-6, math.ceil(self.tile_count / self.tiles_a_block), "block")

    def _each_panel(self, number: Value, body: Callable[[Panel], list]) -> list:
        """`body` for the shape of panel `number`: a whole one, or the last."""
        whole = Panel(self.vectors, self.width)
        if self.last_panel is None:
            return body(whole)
        if not self.whole_panels:
            return body(self.last_panel)
        return emit.when(number < emit.integer(self.whole_panels), body(whole), body(self.last_panel))

    def _each_tile(self, number: Value, body: Callable[[Env, Rows], list]) -> list:
        """`body` at the first row of row tile `number`, for its shape."""
        out: list = []
        *outer, tile = emit.digits(out, number, [*(a.extent for a in self.outer_m), self.tile_axis.extent])
        env = dict(zip(self.outer_m, outer, strict=True))
        axis = self.c.m[self.row_tile.position]
        env[axis] = tile * emit.integer(self.row_tile.count)
        env |= {a: emit.integer(0) for a in self.row_tile.inner}
        if self.row_tail is None:
            return out + body(env, self.row_tile)
        whole = tile < emit.integer(self.tile_axis.extent - 1)
        if self.tile_axis.extent == 1:
            return out + body(env, self.row_tail)
        return out + emit.when(whole, body(env, self.row_tile), body(env, self.row_tail))

    def _batch_number(self, env: Env) -> Value:
        flat = emit.integer(0)
        for a in self.c.batch:
            flat = flat * emit.integer(a.extent) + env[a]
        return flat

    def _part_start(self, env: Env) -> Value:
        return env.get(self.split_axis, emit.integer(0)) * emit.integer(self.part)

    def _part_length(self, env: Env) -> int | Value:
        first = self.c.k[0].extent
        if self.splits * self.part == first:
            return self.part
        return tirx.Min(emit.integer(self.part), emit.integer(first) - self._part_start(env))

    def _over_k(self, env: Env, start: Value, length: int | Value, body: PointBody, unroll: int = 1) -> list:
        """`body(env, k)` over a range of the first K axis and all of the others; k counts points from the start."""
        first, *rest = self.c.k

        def point(offset: Value) -> list:
            def inner(e: Env) -> list:
                flat = offset
                for a in rest:
                    flat = flat * emit.integer(a.extent) + e[a]
                return body(e, flat)

            return nested(rest, {**env, first: start + offset}, inner, unroll)

        return emit.loop(length, point, "k")

    # --- packing

    def _pack_panel_globally(self, env: Env) -> list:
        number = env[self._panel_dimension]
        base = self._panel_base(env, number)
        whole = self.c.k[0].extent
        return self._each_panel(number, lambda p: self._pack_panel(env, number, p, base, emit.integer(0), whole))

    def _panel_base(self, env: Env, number: Value) -> Value:
        """Where panel `number` of this batch starts among the globally packed ones."""
        k = size(self.c.k)
        return self._batch_number(env) * emit.integer(k * self.padded_n) + number * emit.integer(k * self.width)

    def _pack_panel(
        self, env: Env, number: Value, panel: Panel, base: Value, start: Value, length: int | Value
    ) -> list:
        out: list = []
        width = panel.vectors * self.lanes
        turned = self._turned_axis(panel)
        lanes = turned.lanes if turned is not None else self.chunk
        if turned is None and panel.valid // lanes > 8 and sum(1 for _ in postorder(self.c.right)) > 12:
            return self._pack_long(env, number, panel, base, start, length)
        chunks = []
        for begin in range(0, panel.valid, lanes):
            at = number * emit.integer(self.width) + emit.integer(begin)
            values = emit.digits(out, at, [a.extent for a in self.c.n])
            chunks.append((begin, dict(zip(self.c.n, values, strict=True))))

        def place_of(k: Value, begin: int) -> Value:
            return emit.ramp(base + k * emit.integer(width) + emit.integer(begin), 1, lanes)

        def store_point(e: Env, k: Value) -> list:
            body: list = []
            for begin, place in chunks:
                mask = self._mask(panel.valid - begin) if turned is None else None
                ev = self.frame.evaluator({**e, **place}, self.c.n[-1], lanes, mask=mask)
                value = emit.widen(ev.value(self.c.right), lanes)
                body += [*ev.statements, emit.store(self.panels, place_of(k, begin), value)]
            return body

        if turned is None:
            return out + self._over_k(env, start, length, store_point)
        read, step = turned.read, int(stride(turned.read.indices[0], self.c.n[-1]) or 0)

        def store_block(e: Env, k: Value, k_step: int) -> list:
            body: list = []
            for begin, place in chunks:
                ev = self.frame.evaluator({**e, **place})
                address = ev.index(read.indices[0])
                body += ev.statements
                source = self.frame.inputs[read.source.position]  # type: ignore[union-attr]
                rows = turned_block(source, emit.bind(body, address, "base"), step, lanes, body)
                for n, row in enumerate(rows):
                    body.append(emit.store(self.panels, place_of(k + emit.integer(n * k_step), begin), row))
            return body

        return out + self._over_k_blocks(env, start, length, turned, store_block, store_point)

    def _pack_long(self, env: Env, number: Value, panel: Panel, base: Value, start: Value, length: int | Value) -> list:
        """A panel of a long expression in many narrow chunks: a loop over them, so that it is emitted once."""
        width = panel.vectors * self.lanes

        def chunk(c: Value) -> list:
            body: list = []
            begin = c * emit.integer(self.chunk)
            place = self._n_values(body, number, begin)

            def point(e: Env, k: Value) -> list:
                ev = self.frame.evaluator({**e, **place}, self.c.n[-1], self.chunk)
                value = emit.widen(ev.value(self.c.right), self.chunk)
                index = emit.ramp(base + k * emit.integer(width) + begin, 1, self.chunk)
                return [*ev.statements, emit.store(self.panels, index, value)]

            return body + self._over_k(env, start, length, point)

        return emit.loop(panel.valid // self.chunk, chunk, "c")

    def _turned_axis(self, panel: Panel) -> Turned | None:
        """The right side as a read that strides along N, and the K axis along which it is contiguous and long."""
        read = direct_read(self.c.right, self.element)
        if read is None:
            return None
        for a in self.c.k:
            lanes = min(self.chunk, 1 << (a.extent.bit_length() - 1))
            if lanes >= 4 and panel.valid % lanes == 0 and is_turnable(read, self.c.n[-1], a):
                return Turned(a, lanes, read)
        return None

    def _over_k_blocks(
        self, env: Env, start: Value, length: int | Value, run_: Run, block: BlockBody, point: PointBody
    ) -> list:
        """Like `_over_k` with the run's axis innermost, in blocks: `block(env, k, step of k along it)`."""
        first, along, size_of = self.c.k[0], run_.along, run_.lanes
        k_step = size(self.c.k[[a is along for a in self.c.k].index(True) + 1 :])
        others = [a for a in self.c.k if a is not along]

        def flat(e: Env) -> Value:
            k = e[first] - start
            for a in self.c.k[1:]:
                k = k * emit.integer(a.extent) + e[a]
            return k

        def inner(e: Env) -> list:
            begin = start if along is first else emit.integer(0)
            extent = length if along is first else along.extent

            def at(offset: Value) -> Env:
                return {**e, along: begin + offset}

            if isinstance(extent, int):
                blocks, left = divmod(extent, size_of)
                done: Value = emit.integer(blocks * size_of)
                body: list = []
            else:
                body = []
                count = emit.bind(body, extent, "n")
                blocks = tirx.truncdiv(count, emit.integer(size_of))
                done = emit.bind(body, blocks * emit.integer(size_of), "done")
                left = count - done
            run = lambda b: block(at(b * emit.integer(size_of)), flat(at(b * emit.integer(size_of))), k_step)  # noqa: E731
            if not isinstance(blocks, int) or blocks:
                body += emit.loop(blocks, run, "b")
            if not isinstance(left, int) or left:
                body += emit.loop(left, lambda i: point(at(done + i), flat(at(done + i))), "i")
            return body

        if along is first:
            return nested(others, env, inner)
        rest = [a for a in others if a is not first]
        return emit.loop(length, lambda i: nested(rest, {**env, first: start + i}, inner), "k")

    def _mask(self, left: int) -> Value | None:
        """Lanes of a chunk that exist, when `left` points are left."""
        if left >= self.chunk:
            return None
        return emit.ramp(emit.integer(0), 1, self.chunk) < emit.splat(left, "int32", self.chunk)

    def _pack_tile_globally(self, env: Env) -> list:
        number = env[self._tile_dimension]
        k = size(self.c.k)
        base = (self._batch_number(env) * emit.integer(self.tile_count) + number) * emit.integer(k * len(self.row_tile))
        whole = self.c.k[0].extent
        return self._each_tile(
            number, lambda e, rows: self._pack_tile({**env, **e}, rows, base, emit.integer(0), whole)
        )

    def _pack_tile(self, env: Env, rows: Rows, base: Value, start: Value, length: int | Value) -> list:
        """A row tile as [K][rows]: vectors along a K axis where the side is contiguous along one, each spread out."""
        assert self.tiles is not None
        tiles, count = self.tiles, emit.integer(len(rows))

        def store_rows(e: Env, k: Value, k_step: int, lanes: int, along: Axis | None) -> list:
            def row(at: Env, r: Value) -> list:
                ev = self.frame.evaluator({**e, **at}, along, lanes)
                value = emit.widen(ev.value(self.c.left), lanes)
                index = emit.ramp(base + k * count + r, k_step * len(rows), lanes)
                return [*ev.statements, emit.store(tiles, index, value)]

            return self._over_rows(e, rows, row)

        run = self._contiguous_run()
        if run is None:
            return self._over_k(env, start, length, lambda e, k: store_rows(e, k, 1, 1, None))
        block = lambda e, k, k_step: store_rows(e, k, k_step, run.lanes, run.along)  # noqa: E731
        return self._over_k_blocks(env, start, length, run, block, lambda e, k: store_rows(e, k, 1, 1, None))

    def _over_rows(self, env: Env, rows: Rows, body: Callable[[Env, Value], list]) -> list:
        """`body` at every row of a tile, with its number; in loops, so that a long expression is emitted once."""
        axes = [Axis(-7, rows.count, "row"), *rows.inner]
        main = self.c.m[rows.position]

        def row(steps: Env) -> list:
            r = steps[axes[0]]
            at = {main: env[main] + r}
            for a in rows.inner:
                r = r * emit.integer(a.extent) + steps[a]
                at[a] = env[a] + steps[a]
            return body(at, r)

        return nested(axes, {}, row)

    def _contiguous_run(self) -> Run | None:
        """A K axis along which the left side is contiguous, with a vector's length or half of one."""
        reads = input_reads(self.c.left)
        for a in self.c.k:
            lanes = min(self.lanes_of_element, 1 << (a.extent.bit_length() - 1))
            steps = [stride(r.indices[0], a) for r in reads]
            if 2 * lanes >= self.lanes_of_element and all(s in (0, 1) for s in steps) and 1 in steps:
                return Run(a, lanes)
        return None

    # --- tasks

    def _panel_task(self, env: Env) -> list:
        """A task that owns a panel: packs it, then goes through every row tile."""
        number, start, length = env[self._panel_dimension], self._part_start(env), self._part_length(env)
        rows_k = size(self.c.k) * len(self.row_tile)
        first_tile = self._batch_number(env) * emit.integer(self.tile_count)

        def body(panel: Panel) -> list:
            packed = self._pack_panel(env, number, panel, emit.integer(0), start, length)

            def tile(t: Value) -> list:
                def run(at: Env, rows: Rows) -> list:
                    skip = start * emit.integer(self.k_rest * len(rows))
                    left = (first_tile + t) * emit.integer(rows_k) + skip
                    return self._tile({**env, **at}, rows, number, panel, emit.integer(0), left)

                return self._each_tile(t, run)

            return packed + emit.loop(self.tile_count, tile, "t")

        return [emit.in_workspace(self.panels), *self._each_panel(number, body)]

    def _block_task(self, env: Env) -> list:
        """A task that owns a block of row tiles: packs them, then goes through every panel."""
        first = env[self._block_dimension] * emit.integer(self.tiles_a_block)
        start, length = self._part_start(env), self._part_length(env)
        rows_k = self.part_k * len(self.row_tile)
        count: int | Value = self.tiles_a_block
        if self.tile_count % self.tiles_a_block:
            count = tirx.Min(emit.integer(self.tiles_a_block), emit.integer(self.tile_count) - first)
        out: list = []
        if self.tiles is not None:
            out.append(emit.in_workspace(self.tiles))
            out += emit.loop(
                count,
                lambda t: self._each_tile(
                    first + t,
                    lambda at, rows: self._pack_tile({**env, **at}, rows, t * emit.integer(rows_k), start, length),
                ),
                "t",
            )

        def panel_loop(number: Value) -> list:
            def body(panel: Panel) -> list:
                skip = start * emit.integer(self.k_rest * panel.vectors * self.lanes)
                right = self._panel_base(env, number) + skip

                def tile(t: Value) -> list:
                    def run(at: Env, rows: Rows) -> list:
                        return self._tile({**env, **at}, rows, number, panel, right, t * emit.integer(rows_k))

                    return self._each_tile(first + t, run)

                return emit.loop(count, tile, "t")

            return self._each_panel(number, body)

        return out + emit.loop(self.panel_count, panel_loop, "n")

    # --- the register tile

    def _tile(self, env: Env, rows: Rows, number: Value, panel: Panel, right: Value, left: Value) -> list:
        """One tile of the output: `right` and `left` are the offsets of the packed operands."""
        acc = emit.Registers(len(rows) * panel.vectors, self.element, self.lanes)
        zero = emit.splat(0.0, self.element)
        out = acc.allocate() + [acc.put(n, zero) for n in range(acc.count)]
        right, left = emit.bind(out, right, "right"), emit.bind(out, left, "left")
        read_left = self._left_reader(env, rows, left, out)
        width = panel.vectors * self.lanes

        def step(e: Env, k: Value) -> list:
            body: list = []
            vectors = []
            for v in range(panel.vectors):
                index = emit.ramp(right + k * emit.integer(width) + emit.integer(v * self.lanes), 1, self.lanes)
                vectors.append(emit.bind(body, emit.load(self.panels, index), "b"))
            for r in range(len(rows)):
                a = emit.bind(body, emit.widen(read_left(e, k, r), self.lanes), "a")
                for v in range(panel.vectors):
                    n = r * panel.vectors + v
                    body.append(acc.put(n, emit.fma(a, vectors[v], acc.get(n))))
            return body

        out += self._over_k(env, self._part_start(env), self._part_length(env), step, self.unroll)
        if self.partial is not None:
            return out + self._store_partial(env, rows, number, panel, acc)
        return out + self._store_tile(env, rows, number, panel, acc)

    def _left_reader(self, env: Env, rows: Rows, left: Value, out: list) -> Callable[[Env, Value, int], Value]:
        """Gives row r of the left side at a point of K."""
        if self.direct is None:
            assert self.tiles is not None
            tiles = self.tiles
            return lambda e, k, r: emit.load(tiles, left + k * emit.integer(len(rows)) + emit.integer(r))
        terms, constant = affine.linear(self.direct.indices[0])
        source = self.frame.inputs[self.direct.source.position]  # type: ignore[union-attr]
        base = emit.integer(constant)
        for a, step in terms.items():
            if all(a is not k for k in self.c.k):
                base = base + env[a] * emit.integer(step)  # type: ignore[index]
        base = emit.bind(out, base, "base")
        moves = [sum(terms.get(a, 0) * n for a, n in offset.items()) for offset in rows.offsets()]

        def read(e: Env, k: Value, r: int) -> Value:
            index = base
            for a in self.c.k:
                if a in terms:
                    index = index + e[a] * emit.integer(terms[a])
            return emit.load(source, index + emit.integer(moves[r]))

        return read

    # --- the tile's results

    def _n_values(self, out: list, number: Value, begin: Value | int) -> Env:
        at = number * emit.integer(self.width) + (emit.integer(begin) if isinstance(begin, int) else begin)
        values = emit.digits(out, at, [a.extent for a in self.c.n])
        return dict(zip(self.c.n, values, strict=True))

    def _store_tile(self, env: Env, rows: Rows, number: Value, panel: Panel, acc: emit.Registers) -> list:
        """The outputs at the tile: from the registers, or through a copy on the stack when the epilogue is long."""
        if self._is_written_directly:
            return self._store_registers(env, rows, number, panel, acc)
        width = panel.vectors * self.lanes
        tile = emit.buffer(len(rows) * width, self.element, "tile", 64)
        out = [emit.on_stack(tile)]
        for n in range(acc.count):
            out.append(emit.store(tile, emit.ramp(emit.integer(n * self.lanes), 1, self.lanes), acc.get(n)))

        def row(at: Env, r: Value) -> list:
            return self._store_row({**env, **at}, number, panel, lambda begin: r * emit.integer(width) + begin, tile)

        return out + self._over_rows(env, rows, row)

    @property
    def _is_written_directly(self) -> bool:
        outputs = self.frame.nest.outputs
        short = sum(1 for _, _, value in outputs for _ in postorder(value)) <= 4
        contiguous = all(stride(address, self.c.n[-1]) == 1 for _, address, _ in outputs)
        return short and contiguous and self.chunk == self.lanes

    def _store_registers(self, env: Env, rows: Rows, number: Value, panel: Panel, acc: emit.Registers) -> list:
        out: list = []
        places = [self._n_values(out, number, v * self.lanes) for v in range(panel.vectors)]
        for r, step in enumerate(rows.offsets()):
            row = {**env, **{a: env[a] + emit.integer(n) for a, n in step.items()}}
            for v, place in enumerate(places):
                result, mask = acc.get(r * panel.vectors + v), self._mask(panel.valid - v * self.lanes)
                out += self.frame.write({**row, **place}, self.c.n[-1], self.lanes, result, mask)
        return out

    def _store_row(
        self, env: Env, number: Value, panel: Panel, place: Callable[[Value], Value], tile: tirx.Buffer
    ) -> list:
        """The outputs of one row of a panel, whose sums lie at `place(first lane)` of `tile`."""
        chunk, axis = self.chunk, self.c.n[-1]

        def write(begin: Value, lanes: int, mask: Value | None) -> list:
            body: list = []
            at = {**env, **self._n_values(body, number, begin)}
            result = emit.load(tile, emit.ramp(place(begin), 1, lanes))
            return body + self.frame.write(at, axis, lanes, result, mask)

        whole, left = divmod(panel.valid, chunk)
        out = emit.loop(whole, lambda c: write(c * emit.integer(chunk), chunk, None), "c") if whole else []
        if left and all(stride(address, axis) == 1 for _, address, _ in self.frame.nest.outputs):
            out += write(emit.integer(whole * chunk), chunk, self._mask(left))
        elif left:
            out += emit.loop(left, lambda n: write(emit.integer(whole * chunk) + n, 1, None), "n")
        return out

    # --- split K

    def _partial_row(self, env: Env, part: Value) -> Value:
        """Where a row of partial sums starts: [part][batch][M][padded N]."""
        flat = part
        for a in (*self.c.batch, *self.c.m):
            flat = flat * emit.integer(a.extent) + env[a]
        return flat * emit.integer(self.padded_n)

    def _store_partial(self, env: Env, rows: Rows, number: Value, panel: Panel, acc: emit.Registers) -> list:
        assert self.partial is not None
        out: list = []
        part = env.get(self.split_axis, emit.integer(0))
        for r, step in enumerate(rows.offsets()):
            at = {**env, **{a: env[a] + emit.integer(n) for a, n in step.items()}}
            base = self._partial_row(at, part) + number * emit.integer(self.width)
            for v in range(panel.vectors):
                index = emit.ramp(base + emit.integer(v * self.lanes), 1, self.lanes)
                out.append(emit.store(self.partial, index, acc.get(r * panel.vectors + v)))
        return out

    def _combine(self, env: Env) -> list:
        """Second pass over one row: the partial sums in order, then the outputs."""
        assert self.partial is not None
        partial = self.partial
        row = emit.buffer(self.padded_n, self.element, "row", 64)

        def add(v: Value) -> list:
            acc = emit.Registers(1, self.element, self.lanes)

            def one(p: Value) -> list:
                index = emit.ramp(self._partial_row(env, p) + v * emit.integer(self.lanes), 1, self.lanes)
                return [acc.put(0, acc.get(0) + emit.load(partial, index))]

            out = [*acc.allocate(), acc.put(0, emit.splat(0.0, self.element)), *emit.loop(self.splits, one, "p")]
            index = emit.ramp(v * emit.integer(self.lanes), 1, self.lanes)
            return [*out, emit.store(row, index, acc.get(0))]

        def panel_loop(number: Value) -> list:
            place = lambda begin: number * emit.integer(self.width) + begin  # noqa: E731
            return self._each_panel(number, lambda p: self._store_row(env, number, p, place, row))

        out = [emit.in_workspace(row), *emit.loop(self.padded_n // self.lanes, add, "v")]
        return out + emit.loop(self.panel_count, panel_loop, "n")
