"""Launches of a contraction that is divided among blocks: operands through shared memory, steps of K, results.

How a block multiplies what lies in shared memory is its `Core`: register tiles, or tensor cores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from tvm import tirx

from neoflow.architectures import ACCESS_BYTES
from neoflow.codegen.gpu.blocks import Blocks
from neoflow.codegen.gpu.bulk import Bulk, Side
from neoflow.codegen.gpu.grid import Grid, Grids, Value, dynamic, shared
from neoflow.codegen.gpu.layouts import Layout
from neoflow.codegen.gpu.operands import Operand, Place
from neoflow.codegen.gpu.pipeline import BlockBoxes, Pipeline
from neoflow.codegen.gpu.results import Results, Sums
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.blocks import Loop, cleared, in_blocks
from neoflow.codegen.tir.frame import Frame
from neoflow.loops.gpu.boxes import Boxes
from neoflow.loops.gpu.limits import STATIC_BYTES
from neoflow.loops.gpu.tile import AnyTile
from neoflow.loops.schedule import Schedule
from neoflow.loops.sides import Contraction, size


class Core(Protocol):
    """What multiplies. begin: a thread's sums, with statements that are added. publish: what a thread does before the
    barrier after which others multiply what it has stored. multiply: the terms of a stage; finish: what is done before
    the sums are read."""

    def begin(self, out: list, thread: Value) -> Sums: ...
    def publish(self) -> list: ...
    def multiply(self, acc: emit.Registers, stage: Value) -> list: ...
    def finish(self, acc: emit.Registers) -> list: ...


@dataclass(frozen=True)
class Places:
    """Shared memory: where each side's tiles are, what lies behind those of all stages, and the bytes that a launch
    asks for."""

    left: Place
    right: Place
    behind: int
    dynamic_bytes: int

    @property
    def sides(self) -> tuple[Place, Place]:
        return self.left, self.right


def places(
    left: Layout, right: Layout, element: str, tile: AnyTile, alignment: int = ACCESS_BYTES, behind: int = 0
) -> Places:
    """Both sides of a stage side by side, and so many bytes behind them."""
    stride = left.elements + right.elements
    elements = tile.stages * stride + behind // tile.element_bytes
    nbytes = elements * tile.element_bytes
    is_dynamic = nbytes > STATIC_BYTES
    memory = (dynamic if is_dynamic else shared)(elements, element, "tiles", alignment)
    sides = Place(memory, 0, stride), Place(memory, left.elements, stride)
    return Places(*sides, tile.stages * stride, nbytes if is_dynamic else 0)


class Tiled:
    """The launches; element: of the operands in shared memory, sums are of `result`."""

    def __init__(
        self,
        frame: Frame,
        schedule: Schedule,
        c: Contraction,
        tile: AnyTile,
        layouts: tuple[Layout, Layout],
        element: str,
        result: str,
        core: Core,
        memory: Places,
        boxes: tuple[Boxes | None, Boxes | None] = (None, None),
        overlap: int = 1,
    ):
        self.overlap = overlap
        self.c, self.tile, self.core, self.memory = c, tile, core, memory
        self.steps = math.ceil(size(c.k) / tile.block_k)
        self.steps_each = math.ceil(self.steps / int(schedule["splits"]))
        self.parts = math.ceil(self.steps / self.steps_each)
        sides = (("left", c.left, c.m, layouts[0]), ("right", c.right, c.n, layouts[1]))
        self.operands = [
            Operand(
                frame, side, axes, c.k, layout, tile.threads,
                int(schedule[f"{name}_lanes"]), element, bool(schedule[f"{name}_copy"]),
            )
            for name, side, axes, layout in sides
        ]  # fmt: skip
        self.is_bulk = tuple(b is not None for b in boxes)
        copied = [
            Side(found, element, place, layout.elements, layout.elements * tile.element_bytes)
            for found, place, layout in zip(boxes, memory.sides, layouts, strict=True)
            if found is not None
        ]
        self.bulk = Bulk.of(frame, tuple(copied), tile.stages, memory.behind) if copied else None
        self.blocks = Blocks(c, tile.block_m, tile.block_n, self.parts, int(schedule["swizzle"]))
        partial = emit.buffer(self.parts * size((*c.batch, *c.m, *c.n)), result, "partial", 64)
        lanes, is_written_out = int(schedule["store_lanes"]), schedule["store"] == "registers"
        self.results = Results(frame, c, tile.block_m, tile.block_n, lanes, is_written_out, self.parts, partial)

    def grids(self) -> Grids:
        """The launch of the blocks; before it one that makes maps, with K in parts one after it that adds these."""
        found = [Grid(self.blocks.count, self.tile.threads, self._block, self.memory.dynamic_bytes)]
        scratch: list[tirx.Buffer] = []
        if self.bulk is not None:
            found.insert(0, self.bulk.grid())
            scratch.append(self.bulk.maps)
        if self.parts > 1:
            found.append(self.results.combine())
            scratch.append(self.results.partial)
        return Grids(tuple(found), tuple(scratch))

    def _block(self, block: Value, thread: Value) -> list:
        out: list = []
        at = self.blocks.at(out, block)
        starts = (at.first_row, at.first_column)
        begun = [
            (operand, place, operand.begin(out, thread, first, at.env))
            for operand, place, first, is_bulk in zip(
                self.operands, self.memory.sides, starts, self.is_bulk, strict=True
            )
            if not is_bulk
        ]
        boxes = None
        if self.bulk is not None:
            rows = tuple(first for first, is_bulk in zip(starts, self.is_bulk, strict=True) if is_bulk)
            boxes = BlockBoxes(self.bulk, thread, rows, at.env)
        first_step = emit.bind(out, at.part * emit.integer(self.steps_each), "first")
        length = self._length(first_step)
        publish = self.core.publish if begun else list
        pipeline = Pipeline(begun, boxes, self.tile.stages, self.overlap, first_step, length, publish)
        sums = self.core.begin(out, thread)

        def leaf(acc: emit.Registers, step: list[Value]) -> list:
            return pipeline.step(step[0], lambda stage: self.core.multiply(acc, stage))

        out += [emit.on_stack(self.memory.left.buffer), *pipeline.begin(), *cleared(sums.acc)]
        out += in_blocks(
            [Loop(length, self.steps_each)], sums.acc, leaf, terms=self.tile.block_k, after=self.core.finish
        )
        return out + self.results.store(sums, at.part, at.env, at.first_row, at.first_column)

    def _length(self, first_step: Value) -> int | Value:
        """Steps of a part."""
        if self.steps % self.steps_each == 0:
            return self.steps_each
        return tirx.Min(emit.integer(self.steps_each), emit.integer(self.steps) - first_step)
