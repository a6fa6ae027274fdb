"""Loops of the `map` template; see `loops.map`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from tvm import tirx

from neoflow.codegen.cpu.transpose import turned_block
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.frame import Frame, Strip, nested
from neoflow.codegen.tir.phases import TASKS_A_THREAD, Phase, Phases, phase_of, phase_over
from neoflow.expr.ir import Axis, Expr, Read
from neoflow.loops.cuts import cuts, piece
from neoflow.loops.map import further, rows_of, turned_reads, written_out
from neoflow.loops.nest import stride
from neoflow.loops.residues import Region, split
from neoflow.loops.schedule import Schedule, schedule_of

Value = emit.Value
Env = dict[Axis, Value]


def lower_map(frame: Frame, schedule: Schedule) -> Phases:
    """One phase, and others for points that are left at the ends of axes written out by their remainders."""
    whole = frame.nest
    if schedule["cut"]:
        return Phases((_cut(frame, schedule),))
    regions = split(whole) if schedule["residues"] else (Region(whole),)
    phases = [phase for n, region in enumerate(regions) for phase in _phases(frame, region, schedule, is_rest=n > 0)]
    return Phases(tuple(phases))


def _cut(frame: Frame, schedule: Schedule) -> Phase:
    """All pieces of a map: one after the other at each point of the axes before those that are cut, where these are
    tasks enough, or each with tasks of its own."""
    whole, boxes = frame.nest, cuts(frame.nest)
    pieces = [piece(whole, bounds) for bounds in boxes]
    is_apart = [n == schedule["inner"] or bool(int(schedule["unroll"]) >> n & 1) for n in range(len(whole.axes))]
    common = list[Axis]()
    for n, axis in enumerate(whole.axes[:-1]):
        if is_apart[n] or any(bounds[n] != (0, axis.extent) for bounds in boxes):
            break
        common.append(axis)
    is_parallel = bool(schedule["parallel"])
    if not common or (is_parallel and math.prod(a.extent for a in common) < TASKS_A_THREAD * frame.target.threads):
        return _one_after_the_other([p for n in pieces for p in _phases(frame, Region(n), schedule)])

    def at(env: Env) -> list:
        out: list = []
        for n in pieces:
            own = {new: env[axis] for axis, new in zip(common, n.axes, strict=False)}
            inside = replace(frame, nest=n, outer={**frame.outer, **own})
            out += [s for p in _phases(inside, Region(n), schedule) for s in p.serial()]
        return out

    streamed = bool(schedule["stream"])
    return phase_over(common, at, frame.target.threads, is_parallel, streamed)


def _one_after_the_other(phases: list[Phase]) -> Phase:
    """The tasks of all of them as those of one phase."""

    def task(number: Value) -> list:
        begin = sum(p.tasks for p in phases[:-1])
        body = phases[-1].body(number - emit.integer(begin))
        for phase in reversed(phases[:-1]):
            end, begin = begin, begin - phase.tasks
            body = emit.when(number < emit.integer(end), phase.body(number - emit.integer(begin)), body)
        return body

    def loops() -> list:
        return [s for p in phases for s in p.serial()]

    first = phases[0]
    return Phase(sum(p.tasks for p in phases), task, first.is_parallel, first.is_streamed, loops)


def _phases(frame: Frame, region: Region, schedule: Schedule, is_rest: bool = False) -> tuple[Phase, ...]:
    """Of a region of the points. is_rest: whether they are few."""
    nest = region.nest if is_rest else written_out(region.nest, int(schedule["unroll"]))
    buffers = dict(zip((n for n, _, _ in frame.nest.outputs), frame.outputs, strict=True))
    outputs = tuple(buffers[n] for n, _, _ in nest.outputs)
    frame = replace(frame, nest=nest, outputs=outputs, begins=0, together=region.together)
    frame = replace(frame, is_streamed=bool(schedule["stream"]) and not is_rest)
    if not nest.axes:
        return (Phase(1, lambda _: frame.write({})),)
    if not region.has_last:
        left = [a for a in nest.axes if a not in frame.outer]
        return (phase_of(left, frame.write, bool(schedule["parallel"])),)
    if is_rest:
        few = {"inner": -1, "turn": False, "chunks": 1, "parts": 1, "vectors": 1, "stream": False, "fetch": False}
        schedule = schedule_of("map", {**dict(schedule.knobs), **few})
    if schedule["cut"]:
        most = max(1, nest.axes[-1].extent // int(schedule["lanes"]))
        schedule = schedule_of("map", {**dict(schedule.knobs), "chunks": min(int(schedule["chunks"]), most)})
    return _Lowering(frame, schedule).phases().phases


@dataclass(frozen=True)
class _Parts:
    """Steps in parts that differ by one at most, the longer ones first: no thread waits for another's last one."""

    steps: int
    count: int

    def range(self, part: Value) -> tuple[Value, int | Value]:
        """The first step of a part and how many there are."""
        least, more = divmod(self.steps, self.count)
        if not more:
            return part * emit.integer(least), least
        first = part * emit.integer(least) + tirx.Min(part, emit.integer(more))
        return first, tirx.Select(part < emit.integer(more), emit.integer(least + 1), emit.integer(least))


class _Lowering:
    def __init__(self, frame: Frame, schedule: Schedule):
        axes, fetched = frame.nest.axes, further(frame.nest) if schedule["fetch"] else {}
        self.frame = replace(frame, further={**frame.further, **fetched})
        self.is_parallel = bool(schedule["parallel"])
        self.lanes, self.vectors = int(schedule["lanes"]), int(schedule["vectors"])
        inner = int(schedule["inner"])
        self.inner = axes[inner] if inner >= 0 else None
        self.strip = Strip(axes[-1], self.lanes)
        self.turned = turned_reads(frame.nest, inner) if schedule["turn"] else []
        self.chunks = _Parts(self.strip.blocks, int(schedule["chunks"]))
        self.parts = _Parts(1 if self.inner is None else self.inner.extent, int(schedule["parts"]))
        self.chunk_axis, self.part_axis = Axis(-1, self.chunks.count, "chunk"), Axis(-2, self.parts.count, "part")
        self.is_cut = bool(schedule["cut"])
        self.rows = [a for a in rows_of(frame.nest, inner) if a not in frame.outer]

    def phases(self) -> Phases:
        dimensions = [*self.rows, self.part_axis, self.chunk_axis]
        threads, streamed = self.frame.target.threads, self.frame.is_streamed
        if not self.is_cut:  # rows of masks that differ from each to the next are slower as loops
            return Phases((phase_of(dimensions, self._task, self.is_parallel, streamed),))
        return Phases((phase_over(dimensions, self._task, threads, self.is_parallel, streamed),))

    def _task(self, env: Env) -> list:
        first, count = self.chunks.range(env[self.chunk_axis])
        body: list = []
        if self.strip.blocks:
            body += self._blocks(env, first, count)
        if self.strip.tail:
            start = emit.integer(self.strip.blocks * self.lanes)
            last = tirx.EQ(env[self.chunk_axis], emit.integer(self.chunks.count - 1))
            body += emit.when(last, self._along_inner(env, [start], self.strip.tail_mask()))
        return body

    def _blocks(self, env: Env, first: Value, count: int | Value) -> list:
        """Whole vectors: groups of `vectors`, then one after the other."""
        size = self.vectors

        def start(n: Value) -> Value:
            return (first + n) * emit.integer(self.lanes)

        def one(n: Value) -> list:
            return self._along_inner(env, [start(n)])

        if size == 1:
            return emit.loop(count, one, "block")

        def group(n: Value) -> list:
            at = n * emit.integer(size)
            return self._along_inner(env, [start(at + emit.integer(k)) for k in range(size)])

        if isinstance(count, int):
            groups, left = divmod(count, size)
            body = emit.loop(groups, group, "group") if groups else []
            return body + (emit.loop(left, lambda n: one(emit.integer(groups * size) + n), "block") if left else [])
        body = []
        length = emit.bind(body, count, "n")
        groups = emit.bind(body, tirx.truncdiv(length, emit.integer(size)), "groups")
        done = groups * emit.integer(size)
        body += emit.loop(groups, group, "group")
        return body + emit.loop(length - done, lambda n: one(done + n), "block")

    def _along_inner(self, env: Env, starts: list[Value], mask: Value | None = None) -> list:
        """Vectors that begin at `starts`, at every point of this part of the inner axis."""
        places = [{**env, self.strip.axis: start} for start in starts]

        def write(more: Env) -> list:
            return [
                s for at in places for s in self.frame.write({**at, **more}, self.strip.axis, self.lanes, mask=mask)
            ]

        inner = self.inner
        if inner is None:
            return write({})
        if not self.turned or mask is not None:
            if self.parts.count == 1:
                return nested([inner], {}, write)
            first, count = self.parts.range(env[self.part_axis])
            return emit.loop(count, lambda i: write({inner: first + i}), "k")
        return self._squares(env, inner, places, write)

    def _squares(self, env: Env, inner: Axis, places: list[Env], write: Callable[[Env], list]) -> list:
        """Squares of lanes x lanes along this part of the inner axis, and what is left of it by points."""
        first, count = self.parts.range(env[self.part_axis])
        if isinstance(count, int):
            blocks, left = divmod(count, self.lanes)
            body: list = []
            done: Value = emit.integer(blocks * self.lanes)
            has_left = left > 0
        else:
            body = []
            length = emit.bind(body, count, "n")
            blocks = emit.bind(body, tirx.truncdiv(length, emit.integer(self.lanes)), "squares")
            done, has_left = blocks * emit.integer(self.lanes), True
            left = length - done

        def squares(b: Value) -> list:
            start = first + b * emit.integer(self.lanes)
            return [s for at in places for s in self._square(at, inner, start)]

        if not isinstance(blocks, int) or blocks:
            body += emit.loop(blocks, squares, "b")
        if has_left:
            body += emit.loop(left, lambda i: write({inner: first + done + i}), "i")
        return body

    def _square(self, env: Env, inner: Axis, start: Value) -> list:
        """lanes x lanes points: the turned reads as vectors, then a row of outputs for each."""
        body: list = []
        vectors: dict[Read, list[Value]] = {}
        for read in self.turned:
            ev = self.frame.evaluator({**env, inner: start})
            base = ev.index(read.indices[0])
            body += ev.statements
            base, step = emit.bind(body, base, "base"), stride(read.indices[0], self.strip.axis)
            source = self.frame.inputs[read.slot]
            vectors[read] = turned_block(source, base, int(step or 0), self.lanes, body)
        for n in range(self.lanes):
            known: dict[Expr, Value] = {read: rows[n] for read, rows in vectors.items()}
            at = {**env, inner: start + emit.integer(n)}
            body += self.frame.write(at, self.strip.axis, self.lanes, known=known)
        return body
