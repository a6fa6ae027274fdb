"""Loops of the `reduction` template; see `loops.reduction`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from tvm import tirx

from neoflow.codegen.cpu.tiling import Rows, RowTiles
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.blocks import Loop, in_blocks, merged, under
from neoflow.codegen.tir.evaluate import Evaluator
from neoflow.codegen.tir.frame import Frame, Strip, nested
from neoflow.codegen.tir.phases import Phase, Phases, Scratch, phase_of, phase_over
from neoflow.codegen.tir.reducers import Reducer, State
from neoflow.expr.ir import Axis, Expr
from neoflow.loops.reduction import ascending, further, terms_of
from neoflow.loops.schedule import Schedule
from neoflow.loops.sides import row_box

Value = emit.Value
Env = dict[Axis, Value]
PlacesBody = Callable[[Env, list[Env], bool], list]
StepBody = Callable[[State, Env], list]
Results = Sequence[list[Value]]
"""Of each reduction the values of its state."""
Leaf = Callable[[State, list[Value]], list]
Finish = Callable[[Env, Value, Results, "Value | None"], list]


def lower_reduction(frame: Frame, schedule: Schedule) -> Phases:
    """One phase, or with parts of the reduced axis two."""
    across, lowering = int(schedule["across"]), Lowering(frame, schedule, int(schedule["splits"]))
    if across == 1:
        return lowering.phases()
    return lowering.in_two_passes(in_parts([lowering], across, bool(schedule["parallel"])))


def in_parts(sums: Sequence[Lowering], across: int, parallel: bool) -> Phase:
    """Parts of the terms of sums over the same axes, a task each, added to all outputs: `across` terms at once.

    for i in part / 8: for each vector of outputs n: sums[n] += x[8 i, n] + ... + x[8 i + 7, n]
    """
    first = sums[0]
    *outer, last = (a.extent for a in first.reduced)

    def each(body: Callable[[Lowering, Env], list]) -> list:
        return nested(first.around, {}, lambda env: [s for one in sums for s in body(one, env)])

    def task(part: Value) -> list:
        start, length = first.range(part)

        def add(at: list[Value], terms: list[Value]) -> list:
            return each(lambda one, env: one.add(env, part, [[*at, term] for term in terms]))

        def along(at: list[Value], begin: Value, length: int | Value) -> list:
            out: list = []
            size = emit.bind(out, emit.integer(length) if isinstance(length, int) else length, "n")
            groups = emit.bind(out, tirx.truncdiv(size, emit.integer(across)), "groups")
            done = emit.bind(out, begin + groups * emit.integer(across), "done")

            def group(i: Value) -> list:
                base = begin + i * emit.integer(across)
                return add(at, [base + emit.integer(n) for n in range(across)])

            out += emit.loop(groups, group, "k")
            if isinstance(length, int) and length % across == 0:
                return out
            return out + emit.loop(begin + size - done, lambda i: add(at, [done + i]), "k")

        def rows(i: Value) -> list:
            return under(Loop.of(outer[1:]), lambda at: along([start + i, *at], emit.integer(0), last))

        cleared = each(lambda one, env: one.clear(env, part))
        return cleared + (emit.loop(length, rows, "k") if outer else along([], start, length))

    return Phase(first.splits, task, parallel)


class Lowering:
    """A reduction's loops. around: axes around all of its outputs, where parts of its terms go through those too."""

    def __init__(self, frame: Frame, schedule: Schedule, splits: int, around: tuple[Axis, ...] = ()):
        self.around, frame = around, replace(frame, nest=ascending(frame.nest))
        reduction = frame.nest.reduction
        assert reduction is not None
        fetched = {**frame.further, **(further(frame.nest, schedule) if schedule["fetch"] else {})}
        self.frame = replace(frame, begins=0, further=fetched)
        self.alike = replace(self.frame, further={})
        self.outputs, self.reduced = frame.nest.axes, reduction.axes
        self.lanes, self.unroll = int(schedule["lanes"]), int(schedule["unroll"])
        self.rows, self.steps = int(schedule["tile_rows"]), int(schedule["steps"])
        self.parallel, self.along_output = bool(schedule["parallel"]), schedule["lane"] == "output"
        reductions = (reduction, *(other for _, other in frame.nest.others))
        self.reducer, *_ = self.reducers = [*map(Reducer, reductions)]
        terms = zip(*map(terms_of, reductions), strict=True) if schedule["terms"] else ()
        self.written = [[*map(Reducer, each)] for each in terms]
        candidates = self.outputs if self.along_output else self.reduced
        self.lane_axis = candidates[-1] if candidates else Axis(-3, 1)  # all reduced axes may have length 1
        self.strip = Strip(self.lane_axis, self.lanes)
        self.splits, self.part = self._parts(splits)
        self.scratch = [
            emit.buffer(self.splits * self._size, element, "partial", 64) for element in self.reducer.elements
        ]

    @property
    def _size(self) -> int:
        return math.prod(a.extent for a in (*self.around, *self.outputs))

    def _parts(self, splits: int) -> tuple[int, int]:
        """How many parts the first reduced axis has, and their length; whole vectors where it is the lane axis."""
        if splits == 1 or not self.reduced:
            return 1, self.reduced[0].extent if self.reduced else 1
        grain = self.lanes * self.unroll if self.reduced[0] is self.lane_axis else 1
        part = math.ceil(self.reduced[0].extent / splits / grain) * grain
        return math.ceil(self.reduced[0].extent / part), part

    def phases(self) -> Phases:
        split_axis = Axis(-2, self.splits, "part")
        finish = self._store_parts if self.splits > 1 else self._finish
        body = self._outputs_in_tasks(
            [split_axis], lambda env, places, masked: self._reduce(env, places, masked, finish, split_axis)
        )
        return Phases((body,)) if self.splits == 1 else self.in_two_passes(body)

    def in_two_passes(self, body: Phase) -> Phases:
        combine = self._outputs_in_tasks([], self._combine_parts, along_output=bool(self.outputs))
        return Phases((body, combine), tuple(Scratch(b, is_shared=True) for b in self.scratch))

    # --- parts that go through all outputs for a few terms at once

    def each_output(self, env: Env, body: PlacesBody) -> list:
        """All outputs in loops, at one point of the axes around them."""

        def at(own: Env, places: list[Env], masked: bool) -> list:
            return body(own, [{**env, **place} for place in places], masked)

        return self._outputs_in_tasks([], at, along_output=bool(self.outputs)).serial()

    def clear(self, env: Env, part: Value) -> list:
        """Sums of nothing yet, in memory."""
        zero = [emit.widen(v, self.lanes) for v in self.reducer.state(1, self.lanes).neutral]

        def body(_: Env, places: list[Env], masked: bool) -> list:
            mask = self.strip.tail_mask() if masked else None
            return [s for place in places for s in self._store_partial(place, part, zero, mask)]

        return self.each_output(env, body)

    def add(self, env: Env, part: Value, terms: list[list[Value]]) -> list:
        """Terms, by where they are along the reduced axes, added to the sums in memory."""
        (sums,) = self.scratch
        each = [dict(zip(self.reduced, at, strict=True)) for at in terms]

        def body(_: Env, places: list[Env], masked: bool) -> list:
            mask = self.strip.tail_mask() if masked else None
            state = self.reducer.state(len(places), self.lanes)
            out = state.allocate()
            for at in each:
                for n, place in enumerate(places):
                    ev = self.frame.evaluator({**at, **place}, self.lane_axis, self.lanes, mask=mask)
                    out += self.reducer.accumulate(state, n, ev)
            for n, place in enumerate(places):
                index = emit.ramp(part * emit.integer(self._size) + self._linear(place), 1, self.lanes)
                old = emit.load(sums, index) if mask is None else emit.masked_load(out, sums, index, mask)
                out += self.reducer.merge(state, n, [old])
                out += self._store_partial(place, part, state.values(n), mask)
            return out

        return self.each_output(env, body)

    def total(self, env: Env) -> list:
        """The outputs at one point of the axes around them: the parts in order."""
        return self.each_output(env, self._combine_parts)

    def _outputs_in_tasks(self, extra: list[Axis], body: PlacesBody, along_output: bool | None = None) -> Phase:
        """Tasks over the outputs; `body(env, places, masked)` takes the outputs at `places` together.

        A place is the start of a vector, or a point; masked ones have only the strip's tail.
        """
        along = self.along_output if along_output is None else along_output
        if not along:
            return self._outputs_in_tiles(extra, body)
        count = self.rows if self.along_output else 1  # parts of outputs that lanes were terms of are no rows
        strip = Strip(self.outputs[-1], self.lanes)
        groups, left = divmod(strip.blocks, self.unroll)
        blocks = Axis(-1, groups + (1 if left or strip.tail else 0), "group")
        row_axis = self.outputs[-2] if count > 1 else Axis(-4, 1)
        row_groups, row_tail = divmod(row_axis.extent, count)
        row_blocks = Axis(-5, row_groups + (1 if row_tail else 0), "rows")
        other = self.outputs[:-2] if count > 1 else self.outputs[:-1]

        def task(env: Env) -> list:
            first_row = env[row_blocks] * emit.integer(count)

            def places(rows: int, start: Value, vectors: int) -> list[Env]:
                return [
                    {**env, row_axis: first_row + emit.integer(r), strip.axis: start + emit.integer(n * self.lanes)}
                    for r in range(rows)
                    for n in range(vectors)
                ]

            def columns(rows: int) -> list:
                start = env[blocks] * emit.integer(self.unroll * self.lanes)
                whole = body(env, places(rows, start, self.unroll), False) if groups else []
                rest: list = []
                if left:
                    at = emit.integer(groups * self.unroll * self.lanes)
                    rest += body(env, places(rows, at, left), False)
                if strip.tail:
                    rest += body(env, places(rows, emit.integer(strip.blocks * self.lanes), 1), True)
                if not rest or not groups:
                    return whole + rest
                return emit.when(env[blocks] < emit.integer(groups), whole, rest)

            if not row_tail:
                return columns(count)
            if not row_groups:
                return columns(row_tail)
            return emit.when(env[row_blocks] < emit.integer(row_groups), columns(count), columns(row_tail))

        dimensions = [*extra, *other, row_blocks, blocks]
        return self._phase(dimensions, task)

    def _outputs_in_tiles(self, extra: list[Axis], body: PlacesBody) -> Phase:
        """Tasks over tiles of neighbouring outputs."""
        if self.rows == 1:
            dimensions = [*extra, *self.outputs]
            return self._phase(dimensions, lambda env: body(env, [env], False))
        tiles = RowTiles(Rows(self.outputs, *row_box(self.outputs, self.rows)))
        dimensions = [*extra, tiles.axis]

        def task(env: Env) -> list:
            def tile(at: Env, rows: Rows) -> list:
                return body({**env, **at}, rows.written_out({**env, **at}), False)

            return tiles.each(env[tiles.axis], tile)

        return self._phase(dimensions, task)

    def _phase(self, axes: list[Axis], task: Callable[[Env], list]) -> Phase:
        """Loops inside of tasks where it is a sum: the vectors of a maximum over windows are more than registers when
        LLVM writes such a loop out."""
        if self.frame.nest.reduction is not None and self.frame.nest.reduction.op == "sum":
            return phase_over(axes, task, self.frame.target.threads, self.parallel)
        return phase_of(axes, task, self.parallel)

    def _reduce(self, env: Env, places: list[Env], masked: bool, finish: Finish, split_axis: Axis) -> list:
        part = env.get(split_axis, emit.integer(0))
        if self.along_output:
            return self._reduce_output_lanes(env, places, masked, finish, part)
        return self._reduce_reduced_lanes(env, places, finish, part)

    def range(self, part: Value) -> tuple[Value, int | Value]:
        """Start and length of a part of the first reduced axis."""
        start = part * emit.integer(self.part)
        extent = self.reduced[0].extent
        if self.splits * self.part == extent:
            return start, self.part
        return start, tirx.Min(emit.integer(self.part), emit.integer(extent) - start)

    def _reduce_output_lanes(self, env: Env, places: list[Env], masked: bool, finish: Finish, part: Value) -> list:
        mask = self.strip.tail_mask() if masked else None
        count = len(places)
        state = self.reducer.state(len(self.reducers) * count, self.lanes)

        def term(reducers: list[Reducer], to: State, inner: Env) -> list:
            out: list = []
            for n, place in enumerate(places):
                ev = self.frame.evaluator({**inner, **place}, self.lane_axis, self.lanes, mask=mask)
                out += _accumulate(reducers, to, range(n, len(reducers) * count, count), ev)
            return out

        body = state.allocate()
        if self.written:
            body += [s for reducers in self.written for s in term(reducers, state, env)]
        else:
            body += self._over(self.reduced, env, part, state, lambda to, inner: term(self.reducers, to, inner))
        for n, place in enumerate(places):
            body += finish(place, part, [state.values(m) for m in range(n, state.count, count)], mask)
        return body

    def _over(
        self, axes: tuple[Axis, ...], env: Env, part: Value, state: State, step: StepBody, terms: int = 1
    ) -> list:
        """`step` at every point of the first reduced axes, the very first one over the range of this part.

        terms: how many a step takes into an accumulator.
        """
        if not axes:
            return step(state, env)
        first, *rest = axes
        start, length = self.range(part) if first is self.reduced[0] else (emit.integer(0), first.extent)

        def leaf(to: State, at: list[Value]) -> list:
            return step(to, {**env, first: start + at[0], **dict(zip(rest, at[1:], strict=True))})

        most = length if isinstance(length, int) else self.part
        return self._accumulated([Loop(length, most), *Loop.of([a.extent for a in rest])], state, leaf, terms)

    def _accumulated(self, loops: list[Loop], state: State, leaf: Leaf, terms: int = 1) -> list:
        """`leaf` under the loops; in blocks where what it adds is rounded."""
        if not self.reducer.is_rounded:
            return under(loops, lambda at: leaf(state, at))
        (acc,) = state.pieces
        return in_blocks(loops, acc, lambda own, at: leaf(replace(state, pieces=(own,)), at), terms=terms)

    def _reduce_reduced_lanes(self, env: Env, places: list[Env], finish: Finish, part: Value) -> list:
        count = self.unroll * len(places)
        state = self.reducer.state(len(self.reducers) * count, self.lanes)
        body = state.allocate() + self._over_vectors(env, places, part, state)
        for n, place in enumerate(places):
            firsts = range(n * self.unroll, state.count, count)
            folded = [self.reducer.fold(state, body, range(first, first + self.unroll)) for first in firsts]
            body += finish(place, part, folded, None)
        return body

    def _over_vectors(self, env: Env, places: list[Env], part: Value, state: State) -> list:
        """Vectors along the lane axis under loops over the reduced axes before it."""
        if not self.reduced:
            return self._run(state, env, places, emit.integer(0), 1)
        *outer, last = self.reduced
        if not outer:
            return self._run(state, env, places, *self.range(part))
        terms = self.steps * (merged(math.ceil(last.extent / (self.unroll * self.lanes))) + 2)
        if self.steps == 1:
            return self._over(tuple(outer), env, part, state, self._row(places, lambda _: ({},)), terms)
        *before, stepped = outer
        groups = Axis(-13, stepped.extent // self.steps, "steps")

        def beside(at: Env) -> list[Env]:
            first = at[groups] * emit.integer(self.steps)
            return [{stepped: first + emit.integer(n)} for n in range(self.steps)]

        return self._over((*before, groups), env, part, state, self._row(places, beside), terms)

    def _row(self, places: list[Env], beside: Callable[[Env], Sequence[Env]]) -> StepBody:
        """All of the lane axis."""
        length = self.lane_axis.extent
        return lambda to, at: self._run(to, at, places, emit.integer(0), length, beside(at))

    def _run(
        self,
        state: State,
        env: Env,
        places: list[Env],
        start: Value,
        length: int | Value,
        beside: Sequence[Env] = ({},),
    ) -> list:
        """Vectors along the lane axis, of each output at `places`: groups of `unroll`, single ones, the masked tail.
        beside: where on the axis before it terms are taken together."""
        own = [{a: place[a] for a in self.outputs} for place in places]

        def vectors(to: State, base: Value, count: int, mask: Value | None = None) -> list:
            out: list = []
            for n, other, (number, place) in itertools.product(range(count), beside, enumerate(own)):
                at = {**env, **place, **other, self.lane_axis: base + emit.integer(n * self.lanes)}
                frame = self.frame if number == 0 else self.alike  # which all read nearly the same
                ev = frame.evaluator(at, self.lane_axis, self.lanes, mask=mask)
                numbers = range(number * self.unroll + n, to.count, len(places) * self.unroll)
                out += _accumulate(self.reducers, to, numbers, ev, mask)
                out += frame.write_terms(ev, mask) if frame.nest.terms else []
            return out

        def from_start(i: Value, step: int, first: Value) -> Value:
            return start + first + i * emit.integer(step)

        group, zero = self.unroll * self.lanes, emit.integer(0)

        def in_groups(groups: int | Value, most: int) -> list:
            def leaf(to: State, at: list[Value]) -> list:
                return vectors(to, from_start(at[0], group, zero), self.unroll)

            return self._accumulated([Loop(groups, most)], state, leaf)

        if isinstance(length, int):
            groups, singles, tail = length // group, length % group // self.lanes, length % self.lanes
            body = in_groups(groups, groups) if groups else []
            if singles:
                body += vectors(state, start + emit.integer(groups * group), singles)
            if tail:
                body += vectors(state, start + emit.integer(length - tail), 1, self.strip.tail_mask())
            return body
        body = []
        size = emit.bind(body, length, "n")
        groups = emit.bind(body, tirx.truncdiv(size, emit.integer(group)), "groups")
        body += in_groups(groups, self.part // group)
        done = groups * emit.integer(group)
        singles = tirx.truncdiv(size - done, emit.integer(self.lanes))
        body += emit.loop(singles, lambda i: vectors(state, from_start(i, self.lanes, done), 1), "b")
        if self.strip.tail:
            at = emit.integer(self.strip.blocks * self.lanes)
            last = tirx.EQ(start + size, emit.integer(self.lane_axis.extent))
            body += emit.when(last, vectors(state, at, 1, self.strip.tail_mask()))
        return body

    def _finish(self, env: Env, part: Value, results: Results, mask: Value | None) -> list:
        result, *others = (r.result(values) for r, values in zip(self.reducers, results, strict=True))
        anchors = (anchor for anchor, _ in self.frame.nest.others)
        known: dict[Expr, Value] = dict(zip(anchors, others, strict=True))
        if self.along_output:
            return self.frame.write(env, self.lane_axis, self.lanes, result, mask, known)
        return self.frame.write(env, result=result, known=known)

    def _linear(self, env: Env) -> Value:
        flat = emit.integer(0)
        for a in (*self.around, *self.outputs):
            flat = flat * emit.integer(a.extent) + env[a]
        return flat

    def _store_parts(self, env: Env, part: Value, results: Results, mask: Value | None) -> list:
        (values,) = results  # a nest with other reductions is for one thread
        return self._store_partial(env, part, values, mask)

    def _store_partial(self, env: Env, part: Value, values: list[Value], mask: Value | None) -> list:
        base = part * emit.integer(self._size) + self._linear(env)
        out = []
        for target, value in zip(self.scratch, values, strict=True):
            index = emit.ramp(base, 1, emit.lanes_of(value))
            plain = emit.store(target, index, value)
            out.append(plain if mask is None else emit.masked_store(target, index, value, mask))
        return out

    def _combine_parts(self, env: Env, places: list[Env], masked: bool) -> list:
        """Second pass: the parts in order, then the outputs."""
        lane_axis = self.outputs[-1] if self.outputs else None
        lanes = self.lanes if self.outputs else 1
        mask = Strip(lane_axis, lanes).tail_mask() if masked and lane_axis is not None else None
        body: list = []
        for at in places:
            state = self.reducer.state(1, lanes)
            base = self._linear(at)

            def leaf(to: State, part: list[Value], base: Value = base) -> list:
                index = emit.ramp(part[0] * emit.integer(self._size) + base, 1, lanes)
                loads: list = []
                if mask is None:
                    found = [emit.load(b, index) for b in self.scratch]
                else:
                    found = [emit.masked_load(loads, b, index, mask) for b in self.scratch]
                return loads + self.reducer.merge(to, 0, found)

            body += state.allocate() + self._accumulated([Loop(self.splits, self.splits)], state, leaf)
            result = self.reducer.result(state.values(0))
            body += self.frame.write(at, lane_axis, lanes, result, mask)
        return body


def _accumulate(
    reducers: Sequence[Reducer], state: State, numbers: Sequence[int], ev: Evaluator, mask: Value | None = None
) -> list:
    """What all reductions take at a point, each into an accumulator of its own; what is read is read once."""
    out: list = []
    for reducer, n in zip(reducers, numbers, strict=True):
        out += reducer.accumulate(state, n, ev, mask)
        ev.statements.clear()
    return out
