"""What follows from rules and from all that is equal among smaller graphs: a congruence closure, by number of graph.

A graph of a level is an operator of graphs before it, and these stand for all that is equal to them. So a rule applies
to it wherever some graphs equal to its arguments have the form that the rule asks for, and what it becomes is looked up
the same way: one step at the root, and any number below. Source: Nelson and Oppen, Fast Decision Procedures Based on
Congruence Closure, 1980; matching modulo what is equal is that of e-graphs (Willsey et al., egg, 2021).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from neoflow.superopt.implied import Tree

Node = tuple[str, tuple[int, ...]]
"""An operator, by name and rank, of graphs by number."""
MOST = 60
"""Nodes that are one step away and are gone on from."""
FORMS = 40
"""Ways in which a rule applies at one node that are looked at."""


class Congruence:
    """symmetric: operators that do not mind the order of their arguments."""

    def __init__(self, symmetric: frozenset[str]):
        self.symmetric = symmetric
        self._rules: dict[str, list[tuple[tuple, Tree]]] = {}
        self._said: set[tuple[Tree, Tree]] = set()
        self._graphs: dict[Node, list[int]] = {}
        self._forms: dict[int, dict[str, list[tuple[int, ...]]]] = {}
        self._ranks: dict[int, str] = {}

    def rule(self, source: Tree, target: Tree) -> None:
        """A rule, in the directions in which it takes something to something else and makes up no variable."""
        for a, b in ((source, target), (target, source)):
            if not isinstance(a, str) and _names(b) <= _names(a) and (a, b) not in self._said:
                self._said.add((a, b))
                self._rules.setdefault(a[0], []).append((a, b))

    @property
    def texts(self) -> list[str]:
        """All rules, as text."""
        return [f"{a} -> {b}" for rules in self._rules.values() for a, b in rules]

    def leaf(self, graph: int, rank: str) -> None:
        """A graph, and the rank of its result."""
        self._ranks[graph] = rank

    def equal(self, node: Node, graph: int) -> None:
        """That a node is equal to a graph: by what is proved, or because it is this graph."""
        label, args = node = self.ordered(node)
        self._ranks.setdefault(graph, _rank(label))
        found = self._graphs.setdefault(node, [])
        if graph not in found:
            found.append(graph)
            self._forms.setdefault(graph, {}).setdefault(label, []).append(args)

    def ordered(self, node: Node) -> Node:
        label, args = node
        return (label, tuple(sorted(args))) if label in self.symmetric else node

    def follows(self, source: Node, target: Node | int, steps: int = 3) -> bool:
        """Whether so many steps at the root lead from one to the other. target: a node of the same level, or a graph of
        one before."""
        start = self.ordered(source)
        if isinstance(target, int):
            ends = [(label, args) for label, forms in self._forms.get(target, {}).items() for args in forms]
            goals: set[Node | int] = {target, *ends}
        else:
            ends = [self.ordered(target)]
            goals = {*ends}
        if start in goals:
            return True
        ahead: dict[Node | int, None] = {}
        for node in self._steps(start):
            if node in goals:
                return True
            if len(ahead) < MOST:
                ahead[node] = None
        if steps > 1:
            for end in ends:
                goals.update(islice(self._steps(end), MOST))
            if not goals.isdisjoint(ahead):
                return True
        if steps > 2:
            for node in ahead:
                if not isinstance(node, int) and any(new in goals for new in islice(self._steps(node), MOST)):
                    return True
        return False

    def _steps(self, node: Node) -> Iterator[Node | int]:
        """Nodes that a rule makes of one, and graphs that these are."""
        label, args = node
        for left, right in self._rules.get(label, ()):
            for bound in islice(self._all(left, args, {}), FORMS):
                if isinstance(right, str):
                    yield bound[right]
                    continue
                for made in itertools.product(*(self._values(a, bound) for a in right[1:])):
                    new = self.ordered((right[0], made))
                    yield new
                    yield from self._graphs.get(new, ())

    def _values(self, t: Tree, bound: Mapping[str, int]) -> Iterable[int]:
        """The graphs that a tree is."""
        if isinstance(t, str):
            return (bound[t],)
        return [
            g
            for args in itertools.product(*(self._values(a, bound) for a in t[1:]))
            for g in self._graphs.get(self.ordered((t[0], args)), ())
        ]

    def _all(self, pattern: tuple, args: tuple[int, ...], bound: Mapping[str, int]) -> Iterator[Mapping[str, int]]:
        """How a pattern matches its operator of these graphs."""
        yield from self._each(pattern[1:], args, bound)
        if pattern[0] in self.symmetric and args[0] != args[1]:
            yield from self._each(pattern[1:], args[::-1], bound)

    def _each(self, patterns: tuple, args: tuple[int, ...], bound: Mapping[str, int]) -> Iterator[Mapping[str, int]]:
        if not patterns:
            yield bound
            return
        first, graph = patterns[0], args[0]
        if isinstance(first, str):
            known = bound.get(first)
            if known == graph:
                yield from self._each(patterns[1:], args[1:], bound)
            elif known is None and _rank(first) == self._ranks[graph]:
                yield from self._each(patterns[1:], args[1:], {**bound, first: graph})
            return
        for form in self._forms.get(graph, {}).get(first[0], ()):
            for found in self._all(first, form, bound):
                yield from self._each(patterns[1:], args[1:], found)


def _rank(label: str) -> str:
    return label[label.rindex(":") :]


def _names(t: Tree) -> set[str]:
    return {t} if isinstance(t, str) else {n for a in t[1:] for n in _names(a)}
