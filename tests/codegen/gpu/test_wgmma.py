"""Contractions by warpgroups: what descriptors name is what was stored, and faults of their order are found."""

import shutil

import numpy as np
import pytest

from neoflow import codegen
from neoflow.architectures import gpu_target
from neoflow.codegen.gpu.compilers import machine_of
from neoflow.codegen.gpu.resources import resources
from neoflow.codegen.verify import verify
from neoflow.errors import CodegenError
from neoflow.loops import complete, default, fits, legal, problem_of
from neoflow.loops.space import Space
from neoflow.loops.template import TEMPLATES
from tests.codegen.gpu.contractions import in_tf32, matmul, narrow_forms, narrowly
from tests.codegen.gpu.running import run_gpu, verified
from tests.emulator.faults import Fault

pytestmark = pytest.mark.tvm
AMPERE, HOPPER = gpu_target("cuda", "sm_80"), gpu_target("cuda", "sm_90")
ALONG = [(left, right) for left in ("k", "rows") for right in ("k", "rows")]


def by_warpgroups(subgraph, **given):
    found = complete("gpu_wgmma", problem_of(subgraph), HOPPER, given)
    verdict = legal(problem_of(subgraph), found, HOPPER)
    assert verdict.ok, verdict.reason
    return found


SMALL = {"block_m": 64, "block_n": 64}


@pytest.mark.parametrize("along", [ALONG[1], *(pytest.param(a, marks=pytest.mark.slow) for a in ALONG)], ids=str)
def test_operands_lie_as_descriptors_say(along):
    """At the edges of tiles, of two steps of K."""
    found = narrowly(matmul(40, 50, 72), "float16")
    verified(found, by_warpgroups(found, **SMALL, left_along=along[0], right_along=along[1]), HOPPER)


@pytest.mark.slow
@pytest.mark.parametrize("along", ALONG, ids=str)
def test_several_warpgroups_and_panels(along):
    """Rows and columns of more than one line of 64; sums in two levels, and in parts."""
    found = narrowly(matmul(136, 200, 640), "bfloat16")
    sizes = {"block_m": 128, "block_n": 128, "stages": 2}
    verified(found, by_warpgroups(found, **sizes, left_along=along[0], right_along=along[1], splits=2), HOPPER)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
def test_random_schedules_by_warpgroups(dtype):
    """Convolutions, capsules, their gradients, what is computed where it is loaded."""
    for seed, name in enumerate(("turned 0", "inner batch 0", "convolution 0", "capsules 0", "capsules 1")):
        subgraph = narrow_forms(dtype)[name]
        problem = problem_of(subgraph)
        if not TEMPLATES["gpu_wgmma"].fits_target(problem, HOPPER).ok:
            continue
        schedule = Space(problem, HOPPER, ("gpu_wgmma",)).sample(np.random.default_rng(seed))
        assert verified(subgraph, schedule, HOPPER).compared, name


FAULTS = {
    "what was stored is not published": ("nf_wgmma_publish();", ";", "stored and not published before the barrier"),
    "sums are not fenced": ("nf_wgmma_fence_n64(", "(void)(", "no fence after what was done to its sums"),
    "nobody waits": ("nf_wgmma_wait_n64(", "(void)(", "= nan"),
    "a descriptor of another place": ("+ 16)])), 0)", "+ 32)])), 0)", "elements differ"),
    "the other operand is turned": ("nf_wgmma_n64_f16_01", "nf_wgmma_n64_f16_10", "elements differ|copy: "),
    "too few barriers": ("__syncthreads();", ";", "race: "),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_was_planted_is_found(name):
    found, (text, fault, said) = narrowly(matmul(40, 50, 72), "float16"), FAULTS[name]
    schedule = by_warpgroups(found, **SMALL)
    with pytest.raises((CodegenError, Fault), match=said):
        verify(found, run_gpu(found, schedule, HOPPER, planted=(text, fault)), str(schedule))


def test_what_warpgroups_multiply():
    half = problem_of(narrowly(matmul(64, 64, 64), "float16"))
    assert (
        fits("gpu_wgmma", half).ok and default(half, HOPPER).template == "gpu_tensor_core"
    )  # no choice without search
    row = TEMPLATES["gpu_wgmma"]
    for target in (AMPERE, gpu_target("nvptx", "sm_90")):
        verdict = row.fits_target(half, target)
        assert not verdict.ok and f"{target} has no instructions of warpgroups" in verdict.reason
    verdict = row.fits_target(problem_of(in_tf32()["product 0"]), HOPPER)
    assert not verdict.ok and "warpgroups multiply float16 and bfloat16" in verdict.reason


def test_their_instructions_are_for_one_architecture():
    found = narrowly(matmul(40, 50, 72), "float16")
    text = codegen.source([codegen.lower(found, by_warpgroups(found, **SMALL), HOPPER, "k")], HOPPER, "cuda")
    assert machine_of(text, HOPPER) == "sm_90a"
    text = codegen.source([codegen.lower(found, default(problem_of(found), HOPPER), HOPPER, "k")], HOPPER, "cuda")
    assert machine_of(text, HOPPER) == "sm_90"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("along", ALONG, ids=str)
def test_sums_stay_in_registers(along):
    for shape, dtype in (((40, 50, 72), "float16"), ((4096, 4096, 512), "bfloat16"), ((4096, 4096, 4096), "float16")):
        found = narrowly(matmul(*shape), dtype)
        schedule = by_warpgroups(found, left_along=along[0], right_along=along[1])
        text = codegen.source([codegen.lower(found, schedule, HOPPER, "k")], HOPPER, "cuda")
        for entry, used in resources(text, HOPPER).items():
            assert not used.spills and used.registers <= 255, f"{entry}: {used} by {schedule}"
