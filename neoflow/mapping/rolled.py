"""A graph in which recurrences are written out, step by step, as one in which they are loops.

    h1 = f(h0, x[0]);  h2 = f(h1, x[1]);  h3 = f(h2, x[2]) ...    ->    h = scan(f, h0, x)

Chains of equal steps are found first (`chains`, `steps`): those of a forward and of a backward pass alike. What is left
of each step, which follows from it or leads to it, is then done for all of them at once (`wholes`).

Source: what is looked for is the cell of optimization mapping (Xiao et al.): equal cells, each the input of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from neoflow.expr.recurrence import Run, runs_of
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Tensor, topological
from neoflow.expr.written import written_out
from neoflow.graph.graph import Graph
from neoflow.mapping.cell import Pattern, named
from neoflow.mapping.chains import TOLD, Chains, may_recur
from neoflow.mapping.columns import Rows, row
from neoflow.mapping.gradients import Apart, apart
from neoflow.mapping.implement import implemented
from neoflow.mapping.known import patterns as known_patterns
from neoflow.mapping.merge import merged, sliced
from neoflow.mapping.spots import placed
from neoflow.mapping.steps import Steps, steps_of
from neoflow.mapping.unify import Looked
from neoflow.mapping.wholes import gathered
from neoflow.verdict import Verdict


@dataclass(frozen=True)
class Found:
    """A recurrence: its run, how many tensors of the graph it stands for, and the pattern that its body is, if any."""

    run: Run
    tensors: int
    cell: str | None = None

    def __str__(self) -> str:
        r = self.run.recurrence
        carried = ", ".join(f"{c.name}{list(c.shape)}" for c in r.carried)
        way = " backwards" if r.is_reversed else ""
        known = "" if self.cell is None else f"; it is {self.cell}"
        return f"{r.steps} steps{way} of one cell in place of {self.tensors} tensors; carried: {carried}{known}"


@dataclass(frozen=True)
class Mapped:
    """A graph after it, what was found, and why other chains are none. cells: what became of the patterns that were
    found; better: how many cells of recurrences are better than before; goals: of unification, the work of looking for
    them. roots, parts: what the graph was joined of, where anything was found."""

    graph: Graph
    found: tuple[Found, ...]
    refused: tuple[Verdict, ...]
    cells: tuple[Verdict, ...] = ()
    better: int = 0
    goals: int = 0
    roots: tuple[Tensor, ...] = ()
    parts: Apart | None = None

    @property
    def summary(self) -> str:
        spots = f", {n} patterns implemented" if (n := sum(v.ok for v in self.cells)) else ""
        return f"{len(self.found)} recurrences in place of {sum(f.tensors for f in self.found)} tensors{spots}"

    def written_out(self, most: int) -> Graph | None:
        """The graph with the steps of all its loops written out again; None where it has more computes than `most`."""
        assert self.parts is not None
        order = topological(list(self.roots))
        if sum(r.recurrence.steps * len(topological(r.recurrence.then)) for r in runs_of(order)) > most:
            return None
        graph = self.parts.joined(written_out(self.roots))
        return graph if len(graph.nodes) <= most else None

    def __str__(self) -> str:
        lines = list(map(str, self.found))
        lines += [v.reason for v in dict.fromkeys(self.cells)]
        if self.parts is not None and self.parts.stands:
            lines.append(f"{len(self.parts.stands)} gradients derived anew")
        lines += [f"left as it is: {v.reason}" for v in dict.fromkeys(self.refused)]
        return "\n".join(lines) or "no tensors follow from each other in equal steps"


def reroll(graph: Graph, patterns: Sequence[Pattern] | None = None, recurs: bool = False) -> Mapped:
    """The graph with its recurrences as loops, and patterns as their implementations. patterns: None for all that are
    known. recurs: those of recurrences alone.

    Gradients are derived anew of what was found, as far as they are by what a call is given or updates.
    """
    patterns = known_patterns() if patterns is None else patterns
    parts, looked = apart(graph), Looked()
    found = _rerolled(parts.graph, patterns, looked) if may_recur(graph.order) else Mapped(parts.graph, (), ())
    cells = implemented(found.graph.roots, patterns, looked)
    roots, spots = (cells.roots, ()) if recurs else placed(cells.roots, patterns, looked)
    found = replace(found, cells=(*cells.verdicts, *spots), better=cells.better, goals=looked.goals)
    if not found.found and not spots:
        return replace(found, graph=graph)
    return replace(found, graph=parts.joined(roots), roots=tuple(roots), parts=parts)


def _rerolled(graph: Graph, patterns: Sequence[Pattern], looked: Looked) -> Mapped:
    """The graph with its recurrences as loops, whatever they are of."""
    written, rows = graph, Rows()
    graph = graph.with_roots(merged(graph))
    graph = graph.with_roots(merged(graph.with_roots(sliced(graph))))
    found: list[Found] = []
    refused: list[Verdict] = []
    known: set[tuple[int, ...]] = set()
    while True:
        steps = _first(graph, rows, refused, known)
        if steps is not None and steps.run is not None:
            run = steps.run
            edit, behind = _edit(graph, run, steps)
            rows.before.update(behind)
            tensors = sum(len(c) for c in steps.members.values())
            found.append(Found(run, tensors, named(run.recurrence, patterns, looked)))
            graph = graph.with_roots(merged(graph.with_roots(replaced(graph.roots, edit.get))))
            continue
        roots = gathered(graph, rows) if found else graph.roots
        if all(a is b for a, b in zip(roots, graph.roots, strict=True)):
            return Mapped(graph if found else written, tuple(found), tuple(refused))
        graph = graph.with_roots(merged(graph.with_roots(roots)))


def _first(graph: Graph, rows: Rows, refused: list[Verdict], known: set[tuple[int, ...]]) -> Steps | None:
    """The first chain that is a recurrence."""
    for told in TOLD:
        chains = Chains(graph.order, *told)
        for chain in chains:
            key = tuple(t.uid for t in chain)
            if key in known:
                continue
            known.add(key)
            steps = steps_of(chain, rows, chains)
            if steps.verdict.ok:
                return steps
            refused.append(steps.verdict)
    return None


def _edit(graph: Graph, run: Run, steps: Steps) -> tuple[dict[Tensor, Tensor], dict[Tensor, tuple[Tensor, Tensor]]]:
    """What stands for the tensors of all steps that others read; what stacks have before each step."""
    r = run.recurrence
    inside = {t for column in steps.members.values() for t in column}
    read = set(graph.roots)
    for t in graph.order:
        if t not in inside:
            read.update(t.inputs)
    edit: dict[Tensor, Tensor] = {}
    behind: dict[Tensor, tuple[Tensor, Tensor]] = {}
    number = {t: n for n, t in enumerate(r.then)}
    for body, column in steps.members.items():
        wanted = [n for n, t in enumerate(column) if t in read]
        if not wanted:
            continue
        if wanted == [len(column) - 1] and body in number:
            edit[column[-1]] = run.last(number[body], column[-1].name)
            continue
        stacked = run.stacked(body)
        for n in wanted:
            edit[column[n]] = row(stacked, r.order[n], column[n].name)
        if body in number and not r.is_reversed:
            carried = r.carried[number[body]]
            behind[stacked] = (run.stacked(carried), run.by_placeholder[carried])
    return edit, behind
