"""A plan bound to memory and to loaded kernels: one launch a run, nothing of Python between kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from neoflow import dtype as dt
from neoflow.code import Code, Fault
from neoflow.errors import RuntimeFault
from neoflow.runtime.device import Device, Launch, Library, Memory, Recording, Status
from neoflow.runtime.layout import Layout, Sweep, Whole
from neoflow.runtime.plan import Call, Plan


class Loaded(NamedTuple):
    """A kernel's code in memory: the addresses of its entries, in the library that must stay."""

    code: Code
    addresses: tuple[int, ...]
    library: Library
    session: Any = None
    """of a call of another library, see `handed.Session`"""


def load_kernel(code: Code, library: Library) -> Loaded:
    """Find a kernel's entries in a library. Raises `RuntimeFault` when one is missing."""
    return Loaded(code, tuple(library.address(e.symbol) for e in code.entries), library)


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
    memory = [device.allocate(a.shape, dt.name_of(a.dtype)) for a in arrays]
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

    updated: the numbers of the buffers of parameters that the plan changes. wholes: see `Layout`.
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
        wholes: Mapping[int, Whole] | None = None,
    ):
        self._updated, self._wholes = updated, wholes
        self.followers: Sequence[int] = ()
        """streams of other libraries that wait for the runs from now on"""
        self._ended = 0
        """runs that a GPU has made although an index was out of range: nothing ends them there"""
        self.device, self._threads = device, threads
        self._inside: dict[int, list[int]] = {}
        """by buffer: the views of it"""
        for n, b in enumerate(plan.buffers):
            if b.kind == "view":
                self._inside.setdefault(b.base, []).append(n)
        self._laid = self._lay(plan, tuple(kernels), _memory(plan, (*parameters, *constants), device), 0)

    def _lay(self, plan: Plan, kernels: tuple[Loaded, ...], arrays: list[Memory | None], before: int) -> _Laid:
        """The launches of a plan with the addresses of all arrays there are; before: how often others have run."""
        layout = self._layout(plan, kernels, self.device.loop_function)
        status = self.device.status(len(layout.failing))
        table = self._table(layout, status)
        recording = self.device.record(layout.launches, table, status, self._threads)
        laid = _Laid(plan, kernels, arrays, layout, table, status, recording, before)
        if plan.prepared and self.device.is_host:
            launches = [a for a in layout.launches if a.call is None or a.call >= plan.prepared]
            laid.rest = self.device.record(launches, table, status, self._threads)
        for number, array in enumerate(arrays):
            if array is not None:
                self._point(layout, table, number, self.device.address(array))
        return laid

    def _layout(self, plan: Plan, kernels: Sequence[Loaded], loop_function: int) -> Layout:
        addresses, copy = [k.addresses for k in kernels], self.device.copy_function
        handed = {n for n, k in enumerate(kernels) if k.session is not None}
        return Layout(plan, addresses, copy, loop_function, self._threads, self._wholes, handed)

    def _table(self, layout: Layout, status: Status) -> np.ndarray:
        """The table of a layout with the places of its status words."""
        table = np.array(layout.table, np.int64)
        for n, place in enumerate(layout.status_places):
            table[place] = self.device.address(status.memory) + n * dt.itemsize("int32")
        for n in layout.open:
            table[layout.status_places[n]] = status.handed.ctypes.data + n * status.handed.itemsize
        return table

    @property
    def plan(self) -> Plan:
        return self._laid.plan

    @property
    def arrays(self) -> list[Memory | None]:
        """Memory by buffer; None where it comes with the call."""
        return self._laid.arrays

    def adopt(self, plan: Plan, kernels: Mapping[int, Loaded]) -> None:
        """Run these kernels from now on instead of those of their numbers: the same subgraphs by other schedules.

        plan: the one until now, `adopting` their code. An exception from outside finds all of them adopted or none.
        """
        laid = self._laid
        scratch = self.device.allocate((max(plan.scratch_bytes, 1),), "int8")
        arrays = [*laid.arrays, *(None for _ in plan.buffers[len(laid.arrays) :])]
        for n, b in enumerate(plan.buffers):
            if b.kind == "scratch":
                arrays[n] = self.device.view(scratch, b.offset, b.shape, b.dtype)
        self.device.synchronize()  # what lies in the old scratch is done with
        chosen = tuple(kernels.get(n, kernel) for n, kernel in enumerate(laid.kernels))
        self._laid = self._lay(plan, chosen, arrays, laid.runs)

    def bind(self, number: int, array: Memory) -> None:
        """Use `array` as the buffer of this number in the next run."""
        self.arrays[number] = None  # until the table has it everywhere: what is not bound yet is bound again
        self._point(self._laid.layout, self._laid.table, number, self.device.address(array))
        self.arrays[number] = array

    def point(self, addresses: Sequence[int]) -> None:
        """Use memory at these addresses, of the inputs and then of the outputs, in the next run, and then no more."""
        laid = self._laid
        if laid.spots is None:
            laid.swept, laid.spots = self._swept(laid), self._spots(laid)
        for number in laid.carried:
            laid.arrays[number] = None
        words = laid.words
        for place, position, offset in laid.spots:
            words[place] = addresses[position] + offset
        for sweep, position, offset in laid.swept:
            laid.table[sweep.places] = addresses[position] + offset + sweep.offsets

    def _spots(self, laid: _Laid) -> list[tuple[int, int, int]]:
        """Where the addresses of inputs and outputs go in the table: place, which address, bytes beyond it."""
        places = laid.layout.places
        return [(place, position, offset) for n, position, offset in self._given(laid) for place in places.get(n, ())]

    def _swept(self, laid: _Laid) -> list[tuple[Sweep, int, int]]:
        """The same of what moves while loops run."""
        sweeps = laid.layout.sweeps
        return [(sweeps[n], position, offset) for n, position, offset in self._given(laid) if n in sweeps]

    def _given(self, laid: _Laid) -> Iterator[tuple[int, int, int]]:
        """The buffers that come with a call and all views of these: which address, bytes beyond it."""
        stack = [(number, position, 0) for position, number in enumerate(laid.carried)]
        while stack:
            number, position, offset = stack.pop()
            yield number, position, offset
            for view in self._inside.get(number, ()):
                stack.append((view, position, offset + laid.plan.buffers[view].offset))

    def _point(self, layout: Layout, table: np.ndarray, number: int, address: int) -> None:
        for place in layout.places.get(number, ()):
            table[place] = address
        sweep = layout.sweeps.get(number)
        if sweep is not None:
            table[sweep.places] = address + sweep.offsets
        for view in self._inside.get(number, ()):
            self._point(layout, table, view, address + layout.plan.buffers[view].offset)

    @property
    def runs(self) -> int:
        """How often all calls have run."""
        return self._laid.runs - self._ended

    @property
    def launches(self) -> int:
        """Of a run, copies among them."""
        return len(self._laid.layout.launches)

    def run(self, is_unchanged: bool = False) -> None:
        """Run all calls; those that are prepared only where they have not run, or the parameters have changed since.

        Raises `RuntimeFault` when a kernel finds an index out of range.
        """
        laid = self._laid
        if laid.rest is not None and laid.is_prepared and is_unchanged:
            self._launch(laid.rest)
            return
        laid.is_prepared = False
        self._launch(laid.recording)
        laid.is_prepared = True

    def run_beside(self, meanwhile: Callable[[], None]) -> None:
        """Run all calls, and `meanwhile()` after they were launched."""
        self._clear()
        self.device.launch(self._laid.recording, self.followers)
        meanwhile()
        self._judge()

    def _launch(self, recording: Recording) -> None:
        if not self._laid.layout.failing:
            self.device.launch(recording, self.followers)
            return
        self._clear()
        self.device.launch(recording, self.followers)
        self._judge()

    def _clear(self) -> None:
        laid = self._laid
        if laid.layout.failing:
            laid.status.clear()  # a fault is never judged when another exception comes before that
        if laid.layout.open:
            laid.status.handed[laid.layout.open] = 1

    def run_timed(self) -> list[float]:
        """Seconds of each call, in all turns of a loop, each of which is launched; a loop that is one launch on a GPU
        counts as its first call."""
        laid = self._laid
        if laid.timed is None or laid.apart is None:
            laid.apart = self._layout(laid.plan, laid.kernels, 0)
            table = self._table(laid.apart, laid.status)
            laid.timed = self.device.record(laid.apart.launches, table, laid.status, self._threads, timed=True)
        for number, array in enumerate(laid.arrays):
            if array is not None:
                self._point(laid.apart, laid.timed.table, number, self.device.address(array))
        self._launch(laid.timed)
        seconds = [0.0] * len(laid.plan.calls)
        for launch, spent in zip(laid.apart.launches, laid.timed.seconds(), strict=True):
            if launch.call is not None:
                seconds[launch.call] += spent
        return seconds

    def _session(self, word: int) -> Any:
        """Of the foreign call of a status word."""
        return self._laid.kernels[self.plan.calls[self._laid.layout.failing[word]].kernel].session

    def _words(self) -> np.ndarray:
        """The status words of a run."""
        laid = self._laid
        if len(laid.layout.open) == len(laid.layout.failing):
            return laid.status.handed
        self.device.synchronize()
        return laid.status.read()

    def _judge(self) -> None:
        plan, failing, handed = self.plan, self._laid.layout.failing, self._laid.layout.open
        if not failing:
            return
        words = self._laid.status.handed
        if self.device.is_host or not words[handed].any():  # a GPU is not waited for where nothing there can fail
            words = self._words()
        if not words.any():
            if handed:
                self._session(handed[0]).settle()
            return
        at = int(np.flatnonzero(words)[0])
        number, word = failing[at], int(words[at])
        if at in handed:
            raise self._session(at).judge(plan.calls[number].name, changed_by(plan, number, self._updated))
        self._ended += not self.device.is_host
        changed = changed_by(plan, number, self._updated) if self.device.is_host else overwritten(plan, self._updated)
        raise OutOfRange(fault_of(plan, number, word), changed)


def fault_of(plan: Plan, number: int, word: int) -> str:
    """What is wrong when the status word of call `number` is `word`."""
    call = plan.calls[number]
    fault = plan.kernels[call.kernel].faults[word - 1]
    what = f"index out of range: {_named(plan, call, fault)} has extent {fault.extent} there"
    return f"kernel {call.name} failed: {what}"


def changed_by(plan: Plan, failing: int, updated: Sequence[int]) -> str:
    """Which parameters (their buffers) have been overwritten when a call fails: in place, by their last user."""
    last = {number: n for n, call in enumerate(plan.calls) for number in call.arguments}
    late = {target for _, target in plan.copies}
    return overwritten(plan, [n for n in updated if n not in late and last.get(n, failing + 1) <= failing])


def overwritten(plan: Plan, written: Sequence[int]) -> str:
    """What has become of parameters, in words: these buffers of them have other values."""
    names = ", ".join(plan.buffers[n].name for n in written)
    return f"already overwritten: {names}; set or load them again" if written else "no parameter has changed"


def _named(plan: Plan, call: Call, fault: Fault) -> str:
    """What the fault is about, by the name it has in this call."""
    if fault.value is None:
        return "the scatter's target"
    if fault.value < len(call.arguments):
        return plan.buffers[call.arguments[fault.value]].name
    return "a value of the kernel"


class _Laid:
    """Kernels laid out to run: what changes in one instant when others are adopted.

    arrays: memory by buffer; None where it comes with the call.
    before: how often the kernels before them have run. apart, timed: every launch of every call, as they are
    timed, made when needed.
    rest: those but for what is prepared, where anything is; is_prepared: whether that has run.
    spots, swept: see `Executor.point`, made when needed.
    """

    timed: Recording | None = None
    apart: Layout | None = None
    rest: Recording | None = None
    is_prepared = False
    spots: list[tuple[int, int, int]] | None = None
    swept: Sequence[tuple[Sweep, int, int]] = ()

    def __init__(
        self,
        plan: Plan,
        kernels: tuple[Loaded, ...],
        arrays: list[Memory | None],
        layout: Layout,
        table: np.ndarray,
        status: Status,
        recording: Recording,
        before: int,
    ):
        self.plan, self.kernels, self.arrays, self.layout = plan, kernels, arrays, layout
        self.table, self.status, self.recording, self.before = table, status, recording, before

    @cached_property
    def carried(self) -> tuple[int, ...]:
        """The buffers that come with a call: inputs, then outputs."""
        return (*self.plan.inputs, *self.plan.outputs)

    @cached_property
    def words(self) -> memoryview:
        """The table, of which a word is written faster so."""
        return self.table.data

    @property
    def runs(self) -> int:
        """How often all launches have run, with those before them."""
        return self.before + sum(r.runs for r in (self.recording, self.timed, self.rest) if r is not None)


def _memory(plan: Plan, lasting: Sequence[Memory], device: Device) -> list[Memory | None]:
    """Memory by buffer; None where it comes with the call. lasting: that of the parameters, then of the constants."""
    rooms = {"temporary": max(plan.arena_bytes, 1), "scratch": plan.scratch_bytes}
    memory_of = {kind: device.allocate((nbytes,), "int8") for kind, nbytes in rooms.items() if nbytes}
    arrays: list[Memory | None] = [None] * len(plan.buffers)
    for number, memory in zip((*plan.parameters, *plan.constants), lasting, strict=True):
        arrays[number] = memory
    for n, b in enumerate(plan.buffers):
        if b.kind in memory_of:
            arrays[n] = device.view(memory_of[b.kind], b.offset, b.shape, b.dtype)
        elif b.kind == "view":
            base = arrays[b.base]
            arrays[n] = None if base is None else device.view(base, b.offset, b.shape, b.dtype)
    return arrays
