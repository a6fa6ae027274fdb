"""Sums that ride along with what tiles write: a partial sum for each task, and a second pass that adds these.

    [task of what is added up][batch][M or N, as far as it is kept][lanes, where they are added up]

Each number is added to by one task alone, in the order of its tiles, and the partial sums are added in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tvm import tirx
from tvm.tirx import stmt as ts

from neoflow.codegen.cpu.blocks import Blocks
from neoflow.codegen.cpu.parts import Env, flat_number
from neoflow.codegen.cpu.tiling import Tiling
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.blocks import Loop, cleared, in_blocks
from neoflow.codegen.tir.evaluate import Evaluator
from neoflow.codegen.tir.frame import Frame
from neoflow.codegen.tir.phases import Phase, Scratch, phase_over
from neoflow.expr.ir import Axis, Expr, Read, Slot
from neoflow.loops.riding import keeps, pieces_added
from neoflow.loops.sides import Contraction, size

Value = emit.Value


@dataclass(frozen=True)
class Added:
    """What tasks add up of one side: blocks of its row tiles, or groups of its panels, and of those so many together
    that no number takes more than `BLOCK` additions. ident: of the axis of these."""

    blocks: Blocks
    points: int
    ident: int

    @property
    def together(self) -> int:
        return pieces_added(self.points)

    @property
    def axis(self) -> Axis:
        return Axis(self.ident, math.ceil(self.blocks.longest / self.together), "added")

    def at(self, number: Value) -> Env:
        """Where the piece of that number in its task is added."""
        is_one = self.axis.extent == 1
        return {self.axis: emit.integer(0) if is_one else tirx.truncdiv(number, emit.integer(self.together))}


@dataclass(frozen=True)
class Partial:
    """The partial sums of one sum. value: what is added at a point. tasks: the axes of those that are added in the end;
    kept: of what stays apart, over the axes of the contraction, and `lines` as they are written; slots: of each number,
    where lanes are added up. length: elements of one task."""

    buffer: tirx.Buffer
    value: Expr
    tasks: tuple[Axis, ...]
    kept: tuple[Axis, ...]
    lines: tuple[Axis, ...]
    slots: int
    length: int

    def index(self, env: Env, axes: tuple[Axis, ...], task: Value) -> Value:
        """Where the number of a point is."""
        place = flat_number(emit.integer(0), axes, env) * emit.integer(self.slots)
        return task * emit.integer(self.length) + place

    def add(self, env: Env, lanes: int, value: Value, mask: Value | None) -> list:
        """Add values at a point, or at a vector of points, of the lines."""
        out: list = []
        task = flat_number(emit.integer(0), self.tasks, env)
        index = emit.ramp(self.index(env, self.lines, task), 1, lanes)
        if mask is None:
            return [emit.store(self.buffer, index, emit.load(self.buffer, index) + value)]
        old = emit.masked_load(out, self.buffer, index, mask)
        return [*out, emit.masked_store(self.buffer, index, old + value, mask)]


@dataclass(frozen=True)
class Waiting:
    """What is to be added. at: where, as values that are the same objects where it is the same number."""

    partial: Partial
    at: tuple[Value, ...]
    env: Env
    lanes: int
    value: Value
    mask: Value | None


class Riding:
    """What is added up of a contraction's results while they are written. `added`: of M and of N."""

    def __init__(
        self,
        frame: Frame,
        written: Frame,
        c: Contraction,
        tiling: Tiling,
        added: tuple[Added, Added],
        element: str,
        turned: bool,
    ):
        """written: the nest over `tiling`'s axes, along which lines are written; turned: in vectors along M, not N."""
        self.frame, self.written, self.c, self.tiling, self.added = frame, written, c, tiling, added
        self.element, self.lanes = element, tiling.panels.lanes
        self.waiting: dict[tuple[int, ...], Waiting] | None = None
        self.lane_axis = (c.m if turned else tiling.panels.n)[-1]
        sums = zip(frame.nest.sums, written.nest.sums, strict=True)
        self.partials = tuple(self._partial(own, value) for (_, own, _), (_, _, value) in sums)

    @property
    def scratch(self) -> tuple[Scratch, ...]:
        return tuple(Scratch(p.buffer, is_shared=True) for p in self.partials)

    def _partial(self, address: Expr, value: Expr) -> Partial:
        tasks = [a for a in self.c.batch if a not in address.free]
        kept = [a for a in self.c.batch if a in address.free]
        lines = [*kept]
        n = self.tiling.panels.n
        for side, written, own in ((self.c.m, self.c.m, self.added[0]), (self.c.n, n, self.added[1])):
            if keeps(side, address):
                kept += side
                lines += written
            else:
                tasks += (own.blocks.axis, own.axis)
        slots = 1 if self.lane_axis in {*lines} else self.lanes
        length = math.ceil(size(tuple(kept)) * slots / self.lanes) * self.lanes
        buffer = emit.buffer(size(tuple(tasks)) * length, self.element, "added", 64)
        return Partial(buffer, value, tuple(tasks), tuple(kept), tuple(lines), slots, length)

    # --- the passes before and after

    def clear(self, parallel: bool) -> list[Phase]:
        """Partial sums of 0."""
        zero = emit.splat(0.0, self.element, self.lanes)

        def task(p: Partial, number: Value) -> list:
            def vector(n: Value) -> list:
                at = number * emit.integer(p.length) + n * emit.integer(self.lanes)
                return [emit.store(p.buffer, emit.ramp(at, 1, self.lanes), zero)]

            return emit.loop(p.length // self.lanes, vector, "v")

        return [Phase(size(p.tasks), partial(task, p), parallel) for p in self.partials]

    def combine(self, parallel: bool) -> list[Phase]:
        """The partial sums added in order, and what follows from their totals."""
        nest, found = self.frame.nest, list[Phase]()
        for address in dict.fromkeys(address for _, address, _ in nest.totals):
            alike = [n for n, (_, own, _) in enumerate(nest.sums) if own is address]
            kept = self.partials[alike[0]].kept
            threads = self.frame.target.threads
            found.append(phase_over(kept, partial(self._total, address, alike), threads, parallel))
        return found

    def _total(self, address: Expr, alike: list[int], env: Env) -> list:
        """The outputs at one address, of these sums."""
        out, given = list[ts.Stmt](), dict[Expr, Value]()
        nest = self.frame.nest
        for n in alike:
            number, _, value = nest.sums[n]
            given[Read(Slot(number, (), value.dtype), ())] = self._added(out, self.partials[n], env)
        ev, stores = self.frame.evaluator(env, given=given), list[ts.Stmt]()
        for (_, own, value), target in zip(nest.totals, self.frame.totals, strict=True):
            if own is address:
                result = emit.bind(ev.statements, ev.stored(value, value.dtype))
                stores.append(emit.store(target, ev.index(own), result))
        return [*out, *ev.statements, *stores]

    def _added(self, statements: list, p: Partial, env: Env) -> Value:
        """All partial sums of one number."""
        acc = emit.Registers(1, self.element, p.slots)

        def one(to: emit.Registers, task: list[Value]) -> list:
            index = emit.ramp(p.index(env, p.kept, task[0]), 1, p.slots)
            return [to.put(0, to.get(0) + emit.load(p.buffer, index))]

        statements += [*cleared(acc), *in_blocks(Loop.of([size(p.tasks)]), acc, one)]
        parts = [emit.bind(statements, acc.lane(0, lane)) for lane in range(p.slots)]
        while len(parts) > 1:
            pairs = zip(parts[::2], parts[1::2], strict=False)
            rest = parts[len(parts) // 2 * 2 :]
            parts = [*(emit.bind(statements, a + b) for a, b in pairs), *rest]
        return parts[0]

    # --- where outputs are written

    def add(self, ev: Evaluator, env: Env, lanes: int, mask: Value | None) -> list:
        """Statements that add what there is at one point, or a vector of points; its values are computed by `ev`."""
        out: list = []
        for n, p in enumerate(self.partials):
            value = emit.bind(ev.statements, ev.stored(p.value, self.element))
            if mask is not None and p.slots > 1:
                value = emit.bind(ev.statements, emit.choose(out, mask, value, emit.splat(0.0, self.element, lanes)))
                mask = None
            if self.waiting is None:
                out += p.add(env, lanes, value, mask)
                continue
            at = tuple(env[a] for a in (*p.tasks, *p.lines))
            key = (n, *map(id, at))  # of values that `at` keeps
            if key in self.waiting:
                value = emit.bind(ev.statements, self.waiting[key].value + value)
            self.waiting[key] = Waiting(p, at, env, lanes, value, mask)
        return out

    def at_once(self, store: Callable[[], list]) -> list:
        """What `store` gives, which writes all points of a tile out: what goes to one number is added up before."""
        self.waiting = {}
        out = store()
        for w in self.waiting.values():
            out += w.partial.add(w.env, w.lanes, w.value, w.mask)
        self.waiting = None
        return out
