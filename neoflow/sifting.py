"""Algorithms of contractions judged in the program that they are for.

Each was faster than the direct sum by itself. In the program its transforms are cut otherwise, and its neighbours run
before it, so the whole is timed with all of them beside one of direct sums. Where that is not faster, halves of them
are, those first of which most is expected, and halves of a half that is not faster either.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from neoflow import config, instep, tuning
from neoflow.devices import device
from neoflow.errors import NeoflowError
from neoflow.graph.algorithms import DIRECT
from neoflow.instep import Times
from neoflow.trace import StageRecord, Trace
from neoflow.trials import Runnable, alone

TRIES = 4
"""Parts of what was chosen that are timed, at most, each a program that is compiled for it."""


class Chosen(Runnable, Protocol):
    """A program with what its contractions are computed by."""

    @property
    def algorithms(self) -> tuple[tuning.Algorithms, ...]: ...

    @property
    def trace(self) -> Trace: ...


@dataclass(frozen=True)
class Try:
    """A program with other algorithms for contractions of these names as well, beside the fastest one before it."""

    names: tuple[str, ...]
    times: Times

    def __str__(self) -> str:
        usual, other = self.times.usual * 1e3, self.times.other * 1e3
        told = "kept" if self.times.is_faster else "left"
        return f"{', '.join(self.names)} {told}: {usual:.3f} ms without, {other:.3f} ms with other algorithms"


@dataclass(frozen=True)
class Sifted:
    """What was timed: all other algorithms beside direct sums, then parts of them. taken: digests of definitions that
    keep theirs."""

    whole: Times
    tries: tuple[Try, ...]
    taken: frozenset[str]

    def __str__(self) -> str:
        return "\n".join(map(str, [self.whole, *self.tries]))


def sifted(c: Chosen, make: Callable[[], Chosen], seconds: float) -> StageRecord | None:
    """Have the contractions of a program, `c`, computed by what was fastest of each by itself only where the program is
    faster so, before the search for schedules and in later compilations. What was timed; None where all are direct.

    make: compiles it as the records have it. seconds: for the whole, and once more for its parts.
    """
    if not any(a.others for a in c.algorithms):
        return None
    sieve = _Sieve(c, make, seconds)
    try:
        c.trace.run("beside direct sums", sieve.run, str, str, f"{len(c.plan.calls)} kernel calls")
    except NeoflowError:
        return None
    finally:
        sieve.keep(sieve.taken)
    return c.trace.records[-1]


class _Sieve:
    """taken: what was found to be faster so far, by the digests of definitions; nothing until it was timed."""

    def __init__(self, c: Chosen, make: Callable[[], Chosen], seconds: float):
        self._all, self._make, self._seconds = c, make, seconds
        self._algorithms = [a for a in c.algorithms if a.others]
        self._keep = partial(tuning.have_direct, self._algorithms, c.target, config.load().cache_dir)
        self._names, gains = dict[str, str](), dict[str, float]()
        for choice in (choice for a in self._algorithms for choice in a.choices if choice.algorithm != DIRECT):
            self._names.setdefault(choice.digest, choice.name)
            gains[choice.digest] = gains.get(choice.digest, 0.0) + choice.gain
        self._order = sorted(self._names, key=lambda digest: -gains[digest])
        self.taken: frozenset[str] = frozenset()

    def keep(self, taken: frozenset[str]) -> None:
        """What later compilations do."""
        self._keep(not taken, left=frozenset(self._names) - taken)

    def run(self) -> Sifted:
        """All, and where they are not faster together, halves."""
        best = self._with(frozenset())
        whole = self._beside(best, self._all, self._seconds)
        if whole.is_faster:
            self.taken = frozenset(self._names)
            return Sifted(whole, (), self.taken)
        parts, tries = _halves(self._order), list[Try]()
        end = time.monotonic() + self._seconds
        while parts and len(tries) < TRIES and (not tries or time.monotonic() < end):
            part, *parts = parts
            other = self._with(self.taken | {*part})
            found = Try(tuple(self._names[d] for d in part), self._beside(best, other, self._seconds / TRIES))
            tries.append(found)
            if found.times.is_faster:
                self.taken, best = self.taken | {*part}, other
            else:
                parts = [*_halves(part), *parts]
        return Sifted(whole, tuple(tries), self.taken)

    def _with(self, taken: frozenset[str]) -> Chosen:
        self.keep(taken)
        return self._make()

    def _beside(self, usual: Chosen, other: Chosen, seconds: float) -> Times:
        return instep.beside((alone(usual), alone(other)), device(self._all.target), seconds)


def _halves(order: Sequence[str]) -> list[tuple[str, ...]]:
    """The first and the second half; of one alone nothing is left to try."""
    middle = (len(order) + 1) // 2
    return [tuple(order[:middle]), tuple(order[middle:])] if len(order) > 1 else []
