"""Candidates for rules: pairs of graphs with equal fingerprints, of those that differ in the names of variables one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neoflow.superopt.congruence import Node
from neoflow.superopt.graphs import Graphs
from neoflow.superopt.implied import Tree, met, renamed, size
from neoflow.superopt.levels import Explored
from neoflow.superopt.term import Term, Variable
from neoflow.trace import tick


@dataclass(frozen=True)
class Candidate:
    """Two graphs by their trees, the one that was made later first; row: where it is in `Explored.equal`; operators:
    that it has, what it has twice counted once."""

    key: str
    source: Tree
    target: Tree
    row: int
    operators: int

    @property
    def rank(self) -> tuple[int, int, int, int, int, str]:
        """Smaller ones are looked at first, of these those without constants and with more variables."""
        both = size(self.source), size(self.target)
        different = len({*met(self.source), *met(self.target)})
        return self.operators, max(both), self.key.count("()"), sum(both), -different, self.key

    def terms(self, found: Explored) -> tuple[Term, Term]:
        """The side that reads all variables first."""
        row = found.equal[self.row]
        return found.graphs.applied(int(row["typed"]), row["args"]), found.graphs.term(int(found.same[self.row]))


def candidates(found: Explored) -> list[Candidate]:
    """Up to names of variables, in the order in which they are looked at."""
    trees = Trees(found.graphs)
    kept: dict[str, Candidate] = {}
    first = found.graphs.is_first(found.graphs.read_by(found.equal["args"]))
    for row in np.flatnonzero(first).tolist():
        tick()
        source, target = trees.pair(found, row)
        key = renamed(source, target)
        if key not in kept:
            kept[key] = Candidate(key, source, target, row, int(found.operators[row]))
    return sorted(kept.values(), key=lambda c: c.rank)


class Trees:
    """Graphs by number as trees."""

    def __init__(self, graphs: Graphs):
        self.graphs = graphs
        self._known: dict[int, Tree] = {}
        self._labels: dict[int, str] = {}

    def pair(self, found: Explored, row: int) -> tuple[Tree, Tree]:
        """What is equal to a graph before it, and that one."""
        equal = found.equal[row]
        return self.applied(int(equal["typed"]), equal["args"]), self.of(int(found.same[row]))

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
        return (self.label(typed), *(self.of(a) for a in args.tolist() if a >= 0))

    def label(self, typed: int) -> str:
        """The name of an operator and the rank of its result."""
        if typed not in self._labels:
            t = self.graphs.typed[typed]
            rank = len(self.graphs.shapes[t.shape])
            self._labels[typed] = f"{self.graphs.alphabet.operators[t.family].name}:{rank}"
        return self._labels[typed]

    def node(self, typed: int, args: np.ndarray) -> Node:
        return self.label(typed), tuple(a for a in args.tolist() if a >= 0)
