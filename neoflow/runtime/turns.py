"""The calls of a plan one by one, as they run: those of loops again in every turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from neoflow.runtime.plan import Plan, Repeated


class Turns(NamedTuple):
    """calls: the number of each. offsets: by buffer that moves, how many bytes further than in the first turns of all
    loops it is in each of them."""

    calls: np.ndarray
    offsets: Mapping[int, np.ndarray]


def turns(plan: Plan, first: int = 0, end: int | None = None) -> Turns:
    """Every call in its turn, or those from `first` to before `end`, no loop being cut."""
    end = len(plan.calls) if end is None else end
    return _within(first, end, tuple(a for a in plan.loops if first <= a.first < end))


def stretches(plan: Plan) -> Iterator[tuple[int, int, Repeated | None]]:
    """The calls in order: the first of some and the one after their last; with the loop that they are, if any."""
    n = 0
    for loop in sorted(outermost(plan.loops), key=lambda a: a.first):
        if n < loop.first:
            yield n, loop.first, None
        n = loop.first + loop.count
        yield loop.first, n, loop
    if n < len(plan.calls):
        yield n, len(plan.calls), None


def outermost(loops: tuple[Repeated, ...]) -> list[Repeated]:
    """Those that no later one holds."""
    return [a for n, a in enumerate(loops) if not any(b.holds(a) for b in loops[n + 1 :])]


def _within(first: int, end: int, loops: tuple[Repeated, ...]) -> Turns:
    """The calls from `first` to before `end`. loops: those among them, inner ones before outer ones."""
    outer = {a.first: n for n, a in enumerate(loops) if not any(b.holds(a) for b in loops[n + 1 :])}
    parts: list[Turns] = []
    n = first
    while n < end:
        if n in outer:
            loop = loops[outer[n]]
            inner = tuple(a for a in loops[: outer[n]] if loop.holds(a))
            parts.append(_again(_within(n, n + loop.count, inner), loop))
            n += loop.count
        else:
            stop = min((m for m in outer if m > n), default=end)
            parts.append(Turns(np.arange(n, stop), {}))
            n = stop
    return _one_after_the_other(parts)


def _again(inner: Turns, loop: Repeated) -> Turns:
    """The calls of a loop in all its turns."""
    count, turn = len(inner.calls), np.arange(loop.turns)
    offsets = {buffer: np.tile(further, loop.turns) for buffer, further in inner.offsets.items()}
    for m in loop.moving:
        moved = np.repeat(m.step * ((turn + m.ahead) % m.period), count)
        offsets[m.buffer] = offsets[m.buffer] + moved if m.buffer in offsets else moved
    return Turns(np.tile(inner.calls, loop.turns), offsets)


def _one_after_the_other(parts: list[Turns]) -> Turns:
    total = sum(len(p.calls) for p in parts)
    offsets: dict[int, np.ndarray] = {}
    at = 0
    for p in parts:
        for buffer, further in p.offsets.items():
            offsets.setdefault(buffer, np.zeros(total, np.int64))[at : at + len(p.calls)] = further
        at += len(p.calls)
    return Turns(np.concatenate([np.zeros(0, np.int64), *(p.calls for p in parts)]), offsets)
