"""Values in registers, and as they lie in memory: constants, narrow floats, bools, casts between element types."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import tirx

from neoflow.codegen.tir import emit
from neoflow.expr import dtype as dt

Value = emit.Value


def constant(value: float | int | bool, element: str) -> Value:
    """A constant in its register type, rounded to what its own type holds."""
    if dt.is_float(element):
        with np.errstate(over="ignore"):
            value = float(np.float64(value).astype(dt.NUMPY[element]))
    return emit.splat(value, emit.REGISTER.get(element, element))


def from_storage(x: Value, element: str) -> Value:
    """A loaded value in its register type."""
    lanes = emit.lanes_of(x)
    match element:
        case "bool":
            return tirx.NE(x, emit.splat(0, "int8", lanes))
        case "float16":
            return tirx.Cast(emit.vector_type("float32", lanes), x)
        case "bfloat16":
            bits = tirx.Cast(emit.vector_type("uint32", lanes), x) << emit.splat(16, "uint32", lanes)
            return tirx.reinterpret(emit.vector_type("float32", lanes), bits)
    return x


def to_storage(x: Value, element: str) -> Value:
    """A register value as it lies in memory; bfloat16 is rounded to nearest even."""
    lanes = emit.lanes_of(x)
    match element:
        case "bool":
            return emit.flags(x)
        case "float16":
            return tirx.Cast(emit.vector_type("float16", lanes), x)
        case "bfloat16":
            bits = emit.reinterpret("uint32", x)
            odd = (bits >> emit.splat(16, "uint32", lanes)) & emit.splat(1, "uint32", lanes)
            rounded = (bits + odd + emit.splat(0x7FFF, "uint32", lanes)) >> emit.splat(16, "uint32", lanes)
            rounded = tirx.Select(emit.is_nan(x), emit.splat(0x7FC0, "uint32", lanes), rounded)
            return tirx.Cast(emit.vector_type("uint16", lanes), rounded)
    return x


def convert(x: Value, element: str) -> Value:
    """Cast between element types; a narrow float is rounded to its own precision and stays in its register type."""
    lanes = emit.lanes_of(x)
    if element == "bool":
        x = emit.magnitude(x) if emit.element_of(x).startswith("float") else x  # NaN is true
        return x if emit.element_of(x) == "bool" else tirx.NE(x, emit.splat(0, emit.element_of(x), lanes))
    register = emit.REGISTER.get(element, element)
    if emit.element_of(x) == "bool":
        return tirx.Select(x, emit.splat(1, register, lanes), emit.splat(0, register, lanes))
    if register.startswith("int") and emit.element_of(x).startswith("float"):
        return _truncated(x, register)
    x = x if emit.element_of(x) == register else tirx.Cast(emit.vector_type(register, lanes), x)
    return from_storage(to_storage(x, element), element) if element in emit.REGISTER else x


def _truncated(x: Value, element: str) -> Value:
    """A float as an integer; what does not fit is what NumPy makes of it on x86, and not LLVM's undefined value.

    That is the lowest one for int32 and int64; a narrower one gets the low bits of an int32.
    """
    if tvm.DataType(element).bits < 32:
        return tirx.Cast(emit.vector_type(element, emit.lanes_of(x)), _truncated(x, "int32"))
    lanes, given, bits = emit.lanes_of(x), emit.element_of(x), tvm.DataType(element).bits
    fits = tirx.And(
        x >= emit.splat(-(2.0 ** (bits - 1)), given, lanes), x < emit.splat(2.0 ** (bits - 1), given, lanes)
    )
    lowest = emit.splat(-(1 << (bits - 1)), element, lanes)
    return tirx.Select(fits, tirx.Cast(emit.vector_type(element, lanes), x), lowest)
