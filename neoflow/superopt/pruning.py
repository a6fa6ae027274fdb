"""Candidates that follow from smaller ones: of a level at once, in several processes, with the answers on disk."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence

import numpy as np

from neoflow.superopt.candidates import Candidate, Trees
from neoflow.superopt.congruence import DEPTH, Congruence, Node
from neoflow.superopt.graphs import chunks
from neoflow.superopt.implied import Known, Tree, renamed
from neoflow.superopt.levels import Explored
from neoflow.superopt.runs import Runs, Until, shared

AT_ONCE = 2000
"""Candidates that a process takes."""
ORDER, FOLLOWS, LEFT = 0, 1, 2
"""What is said of a candidate: its sides differ in the order of arguments, it follows from smaller ones, or neither."""


class Pruner:
    """What is equal among graphs of fewer operators, and the rules that say so."""

    def __init__(self, found: Explored, known: Known):
        self.found, self.known = found, known
        self.trees = Trees(found.graphs)
        self.congruence = Congruence(known.symmetric)
        self._levels = 0

    def grow(self, refused: Collection[str]) -> None:
        """Take in the graphs of one more level, and what is equal to them, but for what was refused, by its text."""
        graphs, found, n = self.found.graphs, self.found, self._levels
        level = graphs.levels[n]
        for row, graph in enumerate(range(level.begin, level.end)):
            if level.begin:
                self.congruence.equal(self.trees.node(int(level.typed[row]), level.args[row]), graph)
                continue
            t = self.trees.of(graph)
            if isinstance(t, str):
                self.congruence.leaf(graph, t[t.rindex(":") :])
            else:
                self.congruence.equal((t[0], ()), graph)
        for row in np.flatnonzero(found.operators == n).tolist():
            if not refused or renamed(*self.trees.pair(found, row)) not in refused:
                self.congruence.equal(self._node(row), int(found.same[row]))
        self._levels += 1

    def _node(self, row: int) -> Node:
        equal = self.found.equal[row]
        return self.trees.node(int(equal["typed"]), equal["args"])

    def rule(self, source: Tree, target: Tree) -> None:
        self.known.add(source, target)
        self.congruence.rule(source, target)

    def follows(self, candidate: Candidate, depth: int = DEPTH) -> bool:
        """Whether a candidate of the next level follows from rules and what was taken in, by so many steps inside
        arguments."""
        graphs, same = self.found.graphs, int(self.found.same[candidate.row])
        target: Node | int = same
        level = graphs.levels[graphs.level_of(same)]
        if graphs.level_of(same) >= self._levels:
            target = self.trees.node(int(level.typed[same - level.begin]), level.args[same - level.begin])
        source = self._node(candidate.row)
        return any(self.congruence.follows(source, target, depth=n) for n in range(depth + 1))

    def said(self, some: Sequence[Candidate], runs: Runs, processes: int, until: Until) -> np.ndarray | None:
        """Of candidates of the next level `ORDER`, `FOLLOWS` or `LEFT`; None where the time was up."""
        keys = zlib.crc32("\n".join([*(c.key for c in some), *self.congruence.texts]).encode())
        parts = list(chunks(np.arange(len(some)), AT_ONCE))
        paths = [runs.path(f"said-{self._levels}-{keys:08x}-{n}") for n in range(len(parts))]

        def work(n: int) -> None:
            runs.save(paths[n], np.array([self._said(some[k]) for k in parts[n].tolist()], np.int8))
            self.known.forget()

        if not shared(work, [n for n, path in enumerate(paths) if not path.exists()], processes, until):
            return None
        answers = [np.load(path, allow_pickle=False) for path in paths]
        return np.concatenate(answers) if answers else np.zeros(0, np.int8)

    def _said(self, candidate: Candidate) -> int:
        one, _, other = candidate.key.partition(" = ")
        if len(one) == len(other) and self.known.ordered(candidate.source) == self.known.ordered(candidate.target):
            return ORDER
        return FOLLOWS if self.follows(candidate) else LEFT
