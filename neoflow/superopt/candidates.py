"""Candidates for rules: pairs of graphs with equal fingerprints, of those that differ in the names of variables one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from neoflow.superopt.graphs import Graphs
from neoflow.superopt.implied import Tree, met, renamed, size
from neoflow.superopt.levels import Explored
from neoflow.superopt.term import Term, Variable
from neoflow.trace import tick


@dataclass(frozen=True)
class Candidate:
    """Two graphs by their trees, the one that was made later first; row: where it is in `Explored.equal`."""

    key: str
    source: Tree
    target: Tree
    row: int

    @property
    def rank(self) -> tuple[int, int, int, int, str]:
        """Smaller ones are looked at first, of these those without constants and with more variables."""
        both = size(self.source), size(self.target)
        different = len({*met(self.source), *met(self.target)})
        return max(both), self.key.count("()"), sum(both), -different, self.key

    def terms(self, found: Explored) -> tuple[Term, Term]:
        """The side that reads all variables first."""
        row = found.equal[self.row]
        return found.graphs.applied(int(row["typed"]), row["args"]), found.graphs.term(int(found.same[self.row]))


def candidates(found: Explored) -> list[Candidate]:
    """Up to names of variables, in the order in which they are looked at."""
    trees = _Trees(found.graphs)
    kept: dict[str, Candidate] = {}
    for row in _first_variables(found):
        tick()
        equal = found.equal[row]
        source, target = trees.applied(int(equal["typed"]), equal["args"]), trees.of(int(found.same[row]))
        key = renamed(source, target)
        if key not in kept:
            kept[key] = Candidate(key, source, target, int(row))
    return sorted(kept.values(), key=lambda c: c.rank)


def _first_variables(found: Explored) -> Iterator[int]:
    """Rows whose graph reads, of variables of one shape, the first few: the others are these in other names."""
    graphs = found.graphs
    masks = np.zeros(graphs.levels[-1].end + 1, np.uint64)  # the last one is that of no argument, whose number is -1
    masks[: len(graphs.alphabet.leaves)] = np.uint64(1) << np.arange(len(graphs.alphabet.leaves), dtype=np.uint64)
    for level in graphs.levels[1:]:
        masks[level.begin : level.end] = np.bitwise_or.reduce(masks[level.args], axis=1)
    mine = np.bitwise_or.reduce(masks[found.equal["args"]], axis=1)
    good = np.ones(len(mine), bool)
    shapes: dict[tuple, int] = {}
    for n, v in enumerate(graphs.alphabet.leaves):
        before = shapes.get(v.shape)
        if before is not None:
            good &= ~((mine & np.uint64(1 << n) != 0) & (mine & np.uint64(1 << before) == 0))
        shapes[v.shape] = n
    yield from np.flatnonzero(good).tolist()


class _Trees:
    """Graphs by number as trees."""

    def __init__(self, graphs: Graphs):
        self.graphs = graphs
        self._known: dict[int, Tree] = {}
        self._labels: dict[int, str] = {}

    def of(self, graph: int) -> Tree:
        if graph not in self._known:
            level = self.graphs.levels[self.graphs.level_of(graph)]
            row = graph - level.begin
            if level.begin:
                self._known[graph] = self.applied(int(level.typed[row]), level.args[row])
            else:
                t = self.graphs.term(graph)
                label = t.name if isinstance(t, Variable) else t.family.name
                named = f"{label}:{len(t.shape)}"
                self._known[graph] = named if isinstance(t, Variable) else (named,)
        return self._known[graph]

    def applied(self, typed: int, args: np.ndarray) -> Tree:
        if typed not in self._labels:
            t = self.graphs.typed[typed]
            rank = len(self.graphs.shapes[t.shape])
            self._labels[typed] = f"{self.graphs.alphabet.operators[t.family].name}:{rank}"
        return (self._labels[typed], *(self.of(int(a)) for a in args if a >= 0))
