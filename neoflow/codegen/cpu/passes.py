"""The sums of a task's tiles between two passes over K: in memory of its thread, a tile after the other."""

from __future__ import annotations

from collections.abc import Callable

from tvm.tirx import stmt as ts

from neoflow.codegen.cpu.blocks import Blocks
from neoflow.codegen.cpu.parts import Env
from neoflow.codegen.cpu.tiling import Tiling
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.phases import Scratch
from neoflow.expr.ir import Axis

Value = emit.Value


class Passes:
    """The blocks of K that each task goes through one after the other; one where it goes through all of its K."""

    def __init__(self, tiling: Tiling, element: str, blocks: Blocks, groups: Blocks):
        """blocks, groups: the row tiles and the panels of a task."""
        self.tiling = tiling
        self.size = len(tiling.row_tiles.whole) * tiling.panels.width
        """elements of a tile's sums"""
        self.buffer = emit.buffer(blocks.longest * groups.longest * self.size, element, "sums", 64)
        self._number = Axis(-16, tiling.passes, "pass")

    @property
    def scratch(self) -> tuple[Scratch, ...]:
        return (Scratch(self.buffer, is_shared=False),) if self.tiling.passes > 1 else ()

    def each(self, env: Env, body: Callable[[Env], list]) -> list:
        """`body` for each part of K of a task."""
        split = env[self.tiling.splits]

        def one(number: Value) -> list:
            return body({**env, self._number: number, self.tiling.parts.axis: self.tiling.part(split, number)})

        return emit.loop(self.tiling.passes_of(split), one, "pass")

    def after(self, env: Env, acc: emit.Registers, base: Value, store: list) -> list:
        """What follows a pass: the sums of the passes before are added; `store` after the last, else they wait."""
        if self.tiling.passes == 1:
            return store
        number, out = env[self._number], list[ts.Stmt]()
        base = emit.bind(out, base, "sums")
        places = [emit.ramp(base + emit.integer(n * acc.lanes), 1, acc.lanes) for n in range(acc.count)]
        added = [acc.put(n, acc.get(n) + emit.load(self.buffer, place)) for n, place in enumerate(places)]
        kept = [emit.store(self.buffer, place, acc.get(n)) for n, place in enumerate(places)]
        last = self.tiling.passes_of(env[self.tiling.splits]) - 1
        last = emit.integer(last) if isinstance(last, int) else last
        out += emit.when(number > emit.integer(0), added)
        return out + emit.when(number < last, kept, store)
