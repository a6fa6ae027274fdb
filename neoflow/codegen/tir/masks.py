"""Masks of lanes as integers, for processors on which a mask is a vector like others: all bits of a lane, or none.

LLVM makes one mask of a condition that all lanes have together and one of each, of 16 bits a lane, and widens it anew
for each vector. As integers the two stay apart until they meet, each of as many bits as a lane of what they are for.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import tirx

from neoflow.codegen.tir import emit

Value = emit.Value

_LOADS = {4: "llvm.x86.avx.maskload.ps", 8: "llvm.x86.avx.maskload.ps.256"}
"""Loads of lanes of float32 by the signs of integers."""


def _bits(statements: list, condition: Value, kind: str) -> Value:
    """All bits of an integer where a condition holds, none elsewhere."""
    lanes = emit.lanes_of(condition)
    return emit.held(statements, tirx.Select(condition, emit.splat(-1, kind, lanes), emit.splat(0, kind, lanes)))


def or_zero(statements: list, condition: Value, value: Value) -> Value:
    """The lanes of `value` where one condition of them all holds, else +0."""
    element = emit.element_of(value)
    kind = f"int{tvm.DataType(element).bits}"
    bits = emit.widen(_bits(statements, condition, kind), emit.lanes_of(value))
    return emit.reinterpret(element, emit.reinterpret(kind, value) & bits)


def can_load(source: tirx.Buffer, index: Value) -> bool:
    """Whether `load` has such neighbours."""
    is_line = isinstance(index, tirx.Ramp) and int(index.stride.value) == 1
    return is_line and str(source.ty.dtype) == "float32" and emit.lanes_of(index) in _LOADS


def load(statements: list, source: tirx.Buffer, index: Value, conditions: Sequence[Value]) -> Value:
    """Neighbours where all conditions hold, of all lanes or of each; 0 in the other lanes, of which nothing is read."""
    lanes, mask = emit.lanes_of(index), None
    for condition in conditions:
        bits = emit.widen(_bits(statements, condition, "int32"), lanes)
        mask = bits if mask is None else mask & bits
    place = tirx.address_of(emit.load(source, index.base))
    kind = emit.vector_type("float32", lanes)
    return emit.held(statements, tirx.call_llvm_intrin(kind, _LOADS[lanes], place, mask))
