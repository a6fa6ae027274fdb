"""Launches of a scatter whose points are added in any order; see `loops.gpu.scatter`."""

from __future__ import annotations

import math

from tvm import tirx

from neoflow.codegen.gpu.grid import Grid, Grids, Value, divided
from neoflow.codegen.gpu.words import words
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.evaluate import Evaluator
from neoflow.codegen.tir.frame import Buffers
from neoflow.loops.gpu.blocks import USUAL_THREADS
from neoflow.loops.gpu.scatter import blocks_of, filled, points
from neoflow.loops.nest import ScatterNest
from neoflow.loops.schedule import Schedule


class Adding:
    """Zeros, then every point at its row."""

    def __init__(self, nest: ScatterNest, schedule: Schedule, buffers: Buffers):
        self.nest, self.given = nest, buffers
        (self.output,) = buffers.outputs
        self.threads, self.width = int(schedule["threads"]), int(schedule["width"])
        self.points, self.columns = points(nest), filled(nest)
        self.blocks = blocks_of(nest, schedule)

    def grids(self) -> Grids:
        size = math.prod(self.nest.shape)

        def clear(block: Value, thread: Value) -> list:
            out: list = []
            at = emit.bind(out, block * emit.integer(USUAL_THREADS) + thread, "at")
            zero = emit.splat(0, str(self.output.ty.dtype))
            return out + emit.when(at < emit.integer(size), [emit.store(self.output, at, zero)])

        zeros = Grid(math.ceil(size / USUAL_THREADS), USUAL_THREADS, clear)
        return Grids((zeros, Grid(math.prod(self.blocks), self.threads, self._add)))

    def _add(self, block: Value, thread: Value) -> list:
        out: list = []
        group, across = emit.digits(out, block, list(self.blocks))
        kind, own = divided(thread, self.width)
        point = emit.bind(out, group * emit.integer(self.threads // self.width) + kind, "point")
        column = emit.bind(out, across * emit.integer(self.width) + own, "column")
        inside: list = []
        axes = [a for a in self.nest.axes if a is not self.nest.columns]
        env = dict(zip(axes, emit.digits(inside, point, [a.extent for a in axes]), strict=True))
        if self.nest.columns is not None:
            env[self.nest.columns] = column
        ev = Evaluator(self.given.inputs, env, faults=self.given.faults)
        address = ev.address(self.nest.shape, self.nest.targets, None)
        value = ev.value(self.nest.value)
        inside += [*ev.statements, words().add(self.output, address, value)]
        there = tirx.And(point < emit.integer(self.points), column < emit.integer(self.columns))
        return out + emit.when(there, inside)
