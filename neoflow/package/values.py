"""The parameters of a package, read once, straight into the memory that they stay in, and checked there.

The file is safetensors': 8 bytes with the length of its header; that, JSON, `{"w": {"dtype": "F32", "shape": [3, 20],
"data_offsets": [0, 240]}}`; all elements, with no gap. In memory arrays begin at multiples of 64 bytes, as kernels want
them, so there are gaps, and the system reads into the pieces between these. NumPy is not needed: it may be imported
meanwhile.
"""

import hashlib
import json
import mmap
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple  # annotations are no text: each would be compiled, as a package is loaded

from neoflow.errors import PackageError
from neoflow.package.manifest import MALFORMED, PARAMETERS, Manifest, damaged, opened, read_checked, written_as

ALIGNMENT = 64
_LENGTH = 8
_AT_ONCE = 1024
"""Pieces that the system reads into by one call."""


class Value(NamedTuple):
    """An array in the file's own words: its type, its shape; and where it lies in memory, in bytes."""

    dtype: Any
    shape: Any
    offset: int
    nbytes: int


class Values:
    """Arrays by name, in memory that is there as long as somebody looks at it."""

    def __init__(self, arrays: Mapping[str, Value], memory: mmap.mmap):
        self.arrays, self.memory = arrays, memory


def read_values(folder: str, manifest: Manifest) -> Values:
    """The parameters, as they were written. Raises `PackageError` where they are not, or are no safetensors file."""
    written = written_as(folder, manifest, PARAMETERS)
    with opened(folder, PARAMETERS) as (descriptor, nbytes):
        if nbytes != written.bytes:
            raise damaged(folder, PARAMETERS)
        head = os.pread(descriptor, _LENGTH, 0)
        length = min(int.from_bytes(head, "little"), nbytes)
        head += os.pread(descriptor, length, _LENGTH)
        try:
            arrays, spans, total = _laid(head[_LENGTH:], nbytes - len(head))
        except MALFORMED as error:
            read_checked(folder, manifest, PARAMETERS)  # where it is damaged, that is what is wrong with it
            raise PackageError(f"{folder}/{PARAMETERS} is no readable safetensors file: {error}") from None
        memory = _memory(total)
        whole, found = memoryview(memory), hashlib.sha256(head)
        pieces = [whole[start:end] for start, end in spans]
        is_whole = _fill(descriptor, pieces, len(head))
    for piece in pieces:
        found.update(piece)
    if not is_whole or found.hexdigest() != written.sha256:
        raise damaged(folder, PARAMETERS)
    return Values(arrays, memory)


def _laid(header: bytes, nbytes: int) -> tuple[dict[str, Value], list[tuple[int, int]], int]:
    """Arrays by name, the pieces of memory from one byte to another that the file fills in its order, and how much
    memory that is. nbytes: of all elements. Raises one of `MALFORMED` for what is no header of them."""
    said = json.loads(header)
    if not isinstance(said, dict):
        raise ValueError("its header is no object")
    said.pop("__metadata__", None)
    spans = {name: tuple(of["data_offsets"]) for name, of in said.items()}
    if any(len(s) != 2 or type(s[0]) is not int or type(s[1]) is not int for s in spans.values()):
        raise ValueError("it does not say where an array lies")
    arrays, pieces = dict[str, Value](), list[tuple[int, int]]()
    end = offset = 0
    for name in sorted(spans, key=spans.__getitem__):
        first, last = spans[name]
        if first != end or last < first:
            raise ValueError(f"there is a gap before {name!r:.60}, or it overlaps another")
        start = -(-offset // ALIGNMENT) * ALIGNMENT
        arrays[name] = Value(said[name]["dtype"], said[name]["shape"], start, last - first)
        end, offset = last, start + last - first
        begun = pieces.pop()[0] if pieces and start == pieces[-1][1] else start
        pieces.append((begun, offset))
    if end != nbytes:
        raise ValueError(f"its arrays have {end} bytes, and {nbytes} are there")
    return arrays, [p for p in pieces if p[0] < p[1]], offset


def _memory(nbytes: int) -> mmap.mmap:
    """Memory of this process alone, in large pages where there are: to make 11,000 small ones takes 50 ms."""
    memory = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _fill(descriptor: int, pieces: list[memoryview], place: int) -> bool:
    """Read a file from a place on into pieces of memory; whether there was enough of it."""
    left = list(pieces)
    left.reverse()
    while left:
        count = os.preadv(descriptor, left[: -_AT_ONCE - 1 : -1], place)
        if count == 0:
            return False
        place += count
        while left and count >= len(left[-1]):
            count -= len(left.pop())
        if count:
            left[-1] = left[-1][count:]
    return True
