"""The launches of a plan in order over one table of pointers: loops as one launch where a device has them.

calls of a loop        a launch for each, in every turn
a loop on a GPU        one launch, where it has a kernel of its own
a loop on a CPU        one launch, whose tasks are the turns: see `native`
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from neoflow import dtype as dt
from neoflow.code import Entry
from neoflow.runtime.device import Launch
from neoflow.runtime.native import is_native, words_of
from neoflow.runtime.plan import Plan, Repeated
from neoflow.runtime.turns import Turns, stretches, turns

_COPY_BYTES = 1 << 16
"""What a task of a copy moves: enough to be worth a turn, little enough to share."""


class Sweep(NamedTuple):
    """Places of the table where a buffer's address goes, and how many bytes further it is there."""

    places: np.ndarray
    offsets: np.ndarray


class Whole(NamedTuple):
    """A loop that is one launch: of an entry at an address, with the addresses of these buffers. library: must stay."""

    arguments: tuple[int, ...]
    entry: Entry
    address: int
    library: Any


class Layout:
    """The launches of a plan in order, and the table of their pointers.

    addresses: of each kernel's entries; copy_function, loop_function: of the functions that copy and that run loops,
    see `Device`; threads: of those who run it. wholes: loops that are one launch, by their first calls. handed: the
    kernels that are calls of other libraries. places: by buffer, where in the table its address goes. sweeps: by
    buffer that moves while a loop is laid out, where its addresses go. functions: where addresses of functions are in
    it. failing: the call of each status word; status_places: where the words' addresses go; open: those of calls of
    other libraries, which have to say that they are done.
    """

    def __init__(
        self,
        plan: Plan,
        addresses: Sequence[Sequence[int]],
        copy_function: int,
        loop_function: int = 0,
        threads: int = 1,
        wholes: Mapping[int, Whole] | None = None,
        handed: Collection[int] = (),
    ):
        self.plan, self._copy_function, self._loop_function = plan, copy_function, loop_function
        self._handed = handed
        self.table: list[int] = []
        self.launches: list[Launch] = []
        self.places: dict[int, list[int]] = {}
        self.sweeps: dict[int, Sweep] = {}
        self.functions: list[int] = []
        self.failing: list[int] = []
        self.status_places: list[int] = []
        self._swept: dict[int, list[Sweep]] = {}
        self._groups = {n: first for first, count in plan.together for n in range(first, first + count)}
        for pair in plan.saves:
            self._copy(*pair)
        for first, end, loop in stretches(plan):
            if loop is not None and wholes and loop.first in wholes:
                self._whole(loop, wholes[loop.first])
            elif loop is not None and loop_function and is_native(plan, loop, threads):
                self._native(loop, addresses)
            else:
                self._calls(turns(plan, first, end), addresses)
        for number, parts in self._swept.items():
            self.sweeps[number] = Sweep(
                *(np.concatenate(p) for p in zip(*((s.places, s.offsets) for s in parts), strict=True))
            )
        for pair in plan.copies:
            self._copy(*pair)
        self.open = [n for n, c in enumerate(self.failing) if plan.calls[c].kernel in handed]

    def _native(self, loop: Repeated, addresses: Sequence[Sequence[int]]) -> None:
        """One launch for all turns."""
        first = len(self.table)
        found = words_of(self.plan, loop, addresses, self._loop_function)
        self.table += found.words
        self.functions += [first + n for n in found.functions]
        for number, place in found.places:
            self.places.setdefault(number, []).append(first + place)
        self.launches.append(
            Launch(self._loop_function, first, loop.turns, loop.is_apart, call=loop.first, arguments=len(found.words))
        )

    def _whole(self, loop: Repeated, whole: Whole) -> None:
        """One launch of a kernel that goes through all turns."""
        first, entry = len(self.table), whole.entry
        for n, number in enumerate(whole.arguments, first):
            self.places.setdefault(number, []).append(n)
        self.table += [0] * len(whole.arguments)
        size = (len(whole.arguments), entry.threads, entry.shared_bytes)
        self.launches.append(Launch(whole.address, first, entry.tasks, entry.is_parallel, None, loop.first, *size))

    def _calls(self, found: Turns, addresses: Sequence[Sequence[int]]) -> None:
        """The launches of all calls in their turns: of each, one word for every array, workspace and status."""
        plan, calls = self.plan, self.plan.calls
        codes = [plan.kernels[c.kernel] for c in calls]
        counts = [len(c.arguments) + len(c.workspaces) + bool(k.faults) for c, k in zip(calls, codes, strict=True)]
        sizes = np.array(counts, np.int64)[found.calls]
        starts = len(self.table) + np.cumsum(sizes) - sizes
        fails = np.array([bool(k.faults) for k in codes], bool)[found.calls]
        words = len(self.failing) + np.cumsum(fails) - fails
        self.failing += found.calls[fails].tolist()
        self.status_places += (starts + sizes - 1)[fails].tolist()
        self.table += [0] * int(sizes.sum())
        self._refer_all(found, starts)
        for n, first, word in zip(found.calls.tolist(), starts.tolist(), words.tolist(), strict=True):
            status = word if codes[n].faults else None
            for entry, address in zip(codes[n].entries, addresses[calls[n].kernel], strict=True):
                launch = Launch(
                    address,
                    first,
                    entry.tasks,
                    entry.is_parallel,
                    status,
                    n,
                    counts[n],
                    entry.threads,
                    entry.shared_bytes,
                    self._groups.get(n),
                    calls[n].kernel in self._handed,
                )
                self.launches.append(launch)

    def _refer_all(self, found: Turns, starts: np.ndarray) -> None:
        """Where the addresses of buffers go for all calls, which begin at `starts`."""
        for n in dict.fromkeys(found.calls.tolist()):
            call, at = self.plan.calls[n], np.flatnonzero(found.calls == n)
            for k, number in enumerate((*call.arguments, *call.workspaces)):
                places = starts[at] + k
                if number in found.offsets or len(at) > 1:
                    further = found.offsets[number][at] if number in found.offsets else np.zeros(len(at), np.int64)
                    self._swept.setdefault(number, []).append(Sweep(places, further))
                else:
                    self.places.setdefault(number, []).extend(places.tolist())

    def _copy(self, source: int, target: int) -> None:
        b = self.plan.buffers[target]
        nbytes = math.prod(b.shape) * dt.itemsize(b.dtype)
        first = len(self.table)
        for n, number in enumerate((source, target), first):
            self.places.setdefault(number, []).append(n)
        self.table += [0, 0, nbytes, _COPY_BYTES]
        tasks = -(-nbytes // _COPY_BYTES)
        self.launches.append(Launch(self._copy_function, first, tasks, tasks > 1))
