"""Equations that follow from others: trees of names, and rules that take one to the other in a few steps.

A tree is the name of a variable, or (operator, arguments...). Sizes are not compared: what is asked about is known to
be equal, and the question is whether smaller rules say so already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from neoflow.superopt.term import Term, Variable

Tree = str | tuple
MOST_STEPS = 60
"""Trees that are one step away and are gone on from."""
NEAR = ((1, 60), (2, 500))
"""Steps from either side, and how many trees are kept."""
LARGEST = 7
"""Operators of a tree on the way."""


def tree(t: Term) -> Tree:
    """A term as a tree."""
    if isinstance(t, Variable):
        return f"{t.name}:{len(t.shape)}"
    return (f"{t.family.name}:{len(t.shape)}", *map(tree, t.args))


def size(t: Tree) -> int:
    """Operators with arguments."""
    return 0 if isinstance(t, str) or len(t) == 1 else 1 + sum(map(size, t[1:]))


def renamed(source: Tree, target: Tree) -> str:
    """Both sides as text, variables in the order in which they are met."""
    names: dict[str, str] = {}

    def text(t: Tree) -> str:
        if isinstance(t, str):
            return names.setdefault(t, f"v{len(names)}{t[t.index(':') :]}")
        return f"{t[0]}({','.join(map(text, t[1:]))})"

    return f"{text(source)} = {text(target)}"


def met(t: Tree) -> list[str]:
    """The variables of a tree as often as they are met."""
    return [t] if isinstance(t, str) else [v for a in t[1:] for v in met(a)]


class Known:
    """Rules that are known. symmetric: names of operators that do not mind the order of their arguments.

    What rules make of a tree at its root is remembered, and of rules that are added later only these are tried.
    """

    def __init__(self, symmetric: frozenset[str]):
        self.symmetric = symmetric
        self._rules: dict[str, list[tuple[tuple, Tree]]] = {}
        self._sorted: dict[Tree, Tree] = {}
        self._texts: dict[Tree, str] = {}
        self._roots: dict[Tree, tuple[int, list[Tree]]] = {}
        self._steps: dict[Tree, tuple[Tree, ...]] = {}

    def add(self, source: Tree, target: Tree) -> None:
        """A rule, in the directions in which it takes something to something else and makes up no variable."""
        for a, b in ((source, target), (target, source)):
            if not isinstance(a, str) and set(met(b)) <= set(met(a)):
                self._rules.setdefault(a[0], []).append((a, b))
        self._steps.clear()

    def ordered(self, t: Tree) -> Tree:
        """A tree with the arguments of symmetric operators in one order."""
        if isinstance(t, str):
            return t
        if t not in self._sorted:
            self._sorted[t] = self._sort((t[0], *map(self.ordered, t[1:])))
        return self._sorted[t]

    def _sort(self, t: tuple) -> tuple:
        """The same of a tree whose arguments are in order."""
        if t[0] in self.symmetric and self._text(t[2]) < self._text(t[1]):
            return t[0], t[2], t[1]
        return t

    def _text(self, t: Tree) -> str:
        if isinstance(t, str):
            return t
        found = self._texts.get(t)
        if found is None:
            found = self._texts[t] = f"{t[0]}({','.join(map(self._text, t[1:]))})"
        return found

    def forget(self, most: int = 0) -> None:
        """What is remembered of trees, which would be kept for good, where it is of more than so many."""
        if max(len(self._sorted), len(self._texts), len(self._roots)) > most:
            for some in (self._sorted, self._texts, self._roots, self._steps):
                some.clear()

    def is_instance(self, source: Tree, target: Tree) -> bool:
        """Whether a rule says it in one step at the root."""
        a, b = self.ordered(source), self.ordered(target)
        return b in self._at_root(a) or a in self._at_root(b)

    def follows(self, source: Tree, target: Tree, steps: int = 3) -> bool:
        """Whether two or three steps of rules anywhere inside lead from one side to the other."""
        start, end = self.ordered(source), self.ordered(target)
        if start == end:
            return True
        ahead, behind = self._near(start), {end, *self._near(end)}
        if not behind.isdisjoint(ahead):
            return True
        return steps > 2 and any(not behind.isdisjoint(self._near(t)) for t in ahead)

    def meet(self, a: Tree, b: Tree, near: Sequence[tuple[int, int]] = NEAR) -> bool:
        """Whether steps from both sides lead to one tree; tried with few first. near: see `NEAR`."""
        return any(not self.around(a, *n).isdisjoint(self.around(b, *n)) for n in near)

    def around(self, t: Tree, steps: int, most: int) -> set[Tree]:
        """What so many steps lead to from a tree."""
        seen = {self.ordered(t)}
        layer = list(seen)
        for _ in range(steps):
            following = []
            for new in (new for here in layer for new in self.steps(here)):
                if len(seen) == most:
                    return seen
                if new not in seen and size(new) <= LARGEST:
                    seen.add(new)
                    following.append(new)
            layer = following
        return seen

    def _near(self, t: Tree) -> list[Tree]:
        return list(islice(self.steps(t), MOST_STEPS))

    def steps(self, t: Tree) -> tuple[Tree, ...]:
        """What one step of a rule, at the root or inside, makes of a tree whose arguments are in order, each once."""
        if isinstance(t, str):
            return ()
        found = self._steps.get(t)
        if found is None:
            made = dict.fromkeys(self._at_root(t))
            for n, a in enumerate(t[1:], 1):
                made |= dict.fromkeys(self._sort((*t[:n], new, *t[n + 1 :])) for new in self.steps(a))
            found = self._steps[t] = tuple(made)
        return found

    def _at_root(self, t: Tree) -> list[Tree]:
        """What one step at the root makes of a tree whose arguments are in order."""
        if isinstance(t, str):
            return []
        rules = self._rules.get(t[0], [])
        seen, found = self._roots.get(t, (0, []))
        if seen < len(rules):
            made = (self._put(right, bound) for left, right in rules[seen:] for bound in self._matches(left, t, {}))
            found = [*found, *made]
            self._roots[t] = len(rules), found
        return found

    def _put(self, t: Tree, bound: Mapping[str, Tree]) -> Tree:
        return bound[t] if isinstance(t, str) else self._sort((t[0], *(self._put(a, bound) for a in t[1:])))

    def _matches(self, pattern: Tree, t: Tree, bound: Mapping[str, Tree]) -> Iterator[Mapping[str, Tree]]:
        if isinstance(pattern, str):
            if pattern in bound:
                if bound[pattern] == t:
                    yield bound
            elif _rank(pattern) == _rank(t if isinstance(t, str) else t[0]):
                yield {**bound, pattern: t}
            return
        if isinstance(t, str) or pattern[0] != t[0]:
            return
        if _may_be(pattern, t):
            yield from self._all(pattern[1:], t[1:], bound)
        if pattern[0] in self.symmetric and t[1] != t[2] and _may_be(pattern, (t[0], t[2], t[1])):
            yield from self._all(pattern[1:], (t[2], t[1]), bound)

    def _all(self, patterns: tuple, trees: tuple, bound: Mapping[str, Tree]) -> Iterator[Mapping[str, Tree]]:
        if not patterns:
            yield bound
            return
        for found in self._matches(patterns[0], trees[0], bound):
            yield from self._all(patterns[1:], trees[1:], found)


def _may_be(pattern: tuple, t: tuple) -> bool:
    """Whether the arguments are of the operators that a pattern asks for."""
    return all(isinstance(p, str) or p[0] == a[0] for p, a in zip(pattern[1:], t[1:], strict=True))


def _rank(label: str) -> str:
    return label[label.rindex(":") :]
