"""Where the elements of a packed operand lie: one point of K after another, or several points of each row or vector.

    [K][width]                                  points = 1
    [K / points][width / run][points][run]      else; run: 1 in tiles of rows, the lanes of a vector in panels

Parts of K begin at whole blocks of points (`Parts.of_blocks`), so that a part lies in one stretch in either order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm import tirx

from neoflow.codegen.tir import emit

Value = emit.Value


@dataclass(frozen=True)
class Packing:
    """points: of K that lie side by side, a power of two. run: elements of one point that stay side by side."""

    points: int = 1
    run: int = 1

    def padded(self, k: int) -> int:
        """So many points of K, the last block filled up with what nobody reads."""
        return math.ceil(k / self.points) * self.points

    def at(self, base: Value, k: Value, width: int, begin: int | Value) -> Value:
        """Where element `begin` of point k is, of `width` elements a point that are packed at `base`."""
        if self.points == 1:
            return base + k * emit.integer(width) + (emit.integer(begin) if isinstance(begin, int) else begin)
        block, within = k >> emit.integer(self.points.bit_length() - 1), k & emit.integer(self.points - 1)
        first = base + block * emit.integer(width * self.points) + within * emit.integer(self.run)
        return first + self._of_element(begin)

    def _of_element(self, begin: int | Value) -> Value:
        """How far an element of a block's first point is from the first one."""
        if isinstance(begin, int):
            piece, within = divmod(begin, self.run)
            return emit.integer(piece * self.run * self.points + within)
        if self.run == 1:
            return begin * emit.integer(self.points)
        run = emit.integer(self.run)
        return tirx.truncdiv(begin, run) * emit.integer(self.run * self.points) + tirx.truncmod(begin, run)
