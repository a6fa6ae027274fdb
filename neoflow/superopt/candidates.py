"""Candidates for rules: pairs of graphs with equal fingerprints, of those that differ in the names of variables one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from neoflow.superopt.congruence import Node
from neoflow.superopt.graphs import Graphs, Level
from neoflow.superopt.implied import Tree
from neoflow.superopt.levels import Explored
from neoflow.superopt.runs import Until
from neoflow.superopt.term import Term, Variable
from neoflow.trace import tick

OFTEN = 1000
"""Pairs after which the time is looked at."""


@dataclass(frozen=True)
class Candidate:
    """Two graphs by their trees, the one that was made later first; row: where it is in `Explored.equal`; operators:
    that it has, what it has twice counted once; constant: the most operators of a part without variables."""

    key: str
    source: Tree
    target: Tree
    row: int
    operators: int
    constant: int = 0

    def terms(self, found: Explored) -> tuple[Term, Term]:
        """The side that reads all variables first."""
        row = found.equal[self.row]
        return found.graphs.applied(int(row["typed"]), row["args"]), found.graphs.term(int(found.same[self.row]))


def candidates(found: Explored, until: Until) -> list[Candidate]:
    """Up to names of variables, in the order in which they are looked at; those of few operators until time is up."""
    trees = Trees(found.graphs)
    kept: dict[str, tuple[tuple, int, int]] = {}
    first = found.graphs.is_first(found.graphs.read_by(found.equal["args"]))
    typed, args, same = (some.tolist() for some in (found.equal["typed"], found.equal["args"], found.same))
    for n, row in enumerate(np.flatnonzero(first).tolist()):
        tick()
        if not n % OFTEN and until.is_over():
            break
        a, b = trees.written_applied(typed[row], args[row]), trees.written(same[row])
        names: dict[str, str] = {}
        for v in (*a.read, *b.read):
            if v not in names:
                names[v] = f"v{len(names)}{v[v.index(':') :]}"
        key = f"{a.text} = {b.text}" % tuple([names[v] for v in (*a.read, *b.read)])
        if key not in kept:
            # smaller ones are looked at first, of these those without constants and with more variables
            rank = max(a.size, b.size), key.count("()"), a.size + b.size, -len(names), key
            kept[key] = (int(found.operators[row]), *rank), row, max(a.constant, b.constant)
    return [Candidate(r[-1], *trees.pair(found, row), row, r[0], c) for r, row, c in sorted(kept.values())]


class Written(NamedTuple):
    """A graph as text, `%s` where a variable is; read: these variables. size: operators with arguments; constant: of
    the largest part without variables."""

    text: str
    read: tuple[str, ...]
    size: int
    constant: int


class Trees:
    """Graphs by number as trees."""

    def __init__(self, graphs: Graphs):
        self.graphs = graphs
        self._known: dict[int, Tree] = {}
        self._written: dict[int, Written] = {}
        self._labels: dict[int, str] = {}
        self._begins = [level.begin for level in graphs.levels]

    def pair(self, found: Explored, row: int) -> tuple[Tree, Tree]:
        """What is equal to a graph before it, and that one."""
        equal = found.equal[row]
        return self.applied(int(equal["typed"]), equal["args"]), self.of(int(found.same[row]))

    def of(self, graph: int) -> Tree:
        if graph not in self._known:
            level, row = self._place(graph)
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

    def _place(self, graph: int) -> tuple[Level, int]:
        """The level of a graph, and where it is there."""
        level = self.graphs.levels[bisect_right(self._begins, graph) - 1]
        return level, graph - level.begin

    def written(self, graph: int) -> Written:
        found = self._written.get(graph)
        if found is None:
            level, row = self._place(graph)
            t = self.of(graph) if not level.begin else None
            if isinstance(t, str):
                found = Written("%s", (t,), 0, 0)
            elif t is not None:
                found = Written(f"{t[0]}()", (), 0, 0)
            else:
                found = self.written_applied(int(level.typed[row]), level.args[row].tolist())
            self._written[graph] = found
        return found

    def written_applied(self, typed: int, args: Sequence[int]) -> Written:
        """An operator at sizes, of arguments; -1 is none."""
        some = [self.written(a) for a in args if a >= 0]
        read = tuple([v for w in some for v in w.read])
        whole = 1 + sum([w.size for w in some])
        text = f"{self.label(typed)}({','.join([w.text for w in some])})"
        return Written(text, read, whole, max([w.constant for w in some]) if read else whole)

    def label(self, typed: int) -> str:
        """The name of an operator and the rank of its result."""
        if typed not in self._labels:
            t = self.graphs.typed[typed]
            rank = len(self.graphs.shapes[t.shape])
            self._labels[typed] = f"{self.graphs.alphabet.operators[t.family].name}:{rank}"
        return self._labels[typed]

    def node(self, typed: int, args: np.ndarray) -> Node:
        return self.label(typed), tuple(a for a in args.tolist() if a >= 0)
