"""Launches of the `gpu_reduction` template; see `loops.gpu.reduction`."""

from __future__ import annotations

import math

from neoflow.codegen.gpu.grid import Grid, Grids
from neoflow.codegen.gpu.teams import Team
from neoflow.codegen.gpu.terms import Env, Terms, packed, spread
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.frame import Frame
from neoflow.codegen.tir.reducers import Reducer, State
from neoflow.loops.gpu.blocks import USUAL_THREADS, ceil_power
from neoflow.loops.gpu.reduction import kept_reads, output_extents, places, row_axis, steps, term_axes
from neoflow.loops.schedule import Schedule

Value = emit.Value


def lower_reduction(frame: Frame, schedule: Schedule) -> Grids:
    """One launch, or with parts of the terms two."""
    return _Lowering(frame, schedule).grids()


class _Lowering:
    def __init__(self, frame: Frame, schedule: Schedule):
        nest = frame.nest
        assert nest.reduction is not None
        self.frame, self.reducer, self.outputs = frame, Reducer(nest.reduction), nest.axes
        self.threads, self.size, self.unroll = (int(schedule[k]) for k in ("threads", "team", "unroll"))
        self.along_output, lanes = schedule["lane"] == "output", int(schedule["lanes"])
        self.rows = int(schedule["tile_rows"])
        self.row_axis = row_axis(nest, schedule) if self.rows > 1 else None
        kept = kept_reads(nest, self.row_axis) if self.row_axis is not None else ()
        axes = tuple(term_axes(nest, schedule))
        self.terms = Terms(frame, self.reducer, axes, lanes, self.along_output, self.rows, self.row_axis, kept)
        self.lanes, self.extents = self.terms.vector, output_extents(nest, schedule)
        self.places, self.steps = places(nest, schedule), steps(nest, schedule)
        self.splits, self.part = self._parts(int(schedule["splits"]))
        size = self.splits * self.places * self.terms.results
        self.scratch = [emit.buffer(size, e, "partial", 64) for e in self.reducer.elements]

    def _parts(self, splits: int) -> tuple[int, int]:
        """How many parts the steps have, and their length: whole rounds of the team."""
        if splits == 1:
            return 1, self.steps
        grain = self.size * self.unroll
        part = math.ceil(self.steps / splits / grain) * grain
        return math.ceil(self.steps / part), part

    def grids(self) -> Grids:
        apart = self.threads // self.size if self.along_output else 1
        groups = math.ceil(self.places / (self.threads // self.size))

        def body(block: Value, thread: Value) -> list:
            team = Team(thread, self.threads, self.size, apart)
            out: list = []
            part, group = emit.digits(out, block, [self.splits, groups])
            place = emit.bind(out, group * emit.integer(team.count) + team.place, "place")
            return out + self._output(team, place, part)

        first = Grid(self.splits * groups, self.threads, body)
        return Grids((first,)) if self.splits == 1 else Grids((first, self._combined()), tuple(self.scratch))

    def _output(self, team: Team, place: Value, part: Value) -> list:
        """A team's output, or a part of it."""
        out: list = []
        env, active = self._env(out, place), self._is_there(team, place)
        state = self.terms.state(self.unroll)
        out += state.allocate()
        nested = team.size == 1 and self.splits == 1 and len(self.terms.axes) > 1
        out += emit.when(active, self.terms.nested(env, state) if nested else self._part(team, env, part, state))
        out += self.terms.one(state)

        def finish(values: list[list[Value]]) -> list:
            if self.splits == 1:
                return self._write(env, values)
            stores: list = []
            for row, mine in enumerate(self._by_rows(values)):
                index = self._index(part * emit.integer(self.places) + place, row)
                for buffer, piece in zip(self.scratch, zip(*mine, strict=True), strict=True):
                    value = packed(stores, list(piece)) if len(piece) > 1 else piece[0]
                    stores.append(emit.store(buffer, index, value))
            return stores

        return out + team.merged(self.reducer, state, self.terms.results, finish, active)

    def _by_rows(self, values: list[list[Value]]) -> list[list[list[Value]]]:
        """The pieces of the lanes of each row."""
        return [values[n : n + self.lanes] for n in range(0, len(values), self.lanes)]

    def _is_there(self, team: Team, place: Value) -> Value | bool:
        return True if self.places % team.count == 0 else place < emit.integer(self.places)

    def _part(self, team: Team, env: Env, part: Value, state: State) -> list:
        """The steps of a part; the last one may be shorter."""
        take, first = self.terms.taker(env), part * emit.integer(self.part)

        def steps(end: int | None) -> list:
            return self.terms.shared(team, first, self.part, end, state, take, self.unroll)

        if self.splits * self.part == self.steps:
            return steps(None)
        return emit.when(part < emit.integer(self.splits - 1), steps(None), steps(self.steps))

    def _env(self, statements: list, place: Value) -> Env:
        """The axes of the outputs of a place, the last one where its vector begins, another where its rows do."""
        env = dict(zip(self.outputs, emit.digits(statements, place, self.extents), strict=True))
        if self.lanes > 1:
            env[self.outputs[-1]] = env[self.outputs[-1]] * emit.integer(self.lanes)
        if self.row_axis is not None:
            env[self.row_axis] = env[self.row_axis] * emit.integer(self.rows)
        return env

    def _index(self, place: Value, row: int) -> Value:
        """Where the outputs of a row of a place lie in the scratch."""
        first = (place * emit.integer(self.rows) + emit.integer(row)) * emit.integer(self.lanes)
        return emit.ramp(first, 1, self.lanes)

    def _write(self, env: Env, values: list[list[Value]]) -> list:
        """The rows that there are."""
        out: list = []
        axis = self.outputs[-1] if self.lanes > 1 else None
        for row, mine in enumerate(self._by_rows(values)):
            inside: list = []
            result = self.terms.result(inside, mine)
            inside += self.frame.write(self.terms.row(env, row), axis, self.lanes, result)
            is_there: Value | bool = True
            if self.row_axis is not None and row and self.row_axis.extent % self.rows:
                is_there = env[self.row_axis] + emit.integer(row) < emit.integer(self.row_axis.extent)
            out += emit.when(is_there, inside)
        return out

    def _combined(self) -> Grid:
        """The second launch: the parts of an output, by a team where there are few outputs."""
        threads = USUAL_THREADS
        size = min(ceil_power(self.splits), threads // min(threads, ceil_power(self.places)))
        count = threads // size

        def body(block: Value, thread: Value) -> list:
            team = Team(thread, threads, size, count)
            out: list = []
            place = emit.bind(out, block * emit.integer(count) + team.place, "place")
            env, active = self._env(out, place), self._is_there(team, place)
            state = self.reducer.state(self.terms.results, 1)

            def take(to: State, n: int, part: Value) -> list:
                taken: list = []
                for row in range(self.rows):
                    index = self._index(part * emit.integer(self.places) + place, row)
                    pieces = [spread(taken, emit.load(b, index)) for b in self.scratch]
                    for lane, values in enumerate(zip(*pieces, strict=True)):
                        taken += self.reducer.merge(to, row * self.lanes + lane, list(values))
                return taken

            taken = self.terms.shared(team, emit.integer(0), self.splits, None, state, take, 1)
            out += [*state.allocate(), *emit.when(active, taken)]
            results = self.terms.results
            return out + team.merged(self.reducer, state, results, lambda values: self._write(env, values), active)

        return Grid(math.ceil(self.places / count), threads, body)
