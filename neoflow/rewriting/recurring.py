"""Recurrences that are written out, as loops of the best cell that is known, or as that written out again.

Which of the two, their kernels say, by what each is thought to take: a loop has no kernels that reach from step to
step; steps written out have more of them to call, and a time to compile that grows with their number.
"""

from __future__ import annotations

from dataclasses import dataclass

from neoflow.graph import Graph
from neoflow.graph.cost import is_worth
from neoflow.mapping import Mapped, reroll
from neoflow.partition import cost_of, flattened
from neoflow.rewriting.sequence import divided
from neoflow.target import Target
from neoflow.trace import Trace
from neoflow.tune.roofs import stated

MOST = 2048
"""Computes of a program whose steps may be written out."""
KEPT = "as it is written: no cell is known that is better, and its steps are few"


@dataclass(frozen=True)
class Chosen:
    """What was found, the graph in the form that is taken, and why it is that one; for `explain`."""

    mapped: Mapped
    graph: Graph
    reason: str

    @property
    def summary(self) -> str:
        return f"{self.mapped.summary}: left as it is" if self.reason == KEPT else self.mapped.summary

    def __str__(self) -> str:
        return f"{self.mapped}\n{self.reason}" if self.reason else str(self.mapped)


def chosen(graph: Graph, target: Target, precision: str, is_asked_for: bool = True) -> Chosen:
    """The form of a graph that is thought to take less.

    Where nobody asked for it, patterns that do not recur are not looked for, and a graph stays as it is where no cell
    is better than before, unless its steps are so many that they take long to compile.
    """
    found = reroll(graph, recurs=not is_asked_for)
    if not found.found:
        return Chosen(found, found.graph, "")
    if not is_asked_for and not found.better and len(graph.nodes) <= MOST:
        return Chosen(found, graph, KEPT)
    written = found.written_out(MOST)
    if written is None:
        return Chosen(found, found.graph, f"loops: written out it has more than {MOST} computes")
    loop, steps = (seconds(g, target, precision) for g in (found.graph, written))
    reason = f"about {loop * 1e6:.1f} us as loops, {steps * 1e6:.1f} written out"
    return Chosen(found, written if is_worth(loop, steps) else found.graph, reason)


def seconds(graph: Graph, target: Target, precision: str) -> float:
    """What the kernels of a graph are thought to take, those of loops as often as these turn."""
    _, parts = divided(graph, Trace(), target, precision, None, None)
    calls, loops = flattened(parts.calls)
    turns = [1] * len(calls)
    for loop in loops:
        for n in range(loop.first, loop.first + loop.count):
            turns[n] *= loop.turns
    roofs = stated(target)
    return sum(n * cost_of(c.subgraph).seconds(roofs) for n, c in zip(turns, calls, strict=True))
