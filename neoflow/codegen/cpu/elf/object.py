"""An object file as LLVM writes it: sections, symbols, relocations."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from neoflow.errors import CodegenError

ALLOC, WRITE, EXECUTE, TLS = 2, 1, 4, 0x400
"""Flags of sections."""
NOBITS = 8
"""The kind of a section of zeros, which the file does not have."""
_RELA, _SYMTAB = 4, 2
_AT_START_AND_END = (14, 15, 16)
_RESERVED = 0xFF00
_COMMON = 0xFFF2
_ABSOLUTE = 0xFFF1
MOST_BYTES = (1 << 31) - (1 << 20)
"""What 32-bit displacements reach, with room for the tables."""
_TOO_LARGE = "the kernels of a module have more than 2 GiB of code and data: compile fewer at once"


@dataclass
class Section:
    """A section of an object file; its relocations count symbols from `first_symbol` on. address: in the library."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    first_symbol: int = 0
    address: int = 0

    @property
    def is_kept(self) -> bool:
        return bool(self.flags & ALLOC) and self.size > 0 and not self.name.startswith(".eh_frame")

    @property
    def is_writable(self) -> bool:
        return bool(self.flags & WRITE)


@dataclass(frozen=True)
class Symbol:
    """A symbol; `section` is the number of the one that defines it, 0 for none."""

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

    @property
    def is_placed(self) -> bool:
        """Whether it is in a section."""
        return 0 < self.section < _RESERVED


@dataclass(frozen=True)
class Relocation:
    """At `offset` of `section` goes a value made of symbol number `symbol` and `addend`."""

    section: Section
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class ObjectFile:
    """All that a library is made of. meant: by a symbol that an object leaves open, the one that stands for it."""

    data: bytes
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    meant: Mapping[int, int] = field(default_factory=dict)

    def relocations_of(self, section: Section) -> tuple[Relocation, ...]:
        """What is to be put into a section."""
        return tuple(
            Relocation(section, offset, info & 0xFFFFFFFF, self._meant(s.first_symbol + (info >> 32)), addend)
            for s in self.sections
            if s.kind == _RELA and self.sections[s.info] is section
            for offset, info, addend in struct.iter_unpack("<QQq", self.data[s.offset : s.offset + s.size])
        )

    def _meant(self, symbol: int) -> int:
        return self.meant.get(symbol, symbol)


def _text(table: bytes, offset: int) -> str:
    return table[offset : table.index(b"\0", offset)].decode()


def read_object(data: bytes) -> ObjectFile:
    """Raises `CodegenError` for what is no x86-64 object file, or holds what a library of kernels cannot have."""
    if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", data, 16) != (1, 62):
        raise CodegenError("the compiler gave no x86-64 ELF object file: this platform is not supported")
    start = struct.unpack_from("<Q", data, 40)[0]
    count, names = struct.unpack_from("<HH", data, 60)
    raw = [struct.unpack_from("<IIQQQQIIQQ", data, start + 64 * n) for n in range(count)]
    strings = data[raw[names][4] : raw[names][4] + raw[names][5]]
    sections = tuple(Section(_text(strings, r[0]), r[1], r[2], r[4], r[5], r[6], r[7], max(r[8], 1)) for r in raw)
    if sum(s.size for s in sections if s.is_kept) > MOST_BYTES:
        raise CodegenError(_TOO_LARGE)
    for s in sections:
        if s.is_kept and s.flags & TLS:
            raise CodegenError(f"section {s.name} is memory of each thread, which no kernel needs")
        if s.is_kept and s.kind in _AT_START_AND_END:
            raise CodegenError(f"section {s.name} has code to run when a library is loaded, which no kernel needs")
    return ObjectFile(data, sections, _symbols(data, sections))


def joined(objects: Sequence[ObjectFile]) -> ObjectFile:
    """Several object files as one: what one of them leaves open and another defines is that; of two alike the first."""
    data, sections, symbols = bytearray(), list[Section](), list[Symbol]()
    for obj in objects:
        data += bytes(-len(data) % 64)
        at, first_section, first_symbol = len(data), len(sections), len(symbols)
        for s in obj.sections:
            place, links = s.offset + at, (s.link + first_section, s.info + first_section)
            sections.append(replace(s, offset=place, link=links[0], info=links[1], first_symbol=first_symbol))
        symbols += [replace(s, section=s.section + first_section if s.is_placed else s.section) for s in obj.symbols]
        data += obj.data
    if sum(s.size for s in sections if s.is_kept) > MOST_BYTES:
        raise CodegenError(_TOO_LARGE)
    named = [n for n, s in enumerate(symbols) if s.is_global and s.name]
    known: dict[str, int] = {}
    for n in sorted(named, key=lambda n: not symbols[n].is_defined):
        known.setdefault(symbols[n].name, n)
    meant = {n: known[symbols[n].name] for n in named if not symbols[n].is_defined and known[symbols[n].name] != n}
    return ObjectFile(bytes(data), tuple(sections), tuple(symbols), meant)


def _symbols(data: bytes, sections: tuple[Section, ...]) -> tuple[Symbol, ...]:
    table = next(s for s in sections if s.kind == _SYMTAB)
    words = sections[table.link]
    strings = data[words.offset : words.offset + words.size]
    symbols = []
    for name, info, _, section, value, size in struct.iter_unpack(
        "<IBBHQQ", data[table.offset : table.offset + table.size]
    ):
        symbol = Symbol(_text(strings, name), info, section, value, size)
        if section == _COMMON or (section == _ABSOLUTE and symbol.is_global):
            kind = "common" if section == _COMMON else "absolute"
            raise CodegenError(f"symbol {symbol.name!r} is {kind}: it has no place in a library of kernels")
        symbols.append(symbol)
    return tuple(symbols)
