"""Contractions in mixed precision on a GPU, which is the emulator: every kernel against `evaluate`."""

import pytest

import neoflow as nf
from neoflow.architectures import gpu_target
from neoflow.graph import make_graph
from neoflow.loops import default_schedule
from neoflow.rewriting import stages
from neoflow.trace import Trace
from tests.codegen.gpu.running import verified


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_every_kernel_of_a_product(precision):
    """The copies of the operands, the contraction, and what rounds its result for the next one."""
    x, w = nf.placeholder((16, 24), name="x"), nf.parameter((24, 24), name="w")
    y = nf.relu(nf.matmul(x, w))
    target = gpu_target("cuda", "sm_80")
    _, divided = stages(make_graph([nf.matmul(y, w)], [x]), Trace(), target, precision)
    assert any("float16" in str(s) for s in divided.subgraphs)
    for s in divided.subgraphs:
        verified(s, default_schedule(s, target), target)
