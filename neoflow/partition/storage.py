"""What has memory: a compute is *stored*, *recomputed* where it is read, a *view* of something stored, or a *whole*,
the parts of which are stored in it.

`Storing` is that while it is decided, `Storage` when it is settled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from neoflow.expr.ir import Read
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph import pieces, points
from neoflow.partition.calls import View, Wholes, makers
from neoflow.partition.composed import Places, places
from neoflow.partition.copies import Copies
from neoflow.partition.facts import compared, looked_up_axes, reduces
from neoflow.partition.graph_facts import Facts

Uses = Mapping[Compute, float]
"""The stored computes that read a tensor, directly or through what has no memory of its own; and the most often that
one of them reads an element."""


class Storing:
    """Who is recomputed and who is a view, so far; at first every compute is stored.

    `uses`, `compared_by`, `looked_up` and `copies` are asked of a compute once it is decided what becomes of its
    readers.
    """

    def __init__(self, facts: Facts):
        self.facts = facts
        self.recomputed: set[Tensor] = set()
        self.views: dict[Tensor, View] = {}
        self.wholes: dict[Tensor, tuple[Compute, ...]] = {}
        self._uses: dict[Tensor, Uses] = {}
        self._compared_by: dict[Tensor, Compute | None] = {}
        self._looked_up: dict[Tensor, frozenset[int]] = {}
        self.copies = Copies(facts)

    def recompute(self, t: Compute) -> None:
        (
            self.uses(t),
            self.compared_by(t),
            self.looked_up(t),
        )  # known now, so that what t reads asks no deeper than its readers
        self.copies.recompute(t)
        self.recomputed.add(t)

    def view(self, t: Compute, offset: int) -> None:
        """Make t the elements of what it reads, which is stored or itself a view, from `offset` on."""
        source = t.inputs[0]
        under = self.views.get(source, View(source, 0))  # the source may be a part: its whole is the base then
        self.views[t] = View(under.base, under.offset + offset)
        self.recomputed.discard(t)

    def put_together(self, t: Compute) -> None:
        """Let what t is put together of be stored in the memory of t, before there are views."""
        parts = {t.inputs[p.slot]: p.offset for p in pieces(t.definition) or ()}
        self.views.update({part: View(t, offset, is_part=True) for part, offset in parts.items()})
        self.wholes[t] = tuple(p for p in parts if isinstance(p, Compute))

    def uses(self, t: Tensor) -> Uses:
        """See `Uses`."""
        return _uses(self.facts, self.recomputed, self._uses, t)

    def compared_by(self, t: Tensor) -> Compute | None:
        """A compute that compares t for equality, directly or through what is recomputed for it."""
        if t not in self._compared_by:
            found = None
            for reader in self.facts.readers_of(t):
                if any(i is t and n in compared(reader.definition) for n, i in enumerate(reader.inputs)):
                    found = reader
                elif reader in self.recomputed:
                    found = self.compared_by(reader)
                if found is not None:
                    break
            self._compared_by[t] = found
        return self._compared_by[t]

    def looked_up(self, t: Tensor) -> frozenset[int]:
        """Dimensions of t that get an index read from data, directly or through what is recomputed for it."""
        if t not in self._looked_up:
            self._looked_up[t] = frozenset().union(
                *(
                    looked_up_axes(r.definition, n, self.looked_up(r) if r in self.recomputed else frozenset())
                    for r in self.facts.readers_of(t)
                    for n, i in enumerate(r.inputs)
                    if i is t
                )
            )
        return self._looked_up[t]

    def settle(self) -> Storage:
        """The outcome. From here on nothing changes what is stored."""
        memory = frozenset(self.recomputed)
        views = {t for t, view in self.views.items() if not view.is_part}
        passing, uses = memory | views | self.wholes.keys(), dict[Tensor, Uses]()
        for t in reversed(self.facts.nodes):
            _uses(self.facts, passing, uses, t)
        for given in dict.fromkeys(i for t in self.facts.nodes for i in t.inputs if not isinstance(i, Compute)):
            _uses(self.facts, passing, uses, given)
        stored = tuple(t for t in self.facts.nodes if t not in passing)
        found = {t: _closure(t, memory) for t in stored}
        closures = {t: tuple(sorted(closure, key=lambda u: u.uid)) for t, closure in found.items()}
        reads = {t: tuple(_reads(closure, memory)) for t, closure in found.items()}
        return Storage(self.facts, stored, memory, dict(self.views), dict(self.wholes), uses, closures, reads)


@dataclass(frozen=True, eq=False)
class Storage:
    """stored: computes that a kernel writes, in the order of the graph. views: computes with another's memory. wholes:
    computes with memory that are written in parts.

    uses: see `Uses`. closures: a stored compute and what is recomputed for it, each after what it reads. reads: what
    these read from memory.
    """

    facts: Facts
    stored: tuple[Compute, ...]
    recomputed: frozenset[Tensor]
    views: Mapping[Tensor, View]
    wholes: Wholes
    uses: Mapping[Tensor, Uses]
    closures: Mapping[Compute, tuple[Compute, ...]]
    reads: Mapping[Compute, tuple[Tensor, ...]]
    _places: dict[Compute, Places[Tensor]] = field(default_factory=dict, repr=False)

    def base(self, t: Tensor) -> Tensor:
        """The tensor whose memory t is."""
        return self.views[t].base if t in self.views else t

    def makers(self, t: Tensor) -> tuple[Tensor, ...]:
        """See `makers`."""
        return makers(t, self.views, self.wholes)

    def reads_of(self, t: Compute, members: Collection[Tensor]) -> Iterator[tuple[Compute, Read, Tensor]]:
        """Where t, or what is recomputed for it, reads one of `members` or what is recomputed from one."""
        own = set(members)
        for u in self.closures[t]:
            if own.isdisjoint(u.inputs):
                continue
            for read in u.definition.reads:
                source = u.inputs[read.slot]
                if source in own:
                    yield u, read, source
            if u is not t:
                own.add(u)

    def places(self, t: Compute, members: Collection[Tensor]) -> Places[Tensor]:
        """Where t reads one of `members`, itself or through what is recomputed for it."""
        if t not in self._places:
            self._places[t] = self._found_places(t)
        return tuple(place for place in self._places[t] if place[0] in members)

    def _found_places(self, t: Compute) -> Places[Tensor]:
        inside: dict[Tensor, tuple[Definition, Places[Tensor]]] = {}
        for u in self.closures[t]:
            found = places(u.definition, u.inputs, inside, lambda s: s not in self.recomputed)
            if found and u is not t:
                inside[u] = u.definition, found
        return found

    def is_kept(self, t: Compute) -> bool:
        """Whether t is written to memory in whatever kernel it is: something needs it that cannot ride along."""
        return t in self.facts.roots or t in self.views or any(reduces(r) or r.shape != t.shape for r in self.uses[t])


def _uses(facts: Facts, passing: AbstractSet[Tensor], known: dict[Tensor, Uses], t: Tensor) -> Uses:
    """The uses of t when the computes in `passing` have no memory; `known`: what was found before."""
    if t not in known:
        found: dict[Compute, float] = {}
        for reader in facts.readers_of(t):
            ratio = points(reader.definition) / t.size
            through = _uses(facts, passing, known, reader).items() if reader in passing else ((reader, 1.0),)
            for r, more in through:
                found[r] = max(found.get(r, 0.0), ratio * more)
        known[t] = found
    return known[t]


def _closure(t: Compute, recomputed: AbstractSet[Tensor]) -> tuple[Compute, ...]:
    """t and what is recomputed for it."""
    seen: dict[Compute, None] = {}
    stack: list[Tensor] = [t]
    while stack:
        u = stack.pop()
        if isinstance(u, Compute) and u not in seen and (u is t or u in recomputed):
            seen[u] = None
            stack.extend(u.inputs)
    return tuple(seen)


def _reads(closure: Iterable[Compute], recomputed: AbstractSet[Tensor]) -> dict[Tensor, None]:
    return dict.fromkeys(i for u in closure for i in u.inputs if i not in recomputed)
