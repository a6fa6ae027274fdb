"""What the templates that divide a contraction among blocks share: knobs of sides, tiles, operands and results.

A template says by a `Family` what its tiles are and what of a side is multiplied; see `contraction`, `tensor_core`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from neoflow.architectures import architecture
from neoflow.expr import dtype as dt
from neoflow.loops.gpu import choose, operands
from neoflow.loops.gpu.boxes import Boxes
from neoflow.loops.gpu.choose import Extents
from neoflow.loops.gpu.limits import room
from neoflow.loops.gpu.occupancy import Block
from neoflow.loops.gpu.tile import AnyTile, block_of
from neoflow.loops.knob import INDEX, NUMBER, WORD, Chosen, Knob, Range
from neoflow.loops.nest import input_reads, stride
from neoflow.loops.problem import FUSE, Measures, NestProblem, nbytes
from neoflow.loops.schedule import KnobValue
from neoflow.loops.sides import Contraction, size
from neoflow.loops.tile import Sides, sided, splits_of
from neoflow.target import Target

SIDES = ("right", "left")
T = TypeVar("T", bound=AnyTile)


@dataclass(frozen=True)
class Family(Generic[T]):
    """A form of tiles.

    names, meanings: of the knobs that are a tile's. tiles: all that fit. sides: what is multiplied. element: its type.
    width: neighbours of a row of results in one thread. is_in_lines: whether neighbours along K lie side by side in
    shared memory. boxes: what bulk copies of a side, by its name, are of, or
    why there are none; without, the template has none.
    """

    name: str
    names: tuple[str, ...]
    meanings: tuple[str, ...]
    tiles: Callable[[NestProblem, Target, Chosen], tuple[T, ...]]
    sides: Callable[[NestProblem, Chosen], Sides]
    element: Callable[[NestProblem, Chosen], str]
    width: Callable[[T], int]
    is_in_lines: bool
    boxes: Callable[[NestProblem, Target, Chosen, str], Boxes | str] | None = None

    def fitting(self, p: NestProblem, target: Target, k: Chosen, before: tuple[str, ...]) -> tuple[T, ...]:
        """The tiles that agree with the knobs chosen so far."""
        if not before:
            return self.tiles(p, target, k)
        *rest, last = before

        def narrowed() -> tuple[T, ...]:
            return tuple(t for t in self.fitting(p, target, k, tuple(rest)) if getattr(t, last) == k[last])

        return p.memo.once(self._key("tiles", p, target, k, before), narrowed)

    def usual(self, p: NestProblem, target: Target, k: Chosen, before: tuple[str, ...]) -> T:
        """Of these, the one without a search."""
        if before:
            known = self.usual(p, target, k, before[:-1])
            if getattr(known, before[-1]) == k[before[-1]]:
                return known
        e = extents(self.sides(p, k).c)

        def best() -> T:
            return choose.best(e, self.fitting(p, target, k, before), target)

        return p.memo.once(self._key("usual", p, target, k, before), best)

    def _key(self, what: str, p: NestProblem, target: Target, k: Chosen, before: tuple[str, ...]) -> tuple:
        return (what, self.name, target, extents(self.sides(p, k).c), tuple(k[name] for name in before))

    def tile(self, p: NestProblem, target: Target, k: Chosen) -> T:
        """The one that the knobs say."""
        (found,) = self.fitting(p, target, k, self.names)
        return found

    def block(self, p: NestProblem, target: Target, k: Chosen) -> Block:
        """What a block takes."""
        return block_of(self.tile(p, target, k))

    def cycles(self, p: NestProblem, target: Target, k: Chosen) -> float:
        """Estimated, of the launches."""
        return choose.cycles(extents(self.sides(p, k).c), self.tile(p, target, k), int(k["splits"]), target)

    def measures(self, p: NestProblem, target: Target, k: Chosen) -> Measures:
        """The working set is what a block has in shared memory."""
        s, tile = self.sides(p, k), self.tile(p, target, k)
        e, splits = extents(s.c), int(k["splits"])
        points = e.batch * e.m * e.n
        work = s.c.flops + points * s.work[2]
        read = nbytes(r for x in (s.c.left, s.c.right, *s.written) for r in input_reads(x))
        written = points * sum(dt.itemsize(x.dtype) for x in s.written)
        count = e.batch * math.ceil(e.m / tile.block_m) * math.ceil(e.n / tile.block_n) * splits
        return Measures(points, e.k, work, read, written, count, tile.accumulators, tile.shared_bytes)


# --- the sides


def _usual_side(p: NestProblem, _: Target, k: Chosen) -> str:
    """Columns are the side along which the outputs are most nearly contiguous."""
    address = p.fused(k).outputs[0][1]
    found = {side: sided(p, {**_before(k), "side": side}) for side in SIDES}
    return min(SIDES, key=lambda side: min(stride(address, a) or 1 << 40 for a in found[side].n))


def _before(k: Chosen) -> dict[str, KnobValue]:
    return {name: k[name] for name in ("fuse", "split")}


def _last(group: str, what: str) -> Knob[NestProblem]:
    """Which axis of a group is its innermost."""

    def allowed(p: NestProblem, _: Target, k: Chosen) -> Range:
        count = len(getattr(sided(p, k), group))
        return Range(range(count), f"the place of one of {count} axes of {group.upper()}")

    return Knob(f"last_{group}", INDEX, what, allowed, lambda p, _, k: _usual_last(p, k, group))


def _usual_last(p: NestProblem, k: Chosen, group: str) -> int:
    """The axis along which most reads are contiguous; without one, that along which the outputs are most nearly so."""
    c, address = sided(p, k), p.fused(k).outputs[0][1]
    axes = getattr(c, group)
    read = {"m": (c.left,), "n": (c.right,), "k": (c.left, c.right)}[group]
    found = [sum(counts) for counts in zip(*(operands.contiguous(e, axes) for e in read), strict=True)]

    def merit(place: int) -> tuple[int, int, int]:
        step = stride(address, axes[place]) or 1 << 40
        if group == "n":
            return (-step, found[place], place)
        return (found[place], -step if group == "m" else 0, place)

    return max(range(len(axes)), key=merit)


def side_knobs(splits: Callable[[NestProblem, Chosen], tuple[int, ...]]) -> tuple[Knob[NestProblem], ...]:
    """Which axes and factors are whose; `splits`: the ways to divide the factors, by number."""

    def split(p: NestProblem, _: Target, k: Chosen) -> Range:
        found = splits(p, k)
        reason = f"{len(found)} ways to divide the factors among two sides, that which reuses most first"
        return Range(found, reason)

    return (
        FUSE,
        Knob("split", INDEX, "which factors are the left side", split, lambda p, _, k: splits(p, k)[0]),
        Knob("side", WORD, "the side with the columns", lambda *_: Range(SIDES, "there are two"), _usual_side, SIDES),
        _last("m", "the innermost axis of the rows"),
        _last("n", "the innermost axis of the columns"),
        _last("k", "the innermost axis of K"),
    )


def all_splits(p: NestProblem, k: Chosen) -> tuple[int, ...]:
    """Every way to divide the factors."""
    return tuple(range(len(splits_of(p, k))))


def extents(c: Contraction) -> Extents:
    return Extents(size(c.batch), size(c.m), size(c.n), size(c.k))


# --- the tile


def tile_knobs(f: Family[Any]) -> tuple[Knob[NestProblem], ...]:
    """A knob for each number of a tile."""
    return tuple(_tile_knob(f, place) for place in range(len(f.names)))


def _tile_knob(f: Family[Any], place: int) -> Knob[NestProblem]:
    name, before = f.names[place], f.names[:place]

    def allowed(p: NestProblem, target: Target, k: Chosen) -> Range:
        values = tuple(sorted({int(getattr(t, name)) for t in f.fitting(p, target, k, before)}))
        return Range(values, _room(f, p, target, k))

    def usual(p: NestProblem, target: Target, k: Chosen) -> int:
        return int(getattr(f.usual(p, target, k, before), name))

    return Knob(name, NUMBER, f.meanings[place], allowed, usual)


def _room(f: Family[Any], p: NestProblem, target: Target, k: Chosen) -> str:
    a, levels = architecture(target), "two levels of sums" if operands.is_deep(f.sides(p, k).c) else "its sums"
    return (
        f"a block has 32 to 1024 threads, a thread keeps {levels} in 255 registers, a processor of {a.name} has "
        f"{a.registers}, and a block {room(target) >> 10} KiB of shared memory"
    )
