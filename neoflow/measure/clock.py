"""Seconds of a call of a kernel.

Calls go in *blocks*, recorded once and run by one native call, so that neither Python nor the clock is in what is
timed; a time is the median over blocks. A kernel in a step finds its inputs where other kernels have left them: not in
a core's own caches, as a loop over one set of arrays would have them, and not in memory either, unless they are large.
So a block goes round a *ring* of copies of the arrays, twice as large as all cores' own caches.

Where other processes had the cores meanwhile, what is timed is timed once more: the system tells how long our threads
were ready to run and did not.

A candidate that is clearly slower than the best one so far is given up after one call or a few blocks: its time then is
rough, and its rank is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from neoflow import dtype as dt
from neoflow.runtime.device import Device, Launch, Memory, Recording
from neoflow.runtime.executor import Loaded
from neoflow.target import Target

BLOCK = 1e-3
"""Seconds of a block, where a call takes less: a thousand times what reading the clock and calling it take."""
MOST_CALLS = 256
"""Of a block."""
SECONDS = 0.016
"""Of all blocks, when there are enough of them."""
BLOCKS = 5
"""At least, of a kernel that is worth it; three of one that takes longer than `SECONDS` alone."""
HOPELESS, CLEAR = 3.0, 1.3
"""Times the best, from which one call, or so many blocks, are enough."""
FEW = 2
"""Blocks after which a kernel that is clearly slower is given up: the shorter of two has no interruption in it."""
RING = 2
"""Times the own caches of all cores."""
MOST_COPIES = 64
DISTURBED, ATTEMPTS = 0.03, 3
"""Part of its time that a thread may wait for a core, and how often what waited longer is timed."""
BUSY, RETRIED = 3, 32
"""Disturbed timings in a row after which a machine is taken for a busy one, and those after which it is asked again."""
_TASKS = Path("/proc/self/task")

T = TypeVar("T")


@dataclass(frozen=True)
class Timing:
    """Median seconds of a call, the distance of the quartiles of blocks over it, and the blocks there were."""

    seconds: float
    spread: float
    blocks: int


def timing(blocks: Sequence[float] | np.ndarray) -> Timing:
    """Of seconds of a call, one for each block."""
    low, middle, high = np.quantile(blocks, (0.25, 0.5, 0.75))
    return Timing(float(middle), float((high - low) / middle), len(blocks))


def waited() -> float:
    """Seconds that threads of this process were ready and had no core, up to now; 0 where the system does not say."""
    total = 0
    for task in _TASKS.glob("*/schedstat"):
        try:
            total += int(task.read_text().split()[1])
        except (OSError, IndexError):  # a thread that has ended
            continue
    return total * 1e-9


class Patience:
    """How often a timing is tried. Beside a program that trains, none is calm, and one attempt has to do."""

    def __init__(self) -> None:
        self._in_vain = 0
        """timings in a row that others disturbed to the last attempt"""

    @property
    def attempts(self) -> int:
        return ATTEMPTS if self._in_vain % RETRIED < BUSY else 1

    def hear(self, is_calm: bool) -> None:
        """Whether the last timing was left alone in the end."""
        self._in_vain = 0 if is_calm else self._in_vain + 1


_PATIENCE = Patience()


def undisturbed(timed: Callable[[], T], threads: int, patience: Patience = _PATIENCE) -> T:
    """What `timed` gives, of a few attempts that which waited least for cores; the first where it had them."""
    attempts: list[tuple[float, T]] = []
    while len(attempts) < patience.attempts:
        start, before = time.perf_counter(), waited()
        found = timed()
        share = (waited() - before) / max(threads * (time.perf_counter() - start), 1e-9)
        attempts.append((share, found))
        if share <= DISTURBED:
            break
    patience.hear(share <= DISTURBED)
    return min(attempts, key=lambda a: a[0])[1]


class Ring:
    """Copies of the arrays of a subgraph. Kernels that are timed in turns go round one: with a ring each, every one
    would find its arrays where the others' have pushed them, in memory."""

    def __init__(self, place: Device, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], target: Target):
        """inputs: their values. outputs: arrays of their shapes and types."""
        self._place = place
        nbytes = sum(a.nbytes for a in (*inputs, *outputs))
        wanted = RING * target.l2_bytes * target.threads
        copies = max(1, min(MOST_COPIES, -(-wanted // max(1, nbytes))))
        self.arrays = [self._copied(inputs, outputs) for _ in range(copies)]

    def _copied(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> list[Memory]:
        made = []
        for array in (*inputs, *outputs):
            made.append(self._place.allocate(array.shape, dt.name_of(array.dtype)))
            self._place.copy(made[-1], array)
        return made


class Stopwatch:
    """One kernel and the ring of arrays that it goes round, to be timed."""

    def __init__(self, place: Device, kernel: Loaded, ring: Ring, target: Target):
        self._place, self._kernel, self.ring, self.threads = place, kernel, ring, target.threads
        self._spaces = [place.allocate((max(w.total(target.threads), 1),), "int8") for w in kernel.code.workspaces]
        self._status = place.status(1)
        self._calls = 0
        self._block = self._recorded(1)

    def _recorded(self, calls: int) -> Recording:
        code, arrays = self._kernel.code, self.ring.arrays
        launches: list[Launch] = []
        table: list[int] = []
        for n in range(calls):
            memory = [*arrays[n % len(arrays)], *self._spaces, *([self._status.memory] if code.faults else [])]
            first = len(table)
            table += [self._place.address(m) for m in memory]
            word = 0 if code.faults else None
            for e, address in zip(code.entries, self._kernel.addresses, strict=True):
                one = (address, first, e.tasks, e.is_parallel, word, None, len(memory), e.threads, e.shared_bytes)
                launches.append(Launch(*one))
        self._calls = calls
        return self._place.record(launches, np.array(table, np.int64), self._status, self.threads)

    def block(self) -> float:
        """Seconds of a call, over one block."""
        start = time.perf_counter()
        self._place.launch(self._block)
        self._place.synchronize()
        return (time.perf_counter() - start) / self._calls

    def begin(self) -> float:
        """Warm up, and make blocks of the right length; about the seconds of a call."""
        self.block()
        about = min(self.block(), self.block())
        calls = max(1, min(MOST_CALLS, round(BLOCK / max(about, 1e-9))))
        if calls > 1:
            self._block = self._recorded(calls)
            self.block()
        return about

    def time(self, best: float | None = None) -> Timing:
        """The seconds of a call; best: those of the best kernel so far, None when there is none."""
        return undisturbed(lambda: self._timed(best), self.threads)

    def _timed(self, best: float | None) -> Timing:
        self.block()
        once = self.block()
        if best is not None and once > HOPELESS * best and min(once, self.block()) > HOPELESS * best:
            return Timing(once, 0.0, 1)
        about = self.begin()
        least, blocks, spent = 3 if about > SECONDS else BLOCKS, list[float](), 0.0
        while len(blocks) < least or spent < SECONDS:
            blocks.append(self.block())
            spent += blocks[-1] * self._calls
            if best is not None and len(blocks) == FEW and min(blocks) > CLEAR * best:
                break
        return timing(blocks)


def in_turns(watches: Sequence[Stopwatch], rounds: int) -> list[Timing]:
    """Kernels timed in turns, so that what slows the machine down slows all of them.

    The seconds of the first are its median; those of another stand to them as the median of the ratios within a round.
    """
    for watch in watches:
        watch.begin()

    def blocks() -> np.ndarray:
        return np.array([[watch.block() for watch in watches] for _ in range(rounds)])

    seconds = undisturbed(blocks, max(watch.threads for watch in watches))
    first = float(np.median(seconds[:, 0]))
    ratios = [timing(column) for column in (seconds / seconds[:, :1]).T]
    own = timing(seconds[:, 0])
    return [own, *(Timing(first * r.seconds, r.spread, rounds) for r in ratios[1:])]
