"""The terms of a reduction, taken by the members of a team, in vectors along the outputs or along the terms."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from tvm import tirx

from neoflow.codegen.gpu.teams import Team
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.blocks import Loop, in_blocks, under
from neoflow.codegen.tir.dialect import dialect
from neoflow.codegen.tir.evaluate import Evaluator
from neoflow.codegen.tir.frame import Frame
from neoflow.codegen.tir.reducers import Reducer, State
from neoflow.expr.ir import Axis, Expr, Read

Value = emit.Value
Env = dict[Axis, Value]
Take = Callable[[State, int, Value], list]
"""Takes the step of a number into an accumulator."""


@dataclass(frozen=True)
class Terms:
    """`axes` number the steps of an output: vectors of `lanes` terms where these are the lanes, or single terms.

    rows: neighbouring outputs along `row_axis` that a team takes; kept: what all of them read alike.
    """

    frame: Frame
    reducer: Reducer
    axes: tuple[Axis, ...]
    lanes: int
    along_output: bool
    rows: int = 1
    row_axis: Axis | None = None
    kept: tuple[Read, ...] = ()

    @property
    def results(self) -> int:
        """Outputs of a team: accumulators that are left at the end."""
        return self.rows * self.vector

    @property
    def vector(self) -> int:
        """Outputs of a team that are a vector."""
        return self.lanes if self.along_output else 1

    def state(self, unroll: int) -> State:
        """Accumulators of a thread: one for each lane of each row, in turn for each of `unroll` vectors."""
        return self.reducer.state(unroll * self.rows * self.lanes, 1)

    def _accumulator(self, n: int, row: int, lane: int) -> int:
        """Which one takes a lane of a row of vector n: of those of one output, the first numbers `results`."""
        outside, inside = (0, lane) if self.along_output else (lane, 0)
        lanes = 1 if self.along_output else self.lanes
        return ((n * lanes + outside) * self.rows + row) * self.vector + inside

    def row(self, env: Env, row: int) -> Env:
        """The axes at a row of those that begin there; beyond the last one it is that again."""
        if self.row_axis is None or self.rows == 1:
            return env
        at = env[self.row_axis] + emit.integer(row)
        if self.row_axis.extent % self.rows:
            at = tirx.Min(at, emit.integer(self.row_axis.extent - 1))
        return {**env, self.row_axis: at}

    def _take(self, env: Env, to: State, n: int, at: list[Value]) -> list:
        """The step at these values of the axes into the accumulators of vector n."""
        reduction = self.frame.nest.reduction
        assert reduction is not None
        if self.axes and not self.along_output:
            at = [*at[:-1], at[-1] * emit.integer(self.lanes)]
        here = {**env, **dict(zip(reduction.axes, at, strict=True))}
        if self.rows == 1:
            return self._row(here, to, n, 0, {})
        axis = self._lane_axis if self.lanes > 1 else None
        ev = self.frame.evaluator(here, axis, self.lanes)
        known: dict[Expr, Value] = {read: ev.value(read) for read in self.kept}
        return ev.statements + [s for r in range(self.rows) for s in self._row(self.row(here, r), to, n, r, known)]

    @property
    def _lane_axis(self) -> Axis:
        reduction = self.frame.nest.reduction
        assert reduction is not None
        return (self.frame.nest.axes if self.along_output else reduction.axes)[-1]

    def _row(self, here: Env, to: State, n: int, row: int, known: dict[Expr, Value]) -> list:
        """The step of one row; `known`: what is read already."""
        if self.lanes == 1:
            return self.reducer.accumulate(to, self._accumulator(n, row, 0), self.frame.evaluator(here, given=known))
        axis = self._lane_axis
        vector = Vector(self.frame.evaluator(here, axis, self.lanes, known))
        out: list = []
        for lane in range(self.lanes):
            alone = self.frame.evaluator({**here, axis: here[axis] + emit.integer(lane)})
            out += self.reducer.accumulate(to, self._accumulator(n, row, lane), Lane(vector, lane, alone))
        return out

    def nested(self, env: Env, state: State) -> list:
        """All terms by one thread, a loop for each axis."""
        loops = Loop.of([a.extent for a in self.axes])
        return self.accumulated(loops, state, lambda to, at: self._take(env, to, 0, at))

    def taker(self, env: Env) -> Take:
        """Takes steps by their numbers."""

        def take(to: State, n: int, step: Value) -> list:
            out: list = []
            digits = emit.digits(out, emit.bind(out, step, "step"), [a.extent for a in self.axes])
            return out + self._take(env, to, n, digits)

        return take

    def accumulated(self, loops: list[Loop], state: State, leaf: Callable[[State, list[Value]], list]) -> list:
        """`leaf` under the loops; in blocks where what it adds is rounded."""
        if not self.reducer.is_rounded:
            return under(loops, lambda at: leaf(state, at))
        (acc,) = state.pieces
        return in_blocks(loops, acc, lambda own, at: leaf(replace(state, pieces=(own,)), at))

    def shared(
        self, team: Team, first: Value, length: int, end: int | None, state: State, take: Take, unroll: int
    ) -> list:
        """`length` steps from `first` on by a team, in rounds of `unroll` for each member; none from `end` on."""
        rounds, rest = divmod(length, team.size * unroll)
        member = team.member

        def one(to: State, n: int, base: Value, left: int) -> list:
            step = base + emit.integer(n * team.size) + member
            if end is not None:
                return emit.when(step < emit.integer(end), take(to, n, step))
            mine = left - n * team.size
            return emit.when(True if mine >= team.size else member < emit.integer(mine), take(to, n, step))

        def leaf(to: State, at: list[Value]) -> list:
            base = first + at[0] * emit.integer(team.size * unroll)
            return [s for n in range(unroll) for s in one(to, n, base, team.size * unroll)]

        out = self.accumulated([Loop(rounds, rounds)], state, leaf) if rounds else []
        base = first + emit.integer(rounds * team.size * unroll)
        return out + [s for n in range(math.ceil(rest / team.size)) for s in one(state, n, base, rest)]

    def one(self, state: State) -> list:
        """All accumulators of an output are merged into the first one."""
        count = state.pieces[0].count
        return [
            s for n in range(self.results, count) for s in self.reducer.merge(state, n % self.results, state.values(n))
        ]

    def result(self, statements: list, values: list[list[Value]]) -> Value:
        """The node's value, a vector where lanes are outputs."""
        found = [self.reducer.result(v) for v in values]
        return packed(statements, found) if len(found) > 1 else found[0]


def packed(statements: list, values: list[Value]) -> Value:
    """A vector of these lanes."""
    lanes = len(values)
    place = emit.buffer(lanes, emit.element_of(values[0]), "packed", 16, dialect().registers)
    statements += [emit.on_stack(place), *(emit.store(place, emit.integer(n), v) for n, v in enumerate(values))]
    return emit.load(place, emit.ramp(emit.integer(0), 1, lanes))


def spread(statements: list, vector: Value) -> list[Value]:
    """The lanes of a vector, each by itself."""
    lanes = emit.lanes_of(vector)
    place = emit.buffer(lanes, emit.element_of(vector), "lane", 16, dialect().registers)
    statements += [emit.on_stack(place), emit.store(place, emit.ramp(emit.integer(0), 1, lanes), vector)]
    return [emit.load(place, emit.integer(n)) for n in range(lanes)]


class Vector:
    """Values of a vector of points, given lane by lane.

    What is accumulated is a number for each lane: TVM 0.27 prints the load of a vector once, and takes what it was then
    where the vector has changed since.
    """

    def __init__(self, ev: Evaluator):
        self.ev = ev
        self._known: dict[Expr, list[Value]] = {}

    def value(self, e: Expr, lane: int) -> Value:
        if e not in self._known:
            found = self.ev.value(e)
            self._known[e] = spread(self.ev.statements, found) if emit.lanes_of(found) > 1 else [found]
        known = self._known[e]
        return known[lane if len(known) > 1 else 0]


class Lane:
    """One lane of a vector to a reducer; what the vector needs comes with the first. alone: evaluates at its point."""

    def __init__(self, vector: Vector, lane: int, alone: Evaluator):
        self._vector, self._lane, self._alone = vector, lane, alone
        self.statements: list = alone.statements if lane else vector.ev.statements

    def value(self, e: Expr) -> Value:
        return self._vector.value(e, self._lane)

    def index(self, e: Expr) -> Value:
        """An integer expression of axes."""
        return self._alone.index(e)

    def is_zero_outside(self, read: Expr) -> bool:
        """A lane that is not there is loaded from somewhere."""
        return False
