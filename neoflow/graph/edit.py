"""`Editor`: a graph under change. Who reads what, what still counts and what comes first are kept up to date."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from typing import TypeVar, cast

from neoflow.errors import GraphError
from neoflow.expr.tensor import Compute, Definition, Tensor, topological

T = TypeVar("T")
Place = tuple[int, ...]
"""Where a tensor stands in the order. What takes the place of another stands right behind it: (3,), then (3, 0)."""


class Editor:
    """What some roots need, while tensors of it are replaced.

    A tensor keeps its identity when what it reads is replaced: `inputs(t)` is what it reads now, `t.inputs` what it
    read when it was made, and `finish` rebuilds it once. So a replacement costs its readers, not all that follows.

    Tensors are numbered as they come: those of the roots in the order of `topological`, then every new one. The same
    replacements on an equal graph give the same numbers.
    """

    def __init__(self, roots: Sequence[Tensor], order: Sequence[Tensor] | None = None):
        """order: all that the roots need, as `topological` has it, where it is known."""
        self._tensors: list[Tensor] = []
        self._number: dict[int, int] = {}
        """by `uid`"""
        self._edges: list[list[int]] = []
        self._uses: list[dict[int, tuple[int, ...]]] = []
        """for each tensor its readers, and at which of their inputs they read it"""
        self._place: list[Place] = []
        self._is_live: list[bool] = []
        self._inputs: list[tuple[Tensor, ...] | None] = []
        """remembered until one of them is replaced"""
        self._twins: dict[tuple[int, int], list[int]] | None = None
        """computes by their `_key`, in the order of their numbers; once someone has asked"""
        self._reads_hash: list[int] = []
        """of `_edges`, for `_key`: a sum over the inputs, one of which changes when it is replaced"""
        self._kinds: dict[Callable[[Definition], Hashable], dict[Hashable, list[int]]] = {}
        """the computes of each kind, for each way to tell kinds that someone has asked for"""
        self._found: dict[Hashable, object] = {}
        """what `while_it_stays` was asked for, of the graph as it is now"""
        self._redirected: set[int] = set()
        """what does not read its `inputs` any more"""
        self._behind = itertools.count()
        for n, t in enumerate(topological(tuple(roots)) if order is None else order):
            self._enter(t, (n,))
        self._roots = [self._number[t.uid] for t in roots]
        self._root_uses: dict[int, list[int]] = {}
        for position, n in enumerate(self._roots):
            self._root_uses.setdefault(n, []).append(position)

    # -------------------------------------------------------------------------------------------------- what there is

    def number(self, t: Tensor) -> int:
        return self._number[t.uid]

    def tensor(self, number: int) -> Tensor:
        """The tensor of a number. Raises `GraphError` when there is none, or nothing needs it any more."""
        if not (0 <= number < len(self._tensors) and self._is_live[number]):
            raise GraphError(f"the graph has no tensor {number}")
        return self._tensors[number]

    def is_live(self, t: Tensor) -> bool:
        """Whether a root still needs t."""
        n = self._number.get(t.uid)
        return n is not None and self._is_live[n]

    def is_root(self, t: Tensor) -> bool:
        return self._number[t.uid] in self._root_uses

    def computes(self) -> tuple[Compute, ...]:
        """Every compute that counts, each after what it reads."""
        return tuple(t for n in self._in_order() if isinstance(t := self._tensors[n], Compute))

    def inputs(self, t: Compute) -> tuple[Tensor, ...]:
        """What t reads now, in the order of its slots."""
        n = self._number[t.uid]
        known = self._inputs[n]
        if known is None:
            known = self._inputs[n] = tuple(self._tensors[i] for i in self._edges[n])
        return known

    def readers(self, t: Tensor) -> list[Compute]:
        """What reads t now; each once."""
        return list(self.each_reader(t))

    def each_reader(self, t: Tensor) -> Iterator[Compute]:
        """`readers` one by one, for who need not see all of them; nothing may be replaced meanwhile."""
        return (r for n in self._uses[self._number[t.uid]] if isinstance(r := self._tensors[n], Compute))

    def while_it_stays(self, key: Hashable, find: Callable[[], T]) -> T:
        """What `find()` returns, called again only after something was replaced."""
        if key not in self._found:
            self._found[key] = find()
        return cast(T, self._found[key])

    def is_read_once(self, t: Tensor) -> bool:
        """Whether one compute reads t, and the program does not return it."""
        n = self._number[t.uid]
        return len(self._uses[n]) == 1 and n not in self._root_uses

    def place(self, t: Tensor) -> Place:
        """Less than the place of whatever needs t."""
        return self._place[self._number[t.uid]]

    def depends(self, t: Tensor, on: Tensor) -> bool:
        """Whether t is `on` or needs it. Looks only at what lies between the two."""
        n, goal = self._number[t.uid], self._number[on.uid]
        first = self._place[goal]
        return goal in self._reach(n, self._edges.__getitem__, lambda p: p >= first)

    def dependent(self, tensors: Sequence[Tensor]) -> Tensor | None:
        """One of some tensors that needs another of them. Looks only at what lies between them."""
        goals = {self._number[t.uid] for t in tensors}
        last = max(self._place[n] for n in goals)
        seen, stack = set(goals), list(goals)
        while stack:
            for n in self._uses[stack.pop()]:
                if n in goals:
                    return self._tensors[n]
                if n not in seen and self._place[n] < last:
                    seen.add(n)
                    stack.append(n)
        return None

    def twin(self, t: Compute) -> Compute | None:
        """Another compute of the same definition that reads the same, if there is one; the first by number."""
        if self._twins is None:
            self._twins = {}
            self._reads_hash = [_hash(edges) for edges in self._edges]
            for n in self._in_order():
                self._index(n)
        own = self._number[t.uid]
        for n in self._twins[self._key(own)][:2]:
            other = self._tensors[n]
            if n != own and self._edges[n] == self._edges[own] and isinstance(other, Compute):
                return other
        return None

    def alike(self, t: Compute, kind: Callable[[Definition], Hashable]) -> Sequence[int]:
        """The numbers of all computes whose definitions are of the kind of t's, in order; none for the kind None."""
        if kind not in self._kinds:
            self._kinds[kind] = {}
            for n in self._in_order():
                self._sort_in(kind, n)
        return self._kinds[kind].get(kind(t.definition), ())

    # ------------------------------------------------------------------------------------------------------- changes

    def replace(self, edit: Mapping[Tensor, Tensor]) -> list[Compute]:
        """Let what reads each key read its value instead, all at once. A value may read its own key: x -> f(x).

        Returns what is new, what reads something new, and what has become the only reader of something. Raises
        `GraphError` when a key is not in the graph, its value differs in shape or type, or needs what reads the key;
        the editor is of no use then.
        """
        self._found.clear()
        fresh: dict[int, None] = {}
        numbers = []
        for old, new in edit.items():
            self._check(old, new)
            fresh.update(dict.fromkeys(self._enter_cone(new, self.place(old))))
            numbers.append((self._number[old.uid], self._number[new.uid]))
        touched = dict(fresh)
        for old_number, new_number in numbers:
            own = self._reach(new_number, lambda n: [i for i in self._edges[n] if i in fresh])
            for reader in [r for r in self._uses[old_number] if r not in own]:
                self._redirect(reader, old_number, new_number)
                touched[reader] = None
            for position in self._root_uses.pop(old_number, []):
                self._roots[position] = new_number
                self._root_uses.setdefault(new_number, []).append(position)
        for pair in numbers:
            for number in pair:
                touched.update(dict.fromkeys(self._drop(number)))
        return [t for n in touched if self._is_live[n] and isinstance(t := self._tensors[n], Compute)]

    def finish(self) -> tuple[Tensor, ...]:
        """The roots, over tensors that read what they are to read."""
        made: dict[int, Tensor] = {}
        for n in self._in_order() if self._redirected else ():
            t = self._tensors[n]
            if isinstance(t, Compute) and (n in self._redirected or not made.keys().isdisjoint(self._edges[n])):
                inputs = tuple(made.get(i, self._tensors[i]) for i in self._edges[n])
                made[n] = Compute(t.definition, inputs, t.name, t.axis_names, t.where)
        return tuple(made.get(n, self._tensors[n]) for n in self._roots)

    def _check(self, old: Tensor, new: Tensor) -> None:
        if not self.is_live(old):
            raise GraphError(f"{old.name} is to be replaced but is not in the graph", old.where)
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            raise GraphError(
                f"{old.name} is {old.dtype}{list(old.shape)} and cannot be replaced by {new.name}, "
                f"{new.dtype}{list(new.shape)}",
                old.where,
            )

    def _enter(self, t: Tensor, place: Place) -> int:
        n = self._number.get(t.uid)
        if n is None:
            n = self._number[t.uid] = len(self._tensors)
            self._tensors.append(t)
            self._edges.append([self._number[i.uid] for i in t.inputs] if isinstance(t, Compute) else [])
            self._uses.append({})
            self._place.append(place)
            self._is_live.append(True)
            self._inputs.append(None)
            if self._twins is not None:
                self._reads_hash.append(_hash(self._edges[n]))
        self._is_live[n] = True
        for position, i in enumerate(self._edges[n]):
            uses = self._uses[i]
            uses[n] = (*uses[n], position) if n in uses else (position,)
        self._index(n)
        for kind in self._kinds:
            self._sort_in(kind, n)
        return n

    def _enter_cone(self, new: Tensor, place: Place) -> list[int]:
        """Take in `new` and what it needs that is not there, behind `place`; their numbers."""
        entered = []
        stack = [(new, False)]
        while stack:
            t, done = stack.pop()
            if self.is_live(t):
                continue
            if done:
                n = self._enter(t, (*place, next(self._behind)))
                entered.append(n)
                for i in self._edges[n]:
                    self._move_before(i, n)
                continue
            stack.append((t, True))
            if isinstance(t, Compute):
                reads = self.inputs(t) if t.uid in self._number else t.inputs
                stack.extend((i, False) for i in reversed(reads))
        return entered

    def _redirect(self, reader: int, old: int, new: int) -> None:
        positions = self._uses[old].pop(reader)
        self._unindex(reader)
        for position in positions:
            self._edges[reader][position] = new
            if self._twins is not None:
                self._reads_hash[reader] += hash((position, new)) - hash((position, old))
        self._redirected.add(reader)
        self._uses[new][reader] = (*self._uses[new].get(reader, ()), *positions)
        self._inputs[reader] = None
        self._index(reader)
        self._move_before(new, reader)

    def _drop(self, number: int) -> list[int]:
        """Forget a tensor that nothing needs, and what only it needed; the readers that are now the only ones."""
        only: list[int] = []
        stack = [number]
        while stack:
            n = stack.pop()
            if self._uses[n] or n in self._root_uses or not self._is_live[n]:
                continue
            self._unindex(n)
            for kind in self._kinds:
                self._sort_out(kind, n)
            self._is_live[n] = False
            for i in dict.fromkeys(self._edges[n]):
                del self._uses[i][n]
                if not self._uses[i]:
                    stack.append(i)
                elif len(self._uses[i]) == 1:
                    only += self._uses[i]
        return only

    # --------------------------------------------------------------------------------------------------------- order

    def _in_order(self) -> list[int]:
        """The numbers of all that counts, each after what it reads."""
        return sorted((n for n, live in enumerate(self._is_live) if live), key=self._place.__getitem__)

    def _reach(
        self, start: int, step: Callable[[int], Collection[int]], within: Callable[[Place], bool] = lambda p: True
    ) -> dict[int, None]:
        """What is reached from a tensor by steps to places within limits."""
        found = {start: None}
        stack = [start]
        while stack:
            for n in step(stack.pop()):
                if n not in found and within(self._place[n]):
                    found[n] = None
                    stack.append(n)
        return found

    def _move_before(self, first: int, then: int) -> None:
        """Let `first` stand before `then`, which reads it. Raises `GraphError` when `first` needs `then`.

        Only what lies between the two is moved. Source: Pearce and Kelly, A Dynamic Topological Sort Algorithm for
        Directed Acyclic Graphs, 2006.
        """
        low, high = self._place[then], self._place[first]
        if high < low:
            return
        later = self._reach(then, self._uses.__getitem__, lambda p: p <= high)
        if first in later:
            new, reader = self._tensors[first], self._tensors[then]
            raise GraphError(f"{reader.name} is to read {new.name}, which needs {reader.name} itself", reader.where)
        earlier = self._reach(first, self._edges.__getitem__, lambda p: p >= low)
        places = sorted(self._place[n] for n in (*earlier, *later))
        moved = [n for part in (earlier, later) for n in sorted(part, key=self._place.__getitem__)]
        for n, place in zip(moved, places, strict=True):
            self._place[n] = place

    # --------------------------------------------------------------------------------------------------------- twins

    def _key(self, n: int) -> tuple[int, int]:
        """Equal for computes that are alike, and hardly ever for others."""
        t = self._tensors[n]
        return (t.definition.uid if isinstance(t, Compute) else -1 - n), self._reads_hash[n]

    def _index(self, n: int) -> None:
        if self._twins is not None:
            bisect.insort(self._twins.setdefault(self._key(n), []), n)

    def _unindex(self, n: int) -> None:
        if self._twins is not None:
            alike = self._twins[self._key(n)]
            del alike[bisect.bisect_left(alike, n)]

    # --------------------------------------------------------------------------------------------------------- kinds

    def _sort_in(self, kind: Callable[[Definition], Hashable], n: int) -> None:
        t = self._tensors[n]
        found = kind(t.definition) if isinstance(t, Compute) else None
        if found is not None:
            bisect.insort(self._kinds[kind].setdefault(found, []), n)

    def _sort_out(self, kind: Callable[[Definition], Hashable], n: int) -> None:
        t = self._tensors[n]
        found = kind(t.definition) if isinstance(t, Compute) else None
        if found is not None:
            alike = self._kinds[kind][found]
            del alike[bisect.bisect_left(alike, n)]


def _hash(edges: list[int]) -> int:
    return sum(map(hash, enumerate(edges)))
