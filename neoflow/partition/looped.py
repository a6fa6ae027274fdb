"""A loop over kernel calls in its place, and a program with its loops as one list of calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from neoflow.expr.tensor import Tensor
from neoflow.partition.calls import KernelCall, View
from neoflow.partition.subgraph import Subgraph

_NOTHING = Subgraph((), (), ())


@dataclass(frozen=True)
class Motion:
    """How a view goes through its base while a loop runs: in turn n it begins `step` * ((n + ahead) % period) elements
    beyond its offset."""

    step: int
    period: int
    ahead: int = 0


@dataclass(frozen=True)
class LoopCall:
    """Calls that run `turns` times, one after the other. It reads and writes as a kernel does, and is in its place.

    calls: of one turn, in order. motions: the views that are elsewhere in every turn. outputs: what has memory of its
    own and lasts from turn to turn.
    """

    calls: tuple[Call, ...]
    turns: int
    motions: Mapping[Tensor, Motion]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    name: str
    subgraph: Subgraph = field(default=_NOTHING)

    def __hash__(self) -> int:
        return id(self)


Call = KernelCall | LoopCall


@dataclass(frozen=True)
class Loop:
    """The calls from number `first` on, `count` of them, run `turns` times."""

    first: int
    count: int
    turns: int
    motions: Mapping[Tensor, Motion]


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
        loops += [Loop(first + l.first, l.count, l.turns, l.motions) for l in inside]
        loops.append(Loop(first, len(inner), call.turns, call.motions))
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
