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
from neoflow.codegen.gpu.words import words
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.reducers import Reducer, State

Value = emit.Value
Finish = Callable[[list[list[Value]]], list]
"""Takes the pieces of each accumulator of a team."""


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

    def merged(self, reducer: Reducer, state: State, count: int, finish: Finish, active: Value | bool = True) -> list:
        """`finish` by the first member of each team that is active, of what all have in the first `count` accumulators.

        Every thread of the block comes here.
        """
        out: list = []
        distance = self.apart
        while distance < self.apart * self.near:
            for n in range(count):
                found = [shuffled(out, value, distance) for value in state.values(n)]
                out += reducer.merge(state, n, found)
            distance *= 2
        first = _both(tirx.EQ(self.member, emit.integer(0)), active) if self.size > 1 else active
        if self.far == 1:
            return out + emit.when(first, finish([state.values(n) for n in range(count)]))
        return out + self._across(reducer, state, count, first, finish)

    def _across(self, reducer: Reducer, state: State, count: int, first: Value, finish: Finish) -> list:
        """What the warps of a team have, in order."""
        boards = [shared(self.far * count * self.count, e, "board") for e in reducer.elements]

        def at(warp: Value, n: int) -> Value:
            return (warp * emit.integer(count) + emit.integer(n)) * emit.integer(self.count) + self.place

        out: list = [emit.on_stack(b) for b in boards]
        warp = tirx.truncdiv(self.member, emit.integer(self.near))
        puts = [
            emit.store(b, at(warp, n), v) for n in range(count) for b, v in zip(boards, state.values(n), strict=True)
        ]
        leads = tirx.EQ(tirx.truncmod(self.member, emit.integer(self.near)), emit.integer(0))
        out += [*emit.when(leads if self.near > 1 else True, puts), barrier()]

        def take(w: Value) -> list:
            others = w + emit.integer(1)
            found = [[emit.load(b, at(others, n)) for b in boards] for n in range(count)]
            return [s for n in range(count) for s in reducer.merge(state, n, found[n])]

        merge = emit.loop(self.far - 1, take, "warp")
        results = finish([state.values(n) for n in range(count)])
        return [*out, *emit.when(first, [*merge, *results]), barrier()]


def _both(a: Value, b: Value | bool) -> Value:
    return a if b is True else tirx.And(a, b)


def shuffled(statements: list, value: Value, distance: int) -> Value:
    """What the thread has that is `distance` away: its number with that bit changed; by all threads of a warp."""
    return emit.held(statements, words().shuffle(value, distance))
