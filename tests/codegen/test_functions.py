"""Every scalar function has code on the device, in every type it takes."""

import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.expr import dsl
from neoflow.expr import dtype as dt
from neoflow.expr.functions import FUNCTIONS
from neoflow.loops import default_schedule
from neoflow.target import Target
from tests.codegen.kernels import subgraph_of

pytestmark = pytest.mark.tvm
TARGET = Target("cpu", "x86-64-v4", 1, 64)
TAKES = {
    "arith": (*dt.FLOATS, *dt.INTS),
    "real": dt.FLOATS,
    "single": ("float32",),
    "integer": dt.INTS,
    "compare": (*dt.FLOATS, *dt.INTS, "bool"),
    "logic": ("bool",),
}
CASES = [(f.name, dtype) for f in FUNCTIONS.values() for dtype in TAKES[f.typing]]


def lowered(fn: str, dtype: str):
    """The kernel of 64 values of a function, and its schedule."""
    inputs = [nf.placeholder((64,), dtype, name=f"x{n}") for n in range(FUNCTIONS[fn].arity)]
    subgraph = subgraph_of([dsl.apply(fn, *inputs)], inputs)
    schedule = default_schedule(subgraph, TARGET)
    return codegen.lower(subgraph, schedule, TARGET, "kernel"), schedule


@pytest.mark.parametrize(("fn", "dtype"), CASES)
def test_every_function_has_code(fn, dtype):
    """In vectors, but for those the table says are calls of the C library."""
    kernel, schedule = lowered(fn, dtype)
    one_lane = dtype in FUNCTIONS[fn].one_lane
    assert ("call_pure_extern" in kernel.text()) == one_lane
    assert (schedule["lanes"] == 1) == one_lane
