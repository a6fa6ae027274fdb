"""Loops of the `scatter` template; see `loops.scatter`."""

from __future__ import annotations

import math

from tvm import tirx

from neoflow.codegen.tir import emit
from neoflow.codegen.tir.evaluate import Evaluator, from_storage, to_storage
from neoflow.codegen.tir.frame import Buffers, Strip, nested
from neoflow.codegen.tir.phases import Phase, Phases
from neoflow.expr.ir import Axis
from neoflow.loops.nest import ScatterNest
from neoflow.loops.schedule import Schedule

Value = emit.Value


def lower_scatter(nest: ScatterNest, schedule: Schedule, buffers: Buffers) -> Phases:
    """One phase."""
    lanes, chunks, columns = int(schedule["lanes"]), int(schedule["chunks"]), nest.columns
    inputs, faults = buffers.inputs, buffers.faults
    (output,) = buffers.outputs
    if columns is not None and (lanes > 1 or chunks > 1):
        return _by_columns(nest, columns, inputs, output, lanes, chunks, faults)
    zero = _zero(nest.value.dtype)

    def all_points(_: Value) -> list:
        zeros = emit.loop(math.prod(nest.shape), lambda i: [emit.store(output, i, zero)], "zero")
        return zeros + nested(list(nest.axes), {}, lambda e: _add(nest, inputs, output, e, None, 1, None, faults))

    return Phases((Phase(1, all_points),))


def _zero(dtype: str) -> Value:
    return to_storage(emit.splat(0, emit.REGISTER.get(dtype, dtype)), dtype)


def _by_columns(
    nest: ScatterNest,
    columns: Axis,
    inputs: dict[int, tirx.Buffer],
    output: tirx.Buffer,
    lanes: int,
    chunks: int,
    faults: emit.Faults,
) -> Phases:
    """Each task zeroes and sums columns of its own; the last one also takes the tail and columns that get nothing."""
    width = nest.shape[-1]
    strip = Strip(columns, lanes)
    per_chunk = math.ceil(strip.blocks / chunks)
    chunks = max(
        1, math.ceil(strip.blocks / max(1, per_chunk))
    )  # each has a block: what is past the last one is its own
    rows = [a for a in nest.axes if a is not columns]
    zero = _zero(nest.value.dtype)

    def task(chunk: Value) -> list:
        first = chunk * emit.integer(per_chunk)
        count = tirx.Min(emit.integer(per_chunk), emit.integer(strip.blocks) - first)
        is_last = tirx.EQ(chunk, emit.integer(chunks - 1))
        start = first * emit.integer(lanes)
        end = tirx.Select(is_last, emit.integer(width), (first + count) * emit.integer(lanes))

        def zero_row(row: Value) -> list:
            base = row * emit.integer(width) + start
            return emit.loop(end - start, lambda j: [emit.store(output, base + j, zero)], "j")

        def one_row(env: dict[Axis, Value]) -> list:
            def block(b: Value) -> list:
                here = {**env, columns: (first + b) * emit.integer(lanes)}
                return _add(nest, inputs, output, here, columns, lanes, None, faults)

            body = emit.loop(count, block, "block") if strip.blocks else []
            if strip.tail:
                here = {**env, columns: emit.integer(strip.blocks * lanes)}
                tail = _add(nest, inputs, output, here, columns, lanes, strip.tail_mask(), faults)
                body += emit.when(is_last, tail)
            return body

        return emit.loop(math.prod(nest.shape[:-1]), zero_row, "row") + nested(rows, {}, one_row)

    return Phases((Phase(chunks, task, is_parallel=True),))


def _add(
    nest: ScatterNest,
    inputs: dict[int, tirx.Buffer],
    output: tirx.Buffer,
    env: dict[Axis, Value],
    columns: Axis | None,
    lanes: int,
    mask: Value | None,
    faults: emit.Faults,
) -> list:
    """output[targets] += value at one point, or along `lanes` columns."""
    ev = Evaluator(inputs, env, columns, lanes, None, mask, faults)
    dtype = nest.value.dtype
    address = ev.address(nest.shape, nest.targets, None)
    value = emit.widen(ev.value(nest.value), lanes)
    if mask is None:
        old = emit.load(output, address)
    else:
        old = emit.masked_load(ev.statements, output, address, mask)
    total = emit.bind(ev.statements, to_storage(from_storage(old, dtype) + value, dtype))
    write = emit.store(output, address, total) if mask is None else emit.masked_store(output, address, total, mask)
    return [*ev.statements, write]
