"""This machine's CPU: memory is NumPy arrays, launches run by a team of threads."""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, repeat, zip_longest
from typing import NamedTuple

import numpy as np

from neoflow import dtype as dt
from neoflow.errors import RuntimeFault
from neoflow.runtime.device import Launch, Recording, Status
from neoflow.runtime.device.library import Library
from neoflow.runtime.device.team import Team

PIECES = 4
"""Into how many pieces each thread's share of a parallel phase is cut: what another can take over when it is late.
Steps of capsnet, mi_lstm_mnist and shufflenet took 0.98 to 1.02 of this time with 1 or 2, 0.98 to 1.05 with 8."""
_READINGS = 16
"""Of the processor's counter beside the clock, of which one is kept."""
_GENERATION, _RUNS = 3, 4  # words of a recording, see team.ll


def empty(shape: tuple[int, ...], dtype: str | np.dtype, alignment: int = 64) -> np.ndarray:
    """An uninitialised array whose first element is aligned to `alignment` bytes."""
    kind = dt.type_of(dtype)
    count = math.prod(shape) * kind.itemsize
    raw = np.empty(count + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + count].view(kind).reshape(shape)


class NativeForm(NamedTuple):
    """Launches in the form that the team reads, but for addresses (see `codegen/cpu/team.ll`).

    phases: function, first pointer in the table, tasks | pieces << 32. regions: number of the first phase, phases |
    pieces << 32, number of the status word or -1.
    """

    phases: np.ndarray
    regions: np.ndarray


def native_form(launches: Sequence[Launch], threads: int, timed: bool = False) -> NativeForm:
    """Phases in regions: parallel ones in pieces for so many threads. Addresses of functions are taken as they are."""
    groups = _regions(launches, threads, timed)
    phases: list[tuple[int, int, int]] = []
    regions = np.zeros((len(groups), 3), np.int64)
    for n, group in enumerate(groups):
        pieces = [0] * len(group)
        if threads > 1 and any(a.is_parallel for a in group):
            most = -(-PIECES * threads // len(group))
            pieces = [min(a.tasks, most) if a.is_parallel else 1 for a in group]
        word = group[-1].status
        regions[n] = len(phases), len(group) | sum(pieces) << 32, -1 if word is None else word
        phases += [(a.function, a.pointers, a.tasks | p << 32) for a, p in zip(group, pieces, strict=True)]
    return NativeForm(np.array(phases, np.int64).reshape(-1, 3), regions)


class CpuRecording:
    """A recording in the form that the team reads, see `codegen/cpu/team.ll`."""

    def __init__(
        self, launches: Sequence[Launch], table: np.ndarray, status: np.ndarray, threads: int, timed: bool, team: Team
    ):
        self.table, self.status, self._team = table, status, team
        form = native_form(launches, threads, timed)
        phases, regions = form.phases.copy(), form.regions.copy()
        phases[:, 1] = table.ctypes.data + 8 * phases[:, 1]
        self._threads = threads if (regions[:, 1] >> 32).any() else 1
        regions[:, 0] = phases.ctypes.data + phases.strides[0] * regions[:, 0]
        regions[:, 2] = np.where(regions[:, 2] < 0, 0, status.ctypes.data + 4 * regions[:, 2])
        self.times = np.zeros(len(regions) + 1, np.int64) if timed else None
        times = 0 if self.times is None else self.times.ctypes.data
        self._header = np.array([regions.ctypes.data, len(regions), times, 0, 0], np.int64)
        self._address = self._header.ctypes.data
        kept = (self._header, regions, phases, table, status, self.times)
        weakref.finalize(self, _leave, team, self._header, kept).atexit = False

    def run(self, followers: Sequence[int] = ()) -> None:
        """Run all launches, by the team where some are parallel; nobody has to wait for them."""
        self._team.run(self._address, self._threads)

    @property
    def runs(self) -> int:
        """How often it has run to its end, counted by the native code."""
        return int(self._header[_RUNS])

    def seconds(self) -> list[float]:
        """The times of the launches in the last run."""
        if self.times is None:
            raise RuntimeFault("the recording was not made to be timed")
        return list(np.diff(self.times) / _ticks(self._team))


def _leave(team: Team, header: np.ndarray, kept: object) -> None:
    """Keep the memory of a recording until no thread is inside."""
    team.leave(int(header[_GENERATION]))


def _regions(launches: Sequence[Launch], threads: int, timed: bool) -> list[list[Launch]]:
    """Parallel launches alone, or those of a group that go side by side; others one after the other, until one that can
    fail. Timed ones are all alone."""
    found: list[list[Launch]] = []
    is_open = False
    for launches_beside in [[a] for a in launches] if timed else _side_by_side(launches):
        shared = threads > 1 and any(a.is_parallel for a in launches_beside)
        if is_open and not shared:
            found[-1] += launches_beside
        else:
            found.append(launches_beside)
        is_open = not (shared or timed or launches_beside[-1].status is not None)
    return found


def _side_by_side(launches: Sequence[Launch]) -> Iterator[list[Launch]]:
    """Each launch alone; of a group the first of all its calls, then the second ones."""
    for group, found in groupby(launches, lambda a: a.group):
        if group is None:
            yield from ([a] for a in found)
            continue
        by_call = [list(own) for _, own in groupby(found, lambda a: a.call)]
        for row in zip_longest(*by_call):
            yield [a for a in row if a is not None]


@lru_cache(maxsize=1)
def _ticks(team: Team) -> float:
    """Steps of the processor's counter in a second."""
    clock = CpuRecording((), np.zeros(0, np.int64), np.zeros(0, np.int32), 1, True, team)
    begin, start = _reading(clock)
    time.sleep(0.02)
    count, end = _reading(clock)
    return (count - begin) / (end - start)


def _reading(clock: CpuRecording) -> tuple[int, float]:
    """The processor's counter, and the time at that moment: of several readings that which took least, since another
    program may run in the middle of one, for milliseconds, and every time of the process would be wrong by as much."""
    assert clock.times is not None
    found: list[tuple[float, int, float]] = []
    for _ in range(_READINGS):
        before = time.perf_counter()
        clock.run()
        after = time.perf_counter()
        found.append((after - before, int(clock.times[0]), (before + after) / 2))
    _, count, moment = min(found)
    return count, moment


class Cpu:
    """The CPU as a `Device`. What runs launches is a library that `install` is given once."""

    is_host = True

    def __init__(self) -> None:
        self._team: Team | None = None

    def install(self, library: Callable[[], Library]) -> None:
        """Give a library with the team, made only when there is none yet."""
        if self._team is None:
            self._team = Team(library())

    @property
    def team(self) -> Team:
        if self._team is None:
            raise RuntimeFault("the CPU has no thread team yet: neoflow.devices.device() installs it")
        return self._team

    @property
    def copy_function(self) -> int:
        return self.team.copy

    @property
    def loop_function(self) -> int:
        return self.team.loop

    def allocate(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        return empty(shape, dtype)

    def view(self, memory: np.ndarray, start: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        kind = dt.type_of(dtype)
        raw = memory.reshape(-1).view(np.uint8)
        return raw[start : start + math.prod(shape) * kind.itemsize].view(kind).reshape(shape)

    def copy(self, target: np.ndarray, source: np.ndarray) -> None:
        target[...] = source

    def copy_all(self, targets: Sequence[np.ndarray], sources: Sequence[np.ndarray]) -> None:
        deque(map(np.ndarray.__setitem__, targets, repeat(...), sources), maxlen=0)  # one call, no bytecode in between

    def address(self, memory: np.ndarray) -> int:
        return int(memory.__array_interface__["data"][0])

    def load(self, data: bytes) -> Library:
        return Library(data)

    def status(self, count: int) -> Status:
        words = np.zeros(count, np.int32)
        return Status(words, words, lambda: words, lambda: words.fill(0))

    def record(
        self, launches: Sequence[Launch], table: np.ndarray, status: Status, threads: int, timed: bool = False
    ) -> CpuRecording:
        return CpuRecording(launches, table, status.memory, threads, timed, self.team)

    def launch(self, recording: Recording, followers: Sequence[int] = ()) -> None:
        recording.run()

    def synchronize(self) -> None:
        """A launch ends before it returns."""


CPU = Cpu()
"""The machine's own."""
