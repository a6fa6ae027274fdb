"""From TIR to machine code."""

from dataclasses import replace

import pytest
import tvm
from tvm import tirx

import neoflow as nf
from neoflow import codegen
from neoflow.codegen.cpu.compile import compiled, kernel_key, object_file
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


def test_a_key_says_which_code_a_kernel_has():
    """Bodies of one source differ in a constant or an index alone; what variables are called does not count."""

    def lowered(*edits):
        kernel = codegen.lower(KERNELS["flags"], default_schedule(KERNELS["flags"], TARGET), TARGET, "kernel")
        [(name, body)] = kernel.bodies
        text = body.script()
        for old, new in edits:
            assert old in text
            text = text.replace(old, new)
        return replace(kernel, bodies=((name, tvm.script.from_source(text)),))

    def key(kernel):
        return kernel_key(kernel, TARGET)

    plain = lowered()
    assert key(plain) == key(lowered(("in0", "other"))) == key(plain.named("another"))
    others = [
        lowered(("0.5", "0.25")),
        lowered(("(262)", "(261)")),
        replace(plain, source=""),
        replace(plain, entries=""),
    ]
    assert len({key(k) for k in (plain, *others)}) == 5
