"""Chains: tensors of a graph that are computed alike, each from the one before it.

Every tensor is told by its definition and by those of what it follows from, so many tensors back. What is told alike in
two steps and leads to itself may be a recurrence; whether it is one, `steps` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from neoflow.expr.tensor import Compute, Parameter, Placeholder, Tensor
from neoflow.mapping.columns import Column, kind, row_of

LEAST = 4
"""Steps that are worth a loop."""
TOLD = ((8, True), (4, True), (2, True), (8, False))
"""How far back a tensor is told by what it follows from, less far where steps are few; and whether inputs are told from
each other, which are not where every step has its own."""


def colours(order: Sequence[Tensor], rounds: int, tells_inputs: bool) -> dict[Tensor, int]:
    """Equal for tensors whose definitions are, and those of what they follow from, so many tensors back."""
    told: dict[tuple[object, ...], int] = {}

    def number(*key: object) -> int:
        return told.setdefault(key, len(told))

    def first(t: Tensor) -> int:
        if isinstance(t, Compute):
            return number(*kind(t.definition))
        is_one = tells_inputs or isinstance(t, Parameter) or not isinstance(t, Placeholder)
        return number("one", t.uid) if is_one else number("input", t.shape, t.dtype)

    found = {t: first(t) for t in order}
    sliced = {t: row_of(t) is not None for t in order}
    for n in range(rounds):
        found = {
            t: number(n, found[t], *(found[i] for i in t.inputs)) if t.inputs and not sliced[t] else found[t]
            for t in order
        }
    return found


def may_recur(order: Sequence[Tensor]) -> bool:
    """Whether a graph may have a recurrence: told by less than chains are, in a fraction of the time."""
    return len(order) >= LEAST and bool(Chains(order, _COARSE, False).loops())


class Chains:
    """Of a graph."""

    def __init__(self, order: Sequence[Tensor], rounds: int, tells_inputs: bool):
        self.order, self.colour = order, colours(order, rounds, tells_inputs)
        self.number = {t: n for n, t in enumerate(order)}
        self.classes: dict[int, list[int]] = {}
        for n, t in enumerate(order):
            if isinstance(t, Compute):
                self.classes.setdefault(self.colour[t], []).append(n)

    def __iter__(self) -> Iterator[Column]:
        """Candidates, those that others follow from first, a few for each recurrence."""
        tried: dict[int, int] = {}
        for c, part in self.loops().items():
            if tried.setdefault(part, 0) < _TRIES:
                tried[part] += 1
                yield from _split(self.order, self.number, self.classes[c])

    def loops(self) -> dict[int, int]:
        """The classes that lead to themselves, by which they do so with others: what a recurrence may be of."""
        colour = self.colour
        often = [c for c, members in self.classes.items() if len(members) >= LEAST - 1]
        place = {c: k for k, c in enumerate(often)}
        pairs = ((place.get(colour[i]), place.get(colour[t])) for t in self.order for i in t.inputs)
        edges = {(a, b) for a, b in pairs if a is not None and b is not None}
        part = _parts(len(place), edges)
        loops = {part[a] for a, b in edges if part[a] == part[b]}
        return {c: part[k] for c, k in place.items() if part[k] in loops}

    def of(self, t: Tensor) -> Column | None:
        """The chain that a tensor is in."""
        found = (
            _split(self.order, self.number, self.classes[self.colour[t]]) if self.colour.get(t) in self.classes else ()
        )
        return next((c for c in found if any(t is m for m in c)), None)

    def next_of(self, column: Column) -> Iterator[Tensor]:
        """What may be the next of a column: computed by the same definition, from its last."""
        last = column[-1]
        assert isinstance(last, Compute)
        following: set[Tensor] = {last}
        count = 0
        known = set(column)
        for t in self.order[self.number[last] + 1 :]:
            if any(i in following for i in t.inputs):
                following.add(t)
                if isinstance(t, Compute) and t.definition is last.definition and t not in known:
                    yield t
                    count += 1
                    if count == _NEXT:
                        return


def _parts(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Equal numbers for nodes that lead to each other. Source: Kosaraju's algorithm, see Sharir, 1981."""
    ahead, back = ([list[int]() for _ in range(count)] for _ in range(2))
    for a, b in edges:
        ahead[a].append(b)
        back[b].append(a)
    ended = [n for _, n in _walked(range(count), ahead)]
    part = [0] * count
    for first, n in _walked(reversed(ended), back):
        part[n] = first
    return part


def _walked(starts: Iterable[int], after: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """(where the walk began, node), depth first, each node once, after all that it leads to."""
    found, seen = list[tuple[int, int]](), set[int]()
    for first in starts:
        stack = [(first, iter(after[first]))] if first not in seen else []
        seen.add(first)
        while stack:
            n = next((n for n in stack[-1][1] if n not in seen), None)
            if n is None:
                found.append((first, stack.pop()[0]))
            else:
                seen.add(n)
                stack.append((n, iter(after[n])))
    return found


_COARSE = 2
"""How far back tensors are told by what they follow from where it is asked whether there is a recurrence at all."""
_NEXT = 4
"""Tensors that are tried as the next of a chain."""
_TRIES = 6
"""Chains of one recurrence that are looked at."""


def _split(order: Sequence[Tensor], number: Mapping[Tensor, int], members: Sequence[int]) -> Iterator[Column]:
    """The chains that tensors of one kind are: each from the last of them that it follows from."""
    inside = set(members)
    last: dict[int, int] = {}
    before: dict[int, int] = {}
    for n in range(members[0], members[-1] + 1):
        found = -1
        for i in order[n].inputs:
            k = number[i]
            found = max(found, k if k in inside else last.get(k, -1))
        last[n] = found
        if n in inside and found >= 0:
            before[n] = found
    after = {b: a for a, b in before.items()}
    if len(after) < len(before):
        return
    for n in members:
        if n not in before:
            chain = [n]
            while chain[-1] in after:
                chain.append(after[chain[-1]])
            if len(chain) >= LEAST - 1:
                yield tuple(order[k] for k in chain)
