"""Tensor cores for programs as users write them: which kernels they get, and what these compute in the emulator."""

import pytest

import neoflow as nf
from neoflow.architectures import gpu_target
from neoflow.graph import make_graph
from neoflow.loops import default_schedule
from neoflow.nn import functional as F
from neoflow.pipeline import stages
from neoflow.trace import Trace
from tests.codegen.gpu.running import verified

pytestmark = pytest.mark.tvm
AMPERE, TURING = (gpu_target("cuda", name) for name in ("sm_80", "sm_75"))


def kernels(outputs, inputs, precision="fp32", target=AMPERE):
    """The kernels of a program, each with the schedule that it has without a search."""
    divided = stages(make_graph(outputs, inputs), Trace(), target, precision)[1]
    return [(s, default_schedule(s, target)) for s in dict.fromkeys(divided.subgraphs)]


def half(*shape):
    return nf.placeholder(shape, "float16")


def wide(t):
    return nf.cast(t, "float32")


H, G, X = half(24, 40), half(40, 24), nf.placeholder((24, 40))
IMAGE, FILTERS = half(2, 4, 7, 9), half(8, 4, 3, 3)
CAPSULES, WEIGHTS = half(1, 3, 5, 6, 4, 4), half(4, 3, 3, 3, 4, 4)
WRITTEN = {
    "casts first": (lambda: nf.matmul(wide(H), wide(G)), [H, G], 1),
    "as it is": (lambda: nf.matmul(H, G), [H, G], 1),
    "and back": (lambda: nf.cast(nf.relu(nf.matmul(wide(H), wide(G))), "float16"), [H, G], 1),
    "rounded by the program": (lambda: nf.matmul(wide(nf.cast(nf.tanh(X), "float16")), wide(G)), [X, G], 2),
    "turned": (lambda: nf.matmul(nf.transpose(wide(H)), nf.transpose(wide(G))), [H, G], 1),
    "after relu": (lambda: nf.matmul(nf.relu(wide(H)), wide(G)), [H, G], 1),
    "a padded convolution": (lambda: F.conv2d(wide(IMAGE), wide(FILTERS), padding=1), [IMAGE, FILTERS], 2),
    "capsules": (lambda: F.capsule_conv(wide(CAPSULES), wide(WEIGHTS), stride=2), [CAPSULES, WEIGHTS], 1),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_cast_before_a_product_is_part_of_its_kernel(name):
    make, inputs, count = WRITTEN[name]
    found = kernels([make()], inputs)
    assert [k.template for _, k in found].count("gpu_tensor_core") == 1 and len(found) == count


@pytest.mark.parametrize("name", ("casts first", pytest.param("a padded convolution", marks=pytest.mark.slow)))
def test_what_it_computes(name):
    make, inputs, _ = WRITTEN[name]
    for subgraph, schedule in kernels([make()], inputs):
        verified(subgraph, schedule, AMPERE)
