"""Equalities of data with indices, as of labels with classes: lanes compared with a constant.

    label == j, of lanes j, j + 1, ...    ->    label - j == 0, 1, ...

LLVM makes the vector of indices anew at each point, in a dozen instructions of 64 bits.
"""

from __future__ import annotations

from tvm import tirx

from neoflow.codegen.tir import emit
from neoflow.codegen.tir.functions import apply_function
from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Apply, Axis, Expr
from neoflow.loops.nest import is_index, stride

Value = emit.Value


def compared(e: Apply, axis: Axis | None) -> tuple[Expr, Expr, int] | None:
    """Of an equality the side of data, alike in all lanes along an axis, the index beside it, and its step."""
    if e.fn not in ("eq", "ne") or axis is None:
        return None
    for data, index in (e.args, e.args[::-1]):
        if not is_index(index) or is_index(data) or axis in data.free:
            continue
        place = affine.simplify(index)
        low, high = affine.bounds(place)
        step = stride(place, axis)
        if step and low > -(1 << 31) and high < 1 << 31:
            return data, place, step
    return None


def equal_to_place(fn: str, data: Value, start: Value, step: int, lanes: int, statements: list) -> Value:
    """Whether data is, or is not, the index of each lane. Differences wrap around: 0 is that of equals alone."""
    apart = apply_function("sub", [data, tirx.Cast(dt.INDEX, start)], False, statements)
    places = tirx.Cast(emit.vector_type(dt.INDEX, lanes), emit.ramp(emit.integer(0), step, lanes))
    return apply_function(fn, [emit.widen(emit.held(statements, apart), lanes), places], False, statements)
