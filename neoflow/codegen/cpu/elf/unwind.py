"""Unwind tables: how a debugger, a profiler or an exception finds its way out of a kernel.

LLVM describes the frames of functions that do not throw in `.debug_frame` alone, which is not loaded. Here the same
rules become an `.eh_frame`, and the sorted table over it, `.eh_frame_hdr`, that finds a function's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from neoflow.codegen.cpu.elf.object import ObjectFile
from neoflow.errors import CodegenError

_COMMON = 0xFFFFFFFF
_RELATIVE = 0x1B
"""DW_EH_PE_pcrel | DW_EH_PE_sdata4: an address as its distance from where it stands, in 32 bits."""


@dataclass(frozen=True)
class _Function:
    """A function's rules: its symbol and what is added to it, its length, its common record, instructions."""

    symbol: int
    addend: int
    length: int
    common: int
    rules: bytes


class Frames:
    """The unwind tables of an object file; `size` and `index_size` are their bytes, wherever they are placed."""

    def __init__(self, obj: ObjectFile):
        self._commons: dict[int, bytes] = {}
        """by place in the tables `.debug_frame`, one after the other: the record in the form of `.eh_frame`"""
        self._functions: list[_Function] = []
        before = 0
        for source in (s for s in obj.sections if s.name == ".debug_frame"):
            data = obj.data[source.offset : source.offset + source.size]
            self._read(data, {r.offset: (r.symbol, r.addend) for r in obj.relocations_of(source)}, before)
            before += source.size
        self.size = len(self.table(0, lambda _: 0)[0]) if self._functions else 0
        self.index_size = 12 + 8 * len(self._functions) if self._functions else 0

    def _read(self, data: bytes, addresses: dict[int, tuple[int, int]], before: int) -> None:
        """The records of one table; before: bytes of the tables before it."""
        at = 0
        while at < len(data):
            length, link = struct.unpack_from("<II", data, at)
            record = data[at + 8 : at + 4 + length]
            if link == _COMMON:
                self._commons[before + at] = _common(record)
            else:
                symbol, addend = addresses[at + 8]
                reach = struct.unpack_from("<Q", record, 8)[0]
                common = addresses[at + 4][1] if at + 4 in addresses else link
                self._functions.append(_Function(symbol, addend, reach, before + common, record[16:]))
            at += 4 + length

    def table(self, address: int, of_symbol: Callable[[int], int]) -> tuple[bytes, list[tuple[int, int]]]:
        """`.eh_frame` at an address, and (function, record) addresses; of_symbol: where a symbol is."""
        out, places, rows = b"", {}, []
        for number, record in self._commons.items():
            places[number] = len(out)
            out += _record(struct.pack("<I", 0) + record)
        for f in self._functions:
            at, begin = len(out), of_symbol(f.symbol) + f.addend
            relative = begin - (address + at + 8) if address else 0
            head = struct.pack("<IiIB", at + 4 - places[f.common], relative, f.length, 0)
            out += _record(head + f.rules)
            rows.append((begin, address + at))
        return out + bytes(4), rows

    def index(self, address: int, frames: int, rows: list[tuple[int, int]]) -> bytes:
        """`.eh_frame_hdr` at an address, over an `.eh_frame` at `frames`."""
        relative_to_index, count = 0x3B, 0x03
        head = struct.pack("<BBBBiI", 1, _RELATIVE, count, relative_to_index, frames - address - 4, len(rows))
        return head + b"".join(struct.pack("<ii", begin - address, record - address) for begin, record in sorted(rows))


def _common(record: bytes) -> bytes:
    """A common record of version 4 of DWARF in the form of `.eh_frame`, with relative addresses."""
    end = record.index(b"\0", 1)
    if record[0] != 4 or end != 1 or record[2:4] != b"\x08\x00":
        raise CodegenError("the compiler's unwind rules are not of the kind it makes for kernels")
    code = _end(record, 4)
    data = _end(record, code)
    register = _end(record, data)
    return b"\x01zR\0" + record[4:register] + bytes([1, _RELATIVE]) + record[register:]


def _end(data: bytes, at: int) -> int:
    """The end of a number of variable length."""
    while data[at] & 0x80:
        at += 1
    return at + 1


def _record(content: bytes) -> bytes:
    """A record with its length, padded by instructions that do nothing."""
    size = -(-(len(content) + 4) // 8) * 8 - 4
    return struct.pack("<I", size) + content.ljust(size, b"\0")
