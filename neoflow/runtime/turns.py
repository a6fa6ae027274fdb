"""The calls of a plan one by one, as they run: those of loops again in every turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from neoflow.runtime.plan import Plan, Repeated


@dataclass(frozen=True)
class Turn:
    """A call of a plan, by number. offsets: how many bytes further than in the first turns of all loops around it each
    view is that moves."""

    call: int
    offsets: Mapping[int, int]


def turns(plan: Plan) -> Iterator[Turn]:
    """Every call in its turn."""
    return _within(0, len(plan.calls), plan.loops, {})


def _within(first: int, end: int, loops: tuple[Repeated, ...], offsets: Mapping[int, int]) -> Iterator[Turn]:
    """The calls from `first` to before `end`. loops: those among them, inner ones before outer ones."""
    outer = {a.first: a for n, a in enumerate(loops) if not any(_holds(b, a) for b in loops[n + 1 :])}
    n = first
    while n < end:
        loop = outer.get(n)
        if loop is None:
            yield Turn(n, offsets)
            n += 1
            continue
        inner = tuple(a for a in loops[: loops.index(loop)] if _holds(loop, a))
        for turn in range(loop.turns):
            moved = dict(offsets)
            for m in loop.moving:
                moved[m.buffer] = offsets.get(m.buffer, 0) + m.step * ((turn + m.ahead) % m.period)
            yield from _within(loop.first, loop.first + loop.count, inner, moved)
        n = loop.first + loop.count


def _holds(a: Repeated, b: Repeated) -> bool:
    """Whether all calls of loop b are among those of a."""
    return a.first <= b.first and b.first + b.count <= a.first + a.count
