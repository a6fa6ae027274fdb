"""How a tile of an operand lies in shared memory, and which of a block's threads load which of its elements."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from tvm import tirx

from neoflow.architectures import ACCESS_BYTES
from neoflow.codegen.gpu.grid import Value, divided
from neoflow.codegen.tir import emit
from neoflow.expr import dtype as dt
from neoflow.loops.gpu.tile import PATCH, pitch


class Layout(Protocol):
    """Of `rows` x `terms` elements. along_k: whether neighbours in memory are along K. is_in_lines: whether they are
    neighbours in shared memory too."""

    @property
    def rows(self) -> int: ...
    @property
    def terms(self) -> int: ...
    @property
    def along_k(self) -> bool: ...
    @property
    def is_in_lines(self) -> bool: ...
    @property
    def elements(self) -> int: ...
    def point(self, flat: Value, lanes: int) -> tuple[Value, Value]: ...
    def index(self, k: Value, row: Value) -> Value: ...


@dataclass(frozen=True)
class TermLines:
    """[terms][pitch]: a line has all rows of a point of K, as register tiles read it; see `loops.gpu.tile.pitch`."""

    rows: int
    terms: int
    along_k: bool
    element: str

    @property
    def is_in_lines(self) -> bool:
        return not self.along_k

    @property
    def pitch(self) -> int:
        return pitch(self.rows, self.along_k, dt.itemsize(self.element))

    @property
    def elements(self) -> int:
        """With what is between the lines."""
        return self.terms * self.pitch

    def point(self, flat: Value, lanes: int) -> tuple[Value, Value]:
        """(k, row) of an access: a warp goes along the rows, or over a patch of both; see `tile.pitch`."""
        if not self.along_k:
            k, row = divided(flat, self.rows // lanes)
            return k, row * emit.integer(lanes)
        wide = PATCH // lanes
        rest, column = divided(flat, wide)
        patch, row = divided(rest, self.rows)
        return (patch * emit.integer(wide) + column) * emit.integer(lanes), row

    def index(self, k: Value, row: Value) -> Value:
        return k * emit.integer(self.pitch) + row


BANKED = 8
"""Chunks of 16 bytes that shared memory gives at a time."""


@dataclass(frozen=True)
class Swizzled:
    """[rows][terms] or, not along K, [terms][rows], in chunks of 16 bytes; `nbytes` of an element.

    Chunks change places within 128 bytes by the number of their line, so that 8 threads meet no bank twice, be it that
    they store chunks of a line, or that they take the same chunk of 8 lines, which is what `ldmatrix` does:

        chunk c of line i is at  c xor (i / (8 / g)) mod g        g: 8, or the power of 2 in the chunks of a line

    `ldmatrix` turns squares of 16-bit elements alone. Where longer ones are not along K, a warp reads two chunks of
    each of 4 lines, word by word, and chunks move by twice that.
    """

    rows: int
    terms: int
    along_k: bool
    nbytes: int = 2

    @property
    def is_in_lines(self) -> bool:
        return True

    @property
    def elements(self) -> int:
        return self.rows * self.terms

    @property
    def _line(self) -> int:
        return self.terms if self.along_k else self.rows

    def point(self, flat: Value, lanes: int) -> tuple[Value, Value]:
        """(k, row) of an access: a warp goes along the lines."""
        line, place = divided(flat, self._line // lanes)
        place = place * emit.integer(lanes)
        return (place, line) if self.along_k else (line, place)

    def index(self, k: Value, row: Value) -> Value:
        line, place = (row, k) if self.along_k else (k, row)
        chunk, within = divided(place, self.of_chunk)
        return self.chunk(line, chunk) + within

    @property
    def of_chunk(self) -> int:
        """Elements of a chunk."""
        return ACCESS_BYTES // self.nbytes

    @property
    def is_turned(self) -> bool:
        """Whether fragments of it come by `ldmatrix`."""
        return self.along_k or self.nbytes == 2

    def chunk(self, line: Value, chunk: Value) -> Value:
        """Where a chunk of a line begins."""
        group = math.gcd(BANKED, self._line // self.of_chunk)
        turn = line if group == BANKED else tirx.truncdiv(line, emit.integer(BANKED // group))
        turn = turn if self.is_turned else turn * emit.integer(2)
        moved = chunk ^ tirx.truncmod(turn, emit.integer(group))
        return line * emit.integer(self._line) + moved * emit.integer(self.of_chunk)
