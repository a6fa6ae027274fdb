"""Row kernels whose rows are not the first dimensions of all they write, or are blocks of neighbours in memory.

    s[c] = sum[b, p](x[b, c, p]);  y[b, c, p] = x[b, c, p] * s[c]            one row is a channel of y
    s[j] = sum[b](x[b, j]);  q[j] = sum[b](x[b, j] * x[b, j])                one row is 64 neighbours along j

Such a tensor is *turned*: inside its kernel the rows are its first dimensions, as those of any other, and only what is
written knows in which order the dimensions lie in memory (`Subgraph.orders`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr.ir import Apply, Axis, Expr
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph import own_indices, reads_at_own_point
from neoflow.graph.laid import reordered
from neoflow.partition.composed import Places

BLOCKS = (64, 32, 16)
"""Neighbours in memory that a row of columns has, the most that divide its extent: whole vectors and lines."""


@dataclass(frozen=True)
class Turn:
    """How a tensor is gone through by rows. rows: its dimensions that number them, in order; of the last of these,
    `width` neighbours are one row.

    x[b, j] by rows of 64 of j: x'[j // 64, b, j % 64]
    """

    rows: tuple[int, ...]
    width: int = 1

    @property
    def is_plain(self) -> bool:
        """Whether the rows are the first dimensions as they are."""
        return self.width == 1 and self.rows == tuple(range(len(self.rows)))

    def shape(self, plain: Sequence[int]) -> tuple[int, ...]:
        """The shape of a tensor when it is turned."""
        lead = [plain[d] // (self.width if d == self.rows[-1] else 1) for d in self.rows]
        return (*lead, *(self.width if d in self.rows else plain[d] for d in self._inside(len(plain))))

    def indices(self, plain: Sequence[Expr]) -> tuple[Expr, ...]:
        """Where the element lies that is at `plain` in the tensor."""
        last, width = self.rows[-1], affine.integer(self.width)
        block = {last: Apply("floordiv", (plain[last], width))} if self.width > 1 else {}
        place = {last: Apply("mod", (plain[last], width))} if self.width > 1 else {}
        lead = [block.get(d, plain[d]) for d in self.rows]
        return (*lead, *(place.get(d, plain[d]) for d in self._inside(len(plain))))

    def order(self, rank: int) -> tuple[int, ...]:
        """The dimensions of the turned tensor in the order in which they lie in memory."""
        inside = {d: len(self.rows) + n for n, d in enumerate(self._inside(rank))}
        lead = {d: n for n, d in enumerate(self.rows)}
        return tuple(n for d in range(rank) for n in (lead.get(d), inside.get(d)) if n is not None)

    def points(self, shape: Sequence[int]) -> tuple[Expr, ...]:
        """The point of the tensor, of this shape, that is at the own point of the turned one."""
        own = own_indices(self.shape(shape))
        lead = dict(zip(self.rows, own, strict=False))
        found = dict(zip(self._inside(len(shape)), own[len(self.rows) :], strict=True))
        if self.width > 1:
            block: Expr = Apply("mul", (lead[self.rows[-1]], affine.integer(self.width)))
            found[self.rows[-1]] = Apply("add", (block, found[self.rows[-1]]))
        at = {**lead, **found}
        return tuple(affine.simplify(at[d]) for d in range(len(shape)))

    def _inside(self, rank: int) -> list[int]:
        """The dimensions inside a row."""
        rest = self.rows if self.width == 1 else self.rows[:-1]
        return [d for d in range(rank) if d not in rest]


Turns = Mapping[Tensor, Turn]
"""How tensors of a kernel are turned; those that are not there are as they are."""


def turned(t: Compute, turns: Turns) -> tuple[Definition, tuple[Tensor, ...]]:
    """The definition of a compute that reads, and perhaps is, what is turned; and what each of its slots reads.

    y[b, c] = x[b, c] * s[c], by rows c    ->    y'[c, b] = x[b, c] * s[c]
    """
    found, slots, _ = reordered(t.definition, turns.get(t), tuple(turns.get(i) for i in t.inputs))
    return found, tuple(t.inputs[n] for n in slots)


def followed(order: Sequence[Compute], turns: Turns) -> Turns:
    """`turns`, and of what is computed in place for turned ones alone, at their own points, theirs. order: the nodes of
    a kernel, each after what it reads."""
    found = dict(turns)
    readers: dict[Tensor, list[Compute]] = {}
    for t in order:
        for i in dict.fromkeys(t.inputs):
            readers.setdefault(i, []).append(t)
    for t in reversed(order):
        own = {found.get(r) for r in readers.get(t, ())} if t not in found else set()
        turn = own.pop() if len(own) == 1 else None
        if turn is not None and all(_is_at_own_point(r, t) for r in readers[t]):
            found[t] = turn
    return found


def _is_at_own_point(reader: Compute, source: Tensor) -> bool:
    reads = (r for r in reader.definition.reads if reader.inputs[r.slot] is source)
    return all(reads_at_own_point(r, reader.shape) for r in reads)


# ------------------------------------------------------------------------------------------------ what rows there are


def common_turns(
    start: Compute, rows: int, members: Collection[Compute], places: Mapping[Compute, Places[Tensor]]
) -> tuple[Turn, ...] | None:
    """How all members go through rows that are the first dimensions of `start`; None where they do not.

    places: what each reads, itself or through what is computed in place for it, and where.
    """
    found: dict[Tensor, tuple[int, ...]] = {start: tuple(range(rows))}
    reads = [(m, source, indices) for m in members for source, indices in places[m]]
    while any(m not in found for m in members):
        before = len(found)
        for m, source, indices in reads:
            if m in found and source not in found and (dims := _dims(m, indices, found[m])) is not None:
                found[source] = dims
            elif source in found and m not in found and (axes := _axes(m, indices, found[source])) is not None:
                found[m] = axes
        if len(found) == before:
            return None
    own = frozenset(members)
    for m, source, indices in reads:
        if source in own and _axes(m, indices, found[source]) != found[m]:
            return None
    extents = {tuple(m.shape[d] for d in found[m]) for m in members}
    return tuple(Turn(found[m]) for m in members) if len(extents) == 1 else None


def _dims(m: Compute, indices: Sequence[Expr], rows: Sequence[int]) -> tuple[int, ...] | None:
    """The dimensions of what m reads at these indices that its own rows are."""
    places = {i.ident: d for d, i in reversed(list(enumerate(indices))) if isinstance(i, Axis)}
    return tuple(places[r] for r in rows) if all(r in places for r in rows) else None


def _axes(m: Compute, indices: Sequence[Expr], rows: Iterable[int]) -> tuple[int, ...] | None:
    """The dimensions of m that the rows of what it reads at these indices are."""
    found = [indices[d] for d in rows]
    own = tuple(i.ident for i in found if isinstance(i, Axis) and i.ident < len(m.shape))
    return own if len(own) == len(found) == len(set(own)) else None


def in_blocks(turns: Sequence[Turn], extent: int) -> tuple[Turn, ...] | None:
    """The same rows in blocks of neighbours; None where none divide their extent into several."""
    width = next((w for w in BLOCKS if extent % w == 0 and extent > w), None)
    return None if width is None else tuple(Turn(t.rows, width) for t in turns)
