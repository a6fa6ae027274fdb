"""The machine in this process: its memory, and launches on it. One kernel runs at a time."""

import ctypes
import threading
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import numpy as np

from tests.emulator import build, source
from tests.emulator.faults import KINDS, Fault

PAGE, WINDOW, WINDOWS = 256, 256 << 10, 4096  # as in runtime/machine.h
GLOBAL, ARENA = WINDOW * WINDOWS, 8 << 30
GAP = 64 << 10
"""Bytes between two buffers: an access that misses one seldom meets another."""
MOST_SHARED, MOST_STATIC = 227 << 10, 48 << 10

Extent = int | tuple[int, ...]


class _Dim(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class _Launch(ctypes.Structure):
    _fields_ = [
        ("function", ctypes.c_void_p),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("argument_count", ctypes.c_uint),
        ("grid", _Dim),
        ("block", _Dim),
        ("order", ctypes.c_void_p),
        ("shared", ctypes.c_uint64 * 128),
        ("shared_count", ctypes.c_uint),
        ("checked", ctypes.c_int),
        ("early_exit", ctypes.c_int),
    ]


class _Report(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int),
        ("line", ctypes.c_int),
        ("block", ctypes.c_uint * 3),
        ("thread", ctypes.c_uint * 3),
        ("address", ctypes.c_uint64),
        ("pc", ctypes.c_uint64),
        ("text", ctypes.c_char * 512),
    ]


class _Variable(ctypes.Structure):
    _fields_ = [
        ("function", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("window", ctypes.c_ulong),
        ("bytes", ctypes.c_ulong),
        ("element", ctypes.c_ulong),
        ("unused", ctypes.c_ulong * 3),  # aligned to 64 bytes
    ]


@cache
def runtime() -> ctypes.CDLL:
    library = ctypes.CDLL(str(build.machine()))
    library.emu_base.restype = ctypes.c_uint64
    library.emu_map.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint, ctypes.c_int]
    library.emu_written.argtypes = [ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64]
    if not library.emu_open():
        raise MemoryError("the machine's memory cannot be reserved")
    return library


_LOCK = threading.RLock()


def _shift(itemsize: int) -> int:
    return {1: 0, 2: 1}.get(itemsize, 2)


def _dim(extent: Extent) -> _Dim:
    given = (extent,) if isinstance(extent, int) else tuple(extent)
    return _Dim(*given, *(1,) * (3 - len(given)))


# ---- memory ----------------------------------------------------------------------------------------------------------


@dataclass
class Buffer:
    """Of global memory: `address` as kernels see it. `label` names it in faults."""

    address: int
    bytes: int
    itemsize: int
    label: str
    number: int

    def view(self, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
        """Its content itself, not a copy."""
        raw = (ctypes.c_char * self.bytes).from_address(self.address)
        return np.frombuffer(raw, dtype, int(np.prod(shape))).reshape(shape)


@dataclass
class Memory:
    """Global memory of the machine: buffers with gaps between them, which kernels may not touch."""

    end: int = GLOBAL + GAP  # what is before the first buffer is in no shared window
    buffers: dict[int, Buffer] = field(default_factory=dict)  # by address
    free_places: dict[int, list[int]] = field(default_factory=dict)  # offsets, by what they take

    def allocate(self, count: int, itemsize: int = 4, label: str = "", written: bool = False) -> Buffer:
        """`count` bytes; a kernel may not read what neither it nor `write` has written, unless `written`."""
        room = (max(count, 1) + PAGE - 1) // PAGE * PAGE + GAP
        with _LOCK:
            library, places = runtime(), self.free_places.get(room)
            offset = places.pop() if places else self.end
            if offset + room > ARENA:
                raise MemoryError("the machine's memory is full")
            self.end = max(self.end, offset + room)
            number = library.emu_map(offset, max(count, 1), _shift(itemsize), int(written))
            buffer = Buffer(library.emu_base() + offset, count, itemsize, label, number)
            self.buffers[buffer.address] = buffer
            return buffer

    def free(self, buffer: Buffer) -> None:
        with _LOCK:
            room = (max(buffer.bytes, 1) + PAGE - 1) // PAGE * PAGE + GAP
            del self.buffers[buffer.address]
            runtime().emu_unmap(buffer.number)
            self.free_places.setdefault(room, []).append(buffer.address - runtime().emu_base())

    def at(self, address: int, count: int) -> tuple[Buffer, int]:
        """The buffer that has these bytes, and where in it they begin."""
        for buffer in self.buffers.values():
            if buffer.address <= address and address + count <= buffer.address + buffer.bytes:
                return buffer, address - buffer.address
        raise ValueError(f"{count} bytes at {address:#x} are in no buffer")

    def write(self, address: int, content: np.ndarray) -> None:
        """From the host."""
        with _LOCK:
            content = np.ascontiguousarray(content)
            buffer, offset = self.at(address, content.nbytes)
            ctypes.memmove(address, content.ctypes.data, content.nbytes)
            if content.nbytes:
                runtime().emu_written(buffer.number, offset, content.nbytes)

    def read(self, address: int, content: np.ndarray) -> None:
        """To the host, into an array."""
        with _LOCK:
            if not content.flags.c_contiguous or not content.flags.writeable:
                raise ValueError("an array to read into is contiguous and writeable")
            self.at(address, content.nbytes)
            ctypes.memmove(content.ctypes.data, address, content.nbytes)

    def describe(self, address: int) -> str:
        """Which element of which buffer this is, or is nearest to this."""
        starts = sorted(self.buffers)
        near = [self.buffers[a] for a in starts[max(0, bisect_right(starts, address) - 1) :][:2]]
        if not near:
            return ""
        buffer = min(near, key=lambda b: max(b.address - address, address - b.address - b.bytes))
        index = (address - buffer.address) // buffer.itemsize
        return f"{buffer.label or 'buffer'}[{index}] of {buffer.bytes // buffer.itemsize}"


MEMORY = Memory()


# ---- programs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variable:
    """A shared variable: where its window is, its bytes, and those of an element."""

    function: str
    name: str
    window: int
    bytes: int
    element: int


@dataclass(frozen=True)
class Program:
    """A source, compiled for the machine; `checked`: each access is."""

    text: str
    checked: bool = True

    @cached_property
    def kernels(self) -> dict[str, source.Signature]:
        return source.signatures(self.text)

    @cached_property
    def path(self) -> Path:
        return build.library(source.rewrite(self.text), self.checked)

    @cached_property
    def _library(self) -> ctypes.CDLL:
        runtime()
        return ctypes.CDLL(str(self.path))

    @cached_property
    def variables(self) -> tuple[Variable, ...]:
        self._library.emu_variables.restype = ctypes.POINTER(_Variable)
        count = ctypes.c_ulong()
        first = self._library.emu_variables(ctypes.byref(count))
        found = [first[i] for i in range(count.value)]
        return tuple(Variable(v.function.decode(), v.name.decode(), v.window, v.bytes, v.element) for v in found)

    def shared(self, kernel: str) -> tuple[Variable, ...]:
        """Its own shared variables, and those of the functions it may call."""
        return tuple(v for v in self.variables if v.function == kernel or v.function not in self.kernels)

    def launch(
        self,
        kernel: str,
        blocks: Extent,
        threads: Extent,
        shared_bytes: int,
        addresses: Sequence[int],
        seed: int | None = None,
        early_exit: bool = False,
    ) -> None:
        """One launch, to its end; raises `Fault`. With `seed` the blocks run in an order drawn from it; with
        `early_exit` a thread may end while others still come to a barrier."""
        signature, grid, block = self.kernels[kernel], _dim(blocks), _dim(threads)
        self._check(kernel, signature, block, shared_bytes, len(addresses))
        with _LOCK:
            library, launch = runtime(), _Launch()
            mapped = [(v.window * WINDOW, v.bytes, v.element) for v in self.shared(kernel)]
            mapped += [(WINDOW, shared_bytes, 4)] if shared_bytes else []
            launch.function = ctypes.cast(getattr(self._library, kernel), ctypes.c_void_p)
            launch.arguments = (ctypes.c_void_p * max(len(addresses), 1))(*addresses)
            launch.argument_count, launch.grid, launch.block = len(addresses), grid, block
            if seed is not None:
                order = np.random.default_rng(seed).permutation(grid.x * grid.y * grid.z).astype(np.uint32)
                launch.order = order.ctypes.data
            for i, (offset, count, _) in enumerate(mapped):
                launch.shared[2 * i], launch.shared[2 * i + 1] = offset, count
            launch.shared_count, launch.checked, launch.early_exit = len(mapped), self.checked, early_exit
            numbers = [library.emu_map(offset, count, _shift(element), 0) for offset, count, element in mapped]
            report = _Report()
            failed = library.emu_launch(ctypes.byref(launch), ctypes.byref(report))
            for number in numbers:
                library.emu_unmap(number)
            if failed:
                raise self._fault(kernel, report)

    def _check(self, kernel: str, signature: source.Signature, block: _Dim, shared_bytes: int, count: int) -> None:
        threads, static = block.x * block.y * block.z, sum(v.bytes for v in self.shared(kernel))
        if threads > signature.threads:
            raise ValueError(f"{kernel}: {threads} threads a block, {signature.threads} at most")
        if static > MOST_STATIC or static + shared_bytes > MOST_SHARED:
            raise ValueError(
                f"{kernel}: {static} bytes of static and {shared_bytes} of dynamic shared memory are too many"
            )
        if count != len(signature.names):
            raise ValueError(f"{kernel}: {count} arguments for {len(signature.names)} parameters")

    def _fault(self, kernel: str, report: _Report) -> Fault:
        line = report.line or (build.line_of(self.path, report.pc) if report.pc else 0)
        lines, address = self.text.splitlines(), report.address
        code = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        block, thread = (tuple(report.block), tuple(report.thread))
        text = report.text.decode()
        return Fault(KINDS[report.kind], kernel, block, thread, line, address, self._word(kernel, address), text, code)

    def _word(self, kernel: str, address: int) -> str:
        offset = address - runtime().emu_base()
        if not 0 <= offset < ARENA:
            return ""
        if offset >= GLOBAL:
            return MEMORY.describe(address)
        window, inside = divmod(offset, WINDOW)
        if window + (inside > WINDOW // 2) == 1:
            return f"byte {offset - WINDOW} of dynamic shared memory"
        near = [v for v in self.shared(kernel) if v.window == window + (inside > WINDOW // 2)]
        if not near:
            return ""
        index = (offset - near[0].window * WINDOW) // near[0].element
        return f"{near[0].name}[{index}] of {near[0].bytes // near[0].element}"
