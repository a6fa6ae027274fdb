"""Contractions on a GPU: every form by its default and by random schedules, in the emulator; what a compiler says."""

import shutil

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.architectures import gpu_target
from neoflow.codegen.gpu.resources import resources
from neoflow.loops import complete, default, fits, legal, problem_of
from neoflow.loops.space import Space
from tests.codegen.gpu.contractions import forms, in_tf32, matmul, narrow_forms, narrowly
from tests.codegen.gpu.running import verified
from tests.codegen.kernels import subgraph_of
from tests.loops.programs import product

pytestmark = pytest.mark.tvm
AMPERE, HOPPER, TURING = (gpu_target("cuda", name) for name in ("sm_80", "sm_90", "sm_75"))
EDGES = ((33, 65, 130), (7, 130, 33), (65, 33, 7), (2, 130, 1200), (64, 128, 32))
FEW = ("epilogue 0", "inner batch 0", "convolution 0", "capsules 0", "capsules 1", "capsules 2")


def sampled(subgraph, count, seed, target=AMPERE, template="gpu_contraction"):
    """The default and random legal schedules."""
    problem, rng = problem_of(subgraph), np.random.default_rng(seed)
    found = [complete(template, problem, target, {})]
    found += [Space(problem, target, (template,)).sample(rng) for _ in range(count)]
    for schedule in found:
        verdict = legal(problem, schedule, target)
        assert verdict.ok, f"{schedule}: {verdict.reason}"
    return found


@pytest.mark.parametrize("shape", EDGES[:3], ids=str)
def test_a_matmul_whose_shape_is_no_multiple_of_a_tile(shape):
    subgraph = matmul(*shape)
    assert default(problem_of(subgraph), AMPERE).template == "gpu_contraction"
    verified(subgraph, complete("gpu_contraction", problem_of(subgraph), AMPERE, {}), AMPERE)


@pytest.mark.parametrize("name", FEW)
def test_a_form_of_contraction(name):
    found = forms()[name]
    verified(found, complete("gpu_contraction", problem_of(found), AMPERE, {}), AMPERE)


@pytest.mark.slow
@pytest.mark.parametrize("target", (TURING, AMPERE, HOPPER), ids=str)
def test_random_schedules_of_every_form(target):
    found = forms() | {str(s): matmul(*s) for s in EDGES} | forms(False, "float64")
    for seed, subgraph in enumerate(found.values()):
        for schedule in sampled(subgraph, 2, seed, target):
            verified(subgraph, schedule, target)


def test_what_is_legal_follows_from_the_processor():
    problem = problem_of(matmul(512, 512, 1024))
    big = {"block_k": 32, "block_m": 256, "block_n": 256}
    verdict = legal(problem, complete("gpu_contraction", problem, TURING, {}), TURING)
    assert verdict.ok
    changed = dict(complete("gpu_contraction", problem, TURING, {}).knobs) | big
    schedule = type(default(problem, TURING))("gpu_contraction", tuple(sorted(changed.items())))
    verdict = legal(problem, schedule, TURING)
    assert not verdict.ok and "two levels of sums in 255 registers" in verdict.reason


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("target", (TURING, AMPERE, HOPPER), ids=str)
def test_a_default_keeps_in_registers_what_its_legality_says(target):
    found = forms() | {str(s): matmul(*s) for s in (*EDGES, (1024, 1024, 1024), (4096, 4096, 512))}
    found |= {f"narrow {name}": narrowly(s, "float16") for name, s in found.items()}
    if target is not TURING:
        found |= {f"tf32 {name}": s for name, s in in_tf32().items()}
    for name, subgraph in found.items():
        schedule = default(problem_of(subgraph), target)
        lowered = codegen.lower(subgraph, schedule, target, "k")
        for entry, used in resources(codegen.source([lowered], target, "cuda"), target).items():
            is_call = used.registers < 64  # what ptxas saves around the slow path of a division, with registers left
            assert not used.spills or is_call, f"{name}: {entry} spills {used.spill_stores} bytes by {schedule}"
            assert used.registers <= 255 and used.shared_bytes <= 48 << 10


# --- tensor cores


def rounded_prologue():
    """Float32 expressions, rounded to what is multiplied while they are loaded."""
    a, b, c = nf.placeholder((20, 33)), nf.placeholder((33, 18), "bfloat16"), nf.placeholder((33,))
    k = nf.axis(33, "k")

    def at(i, j):
        return nf.sum(
            nf.cast(nf.cast(nf.tanh(a[i, k] * c[k]), "bfloat16"), "float32") * nf.cast(b[k, j], "float32"), [k]
        )

    return subgraph_of([nf.compute((20, 18), at)], [a, b, c])


@pytest.mark.parametrize("name", ("turned 0", "capsules 0", "capsules 1", "capsules 2"))
def test_a_form_of_contraction_by_tensor_cores(name):
    found = narrow_forms("float16")[name]
    assert default(problem_of(found), AMPERE).template == "gpu_tensor_core"
    verified(found, complete("gpu_tensor_core", problem_of(found), AMPERE, {}), AMPERE)


def test_float32_expressions_are_converted_where_they_are_loaded():
    found = rounded_prologue()
    schedule = complete("gpu_tensor_core", problem_of(found), HOPPER, {"stages": 2})
    verified(found, schedule, HOPPER)


def test_what_tensor_cores_multiply():
    wide, half, brain = (problem_of(narrowly(matmul(64, 64, 64), d)) for d in ("float32", "float16", "bfloat16"))
    assert (
        not fits("gpu_tensor_core", wide).ok and "two sides are narrow floats" in fits("gpu_tensor_core", wide).reason
    )
    assert default(brain, TURING).template == "gpu_contraction" and default(half, TURING).template == "gpu_tensor_core"
    verdict = legal(brain, complete("gpu_tensor_core", brain, AMPERE, {}), TURING)
    assert not verdict.ok and "the tensor cores of sm_75 have no bfloat16" in verdict.reason
    assert default(brain, gpu_target("nvptx", "sm_80")).template == "gpu_tensor_core"
    old = gpu_target("nvptx", "sm_75")
    verdict = legal(half, complete("gpu_tensor_core", half, TURING, {}), old)
    assert not verdict.ok and "for sm_75, version 6.3, has none of their instructions" in verdict.reason
    assert default(half, old).template == "gpu_contraction"


def test_a_product_of_narrow_floats_is_no_narrow_float():
    x, y = nf.placeholder((8, 8), "float16"), nf.placeholder((8, 8))
    problem = problem_of(narrowly(subgraph_of([product(nf.exp(y), y)], [y]), "float16"))
    assert not fits("gpu_tensor_core", problem).ok
    wide = nf.cast(x, "float32")
    assert fits("gpu_tensor_core", problem_of(subgraph_of([product(nf.maximum(wide, 0.5), wide)], [x]))).ok
    assert not fits("gpu_tensor_core", problem_of(subgraph_of([product(nf.maximum(wide, 0.1), wide)], [x]))).ok


@pytest.mark.slow
@pytest.mark.parametrize(("target", "dtype"), ((TURING, "float16"), (AMPERE, "bfloat16"), (HOPPER, "float16")), ids=str)
def test_random_schedules_of_every_form_by_tensor_cores(target, dtype):
    found = narrow_forms(dtype) | {str(s): narrowly(matmul(*s), dtype) for s in EDGES}
    for seed, subgraph in enumerate(found.values()):
        for schedule in sampled(subgraph, 2, seed, target, "gpu_tensor_core"):
            verified(subgraph, schedule, target)
