"""Contractions on a GPU: every form by its default and by random schedules, in the emulator; what a compiler says."""

import shutil

import numpy as np
import pytest

from neoflow import codegen
from neoflow.architectures import gpu_target
from neoflow.loops import complete, default, legal, problem_of
from neoflow.loops.space import Space
from tests.codegen.gpu.contractions import forms, matmul
from tests.codegen.gpu.resources import resources
from tests.codegen.gpu.running import verified

pytestmark = pytest.mark.tvm
AMPERE, HOPPER, TURING = (gpu_target("cuda", name) for name in ("sm_80", "sm_90", "sm_75"))
EDGES = ((33, 65, 130), (7, 130, 33), (65, 33, 7), (2, 130, 1200), (64, 128, 32))
FEW = ("epilogue 0", "prologue 0", "inner batch 0", "convolution 0", "capsules 0", "capsules 1", "capsules 2")


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
        for schedule in sampled(subgraph, 6, seed, target):
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
    for name, subgraph in found.items():
        schedule = complete("gpu_contraction", problem_of(subgraph), target, {})
        lowered = codegen.lower(subgraph, schedule, target, "k")
        for entry, used in resources(codegen.source([lowered], target, "cuda"), target).items():
            is_call = used.registers < 64  # what ptxas saves around the slow path of a division, with registers left
            assert not used.spills or is_call, f"{name}: {entry} spills {used.spills} bytes by {schedule}"
            assert used.registers <= 255 and used.shared_bytes <= 48 << 10
