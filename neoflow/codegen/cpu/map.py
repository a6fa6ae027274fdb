"""Loops of the `map` template; see `loops.map`."""

from __future__ import annotations

import math

from tvm import tirx

from neoflow.codegen.cpu.transpose import turned_block
from neoflow.codegen.tir import emit
from neoflow.codegen.tir.frame import Frame, Strip, nested, points
from neoflow.codegen.tir.phases import Phase, Phases
from neoflow.expr.ir import Axis, Expr, Read
from neoflow.loops.map import rows_of, turned_reads
from neoflow.loops.nest import stride
from neoflow.loops.schedule import Schedule

Value = emit.Value


def lower_map(frame: Frame, schedule: Schedule) -> Phases:
    """One phase."""
    axes = frame.nest.axes
    if not axes:
        return Phases((Phase(1, lambda _: frame.write({})),))
    lanes, inner, chunks = int(schedule["lanes"]), int(schedule["inner"]), int(schedule["chunks"])
    strip = Strip(axes[-1], lanes)
    inside = [axes[inner]] if inner >= 0 else []
    per_chunk = math.ceil(strip.blocks / chunks) if strip.blocks else 0
    chunk_axis = Axis(-1, chunks, "chunk")

    turned = turned_reads(frame.nest, inner) if schedule["turn"] else []

    def vector(env: dict[Axis, Value], start: Value, mask: Value | None) -> list:
        here = {**env, strip.axis: start}
        if not turned or mask is not None:
            return nested(inside, here, lambda e: frame.write(e, strip.axis, lanes, mask=mask))
        blocks, left = divmod(inside[0].extent, lanes)
        body = emit.loop(blocks, lambda b: block(here, b * emit.integer(lanes)), "b")
        first = emit.integer(blocks * lanes)

        def rest(i: Value) -> list:
            return frame.write({**here, inside[0]: first + i}, strip.axis, lanes)

        return body + (emit.loop(left, rest, "i") if left else [])

    def block(env: dict[Axis, Value], start: Value) -> list:
        """lanes x lanes points: the turned reads as vectors, then a row of outputs for each."""
        body: list = []
        vectors: dict[Read, list[Value]] = {}
        for read in turned:
            ev = frame.evaluator({**env, inside[0]: start})
            base = ev.index(read.indices[0])
            body += ev.statements
            base, step = emit.bind(body, base, "base"), stride(read.indices[0], strip.axis)
            source = frame.inputs[read.slot]
            vectors[read] = turned_block(source, base, int(step or 0), lanes, body)
        for n in range(lanes):
            known: dict[Expr, Value] = {read: rows[n] for read, rows in vectors.items()}
            body += frame.write({**env, inside[0]: start + emit.integer(n)}, strip.axis, lanes, known=known)
        return body

    def task(env: dict[Axis, Value]) -> list:
        chunk = env.get(chunk_axis, emit.integer(0))
        first = chunk * emit.integer(per_chunk)
        count: int | Value = per_chunk
        if chunks * per_chunk != strip.blocks:
            count = tirx.Min(emit.integer(per_chunk), emit.integer(strip.blocks) - first)
        body: list = []
        if strip.blocks:
            body += emit.loop(count, lambda b: vector(env, (first + b) * emit.integer(lanes), None), "block")
        if strip.tail:
            start = emit.integer(strip.blocks * lanes)
            body += emit.when(tirx.EQ(chunk, emit.integer(chunks - 1)), vector(env, start, strip.tail_mask()))
        return body

    dimensions = [*rows_of(frame.nest, inner), chunk_axis]
    total = math.prod(a.extent for a in dimensions)
    return Phases((Phase(total, lambda t: points(dimensions, t, task), bool(schedule["parallel"])),))
