"""Launches of the `gpu_map` template; see `loops.gpu.map`."""

from __future__ import annotations

import math

from tvm import tirx

from neoflow.codegen.gpu.grid import Grid, Grids
from neoflow.codegen.gpu.turn import lower_turned
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.frame import Frame, Strip, points
from neoflow.expr.ir import Axis
from neoflow.loops.gpu.map import total
from neoflow.loops.schedule import Schedule

Value = emit.Value


def lower_map(frame: Frame, schedule: Schedule) -> Grids:
    """One launch."""
    if schedule["turn"] != "no":
        return lower_turned(frame, schedule)
    axes = frame.nest.axes
    lanes, threads, vectors = (int(schedule[k]) for k in ("lanes", "threads", "vectors"))
    count = total(frame.nest, lanes)
    if not axes:

        def alone(_: Value, thread: Value) -> list:
            return emit.when(tirx.EQ(thread, emit.integer(0)), frame.write({}))

        return Grids((Grid(1, threads, alone),))
    strip = Strip(axes[-1], lanes)
    column = Axis(-1, math.ceil(axes[-1].extent / lanes), "column")

    def vector(env: dict[Axis, Value]) -> list:
        start = env[column] * emit.integer(lanes)
        whole = frame.write({**env, strip.axis: start}, strip.axis, lanes) if strip.blocks else []
        if not strip.tail:
            return whole
        first = emit.integer(strip.blocks * lanes)
        rest = emit.loop(strip.tail, lambda i: frame.write({**env, strip.axis: first + i}), "i")
        return emit.when(env[column] < emit.integer(strip.blocks), whole, rest) if whole else rest

    def body(block: Value, thread: Value) -> list:
        def one(v: Value) -> list:
            out: list = []
            n = emit.bind(out, (block * emit.integer(vectors) + v) * emit.integer(threads) + thread, "n")
            inside = points([*axes[:-1], column], n, vector)
            return out + (inside if count % (threads * vectors) == 0 else emit.when(n < emit.integer(count), inside))

        return emit.loop(vectors, one, "v")

    return Grids((Grid(math.ceil(count / (threads * vectors)), threads, body),))
