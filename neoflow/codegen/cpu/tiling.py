"""How the axes of a contraction are cut, and the loops over the pieces.

    M    row tiles    steps of one axis times all of the axes after it; the last tile may have fewer steps
    N    panels       vectors x lanes points of the flattened axes; the last panel may have fewer
    K    parts        steps of the first axis times all of the others; the last part may have fewer (in `parts`)

Nothing here reads an operand or writes a result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from tvm import tirx

from neoflow.codegen.cpu.parts import Env, Parts, PointBody, flat_number
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.frame import nested
from neoflow.expr.ir import Axis
from neoflow.loops.schedule import Schedule
from neoflow.loops.sides import Contraction, chunk_lanes, row_box, size

Value = emit.Value


def tiling_of(c: Contraction, schedule: Schedule) -> Tiling:
    """The contraction cut by the knobs lanes, vectors, rows, splits and passes, in whole blocks of what lies packed."""
    lanes, vectors, limit = int(schedule["lanes"]), int(schedule["vectors"]), int(schedule["tile_rows"])
    rows = Rows(c.m, *row_box(c.m, limit))
    split = math.ceil(c.k[0].extent / int(schedule["splits"]))
    parts = Parts.of_blocks(c.k, math.ceil(split / int(schedule["passes"])), block_points(schedule))
    stretch = c.n[-1].extent if schedule["in_lines"] else size(c.n)
    panels = Panels(c.n, vectors, lanes, stretch)
    return Tiling(c.batch, RowTiles(rows), panels, parts, math.ceil(split / parts.length))


def block_points(schedule: Schedule) -> int:
    """Points of K that whole blocks of both packed operands have."""
    return max(int(schedule["row_points"]), int(schedule["vector_points"]))


@dataclass(frozen=True)
class Tiling:
    """A contraction in pieces: each point of the batch has all of the row tiles, panels and parts.

    passes: parts that a task goes through, one after the other; each so many are a split.
    """

    batch: tuple[Axis, ...]
    row_tiles: RowTiles
    panels: Panels
    parts: Parts
    passes: int = 1

    @property
    def splits(self) -> Axis:
        """So many parts each, as a dimension of tasks; the last one may have fewer."""
        return Axis(-15, math.ceil(self.parts.count / self.passes), "split")

    def part(self, split: Value, number: Value) -> Value:
        """The part that is the so-manieth of a split."""
        return split * emit.integer(self.passes) + number

    def passes_of(self, split: Value) -> int | Value:
        """Parts of a split."""
        if self.parts.count % self.passes == 0:
            return self.passes
        return tirx.Min(emit.integer(self.passes), emit.integer(self.parts.count) - split * emit.integer(self.passes))

    def along(self, n: tuple[Axis, ...]) -> Tiling:
        """The same pieces of the same points of N over other axes."""
        return replace(self, panels=self.panels.along(n))

    def batch_number(self, env: Env) -> Value:
        return flat_number(emit.integer(0), self.batch, env)


def lanes_left(left: int, lanes: int) -> Value | None:
    """The mask of a vector when `left` points are left; None when it is whole."""
    if left >= lanes:
        return None
    return emit.leading(left, lanes)


# --- M


@dataclass(frozen=True)
class Rows:
    """The shape of a row tile: `steps` of the M axis at `position` times all of the M axes after it."""

    m: tuple[Axis, ...]
    position: int
    steps: int

    @property
    def along(self) -> Axis:
        return self.m[self.position]

    @property
    def inner(self) -> tuple[Axis, ...]:
        return self.m[self.position + 1 :]

    def __len__(self) -> int:
        return self.steps * size(self.inner)

    def offsets(self) -> list[dict[Axis, int]]:
        """Each row as constant steps from the tile's first."""
        found = []
        for row in range(len(self)):
            step, rest = {}, row
            for a in reversed(self.inner):
                rest, step[a] = divmod(rest, a.extent)
            step[self.along] = rest
            found.append(step)
        return found

    def written_out(self, env: Env) -> list[Env]:
        """Where each row of the tile at `env` is."""
        return [{**env, **{a: env[a] + emit.integer(n) for a, n in step.items()}} for step in self.offsets()]

    def each(self, env: Env, body: PointBody) -> list:
        """`body(env, number)` at every row of the tile at `env`; in loops: a long expression is emitted once."""
        step = Axis(-7, self.steps, "row")

        def row(steps: Env) -> list:
            moved = {self.along: steps[step], **{a: steps[a] for a in self.inner}}
            at = {a: env[a] + n for a, n in moved.items()}
            return body({**env, **at}, flat_number(steps[step], self.inner, steps))

        return nested([step, *self.inner], {}, row)


@dataclass(frozen=True)
class RowTiles:
    """All of M in row tiles of the shape `whole`."""

    whole: Rows

    @property
    def tail(self) -> Rows | None:
        """The shape of the last tile along the axis that is cut, when it is another."""
        left = self.whole.along.extent % self.whole.steps
        return Rows(self.whole.m, self.whole.position, left) if left else None

    @property
    def outer(self) -> tuple[Axis, ...]:
        return self.whole.m[: self.whole.position]

    @property
    def count_along(self) -> int:
        """Tiles along the axis that is cut."""
        return math.ceil(self.whole.along.extent / self.whole.steps)

    @property
    def count(self) -> int:
        return size(self.outer) * self.count_along

    @property
    def axis(self) -> Axis:
        """The tiles as a dimension of tasks."""
        return Axis(-5, self.count, "rowtile")

    def each(self, number: Value, body: Callable[[Env, Rows], list]) -> list:
        """`body` at the first row of row tile `number`, for its shape."""
        out: list = []
        *outer, tile = emit.digits(out, number, [*(a.extent for a in self.outer), self.count_along])
        env = dict(zip(self.outer, outer, strict=True))
        env[self.whole.along] = tile * emit.integer(self.whole.steps)
        env |= {a: emit.integer(0) for a in self.whole.inner}
        if self.tail is None:
            return out + body(env, self.whole)
        return out + emit.when(tile < emit.integer(self.count_along - 1), body(env, self.whole), body(env, self.tail))


# --- N


@dataclass(frozen=True)
class Panel:
    """Panel `number` of N: `vectors` of `lanes`, of which `valid` points exist."""

    number: Value
    vectors: int
    lanes: int
    valid: int

    @property
    def width(self) -> int:
        return self.vectors * self.lanes


@dataclass(frozen=True)
class Panels:
    """All of N in panels of `vectors` x `lanes` points, each stretch of so many points by itself: all of N, or a line
    along its last axis."""

    n: tuple[Axis, ...]
    vectors: int
    lanes: int
    stretch: int

    def along(self, n: tuple[Axis, ...]) -> Panels:
        """The same panels of the same points over other axes."""
        return replace(self, n=n)

    @property
    def width(self) -> int:
        return self.vectors * self.lanes

    @property
    def whole(self) -> int:
        """Whole panels of a stretch."""
        return self.stretch // self.width

    @property
    def left(self) -> int:
        """Points of the last panel of a stretch when it is not whole, else 0."""
        return self.stretch % self.width

    @property
    def stretches(self) -> int:
        return size(self.n) // self.stretch

    @property
    def each_count(self) -> int:
        """Panels of a stretch."""
        return math.ceil(self.stretch / self.width)

    @property
    def count(self) -> int:
        return self.stretches * self.each_count

    @property
    def each_padded(self) -> int:
        """Points of a stretch, the last ones padded to a vector."""
        return math.ceil(self.stretch / self.lanes) * self.lanes

    @property
    def padded(self) -> int:
        """Points of all stretches, each padded."""
        return self.stretches * self.each_padded

    @property
    def are_in_lines(self) -> bool:
        """Whether a stretch is a line of several."""
        return self.stretches > 1

    @property
    def are_in_line(self) -> bool:
        """Whether no panel crosses the end of the last N axis."""
        return len(self.n) == 1 or self.are_in_lines or self.n[-1].extent % self.width == 0

    @property
    def chunk(self) -> int:
        """Lanes that never cross the end of the last N axis."""
        return chunk_lanes(self.n, self.lanes, self.are_in_lines)

    @property
    def axis(self) -> Axis:
        """The panels as a dimension of tasks."""
        return Axis(-4, self.count, "panel")

    def each(self, number: Value, body: Callable[[Panel], list]) -> list:
        """`body` of panel `number`: a whole one, or the last."""
        whole = Panel(number, self.vectors, self.lanes, self.width)
        if not self.left:
            return body(whole)
        last = Panel(number, math.ceil(self.left / self.lanes), self.lanes, self.left)
        if not self.whole:
            return body(last)
        is_whole = self._in_stretch(number)[1] < emit.integer(self.whole)
        return emit.when(is_whole, body(whole), body(last))

    def _in_stretch(self, number: Value) -> tuple[Value, Value]:
        """The stretch of a panel, and its number there."""
        if not self.are_in_lines:
            return emit.integer(0), number
        count = emit.integer(self.each_count)
        return tirx.truncdiv(number, count), tirx.truncmod(number, count)

    def _begin(self, panel: Panel, stretch: int) -> Value:
        """Where the panel begins, where stretches are so many elements apart."""
        outer, inner = self._in_stretch(panel.number)
        begin = inner * emit.integer(self.width)
        return outer * emit.integer(stretch) + begin if self.are_in_lines else begin

    def start(self, panel: Panel) -> Value:
        """The panel's first point of N."""
        return self._begin(panel, self.stretch)

    def padded_start(self, panel: Panel) -> Value:
        """The same where each stretch is padded to a vector."""
        return self._begin(panel, self.each_padded)

    def place(self, statements: list, panel: Panel, begin: Value) -> Env:
        """The N axes at point `begin` of the panel."""
        values = emit.digits(statements, self.start(panel) + begin, [a.extent for a in self.n])
        return dict(zip(self.n, values, strict=True))
