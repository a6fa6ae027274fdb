"""The blocks of a contraction: which part of K, point of the batch, and rectangle of results each one computes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm import tirx

from neoflow.codegen.gpu.grid import Value
from neoflow.codegen.gpu.operands import Env
from neoflow.codegen.tir import emit
from neoflow.loops.sides import Contraction, size


@dataclass(frozen=True)
class Block:
    """What a block computes."""

    part: Value
    env: Env
    first_row: Value
    first_column: Value


@dataclass(frozen=True)
class Blocks:
    """All of them. swizzle: row blocks that go through the column blocks together, column after column.

    Blocks that run at a time then read few rows and few columns, which stay in the level-2 cache.
    """

    c: Contraction
    block_m: int
    block_n: int
    parts: int
    swizzle: int

    @property
    def rows(self) -> int:
        return math.ceil(size(self.c.m) / self.block_m)

    @property
    def columns(self) -> int:
        return math.ceil(size(self.c.n) / self.block_n)

    @property
    def count(self) -> int:
        return self.parts * size(self.c.batch) * self.rows * self.columns

    def at(self, out: list, block: Value) -> Block:
        """Of a block's number; statements are added."""
        extents = [self.parts, *(a.extent for a in self.c.batch), self.rows * self.columns]
        part, *batch, number = emit.digits(out, block, extents)
        row, column = self._place(out, number)
        first_row = emit.bind(out, row * emit.integer(self.block_m), "first")
        first_column = emit.bind(out, column * emit.integer(self.block_n), "first")
        return Block(part, dict(zip(self.c.batch, batch, strict=True)), first_row, first_column)

    def _place(self, out: list, number: Value) -> tuple[Value, Value]:
        together = min(self.swizzle, self.rows)
        group, within = emit.digits(out, number, [math.ceil(self.rows / together), together * self.columns])
        if self.rows % together == 0:
            column, row = emit.digits(out, within, [self.columns, together])
            return group * emit.integer(together) + row, column
        first = emit.bind(out, group * emit.integer(together), "group")
        here = emit.bind(out, tirx.Min(emit.integer(together), emit.integer(self.rows) - first), "together")
        return first + tirx.truncmod(within, here), tirx.truncdiv(within, here)
