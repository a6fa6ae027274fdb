"""Teams: threads of a block that reduce together; what they have accumulated is merged by shuffles, then shared memory.

The threads of a block are a grid of team sizes: neighbours are `apart` different teams, `size` such rows make `apart`
teams. All three are powers of two, so a bit of the thread's number belongs to its place or to its member.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx

from neoflow.architectures import WARP
from neoflow.codegen.gpu.grid import barrier, shared
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.reducers import Reducer, State

Value = emit.Value
Finish = Callable[[list[Value]], list]
"""Takes the pieces of a team's state."""


@dataclass(frozen=True)
class Team:
    """Teams of `size` threads, of a block of `threads`; neighbours of one team are `apart` threads apart."""

    thread: Value
    threads: int
    size: int
    apart: int = 1

    @property
    def count(self) -> int:
        """Teams of a block."""
        return self.threads // self.size

    @property
    def member(self) -> Value:
        """The thread's number in its team."""
        return tirx.truncmod(tirx.truncdiv(self.thread, emit.integer(self.apart)), emit.integer(self.size))

    @property
    def place(self) -> Value:
        """The number of the thread's team in the block."""
        row = tirx.truncdiv(self.thread, emit.integer(self.apart * self.size))
        return row * emit.integer(self.apart) + tirx.truncmod(self.thread, emit.integer(self.apart))

    @property
    def near(self) -> int:
        """Members that are in one warp."""
        return max(1, min(self.size, WARP // self.apart))

    @property
    def far(self) -> int:
        """Warps, or members, whose values are merged through shared memory."""
        return self.size // self.near

    def each(self, total: int, body: Callable[[Value], list], name: str = "n") -> list:
        """`body` of every number below `total`, shared by the members: member, member + size, ..."""
        rounds, rest = divmod(total, self.size)
        out = emit.loop(rounds, lambda r: body(r * emit.integer(self.size) + self.member), name) if rounds else []
        if rest:
            at = emit.integer(rounds * self.size) + self.member
            out += emit.when(self.member < emit.integer(rest), body(at))
        return out

    def merged(self, reducer: Reducer, state: State, finish: Finish, active: Value | bool = True) -> list:
        """`finish` by the first member of each team that is active, of what all members have in accumulator 0.

        Every thread of the block comes here.
        """
        out: list = []
        distance = self.apart
        while distance < self.apart * self.near:
            found = [shuffled(out, value, distance) for value in state.values(0)]
            out += reducer.merge(state, 0, found)
            distance *= 2
        first = _both(tirx.EQ(self.member, emit.integer(0)), active) if self.size > 1 else active
        if self.far == 1:
            return out + emit.when(first, finish(state.values(0)))
        return out + self._across(reducer, state, first, finish)

    def _across(self, reducer: Reducer, state: State, first: Value, finish: Finish) -> list:
        """What the warps of a team have, in order."""
        lanes = state.pieces[0].lanes
        boards = [shared(self.far * self.count * lanes, e, "board") for e in reducer.elements]

        def at(warp: Value) -> Value:
            return emit.ramp((warp * emit.integer(self.count) + self.place) * emit.integer(lanes), 1, lanes)

        out: list = [emit.on_stack(b) for b in boards]
        mine = at(tirx.truncdiv(self.member, emit.integer(self.near)))
        puts = [emit.store(b, mine, v) for b, v in zip(boards, state.values(0), strict=True)]
        leads = tirx.EQ(tirx.truncmod(self.member, emit.integer(self.near)), emit.integer(0))
        out += [*emit.when(leads if self.near > 1 else True, puts), barrier()]

        def take(n: Value) -> list:
            return reducer.merge(state, 0, [emit.load(b, at(n + emit.integer(1))) for b in boards])

        merge = emit.loop(self.far - 1, take, "warp")
        return [*out, *emit.when(first, [*merge, *finish(state.values(0))]), barrier()]


def _both(a: Value, b: Value | bool) -> Value:
    return a if b is True else tirx.And(a, b)


def shuffled(statements: list, value: Value, distance: int) -> Value:
    """What the thread has that is `distance` away: its number with that bit changed; by all threads of a warp."""
    kind = str(value.ty.dtype)
    return emit.held(statements, tirx.call_extern(kind, "nf_shuffle_xor", value, emit.integer(distance)))
