"""`Steps`: the kernel calls of a program in numbers: what is read, written and takes memory, and how long each runs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from neoflow.code import Code
from neoflow.expr.tensor import Parameter, Tensor
from neoflow.graph import Graph
from neoflow.partition import KernelCall, Subgraph, View
from neoflow.runtime.memory import aligned
from neoflow.runtime.planner import donors


@dataclass(frozen=True)
class Step:
    """A kernel call. reads, writes: temporaries by number. donors: pairs of them, an input and the output that may take
    its memory where nothing reads it afterwards. space: bytes of its workspaces. lasting: of what it writes that is no
    temporary; where it is repeated nobody reads that, and it takes as much beside it.

    until: for each of what it writes, the step that first overwrites something this follows from, the number of steps
    where none does: there it can still be written again, and not later.
    """

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    donors: tuple[tuple[int, int], ...]
    space: int
    lasting: int
    seconds: float
    until: tuple[int, ...]

    def can_write(self, m: int, at: int) -> bool:
        """Whether it can write a temporary again before step `at`."""
        return self.until[self.writes.index(m)] >= at


@dataclass(frozen=True)
class Steps:
    """temporaries: what has memory of the arena, views left out. sizes: their bytes. held: those that are read when the
    program has run."""

    steps: tuple[Step, ...]
    temporaries: tuple[Tensor, ...]
    sizes: tuple[int, ...]
    held: frozenset[int]

    @cached_property
    def makers(self) -> tuple[tuple[int, ...], ...]:
        """The steps that write each: of a whole several."""
        found: list[list[int]] = [[] for _ in self.sizes]
        for n, step in enumerate(self.steps):
            for m in step.writes:
                found[m].append(n)
        return tuple(map(tuple, found))

    @cached_property
    def touches(self) -> tuple[tuple[int, ...], ...]:
        """For each the last step that makes it, and those after it that read it, ascending."""
        found = [[makers[-1]] for makers in self.makers]
        for n, step in enumerate(self.steps):
            for m in step.reads:
                if n > found[m][0]:
                    found[m].append(n)
        return tuple(map(tuple, found))

    def touched(self, m: int, at: int) -> int:
        """The last of the steps that touch a temporary up to step `at`."""
        touches = self.touches[m]
        return touches[bisect_right(touches, at) - 1]

    @cached_property
    def seconds(self) -> float:
        """Of all steps."""
        return sum(s.seconds for s in self.steps)


def steps_of(
    graph: Graph,
    calls: Sequence[KernelCall],
    in_place: frozenset[Parameter],
    views: Mapping[Tensor, View],
    kernels: Mapping[str, Code],
    threads: int,
    seconds: Callable[[Subgraph], float],
) -> Steps:
    """Of a program as the planner is given it. seconds: what a call of a subgraph takes."""
    updated = {value: p for p, value in graph.updates if p in in_place}
    lasting = {*graph.outputs, *updated}

    def base(t: Tensor) -> Tensor:
        return views[t].base if t in views else t

    made = dict.fromkeys(base(t) for c in calls for t in c.outputs)
    number = {t: n for n, t in enumerate(t for t in made if t not in lasting)}
    writer = {updated[t]: n for n, c in enumerate(calls) for t in c.outputs if t in updated}

    def until(c: KernelCall, t: Tensor) -> int:
        sources = c.inputs if kernels[c.subgraph.digest].faults else _sources(c, t, base)
        return min((writer[s] for s in map(base, sources) if isinstance(s, Parameter) and s in writer), default=end)

    end = len(calls)
    took = {c.subgraph.digest: seconds(c.subgraph) for c in calls}
    found = []
    for c in calls:
        read, written = dict.fromkeys(map(base, c.inputs)), dict.fromkeys(map(base, c.outputs))
        found.append(
            Step(
                tuple(number[t] for t in read if t in number),
                tuple(number[t] for t in written if t in number),
                tuple(
                    (number[s], number[t]) for t in c.outputs if t in number for s in donors(c, t, views) if s in number
                ),
                sum(aligned(w.total(threads)) for w in kernels[c.subgraph.digest].workspaces),
                sum(aligned(t.nbytes) for t in written if t not in number),
                took[c.subgraph.digest],
                tuple(until(c, t) for t in written if t in number),
            )
        )
    held = frozenset(number[t] for t in map(base, graph.roots) if t in number)
    return Steps(tuple(found), tuple(number), tuple(aligned(t.nbytes) for t in number), held)


def _sources(call: KernelCall, written: Tensor, base: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """The inputs that what a kernel writes of a tensor, or of parts of it, follows from."""
    outputs = zip(call.subgraph.outputs, call.outputs, strict=True)
    numbers = {i for o, t in outputs if base(t) is written for i in call.subgraph.sources(o)}
    return [t for n, t in enumerate(call.inputs) if n in numbers]
