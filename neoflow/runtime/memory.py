"""Where each temporary lives: lifetimes, and offsets in one arena so that what does not live together shares bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from neoflow.runtime.device import ALIGNMENT


class Lifetime(NamedTuple):
    """`nbytes` needed from step `first` to step `last`, both included."""

    nbytes: int
    first: int
    last: int


def aligned(nbytes: int) -> int:
    return -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT


def amount(nbytes: int) -> str:
    """Bytes for people: 1.5 GiB, 20.0 MiB, 0.4 KiB."""
    power = next((n for n in (3, 2) if nbytes >= 1 << 10 * n), 1)
    return f"{nbytes / (1 << 10 * power):.{2 if power == 3 else 1}f} {' KMG'[power]}iB"


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
    count = len(lifetimes)
    sizes = np.array([aligned(life.nbytes) for life in lifetimes], np.int64)
    first, last = (np.array([getattr(life, end) for life in lifetimes], np.int64) for end in ("first", "last"))
    offsets, placed = np.zeros(count, np.int64), np.zeros(count, bool)
    for n in sorted(range(count), key=lambda n: (-lifetimes[n].nbytes, lifetimes[n].first, n)):
        (others,) = np.nonzero(placed & (first <= last[n]) & (first[n] <= last))
        others = others[np.argsort(offsets[others], kind="stable")]
        ends = np.maximum.accumulate(np.concatenate(([0], offsets[others] + sizes[others])))
        gaps = offsets[others] - ends[:-1]
        fits = np.where(gaps >= sizes[n], gaps, np.iinfo(np.int64).max)
        has_gap = bool((gaps >= sizes[n]).any())
        offsets[n] = ends[int(np.argmin(fits))] if has_gap else ends[-1]
        placed[n] = True
    return offsets.tolist(), int(np.max(offsets + sizes, initial=0))
