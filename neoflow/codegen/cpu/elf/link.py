"""The layout of a library: what is read, what is executed, what is written; then relocations and headers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from neoflow.codegen.cpu.elf.object import EXECUTE, NOBITS, ObjectFile, Section, Symbol, joined, read_object
from neoflow.codegen.cpu.elf.unwind import Frames
from neoflow.errors import CodegenError

_PAGE = 4096
_R_64, _R_PC32, _R_PLT32, _R_GLOB_DAT, _R_RELATIVE, _R_PC64 = 1, 2, 4, 6, 8, 24
_THROUGH_SLOT = (9, 41, 42)  # GOTPCREL, GOTPCRELX, REX_GOTPCRELX
_STUB = 8
"""Bytes of `jmp *slot(%rip)` and its padding."""
_SLOT = 8


@dataclass(frozen=True)
class _Part:
    """A table of the library, with what its section header says."""

    name: str
    kind: int
    flags: int
    address: int
    size: int
    link: str = ""
    info: int = 0
    align: int = 8
    entry: int = 0


def _align(value: int, to: int) -> int:
    return -(-value // to) * to


class _Image:
    """The library being laid out: the addresses of everything, then its bytes."""

    def __init__(self, obj: ObjectFile, name: str):
        self.obj, self.symbols = obj, obj.symbols
        self.kept = [s for s in obj.sections if s.is_kept]
        exported = self._distinct(lambda s: s.is_defined)
        self.imported = self._distinct(lambda s: not s.is_defined)
        self.entries = {n: i for i, n in enumerate((*self.imported, *exported), 1)}
        """by symbol: its number in the dynamic table"""
        self.relocations = [r for s in self.kept for r in obj.relocations_of(s)]
        used = {r.symbol for r in self.relocations if r.kind in _THROUGH_SLOT}
        self.slotted = self.imported + sorted(used.difference(self.imported))
        self.needed = ("libm.so.6", "libc.so.6") if self.imported else ()
        self.names = _Strings([name, *self.needed, *(self.symbols[n].name for n in self.entries)])
        self.name = name
        self.hashes = _hash_table([self.symbols[n].name for n in self.entries])
        self.frames = Frames(obj)
        self.dynamic: list[tuple[int, int, int]] = []
        """relocations left to the loader: (address, kind | symbol << 32, addend)"""
        self.parts: dict[str, _Part] = {}
        self._lay_out()

    def _distinct(self, wanted: Callable[[Symbol], bool]) -> list[int]:
        """Global symbols that are so, one of each name."""
        found: dict[str, int] = {}
        for n, s in enumerate(self.symbols):
            if s.is_global and s.name and wanted(s) and n not in self.obj.meant:
                found.setdefault(s.name, n)
        return list(found.values())

    def _lay_out(self) -> None:
        """Pages that are read, executed, written; each begins on its own."""
        at = self._add(".hash", 5, 2, _PAGE, len(self.hashes), ".dynsym", align=8, entry=4)
        at = self._add(".dynsym", 11, 2, at, 24 * (len(self.entries) + 1), ".dynstr", info=1, entry=24)
        at = self._add(".dynstr", 3, 2, at, len(self.names.data), align=1)
        words = sum(r.kind == _R_64 for r in self.relocations)
        at = self._add(".rela.dyn", 4, 2, at, 24 * (len(self.slotted) + words), ".dynsym", entry=24)
        at = self._place(at, lambda s: not s.is_writable and not s.flags & EXECUTE)
        at = self._add(".eh_frame_hdr", 1, 2, at, self.frames.index_size, align=4)
        at = self._add(".eh_frame", 1, 2, at, self.frames.size)
        self.read_end = at
        self.code_start = at = _align(at, _PAGE)
        at = self._place(at, lambda s: bool(s.flags & EXECUTE) and not s.is_writable)
        self.stubs_at = _align(at, 16)
        at = self._add(".plt", 1, 6, at, _STUB * len(self.imported), align=16, entry=_STUB)
        self.code_end = at
        self.data_start = at = _align(at, _PAGE)
        at = self._add(".dynamic", 6, 3, at, 16 * (11 + len(self.needed)), ".dynstr", entry=16)
        self.slots_at = _align(at, 8)
        at = self._add(".got", 1, 3, at, _SLOT * len(self.slotted), entry=_SLOT)
        self.end = self._place(at, lambda s: s.is_writable)
        self.slots = {n: self.slots_at + _SLOT * i for i, n in enumerate(self.slotted)}
        self.stubs = {n: self.stubs_at + _STUB * i for i, n in enumerate(self.imported)}

    def _add(
        self,
        name: str,
        kind: int,
        flags: int,
        at: int,
        size: int,
        link: str = "",
        info: int = 0,
        align: int = 8,
        entry: int = 0,
    ) -> int:
        """Give a table its address; its end."""
        at = _align(at, align)
        if size:
            self.parts[name] = _Part(name, kind, flags, at, size, link, info, align, entry)
        return at + size

    def _place(self, at: int, wanted: Callable[[Section], bool]) -> int:
        """Give sections of the object file their addresses; the end."""
        for s in self.kept:
            if wanted(s):
                s.address = at = _align(at, s.align)
                at += s.size
        return at

    def _content(self, s: Section) -> bytes:
        return self.obj.data[s.offset : s.offset + s.size]

    def _address(self, number: int) -> int:
        symbol = self.symbols[number]
        return self.obj.sections[symbol.section].address + symbol.value

    # --- bytes

    def link(self) -> bytes:
        out = bytearray(self.end)
        for s in self.kept:
            if s.kind != NOBITS:
                out[s.address : s.address + s.size] = self._content(s)
        for n, at in self.stubs.items():
            out[at : at + 6] = b"\xff\x25" + struct.pack("<i", self.slots[n] - at - 6)
        for n, at in self.slots.items():
            if self.symbols[n].is_defined:
                self.dynamic.append((at, _R_RELATIVE, self._address(n)))
            else:
                self.dynamic.append((at, _R_GLOB_DAT | self.entries[n] << 32, 0))
        self._relocate(out)
        if self.frames.size:
            place = self.parts[".eh_frame"].address
            table, rows = self.frames.table(place, self._address)
            self._write(out, ".eh_frame", table)
            self._write(out, ".eh_frame_hdr", self.frames.index(self.parts[".eh_frame_hdr"].address, place, rows))
        tail, headers_at, numbers = self._section_headers()
        self._write(out, ".hash", self.hashes)
        self._write(out, ".dynstr", self.names.data)
        self._write(out, ".dynsym", self._symbol_table(numbers))
        self._write(out, ".rela.dyn", b"".join(struct.pack("<QQq", *row) for row in self.dynamic))
        self._write(out, ".dynamic", self._dynamic_table())
        self._file_header(out, headers_at, len(numbers) + 1)
        return bytes(out) + tail

    def _write(self, out: bytearray, name: str, data: bytes) -> None:
        if name in self.parts:
            at = self.parts[name].address
            out[at : at + len(data)] = data

    def _relocate(self, out: bytearray) -> None:
        for r in self.relocations:
            at, symbol = r.section.address + r.offset, self.symbols[r.symbol]
            if r.kind in _THROUGH_SLOT:
                struct.pack_into("<i", out, at, self.slots[r.symbol] + r.addend - at)
            elif r.kind in (_R_PC32, _R_PLT32):
                target = self._address(r.symbol) if symbol.is_defined else self.stubs[r.symbol]
                struct.pack_into("<i", out, at, target + r.addend - at)
            elif r.kind == _R_PC64 and symbol.is_defined:
                struct.pack_into("<q", out, at, self._address(r.symbol) + r.addend - at)
            elif r.kind == _R_64 and not r.section.is_writable:
                raise CodegenError(
                    f"{r.section.name} holds the address of {symbol.name!r} and is not to be written: the code was not "
                    "compiled for a library"
                )
            elif r.kind == _R_64 and symbol.is_defined:
                self.dynamic.append((at, _R_RELATIVE, self._address(r.symbol) + r.addend))
            elif r.kind == _R_64:
                self.dynamic.append((at, _R_64 | self.entries[r.symbol] << 32, r.addend))
            else:
                raise CodegenError(f"relocation kind {r.kind} of {symbol.name!r} is not one LLVM uses for kernels")

    def _symbol_table(self, numbers: dict[int, int]) -> bytes:
        """`.dynsym`; numbers: by address of a section, its number in the file."""
        rows = [bytes(24)]
        for n in self.entries:
            symbol = self.symbols[n]
            section = numbers[self.obj.sections[symbol.section].address] if symbol.is_defined else 0
            value = self._address(n) if symbol.is_defined else 0
            name = self.names.offset(symbol.name)
            rows.append(struct.pack("<IBBHQQ", name, symbol.info, 0, section, value, symbol.size))
        return b"".join(rows)

    def _dynamic_table(self) -> bytes:
        at = {name: part.address for name, part in self.parts.items()}
        tags = [(1, self.names.offset(n)) for n in self.needed]
        tags += [(14, self.names.offset(self.name)), (4, at[".hash"]), (5, at[".dynstr"]), (10, len(self.names.data))]
        tags += [(6, at[".dynsym"]), (11, 24)]
        if self.dynamic:
            tags += [(7, at[".rela.dyn"]), (8, 24 * len(self.dynamic)), (9, 24)]
        return b"".join(struct.pack("<QQ", *tag) for tag in (*tags, (0, 0)))

    def _section_headers(self) -> tuple[bytes, int, dict[int, int]]:
        """What follows the image: the sections' names, then their headers; where those begin; numbers by address."""
        parts = [_Part(s.name, s.kind, s.flags & 7, s.address, s.size, align=s.align) for s in self.kept]
        parts = sorted([*parts, *self.parts.values()], key=lambda p: p.address)
        names = _Strings([*(p.name for p in parts), ".shstrtab"])
        number = {p.name: n for n, p in enumerate(parts, 1)}
        headers = [bytes(64)]
        for p in parts:
            link = number.get(p.link, 0)
            row = (names.offset(p.name), p.kind, p.flags, p.address, p.address, p.size, link, p.info, p.align, p.entry)
            headers.append(struct.pack("<IIQQQQIIQQ", *row))
        row = (names.offset(".shstrtab"), 3, 0, 0, self.end, len(names.data), 0, 0, 1, 0)
        headers.append(struct.pack("<IIQQQQIIQQ", *row))
        headers_at = _align(self.end + len(names.data), 8)
        tail = names.data.ljust(headers_at - self.end, b"\0") + b"".join(headers)
        return tail, headers_at, {p.address: n for n, p in enumerate((*parts, _Part(".shstrtab", 3, 0, 0, 0)), 1)}

    def _file_header(self, out: bytearray, headers_at: int, count: int) -> None:
        """count: of section headers, the last of which is that of their names."""
        load, dynamic, frames, stack = 1, 2, 0x6474E550, 0x6474E551
        table = self.parts[".dynamic"]
        segments = [
            (load, 4, 0, self.read_end, _PAGE),
            (load, 5, self.code_start, self.code_end - self.code_start, _PAGE),
            (load, 6, self.data_start, self.end - self.data_start, _PAGE),
            (dynamic, 6, table.address, table.size, 8),
            (stack, 6, 0, 0, 16),
        ]
        if ".eh_frame_hdr" in self.parts:
            part = self.parts[".eh_frame_hdr"]
            segments.append((frames, 4, part.address, part.size, 4))
        ident = b"\x7fELF\x02\x01\x01" + bytes(9)
        fields = (ident, 3, 62, 1, 0, 64, headers_at, 0, 64, 56, len(segments), 64, count, count - 1)
        struct.pack_into("<16sHHIQQQIHHHHHH", out, 0, *fields)
        for n, (kind, flags, at, size, align) in enumerate(segments):
            struct.pack_into("<IIQQQQQQ", out, 64 + 56 * n, kind, flags, at, at, at, size, size, align)


class _Strings:
    """A string table."""

    def __init__(self, names: Sequence[str]):
        self.data, self._offsets = b"\0", {"": 0}
        for name in names:
            if name not in self._offsets:
                self._offsets[name] = len(self.data)
                self.data += name.encode() + b"\0"

    def offset(self, name: str) -> int:
        return self._offsets[name]


def _hash_table(names: Sequence[str]) -> bytes:
    """The System V hash table of the dynamic symbols, numbered from 1."""
    count = len(names) + 1
    buckets, chains = [0] * max(1, len(names)), [0] * count
    for n, name in enumerate(names, 1):
        value = 0
        for byte in name.encode():
            value = (value << 4) + byte
            value = (value ^ (value & 0xF0000000) >> 24) & 0x0FFFFFFF
        b = value % len(buckets)
        chains[n], buckets[b] = buckets[b], n
    return struct.pack(f"<{2 + len(buckets) + count}I", len(buckets), count, *buckets, *chains)


def link(objects: Sequence[bytes], name: str) -> bytes:
    """The shared library called `name` (its SONAME) of object files.

    Raises `CodegenError` for what this linker does not know, or cannot place.
    """
    return _Image(joined([read_object(data) for data in objects]), name).link()
