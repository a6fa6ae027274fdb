"""Pieces of work taken together by tasks, in blocks of nearly one length."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm import tirx

from neoflow.codegen.cpu.parts import Env
from neoflow.codegen.tir import emit
from neoflow.expr.ir import Axis

Value = emit.Value


@dataclass(frozen=True)
class Some:
    """`count` pieces from `first` on."""

    first: Value
    count: int | Value


@dataclass(frozen=True)
class Blocks:
    """`pieces` in so many blocks, none more than one longer than another. ident: of their axis."""

    ident: int
    pieces: int
    count: int

    @property
    def longest(self) -> int:
        """Pieces of the longest block."""
        return math.ceil(self.pieces / self.count)

    @property
    def axis(self) -> Axis:
        """The blocks as a dimension of tasks."""
        return Axis(self.ident, self.count, "block")

    def at(self, statements: list, env: Env) -> Some:
        """The pieces of a task's block."""
        number = env[self.axis]
        if self.pieces % self.count == 0:
            return Some(number * emit.integer(self.longest), self.longest)
        first, end = (self._begin(number + emit.integer(n)) for n in (0, 1))
        begin = emit.bind(statements, first, "first")
        return Some(begin, emit.bind(statements, end - begin, "count"))

    def _begin(self, number: Value) -> Value:
        return tirx.truncdiv(number * emit.integer(self.pieces), emit.integer(self.count))
