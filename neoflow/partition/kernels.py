"""Kernels while they are put together: at first every stored compute has one of its own, and all that happens is that
two become one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from neoflow.expr.ir import Expr
from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph.cost import Cost
from neoflow.partition.calls import KernelCall, put_together
from neoflow.partition.cost import cost_of
from neoflow.partition.facts import reduces
from neoflow.partition.storage import Storage
from neoflow.partition.subgraph import Subgraph
from neoflow.partition.turned import Turn, Turns, followed
from neoflow.roofs import STATED, Roofs
from neoflow.verdict import Verdict


@dataclass(frozen=True, eq=False)
class Kernel:
    """members: the stored computes it computes, in order. rows: see `Subgraph`. turns: how it goes through each member
    by rows, where that is not for all by their first dimensions."""

    members: tuple[Compute, ...]
    rows: int | None = None
    turns: tuple[Turn, ...] = ()

    @property
    def head(self) -> Compute:
        return self.members[0]


@dataclass(frozen=True)
class Merge:
    """Two kernels by number, of which the second reads the first, and the rows of what they become; `turns`: of each
    member, see `Kernel`."""

    first: int
    second: int
    rows: int | None = None
    turns: tuple[Turn, ...] = ()


Rows = tuple[int, tuple[Turn, ...]]
"""How many dimensions number the rows of a kernel, and how it goes through each member, see `Kernel`."""
RowDims = tuple[tuple[int, ...], ...]
"""Of each member of a kernel, the dimensions that number its rows."""
FindRows = Callable[[Storage, tuple[Compute, ...]], Rows]
"""Finds them of members."""


ReducedRows = dict[Tensor, set[tuple[Expr | None, ...]]]
"""Tensors that a kernel reduces by rows, and the indices that are the same all along a row; the others are None."""


InTiles = Callable[[Subgraph], Verdict]
"""Whether sums may ride along with the tiles of the contraction of a kernel."""


def _never(_: Subgraph) -> Verdict:
    return Verdict(False, "nothing rides along with tiles")


class Kernels:
    """The kernels so far, by number, in the order in which they were begun; and which of them need which. roofs: what
    their costs are compared by. in_tiles: see `InTiles`."""

    def __init__(self, storage: Storage, roofs: Roofs = STATED, in_tiles: InTiles = _never):
        self.storage, self.roofs, self.in_tiles = storage, roofs, in_tiles
        self.kernels = {n: Kernel((t,)) for n, t in enumerate(storage.stored)}
        self.number: dict[Tensor, int] = {t: n for n, t in enumerate(storage.stored)}
        """the kernel of each stored compute"""
        self._own = {n: 1 << n for n in self.kernels}
        self._needs: dict[int, int] = {}
        """Sets of numbers, as bits: those that became this kernel; of each that must run before it, at least one."""
        self._merged: dict[Merge, Kernel] = {}
        self._calls: dict[Kernel, KernelCall] = {}
        self._costs: dict[Subgraph, Cost] = {}
        self._rows: dict[tuple[FindRows, Kernel, Kernel], Rows] = {}
        self._strangers: set[tuple[FindRows, Kernel, Kernel]] = set()
        self._made: dict[Kernel, tuple[Tensor, ...]] = {}
        self.reduced: dict[tuple[Kernel, RowDims], ReducedRows] = {}
        """by kernel and the dimensions of its members that number rows, as far as somebody has asked"""
        for n, kernel in self.kernels.items():
            self._needs[n] = 0
            for m in self.sources(kernel):
                self._needs[n] |= self._needs[m] | self._own[m]

    def rows(self, first: int, second: int, find: FindRows) -> Rows:
        """What `find` finds of the members of two kernels, found once."""
        a, b = self.kernels[first], self.kernels[second]
        if (find, a, b) not in self._rows:
            self._rows[find, a, b] = find(self.storage, a.members + b.members)
        return self._rows[find, a, b]

    def with_rows(self, first: int, second: int, find: FindRows) -> Iterator[Merge]:
        """The two by as many rows as `find` finds; where it finds none, that is said once of them."""
        a, b = self.kernels[first], self.kernels[second]
        count, turns = self.rows(first, second, find)
        if count or (find, a, b) not in self._strangers:
            if not count:
                self._strangers.add((find, a, b))
            yield Merge(first, second, count, turns)

    def merged(self, merge: Merge) -> Kernel:
        """What the two would become."""
        if merge not in self._merged:
            members = self.kernels[merge.first].members + self.kernels[merge.second].members
            self._merged[merge] = Kernel(members, merge.rows, merge.turns)
        return self._merged[merge]

    def row_dims(self, merge: Merge) -> RowDims:
        """Of each member of what the two would become, the dimensions that number its rows."""
        plain = tuple(range(merge.rows or 0))
        return tuple(t.rows for t in merge.turns) or (plain,) * len(self.merged(merge).members)

    def row_count(self, merge: Merge) -> int:
        """The rows of what the two would become."""
        turn = merge.turns[0] if merge.turns else Turn(tuple(range(merge.rows or 0)))
        head = self.kernels[merge.first].head
        return math.prod(turn.shape(head.shape)[: len(turn.rows)])

    def merge(self, merge: Merge, number: int) -> None:
        """Make the two one, in the place of `number`, one of them."""
        kernel = self.merged(merge)
        own = self._own[merge.first] | self._own[merge.second]
        needs = (self._needs[merge.first] | self._needs[merge.second]) & ~own
        for n in (merge.first, merge.second):
            del self._own[n], self._needs[n]
            if n != number:
                del self.kernels[n]
        self.kernels[number], self._own[number], self._needs[number] = kernel, own, needs
        self.number.update(dict.fromkeys(kernel.members, number))
        self._merged.clear()
        self._tell_readers(number)

    def _tell_readers(self, number: int) -> None:
        """Let every kernel that needs this one need what this one needs."""
        stack = [number]
        while stack:
            n = stack.pop()
            for m in dict.fromkeys(self.number[r] for t in self.kernels[n].members for r in self.storage.uses[t]):
                if m != n and self._needs[n] & ~self._needs[m]:
                    self._needs[m] |= self._needs[n]
                    stack.append(m)

    def needs(self, n: int, before: int) -> bool:
        """Whether kernel n can run only when kernel `before` has finished."""
        return bool(self._needs[n] & self._own[before])

    def sources(self, kernel: Kernel) -> tuple[int, ...]:
        """The kernels whose memory it reads, in the order of its reads; perhaps itself."""
        if kernel not in self._made:
            made = (m for t in kernel.members for i in self.storage.reads[t] for m in self.storage.makers(i))
            self._made[kernel] = tuple(dict.fromkeys(m for m in made if m in self.number))
        return tuple(dict.fromkeys([self.number[m] for m in self._made[kernel]]))

    def call(self, kernel: Kernel) -> KernelCall:
        """See `assemble`."""
        if kernel not in self._calls:
            self._calls[kernel] = assemble(self.storage, kernel)
        return self._calls[kernel]

    def cost(self, kernel: Kernel) -> Cost:
        """See `cost_of`; found once for equal kernels, as the steps and layers of a model have."""
        subgraph = self.call(kernel).subgraph
        if subgraph not in self._costs:
            self._costs[subgraph] = cost_of(subgraph)
        return self._costs[subgraph]

    def calls(self) -> list[KernelCall]:
        return [self.call(kernel) for kernel in self.kernels.values()]


def assemble(storage: Storage, kernel: Kernel) -> KernelCall:
    """A kernel as a subgraph in its place. Raises `PartitionError` when it is none (`Subgraph.check`)."""
    members, first = set(kernel.members), kernel.head
    order = _nodes(storage, kernel)
    if kernel.rows is None and reduces(first):  # what does not need the anchor goes before it
        after: set[Tensor] = {first}
        for t in order:
            if any(i in after for i in t.inputs):
                after.add(t)
        order = [t for t in order if t not in after] + [t for t in order if t in after]
    if kernel.rows is not None:  # what is written over a parameter goes behind all that reads it
        read = {i for t in order for i in t.inputs}
        order.sort(key=lambda t: t in storage.facts.roots and t not in read)
    inside = set(order)
    inputs = tuple(dict.fromkeys(i for t in order for i in t.inputs if i not in inside))
    outputs = tuple(
        t for t in kernel.members if t in storage.facts.roots or any(r not in members for r in storage.uses[t])
    )
    turns: Turns = {t: turn for t, turn in zip(kernel.members, kernel.turns, strict=False) if not turn.is_plain}
    name = "_".join(dict.fromkeys(t.name for t in kernel.members))
    return put_together(inputs, order, outputs, kernel.rows, followed(order, turns) if turns else turns, name)


def _nodes(storage: Storage, kernel: Kernel) -> list[Compute]:
    """The members and what is recomputed for them, each after what it reads."""
    members, nodes = set(kernel.members), dict[Compute, None]()
    stack: list[tuple[Tensor, bool]] = [(t, False) for t in reversed(kernel.members)]
    while stack:
        t, is_done = stack.pop()
        if not isinstance(t, Compute) or t in nodes or not (t in members or t in storage.recomputed):
            continue
        if is_done:
            nodes[t] = None
        else:
            stack.append((t, True))
            stack.extend((i, False) for i in reversed(t.inputs))
    return list(nodes)
