"""`Device`: memory, and kernels that run on it. The runtime speaks to every kind of device through this interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

ALIGNMENT = 64
"""Where memory begins: at a multiple of so many bytes."""
Memory = Any
"""Dense row-major memory of a shape and dtype on a device: on a CPU a NumPy array."""


class Launch(NamedTuple):
    """One phase of a kernel in its place.

    function: its address. pointers: where in the table its pointers begin, `arguments` of them. tasks, is_parallel,
    threads, shared_bytes: see `neoflow.kernel.Entry`. status: the number of its status word, None where it cannot fail.
    call: the number of the plan's call that it belongs to, None for a copy. group: which it runs together with; of
    these the launches of a call go one after the other, and those of different calls side by side. is_handed: it is a
    call of another library, a function of the host on any device, see `runtime.handed`.
    """

    function: int
    pointers: int
    tasks: int
    is_parallel: bool
    status: int | None = None
    call: int | None = None
    arguments: int = 0
    threads: int = 1
    shared_bytes: int = 0
    group: int | None = None
    is_handed: bool = False


class Status(NamedTuple):
    """Status words (int32) in a device's memory: not 0 where a kernel has failed.

    read: what they are once all that was launched has ended. clear: sets them to 0 before the next run. handed: the
    words of calls of other libraries, in the host's memory: the same ones on a CPU.
    """

    memory: Memory
    handed: np.ndarray
    read: Callable[[], np.ndarray]
    clear: Callable[[], None]


class Library(Protocol):
    """Loaded code."""

    def address(self, symbol: str) -> int:
        """Where a function is. Raises `RuntimeFault` when there is none of this name."""
        ...


class Recording(Protocol):
    """Launches in order over a table of pointers, ready to run."""

    table: np.ndarray
    """Addresses (int64), read at every run."""

    @property
    def runs(self) -> int:
        """How often all launches have run, none of them failing."""
        ...

    def run(self, followers: Sequence[int] = ()) -> None:
        """Run all launches; they may still run when this returns. followers: streams of other libraries, which wait."""
        ...

    def seconds(self) -> list[float]:
        """The times of the launches of a timed recording in its last run. Raises `RuntimeFault` for another one."""
        ...


class Device(Protocol):
    """One place where kernels run and their memory lies."""

    is_host: bool
    """Whether its memory is NumPy's arrays."""

    @property
    def copy_function(self) -> int:
        """A function for launches: pointers are a source, a target, their bytes, and the bytes of a task."""
        ...

    @property
    def loop_function(self) -> int:
        """A function for launches whose tasks are the turns of a loop, see `runtime.native`; 0: there is none, every
        turn is laid out as launches."""
        ...

    def allocate(self, shape: tuple[int, ...], dtype: str) -> Memory:
        """Uninitialised memory, aligned to 64 bytes at least."""
        ...

    def view(self, memory: Memory, start: int, shape: tuple[int, ...], dtype: str) -> Memory:
        """Memory inside of `memory`, from its byte `start` on."""
        ...

    def copy(self, target: Memory, source: Memory) -> None:
        """Copy all elements; either side may be a NumPy array."""
        ...

    def copy_all(self, targets: Sequence[Memory], sources: Sequence[Memory]) -> None:
        """Copy each source to its target, of the same shape and dtype: all of them, or, with an exception, none."""
        ...

    def address(self, memory: Memory) -> int:
        """Where memory begins."""
        ...

    def load(self, data: bytes) -> Library:
        """The code of a library."""
        ...

    def status(self, count: int) -> Status:
        """So many status words, all 0."""
        ...

    def record(
        self, launches: Sequence[Launch], table: np.ndarray, status: Status, threads: int, timed: bool = False
    ) -> Recording:
        """Make launches ready to run; `timed` ones tell their times, and run one after the other."""
        ...

    def launch(self, recording: Recording, followers: Sequence[int] = ()) -> None:
        """Run what was recorded; it may still run when this returns. followers: see `Recording.run`."""
        ...

    def synchronize(self) -> None:
        """Wait until everything launched has ended."""
        ...
