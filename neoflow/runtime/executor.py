"""A plan bound to memory and to loaded kernels: one launch a run, nothing of Python between kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from neoflow.errors import RuntimeFault
from neoflow.expr import dtype as dt
from neoflow.kernel import Code, Fault
from neoflow.runtime.device import Device, Launch, Library, Memory, Recording
from neoflow.runtime.plan import Call, Plan


@dataclass(frozen=True, eq=False)
class Loaded:
    """A kernel's code in memory: the addresses of its entries, in the library that must stay."""

    code: Code
    addresses: tuple[int, ...]
    library: Library


def load_kernel(code: Code, library: Library) -> Loaded:
    """Find a kernel's entries in a library. Raises `RuntimeFault` when one is missing."""
    return Loaded(code, tuple(library.address(e.symbol) for e in code.entries), library)


_COPY_BYTES = 1 << 16
"""What a task of a copy moves: enough to be worth a turn, little enough to share."""


def run_kernel(device: Device, kernel: Loaded, arrays: Sequence[Memory], threads: int) -> None:
    """Run one kernel on its inputs and outputs. Raises `RuntimeFault` when an index is out of range."""
    spaces = [device.allocate((max(w.total(threads), 1),), "int8") for w in kernel.code.workspaces]
    status = device.status(1)
    memory = [*arrays, *spaces, *([status.memory] if kernel.code.faults else [])]
    table = np.array([device.address(m) for m in memory], np.int64)
    word = 0 if kernel.code.faults else None
    launches = [
        Launch(address, 0, entry.tasks, entry.is_parallel, word, None, len(memory), entry.threads, entry.shared_bytes)
        for entry, address in zip(kernel.code.entries, kernel.addresses, strict=True)
    ]
    device.launch(device.record(launches, table, status, threads))
    device.synchronize()
    if code := int(status.read()[0]):
        fault = kernel.code.faults[code - 1]
        name = "the scatter's target" if fault.value is None else f"input {fault.value}"
        raise RuntimeFault(f"index out of range: {name} has extent {fault.extent} there")


def run_on(device: Device, kernel: Loaded, arrays: Sequence[np.ndarray], threads: int) -> None:
    """Run one kernel on NumPy's arrays, wherever it runs: they hold what it has made of them."""
    if device.is_host:
        run_kernel(device, kernel, arrays, threads)
        return
    memory = [device.allocate(a.shape, dt.NAMES[a.dtype]) for a in arrays]
    for there, array in zip(memory, arrays, strict=True):
        device.copy(there, array)
    try:
        run_kernel(device, kernel, memory, threads)
    finally:
        for there, array in zip(memory, arrays, strict=True):
            device.copy(array, there)


class OutOfRange(RuntimeFault):
    """An index read from data is outside of its tensor. changed: what has become of the parameters, in words."""

    def __init__(self, what: str, changed: str):
        super().__init__(f"{what}; {changed}")
        self.changed = changed


class Executor:
    """A plan bound to kernels and memory. Not thread-safe by itself: `Function` holds the lock.

    updated: the numbers of the buffers of parameters that the plan changes.
    """

    def __init__(
        self,
        plan: Plan,
        kernels: Sequence[Loaded],
        parameters: Sequence[Memory],
        constants: Sequence[Memory],
        device: Device,
        threads: int,
        updated: Sequence[int] = (),
    ):
        self._updated = updated
        self._ended = 0
        """runs that a GPU has made although an index was out of range: nothing ends them there"""
        self.plan, self.device, self._kernels, self._threads = plan, device, kernels, threads
        self.arrays = _memory(plan, (*parameters, *constants), device)
        self._inside: dict[int, list[int]] = {}
        """by buffer: the views of it"""
        for n, b in enumerate(plan.buffers):
            if b.kind == "view":
                self._inside.setdefault(b.base, []).append(n)
        layout = _Layout(plan, kernels, device)
        self._launches, self._places, self._failing = layout.launches, layout.places, layout.failing
        self._table = np.array(layout.table, np.int64)
        self._status = device.status(len(layout.failing))
        for n, place in enumerate(layout.status_places):
            self._table[place] = device.address(self._status.memory) + n * dt.itemsize("int32")
        for number, array in enumerate(self.arrays):
            if array is not None:
                self._point(number, device.address(array))
        self._recording = device.record(self._launches, self._table, self._status, threads)
        self._timed: Recording | None = None

    def bind(self, number: int, array: Memory) -> None:
        """Use `array` as the buffer of this number in the next run."""
        self.arrays[number] = None  # until the table has it everywhere: what is not bound yet is bound again
        self._point(number, self.device.address(array))
        self.arrays[number] = array

    def _point(self, number: int, address: int) -> None:
        for place in self._places.get(number, ()):
            self._table[place] = address
        for view in self._inside.get(number, ()):
            self._point(view, address + self.plan.buffers[view].offset)

    @property
    def runs(self) -> int:
        """How often all calls have run."""
        return self._recording.runs + (0 if self._timed is None else self._timed.runs) - self._ended

    def run(self) -> None:
        """Run all calls. Raises `RuntimeFault` when a kernel finds an index out of range."""
        self._launch(self._recording)

    def run_beside(self, meanwhile: Callable[[], None]) -> None:
        """Run all calls, and `meanwhile()` after they were launched."""
        if self._failing:
            self._status.clear()
        self.device.launch(self._recording)
        meanwhile()
        self._judge()

    def _launch(self, recording: Recording) -> None:
        if self._failing:
            self._status.clear()  # a fault is never judged when another exception comes before that
        self.device.launch(recording)
        self._judge()

    def run_timed(self) -> list[float]:
        """Seconds of each call."""
        if self._timed is None:
            self._timed = self.device.record(self._launches, self._table, self._status, self._threads, timed=True)
        self._launch(self._timed)
        seconds = [0.0] * len(self.plan.calls)
        for launch, spent in zip(self._launches, self._timed.seconds(), strict=True):
            if launch.call is not None:
                seconds[launch.call] += spent
        return seconds

    def _judge(self) -> None:
        if not self._failing:
            return
        self.device.synchronize()
        words = self._status.read()
        if not words.any():
            return
        self._ended += not self.device.is_host
        at = int(np.flatnonzero(words)[0])
        call = self.plan.calls[self._failing[at]]
        fault = self.plan.kernels[call.kernel].faults[words[at] - 1]
        what = f"index out of range: {self._named(call, fault)} has extent {fault.extent} there"
        raise OutOfRange(f"kernel {call.name} failed: {what}", self._changed(self._failing[at]))

    def _changed(self, failing: int) -> str:
        """Which parameters have been overwritten when a call fails: in place, by their last user; of a GPU, all."""
        if not self.device.is_host:
            return self._told(self._updated)
        last = {number: n for n, call in enumerate(self.plan.calls) for number in call.arguments}
        late = {target for _, target in self.plan.copies}
        written = [n for n in self._updated if n not in late and last.get(n, failing + 1) <= failing]
        return self._told(written)

    def _told(self, written: Sequence[int]) -> str:
        names = ", ".join(self.plan.buffers[n].name for n in written)
        return f"already overwritten: {names}; set or load them again" if written else "no parameter has changed"

    def _named(self, call: Call, fault: Fault) -> str:
        """What the fault is about, by the name it has in this call."""
        if fault.value is None:
            return "the scatter's target"
        if fault.value < len(call.arguments):
            return self.plan.buffers[call.arguments[fault.value]].name
        return "a value of the kernel"


def _memory(plan: Plan, lasting: Sequence[Memory], device: Device) -> list[Memory | None]:
    """Memory by buffer; None where it comes with the call. lasting: that of the parameters, then of the constants."""
    arena = device.allocate((max(plan.arena_bytes, 1),), "int8")
    arrays: list[Memory | None] = [None] * len(plan.buffers)
    for number, memory in zip((*plan.parameters, *plan.constants), lasting, strict=True):
        arrays[number] = memory
    for n, b in enumerate(plan.buffers):
        if b.kind == "temporary":
            arrays[n] = device.view(arena, b.offset, b.shape, b.dtype)
        elif b.kind == "view":
            base = arrays[b.base]
            arrays[n] = None if base is None else device.view(base, b.offset, b.shape, b.dtype)
    return arrays


class _Layout:
    """The launches of a plan in order, and the table of their pointers.

    places: by buffer, where its address goes in the table. failing: the call of each status word; status_places: where
    the words' addresses go.
    """

    def __init__(self, plan: Plan, kernels: Sequence[Loaded], device: Device):
        self.plan, self.device = plan, device
        self.table: list[int] = []
        self.launches: list[Launch] = []
        self.places: dict[int, list[int]] = {}
        self.failing: list[int] = []
        self.status_places: list[int] = []
        for pair in plan.saves:
            self._copy(*pair)
        for n, call in enumerate(plan.calls):
            self._call(n, call, kernels[call.kernel])
        for pair in plan.copies:
            self._copy(*pair)

    def _refer(self, buffers: Sequence[int]) -> int:
        """Room for the addresses of buffers; where it begins."""
        first = len(self.table)
        for n, number in enumerate(buffers, first):
            self.places.setdefault(number, []).append(n)
        self.table += [0] * len(buffers)
        return first

    def _call(self, n: int, call: Call, kernel: Loaded) -> None:
        first = self._refer((*call.arguments, *call.workspaces))
        status = None
        if kernel.code.faults:
            status = len(self.failing)
            self.failing.append(n)
            self.status_places.append(self._refer(()))
            self.table.append(0)
        for entry, address in zip(kernel.code.entries, kernel.addresses, strict=True):
            count = len(self.table) - first
            launch = Launch(
                address, first, entry.tasks, entry.is_parallel, status, n, count, entry.threads, entry.shared_bytes
            )
            self.launches.append(launch)

    def _copy(self, source: int, target: int) -> None:
        b = self.plan.buffers[target]
        nbytes = math.prod(b.shape) * dt.itemsize(b.dtype)
        first = self._refer((source, target))
        self.table += [nbytes, _COPY_BYTES]
        tasks = -(-nbytes // _COPY_BYTES)
        self.launches.append(Launch(self.device.copy_function, first, tasks, tasks > 1))
