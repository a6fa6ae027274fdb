"""What follows from rules and from all that is equal among smaller graphs: a congruence closure, by number of graph.

A graph of a level is an operator of graphs before it, and these stand for all that is equal to them. So a rule applies
to it wherever some graphs equal to its arguments have the form that the rule asks for, and what it becomes is looked up
the same way: one step at the root, and any number below. What rules make of an argument need not be a graph that was
made: with a depth, those forms are matched too, and forms that are matched by these. Source: Nelson and Oppen, Fast
Decision Procedures Based on Congruence Closure, 1980; matching modulo what is equal is that of e-graphs (Willsey et
al., egg, 2021).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from neoflow.superopt.implied import Tree, size

Node = tuple[str, tuple[int, ...]]
"""An operator, by name and rank, of graphs by number."""
MOST = 60
"""Nodes that are one step away and are gone on from."""
FORMS = 40
"""Ways in which a rule applies at one node that are looked at."""
DEPTH = 1
"""Steps of rules inside arguments, to forms that are no graphs."""
MOST_FORMS = 40
"""Of these, of one graph."""


class Congruence:
    """symmetric: operators that do not mind the order of their arguments."""

    def __init__(self, symmetric: frozenset[str]):
        self.symmetric = symmetric
        self._rules: dict[str, list[tuple[tuple, Tree]]] = {}
        self._said: set[tuple[Tree, Tree]] = set()
        self._graphs: dict[Node, list[int]] = {}
        self._forms: dict[int, dict[str, list[tuple[int, ...]]]] = {}
        self._ranks: dict[int, str] = {}
        self._sized: set[str] = set()
        self._deep: dict[tuple[int, int], Mapping[str, list[tuple[int, ...]]]] = {}

    def rule(self, source: Tree, target: Tree) -> None:
        """A rule, in the directions in which it takes something to something else and makes up no variable."""
        for a, b in ((source, target), (target, source)):
            if not isinstance(a, str) and _names(b) <= _names(a) and (a, b) not in self._said:
                self._said.add((a, b))
                self._rules.setdefault(a[0], []).append((a, b))
                self._deep.clear()

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
            if found:
                self._sized.add(label)
            found.append(graph)
            self._forms.setdefault(graph, {}).setdefault(label, []).append(args)
            self._deep.clear()

    def ordered(self, node: Node) -> Node:
        label, args = node
        return (label, tuple(sorted(args))) if label in self.symmetric else node

    def follows(self, source: Node, target: Node | int, steps: int = 3, depth: int = 0) -> bool:
        """Whether so many steps at the root lead from one to the other. target: a node of the same level, or a graph of
        one before. depth: steps inside an argument that lead to no graph."""
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
        for node in self._steps(start, depth):
            if node in goals:
                return True
            if len(ahead) < MOST:
                ahead[node] = None
        if steps > 1:
            for end in ends:
                goals.update(islice(self._steps(end, depth), MOST))
            if not goals.isdisjoint(ahead):
                return True
        if steps > 2:
            for node in ahead:
                if not isinstance(node, int) and any(new in goals for new in islice(self._steps(node, depth), MOST)):
                    return True
        return False

    def _steps(self, node: Node, depth: int, is_inside: bool = False) -> Iterator[Node | int]:
        """Nodes that a rule makes of one, and graphs that these are. is_inside: of rules that make nothing larger."""
        label, args = node
        for left, right in self._rules.get(label, ()):
            if is_inside and size(right) > size(left):
                continue
            for bound in islice(self._all(left, args, {}, depth), FORMS):
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

    def _all(
        self, pattern: tuple, args: tuple[int, ...], bound: Mapping[str, int], depth: int
    ) -> Iterator[Mapping[str, int]]:
        """How a pattern matches its operator of these graphs."""
        yield from self._each(pattern[1:], args, bound, depth)
        if pattern[0] in self.symmetric and args[0] != args[1]:
            yield from self._each(pattern[1:], args[::-1], bound, depth)

    def _each(
        self, patterns: tuple, args: tuple[int, ...], bound: Mapping[str, int], depth: int
    ) -> Iterator[Mapping[str, int]]:
        if not patterns:
            yield bound
            return
        first, graph = patterns[0], args[0]
        if isinstance(first, str):
            known = bound.get(first)
            if known == graph:
                yield from self._each(patterns[1:], args[1:], bound, depth)
            elif known is None and _rank(first) == self._ranks[graph]:
                yield from self._each(patterns[1:], args[1:], {**bound, first: graph}, depth)
            return
        for form in self._forms_of(graph, depth).get(first[0], ()):
            for found in self._all(first, form, bound, depth):
                yield from self._each(patterns[1:], args[1:], found, depth)

    def _forms_of(self, graph: int, depth: int) -> Mapping[str, list[tuple[int, ...]]]:
        """The arguments of what a graph is, by operator: of graphs that were made, and so many steps of rules away."""
        if not depth:
            return self._forms.get(graph, {})
        if (graph, depth) not in self._deep:
            before = self._forms_of(graph, depth - 1)
            found = {label: list(some) for label, some in before.items()}
            nodes = [(label, args) for label, some in before.items() for args in some]
            made = (new for node in nodes for new in self._steps(node, depth - 1, True) if not isinstance(new, int))
            left = MOST_FORMS
            for label, args in made:
                some = found.setdefault(label, [])
                if args not in some and _rank(label) == self._ranks[graph] and self._may_be(label, args, graph):
                    some.append(args)
                    left -= 1
                    if not left:
                        break
            self._deep[graph, depth] = found
        return self._deep[graph, depth]

    def _may_be(self, label: str, args: tuple[int, ...], graph: int) -> bool:
        """Whether an operator of graphs can be a graph: not where it was made and is another one, unless it has several
        sizes."""
        known = self._graphs.get((label, args), ())
        return not known or graph in known or label in self._sized


def _rank(label: str) -> str:
    return label[label.rindex(":") :]


def _names(t: Tree) -> set[str]:
    return {t} if isinstance(t, str) else {n for a in t[1:] for n in _names(a)}
