"""A program with its loops as one list of calls, and views of what moves while these run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from neoflow.expr.tensor import Tensor
from neoflow.partition.calls import Call, KernelCall, Motion, View


@dataclass(frozen=True)
class Loop:
    """The calls from number `first` on, `count` of them, run `turns` times; side by side where it `is_apart`."""

    first: int
    count: int
    turns: int
    motions: Mapping[Tensor, Motion]
    is_apart: bool = False


def flattened(calls: Sequence[Call]) -> tuple[tuple[KernelCall, ...], tuple[Loop, ...]]:
    """All kernel calls, those of a loop once, and the loops, those inside of others before them."""
    found: list[KernelCall] = []
    loops: list[Loop] = []
    for call in calls:
        if isinstance(call, KernelCall):
            found.append(call)
            continue
        inner, inside = flattened(call.calls)
        first = len(found)
        found += inner
        loops += [replace(a, first=first + a.first) for a in inside]
        loops.append(Loop(first, len(inner), call.turns, call.motions, call.is_apart))
    return tuple(found), tuple(loops)


def settled(views: Mapping[Tensor, View]) -> dict[Tensor, View]:
    """The views with bases that are stored, where some are views of views."""
    found: dict[Tensor, View] = {}
    for t, view in views.items():
        base, offset = view.base, view.offset
        while base in views:
            base, offset = views[base].base, offset + views[base].offset
        found[t] = View(base, offset, view.is_part)
    return found


def carried_along(views: Mapping[Tensor, View], motions: Mapping[Tensor, Motion]) -> dict[Tensor, Motion]:
    """The motions of all views that move because what they are views of does."""

    def chain(t: Tensor) -> Iterator[Tensor]:
        yield t
        while t in views:
            t = views[t].base
            yield t

    moved = {t: next((motions[s] for s in chain(t) if s in motions), None) for t in views}
    return {t: m for t, m in moved.items() if m is not None}
