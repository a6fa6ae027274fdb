"""Tensor cores for programs as users write them: which kernels they get, and what these compute in the emulator."""

import numpy as np
import pytest
from tvm import tirx

import neoflow as nf
from neoflow.architectures import gpu_target
from neoflow.codegen.gpu.matrices import MATRICES, CudaMatrices
from neoflow.codegen.verify import verify
from neoflow.errors import CodegenError
from neoflow.graph import make_graph
from neoflow.loops import complete, default_schedule, legal, problem_of
from neoflow.loops.gpu.tensor_core import KNOBS
from neoflow.loops.space import Space
from neoflow.nn import functional as F
from neoflow.rewriting import stages
from neoflow.trace import Trace
from tests.codegen.gpu.contractions import in_tf32, matmul, narrowly
from tests.codegen.gpu.running import run_gpu, verified

pytestmark = pytest.mark.tvm
AMPERE, TURING, HOPPER = (gpu_target("cuda", name) for name in ("sm_80", "sm_75", "sm_90"))


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


@pytest.mark.slow
@pytest.mark.parametrize("name", ("casts first", "a padded convolution"))
def test_what_it_computes(name):
    make, inputs, _ = WRITTEN[name]
    for subgraph, schedule in kernels([make()], inputs):
        verified(subgraph, schedule, AMPERE)


# --- TF32


def test_tf32_is_by_tensor_cores_where_it_is_asked_for():
    for target in (AMPERE, HOPPER):
        assert {default_schedule(s, target).template for s in in_tf32().values()} == {"gpu_tensor_core"}
    ((_, plain),) = kernels([nf.matmul(X, nf.transpose(X))], [X])
    assert plain.template == "gpu_contraction"
    problem = problem_of(in_tf32()["product 0"])
    verdict = legal(problem, complete("gpu_tensor_core", problem, AMPERE, {}), TURING)
    assert not verdict.ok and verdict.reason == "the tensor cores of sm_75 have no tf32"


MANY = ("capsules 1", "expression 0", "convolution 0", "capsules 0", "capsules 2")


@pytest.mark.parametrize("name", ["product 0", *(pytest.param(n, marks=pytest.mark.slow) for n in MANY)])
def test_a_product_in_tf32(name):
    """The judge's bounds are those of float32: operands are rounded exactly as `evaluate` has it."""
    verified(in_tf32()[name], default_schedule(in_tf32()[name], AMPERE), AMPERE)


@pytest.mark.slow
@pytest.mark.parametrize("target", (AMPERE, HOPPER), ids=str)
def test_random_schedules_of_products_in_tf32(target):
    for seed, (name, subgraph) in enumerate(in_tf32().items()):
        problem, rng = problem_of(subgraph), np.random.default_rng(seed)
        for _ in range(0 if name == "large 0" else 4):  # too large for the emulator
            schedule = Space(problem, target, ("gpu_tensor_core",)).sample(rng)
            verified(subgraph, schedule, target)


FAULTS = {
    "not rounded": ("nf_tf32_x4(", "(void)("),
    "one square twice": ("(&(acc1_ptr[0])), (&(a0", "(&(acc0_ptr[0])), (&(a0"),
    "of float16": ("nf_mma_m16n8k8_tf32(", "nf_mma_m16n8k16_f16("),
}


@pytest.mark.parametrize("name", [n if n == "not rounded" else pytest.param(n, marks=pytest.mark.slow) for n in FAULTS])
def test_a_fault_that_was_planted_is_found(name):
    subgraph = in_tf32()["product 0"]
    schedule = default_schedule(subgraph, AMPERE)
    with pytest.raises(CodegenError):
        verify(subgraph, run_gpu(subgraph, schedule, AMPERE, planted=FAULTS[name]), str(schedule))


class ByWords(CudaMatrices):
    """As PTX has it: the registers of fragments are loaded one by one."""

    has_lines = False

    def word(self, dtype, value):
        return value if dtype == "tf32" else tirx.reinterpret("uint32", value)


ALONG = [(left, right) for left in ("k", "rows") for right in ("k", "rows")]


@pytest.mark.parametrize("along", [ALONG[1], *(pytest.param(a, marks=pytest.mark.slow) for a in ALONG)], ids=str)
@pytest.mark.parametrize("dtype", ["bfloat16", *(pytest.param(d, marks=pytest.mark.slow) for d in ("float16", "tf32"))])
def test_fragments_that_are_loaded_word_by_word(monkeypatch, dtype, along):
    monkeypatch.setitem(MATRICES, "cuda", ByWords())
    subgraph = in_tf32()["product 0"] if dtype == "tf32" else narrowly(matmul(40, 50, 72), dtype)
    given = {"block_m": 32, "block_n": 32, "left_along": along[0], "right_along": along[1]}
    verified(subgraph, complete("gpu_tensor_core", problem_of(subgraph), AMPERE, given), AMPERE)


# --- fragments of a warp


@pytest.mark.parametrize("dtype", ("float16", "tf32"))
def test_a_warp_may_hold_one_to_four_fragments_of_a_side(dtype):
    problem = problem_of(of_type(dtype))
    (knob,) = (k for k in KNOBS if k.name == "fragments_m")
    usual = complete("gpu_tensor_core", problem, AMPERE, {})
    for block, counts in ((16, {1}), (32, {1, 2}), (64, {1, 2, 4}), (48, {3}), (192, {3})):
        assert set(knob.range(problem, AMPERE, dict(usual.knobs) | {"block_m": block, "block_n": 64}).values) == counts


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ("float16", "tf32"))
def test_what_a_warp_of_three_fragments_a_side_computes(dtype):
    found = of_type(dtype)
    problem = problem_of(found)
    schedule = complete("gpu_tensor_core", problem, AMPERE, {"block_m": 48, "block_n": 96})
    assert schedule["fragments_m"] == schedule["fragments_n"] == 3 and legal(problem, schedule, AMPERE).ok
    verified(found, schedule, AMPERE)


def of_type(dtype):
    return in_tf32()["product 0"] if dtype == "tf32" else kernels([WRITTEN["casts first"][0]()], [H, G])[0][0]
