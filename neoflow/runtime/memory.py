"""Where each temporary lives: lifetimes, and offsets in one arena so that what does not live together shares bytes."""

from __future__ import annotations

from dataclasses import dataclass

ALIGNMENT = 64


@dataclass(frozen=True)
class Lifetime:
    """`nbytes` needed from step `first` to step `last`, both included."""

    nbytes: int
    first: int
    last: int


def aligned(nbytes: int) -> int:
    return -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT


def lower_bound(lifetimes: list[Lifetime]) -> int:
    """Bytes of the largest live set of this order: no placement needs less."""
    events: dict[int, int] = {}
    for life in lifetimes:
        events[life.first] = events.get(life.first, 0) + aligned(life.nbytes)
        events[life.last + 1] = events.get(life.last + 1, 0) - aligned(life.nbytes)
    live = peak = 0
    for step in sorted(events):
        live += events[step]
        peak = max(peak, live)
    return peak


def place(lifetimes: list[Lifetime]) -> tuple[list[int], int]:
    """Offsets (bytes, aligned) for each lifetime and the size of the arena.

    Largest first, each into the smallest gap between those it lives together with. Source: Pisarchyk and Lee, Efficient
    Memory Management for Deep Neural Net Inference, 2020, section 5 (greedy by size).
    """
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    total = 0
    for n in sorted(range(len(lifetimes)), key=lambda n: (-lifetimes[n].nbytes, lifetimes[n].first, n)):
        life, size = lifetimes[n], aligned(lifetimes[n].nbytes)
        together = sorted(
            (offsets[m], offsets[m] + aligned(lifetimes[m].nbytes))
            for m in placed
            if lifetimes[m].first <= life.last and life.first <= lifetimes[m].last
        )
        best: tuple[int, int] | None = None
        end = 0
        for start, stop in together:
            gap = start - end
            if gap >= size and (best is None or gap < best[0]):
                best = (gap, end)
            end = max(end, stop)
        offsets[n] = best[1] if best else end
        total = max(total, offsets[n] + size)
        placed.append(n)
    return offsets, total
