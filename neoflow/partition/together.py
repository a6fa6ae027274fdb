"""Short kernels that need nothing of each other, as one launch: what they wait for, they wait for once.

    gradient of w0        gradient of w0          an update of a small parameter (a bias, a scale of a norm) takes less
    w0 = w0 - ...         gradient of w1          time than threads take to begin it together, and fills no GPU
    gradient of w1   ->   w0 = w0 - ..., w1 = w1 - ...
    w1 = w1 - ...

A short kernel is kept back until somebody needs what it makes or overwrites, or enough is kept back; all of these go
then, as a *group*. On a CPU a group is one region of the thread team, with the tasks of all of them; on a GPU they are
branches of the step's graph, which run side by side. What each of them computes, and so every result, stays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from neoflow.expr import dtype as dt
from neoflow.expr.tensor import Parameter, Tensor
from neoflow.graph import Graph
from neoflow.partition.calls import KernelCall, View
from neoflow.partition.looped import Loop

SHORT = 2e-5
"""Seconds, by the estimate, up to which a kernel is short: longer ones have tasks for all threads, and lose the caches
that what was before them has left. Chosen."""
MOST_BYTES = 1 << 20
"""That the kernels of a group read and write together: it stays where it is, in a core's own cache, and a program takes
so much more memory at most. Chosen."""
MOST = 64
"""Kernels of a group. Chosen."""


@dataclass(frozen=True)
class Grouped:
    """calls: in an order that is right too. groups: the first of each, and how many, two or more. refused: why none."""

    calls: tuple[KernelCall, ...]
    groups: tuple[tuple[int, int], ...]
    refused: str = ""

    @property
    def summary(self) -> str:
        """How many there are, in a line."""
        count = sum(n for _, n in self.groups)
        if self.refused:
            return self.refused
        if not count:
            return "no two short kernel calls that need nothing of each other"
        return f"{count} of {len(self.calls)} kernel calls run together with others, in {len(self.groups)} groups"

    def to_text(self) -> str:
        """A line a group."""
        return "\n".join(" | ".join(c.name for c in self.calls[a : a + n]) for a, n in self.groups) or self.summary


@dataclass(frozen=True)
class _Place:
    """Bytes of a tensor that has memory."""

    base: Tensor
    first: int
    end: int

    def meets(self, other: _Place) -> bool:
        return self.base is other.base and self.first < other.end and other.first < self.end


@dataclass
class _Waiting:
    """Calls that are kept back, what they read and write, and the bytes of all that."""

    calls: list[KernelCall] = field(default_factory=list)
    reads: list[_Place] = field(default_factory=list)
    writes: list[_Place] = field(default_factory=list)
    nbytes: int = 0

    def is_met(self, reads: Sequence[_Place], writes: Sequence[_Place]) -> bool:
        """Whether a call that reads and writes there has to come after one of them."""
        return any(a.meets(b) for a in self.writes for b in (*reads, *writes)) or any(
            a.meets(b) for a in self.reads for b in writes
        )


def grouped(
    graph: Graph,
    calls: Sequence[KernelCall],
    in_place: frozenset[Parameter],
    views: Mapping[Tensor, View],
    prepared: int,
    loops: Sequence[Loop],
    seconds: Callable[[KernelCall], float],
    fails: Callable[[KernelCall], bool],
) -> Grouped:
    """The calls with short ones beside each other. What is in loops, or may fail, stays where it is, as does whatever
    is before and after it; so do the first `prepared` calls.

    in_place: parameters that their updates overwrite. seconds: what a call is thought to take. fails: whether it checks
    indices.
    """
    place = _places(graph, in_place, views)
    inside = {n for a in loops for n in range(a.first, a.first + a.count)}
    order: list[KernelCall] = []
    groups: list[tuple[int, int]] = []
    waiting = _Waiting()

    def go() -> None:
        nonlocal waiting
        if len(waiting.calls) > 1:
            groups.append((len(order), len(waiting.calls)))
        order.extend(waiting.calls)
        waiting = _Waiting()

    for n, call in enumerate(calls):
        if n == prepared or n in inside or fails(call):
            go()
        if n in inside or fails(call):
            order.append(call)
            continue
        reads, writes = list(map(place, call.inputs)), list(map(place, call.outputs))
        nbytes = sum(t.nbytes for t in (*call.inputs, *call.outputs))
        is_short = nbytes <= MOST_BYTES and seconds(call) <= SHORT
        is_full = is_short and (waiting.nbytes + nbytes > MOST_BYTES or len(waiting.calls) >= MOST)
        if is_full or waiting.is_met(reads, writes):
            go()
        if is_short:
            waiting.calls.append(call)
            waiting.reads += reads
            waiting.writes += writes
            waiting.nbytes += nbytes
        else:
            order.append(call)
    go()
    return Grouped(tuple(order), tuple(groups))


def _places(graph: Graph, in_place: frozenset[Parameter], views: Mapping[Tensor, View]) -> Callable[[Tensor], _Place]:
    """Where each tensor lies: a view in its base, an update in place in its parameter."""
    updated: dict[Tensor, Tensor] = {value: p for p, value in graph.updates if p in in_place}

    def place(t: Tensor) -> _Place:
        first, nbytes = 0, t.nbytes
        while t in views:
            first += views[t].offset * dt.itemsize(t.dtype)
            t = views[t].base
        return _Place(updated.get(t, t), first, first + nbytes)

    return place
