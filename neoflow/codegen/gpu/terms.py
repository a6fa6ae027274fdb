"""The terms of a reduction, taken by the members of a team, in vectors along the outputs or along the terms."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from neoflow.codegen.gpu.teams import Team
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.blocks import Loop, in_blocks, under
from neoflow.codegen.tir.frame import Frame
from neoflow.codegen.tir.reducers import Reducer, State
from neoflow.expr.ir import Axis

Value = emit.Value
Env = dict[Axis, Value]
Take = Callable[[State, int, Value], list]
"""Takes the step of a number into an accumulator."""


@dataclass(frozen=True)
class Terms:
    """`axes` number the steps of an output: vectors of `lanes` terms where these are the lanes, or single terms."""

    frame: Frame
    reducer: Reducer
    axes: tuple[Axis, ...]
    lanes: int
    along_output: bool

    def _take(self, env: Env, to: State, n: int, at: list[Value]) -> list:
        """The step at these values of the axes into accumulator n."""
        reduction = self.frame.nest.reduction
        assert reduction is not None
        if self.axes and not self.along_output:
            at = [*at[:-1], at[-1] * emit.integer(self.lanes)]
        terms = dict(zip(reduction.axes, at, strict=True))
        axis = (self.frame.nest.axes if self.along_output else reduction.axes)[-1] if self.lanes > 1 else None
        return self.reducer.accumulate(to, n, self.frame.evaluator({**env, **terms}, axis, self.lanes))

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

    def one(self, statements: list, state: State) -> State:
        """Accumulator 0 after all are merged into it, and its lanes where they are terms."""
        for n in range(1, state.pieces[0].count):
            statements += self.reducer.merge(state, 0, state.values(n))
        if self.lanes == 1 or self.along_output:
            return state
        found = self.reducer.state(1, 1)
        statements += found.allocate()
        lanes = [_spread(statements, v) for v in state.values(0)]
        for values in zip(*lanes, strict=True):
            statements += self.reducer.merge(found, 0, list(values))
        return found


def _spread(statements: list, value: Value) -> list[Value]:
    """The lanes of a vector, each by itself."""
    lanes = emit.lanes_of(value)
    place = emit.buffer(lanes, emit.element_of(value), "lane", 16, "local")
    statements += [emit.on_stack(place), emit.store(place, emit.ramp(emit.integer(0), 1, lanes), value)]
    return [emit.load(place, emit.integer(n)) for n in range(lanes)]
