"""Loops of the `scatter` template; see `loops.scatter`."""

from __future__ import annotations

import math

from tvm import tirx

from neoflow.codegen.tir import emit
from neoflow.codegen.tir.evaluate import Evaluator
from neoflow.codegen.tir.frame import Buffers, Strip, nested
from neoflow.codegen.tir.phases import Phase, Phases
from neoflow.codegen.tir.storage import from_storage, to_storage
from neoflow.expr.ir import Axis
from neoflow.loops.nest import ScatterNest
from neoflow.loops.scatter import ZERO_BLOCK
from neoflow.loops.schedule import Schedule

Value = emit.Value


def lower_scatter(nest: ScatterNest, schedule: Schedule, buffers: Buffers) -> Phases:
    """One phase, or one for the zeros and one for what is added."""
    lanes, chunks, zeros = (int(schedule[name]) for name in ("lanes", "chunks", "zeros"))
    inputs, faults, columns = buffers.inputs, buffers.faults, nest.columns
    (output,) = buffers.outputs
    before = () if zeros == 1 else (_zeros_apart(nest, output, zeros),)
    if columns is not None and (lanes > 1 or chunks > 1):
        adding = _by_columns(nest, columns, inputs, output, lanes, chunks, faults, is_zero=zeros > 1)
        return Phases((*before, adding))
    zero = _zero(nest.value.dtype)

    def all_points(_: Value) -> list:
        size = math.prod(nest.shape)
        own = [] if before else emit.loop(size, lambda i: [emit.store(output, i, zero)], "zero")
        return own + nested(list(nest.axes), {}, lambda e: _add(nest, inputs, output, e, None, 1, None, faults))

    return Phases((*before, Phase(1, all_points)))


def _zeros_apart(nest: ScatterNest, output: tirx.Buffer, tasks: int) -> Phase:
    """The whole output in pieces of whole blocks, the last one with what is left."""
    size, zero = math.prod(nest.shape), _zero(nest.value.dtype)
    piece = math.ceil(size / ZERO_BLOCK / tasks) * ZERO_BLOCK

    def task(n: Value) -> list:
        first = n * emit.integer(piece)
        length = tirx.Min(emit.integer(piece), emit.integer(size) - first)
        return emit.loop(length, lambda i: [emit.store(output, first + i, zero)], "zero")

    return Phase(math.ceil(size / piece), task, is_parallel=True)


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
    is_zero: bool,
) -> Phase:
    """Each task sums columns of its own; the last one also takes the tail. Unless the output `is_zero` it writes zeros
    before, the last one also in columns that get nothing."""
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

        zeros = [] if is_zero else emit.loop(math.prod(nest.shape[:-1]), zero_row, "row")
        return zeros + nested(rows, {}, one_row)

    return Phase(chunks, task, is_parallel=True)


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
