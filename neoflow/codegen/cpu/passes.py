"""The sums of a task's tiles between two passes over K: in memory of its thread, a tile after the other."""

from __future__ import annotations

from tvm.tirx import stmt as ts

from neoflow.codegen.cpu.blocks import Blocks
from neoflow.codegen.cpu.parts import Env
from neoflow.codegen.cpu.tiling import Tiling
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.phases import Scratch

Value = emit.Value


class Passes:
    """The blocks of K that each task goes through one after the other; one where it goes through all of its K."""

    def __init__(self, tiling: Tiling, element: str, blocks: Blocks, groups: Blocks):
        """blocks, groups: the row tiles and the panels of a task."""
        self.parts = tiling.parts
        self.count = tiling.parts.count if tiling.in_passes else 1
        self.size = len(tiling.row_tiles.whole) * tiling.panels.width
        """elements of a tile's sums"""
        self.buffer = emit.buffer(blocks.longest * groups.longest * self.size, element, "sums", 64)

    @property
    def scratch(self) -> tuple[Scratch, ...]:
        return (Scratch(self.buffer, is_shared=False),) if self.count > 1 else ()

    def after(self, env: Env, acc: emit.Registers, base: Value, store: list) -> list:
        """What follows a pass: the sums of the passes before are added; `store` after the last, else they wait."""
        if self.count == 1:
            return store
        number, out = env[self.parts.axis], list[ts.Stmt]()
        base = emit.bind(out, base, "sums")
        places = [emit.ramp(base + emit.integer(n * acc.lanes), 1, acc.lanes) for n in range(acc.count)]
        added = [acc.put(n, acc.get(n) + emit.load(self.buffer, place)) for n, place in enumerate(places)]
        kept = [emit.store(self.buffer, place, acc.get(n)) for n, place in enumerate(places)]
        out += emit.when(number > emit.integer(0), added)
        return out + emit.when(number < emit.integer(self.count - 1), kept, store)
