"""Random programs on GPUs, which are the emulator: each kernel by a random legal schedule of any template, judged."""

import shutil

import numpy as np
import pytest

from neoflow.architectures import gpu_target
from neoflow.loops import legal, problem_of, space
from tests.codegen.gpu.running import all_verified
from tests.loops.programs import random_subgraphs

pytestmark = [pytest.mark.tvm, pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs g++")]
PROGRAMS, PARTS, TOGETHER = 2000, 10, 20
"""How many there are, in how many parts, and of how many at a time the kernels are compiled together."""
TARGETS = tuple(gpu_target("cuda", name) for name in ("sm_80", "sm_75", "sm_90"))


def jobs(seed, target):
    """Every kernel of a random program with its gradients, by a schedule drawn from all that are legal there."""
    rng = np.random.default_rng(seed)
    for n, subgraph in enumerate(random_subgraphs(seed)):
        problem = problem_of(subgraph)
        schedule = space(problem, target).sample(rng)
        verdict = legal(problem, schedule, target)
        assert verdict.ok, f"program {seed}, kernel {n}: {schedule}: {verdict.reason}"
        yield f"kernel {n} of program {seed}", subgraph, schedule


def judged(seeds, target):
    """How many kernels of these programs were judged, and by how many schedules of each template."""
    templates = {}
    for start in range(0, len(seeds), TOGETHER):
        drawn = [(seed, job) for seed in seeds[start : start + TOGETHER] for job in jobs(seed, target)]
        assert {seed for seed, _ in drawn} == set(seeds[start : start + TOGETHER])
        certificates = all_verified([job for _, job in drawn], target)
        assert len(certificates) == len(drawn) and all(c.compared for c in certificates)
        for _, (_, _, schedule) in drawn:
            templates[schedule.template] = templates.get(schedule.template, 0) + 1
    return templates


def test_random_programs():
    assert sum(judged([2, 2001], TARGETS[0]).values()) > 2


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_many_random_programs(part, record_property):
    templates = judged(range(part, PROGRAMS, PARTS), TARGETS[part % len(TARGETS)])
    for name, count in templates.items():
        record_property(name, count)
    assert {"gpu_map", "gpu_reduction", "gpu_rows", "gpu_scatter", "gpu_contraction"} <= templates.keys()
