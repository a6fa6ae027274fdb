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
    """Rules that are known. symmetric: names of operators that do not mind the order of their arguments."""

    def __init__(self, symmetric: frozenset[str]):
        self.symmetric = symmetric
        self._rules: dict[str, list[tuple[Tree, Tree]]] = {}
        self._sorted: dict[Tree, Tree] = {}

    def add(self, source: Tree, target: Tree) -> None:
        """A rule, in the directions in which it takes something to something else and makes up no variable."""
        for a, b in ((source, target), (target, source)):
            if not isinstance(a, str) and set(met(b)) <= set(met(a)):
                self._rules.setdefault(a[0], []).append((a, b))

    def ordered(self, t: Tree) -> Tree:
        """A tree with the arguments of symmetric operators in one order."""
        if isinstance(t, str):
            return t
        if t not in self._sorted:
            args = [self.ordered(a) for a in t[1:]]
            self._sorted[t] = (t[0], *(sorted(args, key=str) if t[0] in self.symmetric else args))
        return self._sorted[t]

    def forget(self) -> None:
        """What was sorted, which would be kept for good."""
        self._sorted.clear()

    def is_instance(self, source: Tree, target: Tree) -> bool:
        """Whether a rule says it in one step at the root."""
        for a, b in ((source, target), (target, source)):
            if not isinstance(a, str):
                for left, right in self._rules.get(a[0], ()):
                    for bound in self._matches(left, a, {}):
                        if self.ordered(_put(right, bound)) == self.ordered(b):
                            return True
        return False

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
            for new in (self.ordered(new) for here in layer for new in self.steps(here)):
                if len(seen) == most:
                    return seen
                if new not in seen and size(new) <= LARGEST:
                    seen.add(new)
                    following.append(new)
            layer = following
        return seen

    def _near(self, t: Tree) -> list[Tree]:
        return list(islice(dict.fromkeys(map(self.ordered, self.steps(t))), MOST_STEPS))

    def steps(self, t: Tree) -> Iterator[Tree]:
        """What one step of a rule, at the root or inside, makes of a tree."""
        if isinstance(t, str):
            return
        for left, right in self._rules.get(t[0], ()):
            for bound in self._matches(left, t, {}):
                yield _put(right, bound)
        for n, a in enumerate(t[1:], 1):
            for changed in self.steps(a):
                yield (*t[:n], changed, *t[n + 1 :])

    def _matches(self, pattern: Tree, t: Tree, bound: Mapping[str, Tree]) -> Iterator[dict[str, Tree]]:
        if isinstance(pattern, str):
            if pattern in bound:
                if bound[pattern] == t:
                    yield dict(bound)
            elif _rank(pattern) == _rank(t if isinstance(t, str) else t[0]):
                yield {**bound, pattern: t}
            return
        if isinstance(t, str) or pattern[0] != t[0]:
            return
        yield from self._all(pattern[1:], t[1:], bound)
        if pattern[0] in self.symmetric and t[1] != t[2]:
            yield from self._all(pattern[1:], (t[2], t[1]), bound)

    def _all(self, patterns: tuple, trees: tuple, bound: Mapping[str, Tree]) -> Iterator[dict[str, Tree]]:
        if not patterns:
            yield dict(bound)
            return
        for found in self._matches(patterns[0], trees[0], bound):
            yield from self._all(patterns[1:], trees[1:], found)


def _rank(label: str) -> str:
    return label[label.rindex(":") :]


def _put(t: Tree, bound: Mapping[str, Tree]) -> Tree:
    return bound[t] if isinstance(t, str) else (t[0], *(_put(a, bound) for a in t[1:]))
