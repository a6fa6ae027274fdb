"""A linker for one object file: x86-64 ELF relocatable in, shared library out.

LLVM gives an object file; a library that `dlopen` takes is normally made by `cc` or `ld`, which a user's machine need
not have.  What LLVM emits for kernels needs little of a linker: place sections, apply five kinds of relocation, give
undefined symbols (a handful of the runtime's and libm's) a slot that the dynamic loader fills, write the dynamic
tables.  Formats and numbers are those of the System V ABI, x86-64 supplement.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from neoflow.errors import CodegenError

_PAGE = 4096
_ALLOC, _WRITE, _EXEC = 2, 1, 4  # section flags
_PROGBITS, _NOBITS, _RELA, _SYMTAB = 1, 8, 4, 2
_R_64, _R_PC32, _R_GLOB_DAT, _R_RELATIVE, _R_PC64 = 1, 2, 6, 8, 24
_R_PLT32, _GOT_KINDS = 4, (9, 41, 42)  # GOTPCREL, GOTPCRELX, REX_GOTPCRELX
_STUB = 6  # jmp *slot(%rip)


@dataclass
class _Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    address: int = 0

    @property
    def is_kept(self) -> bool:
        return bool(self.flags & _ALLOC) and self.size > 0 and not self.name.startswith(".eh_frame")


@dataclass(frozen=True)
class _Symbol:
    name: str
    info: int
    section: int
    value: int
    size: int

    @property
    def is_global(self) -> bool:
        return self.info >> 4 != 0

    @property
    def is_defined(self) -> bool:
        return self.section != 0


def _text(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()


def _parse(data: bytes) -> tuple[list[_Section], list[_Symbol]]:
    if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", data, 16) != (1, 62):
        raise CodegenError("the compiler gave no x86-64 ELF object file: this platform is not supported")
    start = struct.unpack_from("<Q", data, 40)[0]
    count, names = struct.unpack_from("<HH", data, 60)
    raw = [struct.unpack_from("<IIQQQQIIQQ", data, start + 64 * n) for n in range(count)]
    strings = data[raw[names][4] : raw[names][4] + raw[names][5]]
    sections = [_Section(_text(strings, r[0]), r[1], r[2], r[4], r[5], r[6], r[7], max(r[8], 1)) for r in raw]
    table = next(s for s in sections if s.kind == _SYMTAB)
    words = sections[table.link]
    strings = data[words.offset : words.offset + words.size]
    symbols = []
    for n in range(table.size // 24):
        name, info, _, section, value, size = struct.unpack_from("<IBBHQQ", data, table.offset + 24 * n)
        symbols.append(_Symbol(_text(strings, name), info, section, value, size))
    return sections, symbols


def _align(value: int, to: int) -> int:
    return -(-value // to) * to


class _Image:
    """The library being laid out: sections, then stubs, then the writable part with slots and dynamic tables."""

    def __init__(self, data: bytes):
        self.data = data
        self.sections, self.symbols = _parse(data)
        self.relocations = [
            (self.sections[s.info], struct.unpack_from("<QQq", data, s.offset + 24 * n))
            for s in self.sections
            if s.kind == _RELA and self.sections[s.info].is_kept
            for n in range(s.size // 24)
        ]
        self.slots: dict[int, int] = {}  # symbol number -> address of its slot
        self.stubs: dict[int, int] = {}  # symbol number -> address of its stub
        self.dynamic: list[tuple[int, int, int]] = []  # (address, kind | symbol << 32, addend)

    def link(self) -> bytes:
        exported = [n for n, s in enumerate(self.symbols) if s.is_global and s.is_defined and s.name]
        imported = [n for n, s in enumerate(self.symbols) if s.is_global and not s.is_defined and s.name]
        entries = {n: i + 1 for i, n in enumerate(imported + exported)}  # symbol number -> dynamic symbol number
        end = self._place(_PAGE, writable=False)
        for n in imported:
            self.stubs[n] = end
            end += 8
        tables = _align(end, 16)
        names, offsets = b"\0", {}
        for n in entries:
            offsets[n] = len(names)
            names += self.symbols[n].name.encode() + b"\0"
        hashes = self._hash(entries)
        symbol_at = tables
        names_at = symbol_at + 24 * (len(entries) + 1)
        hash_at = _align(names_at + len(names), 8)
        rela_at = _align(hash_at + len(hashes), 8)
        needed = self._slot_symbols(imported)
        rela_room = 24 * (len(needed) + sum(1 for _, (_, info, _) in self.relocations if info & 0xFFFFFFFF == _R_64))
        read_end = rela_at + rela_room
        slot_at = _align(read_end, _PAGE)
        self.slots = {n: slot_at + 8 * i for i, n in enumerate(needed)}
        dynamic_at = _align(slot_at + 8 * len(needed), 16)
        data_at = dynamic_at + 16 * 9
        write_end = self._place(data_at, writable=True)

        out = bytearray(write_end)
        for s in self.sections:
            if s.is_kept and s.kind != _NOBITS:
                out[s.address : s.address + s.size] = self.data[s.offset : s.offset + s.size]
        for n, at in self.stubs.items():
            out[at : at + _STUB] = b"\xff\x25" + struct.pack("<i", self.slots[n] - at - _STUB)
        for n, at in self.slots.items():
            symbol = self.symbols[n]
            if symbol.is_defined:
                self.dynamic.append((at, _R_RELATIVE, self._address(n)))
            else:
                self.dynamic.append((at, _R_GLOB_DAT | entries[n] << 32, 0))
        self._relocate(out, entries)
        for i, n in enumerate(entries):
            symbol = self.symbols[n]
            value = self._address(n) if symbol.is_defined else 0
            fields = (offsets[n], symbol.info, 0, 1 if symbol.is_defined else 0, value, symbol.size)
            struct.pack_into("<IBBHQQ", out, symbol_at + 24 * (i + 1), *fields)
        out[names_at : names_at + len(names)] = names
        out[hash_at : hash_at + len(hashes)] = hashes
        for i, row in enumerate(self.dynamic):
            struct.pack_into("<QQq", out, rela_at + 24 * i, *row)
        tags = [(4, hash_at), (5, names_at), (6, symbol_at), (7, rela_at), (8, 24 * len(self.dynamic))]
        tags += [(9, 24), (10, len(names)), (11, 24), (0, 0)]
        for i, tag in enumerate(tags):
            struct.pack_into("<QQ", out, dynamic_at + 16 * i, *tag)
        self._header(out, read_end, slot_at, write_end, dynamic_at)
        return bytes(out)

    def _place(self, at: int, writable: bool) -> int:
        """Give the kept sections of one protection their addresses; the end."""
        for s in self.sections:
            if s.is_kept and bool(s.flags & _WRITE) == writable:
                s.address = at = _align(at, s.align)
                at += s.size
        return at

    def _slot_symbols(self, imported: list[int]) -> list[int]:
        """Symbols that need a slot: every import, and what the code addresses through one."""
        used = {info >> 32 for _, (_, info, _) in self.relocations if info & 0xFFFFFFFF in _GOT_KINDS}
        return imported + sorted(used.difference(imported))

    def _address(self, number: int) -> int:
        symbol = self.symbols[number]
        return self.sections[symbol.section].address + symbol.value

    def _relocate(self, out: bytearray, entries: dict[int, int]) -> None:
        for section, (offset, info, addend) in self.relocations:
            kind, number = info & 0xFFFFFFFF, info >> 32
            at, symbol = section.address + offset, self.symbols[number]
            if kind in _GOT_KINDS:
                struct.pack_into("<i", out, at, self.slots[number] + addend - at)
            elif kind in (_R_PC32, _R_PLT32):
                target = self._address(number) if symbol.is_defined else self.stubs[number]
                struct.pack_into("<i", out, at, target + addend - at)
            elif kind == _R_PC64:
                struct.pack_into("<q", out, at, self._address(number) + addend - at)
            elif kind == _R_64 and symbol.is_defined:
                self.dynamic.append((at, _R_RELATIVE, self._address(number) + addend))
            elif kind == _R_64:
                self.dynamic.append((at, _R_64 | entries[number] << 32, addend))
            else:
                raise CodegenError(f"relocation kind {kind} of {symbol.name!r} is not one LLVM uses for kernels")

    def _hash(self, entries: dict[int, int]) -> bytes:
        """The System V hash table."""
        count = len(entries) + 1
        buckets, chains = [0] * max(1, len(entries)), [0] * count
        for n, i in entries.items():
            value = 0
            for byte in self.symbols[n].name.encode():
                value = (value << 4) + byte
                value = (value ^ (value & 0xF0000000) >> 24) & 0x0FFFFFFF
            b = value % len(buckets)
            chains[i], buckets[b] = buckets[b], i
        return struct.pack(f"<{2 + len(buckets) + count}I", len(buckets), count, *buckets, *chains)

    def _header(self, out: bytearray, read_end: int, slot_at: int, write_end: int, dynamic_at: int) -> None:
        segments = (
            (1, 5, 0, read_end, _PAGE),
            (1, 6, slot_at, write_end - slot_at, _PAGE),
            (2, 6, dynamic_at, 16 * 9, 8),
            (0x6474E551, 6, 0, 0, 16),  # GNU_STACK: not executable
        )
        ident = b"\x7fELF\x02\x01\x01" + bytes(9)
        struct.pack_into("<16sHHIQQQIHHHHHH", out, 0, ident, 3, 62, 1, 0, 64, 0, 0, 64, 56, len(segments), 0, 0, 0)
        for n, (kind, flags, at, size, align) in enumerate(segments):
            struct.pack_into("<IIQQQQQQ", out, 64 + 56 * n, kind, flags, at, at, at, size, size, align)


def link(data: bytes, name: str) -> bytes:
    """The shared library of an object file; `CodegenError` for what this linker does not know."""
    return _Image(data).link()
