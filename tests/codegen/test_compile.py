"""From TIR to machine code."""

import pytest
import tvm
from tvm import tirx

import neoflow as nf
from neoflow import codegen
from neoflow.codegen.cpu.compile import compiled, object_file
from neoflow.loops import default_schedule
from tests.codegen.kernels import LOOKED_UP, TARGET, subgraph_of

X, W = nf.placeholder((30, 70), name="x"), nf.placeholder((70, 40), name="w")
KERNELS = {
    "a contraction": subgraph_of([X @ W], [X, W]),
    "flags": subgraph_of([X > 0.5], [X]),
    **LOOKED_UP,
}


@pytest.mark.parametrize("name", KERNELS)
def test_buffers_are_flat_as_they_are_written(name):
    """The code is the same where TVM looks through all of it to make them so."""
    subgraph = KERNELS[name]
    bodies = dict(codegen.lower(subgraph, default_schedule(subgraph, TARGET), TARGET, "kernel").bodies)
    flat = tirx.transform.FlattenBuffer()(tvm.IRModule(bodies))
    codes = [object_file(compiled(f, TARGET.mcpu)) for f in (bodies, {n: flat[n] for n in bodies})]
    assert codes[0] == codes[1]
