"""Random programs on GPUs, which are the emulator: each kernel by a random legal schedule of any template, judged."""

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from neoflow.architectures import gpu_target
from neoflow.codegen.verify import Certificate
from neoflow.loops import complete, legal, problem_of, space
from neoflow.partition import Subgraph
from tests.codegen.gpu.running import all_verified, outcomes
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
    """How many kernels of these programs were judged, by the template; what is wrong with any is said together."""
    templates, wrong = Counter(), []
    for start in range(0, len(seeds), TOGETHER):
        drawn = [(seed, job) for seed in seeds[start : start + TOGETHER] for job in jobs(seed, target)]
        assert {seed for seed, _ in drawn} == set(seeds[start : start + TOGETHER])
        found = list(outcomes([job for _, job in drawn], target))
        wrong += [str(o) for o in found if not isinstance(o, Certificate)]
        assert len(found) == len(drawn) and all(o.compared for o in found if isinstance(o, Certificate))
        templates.update(schedule.template for _, (_, _, schedule) in drawn)
    assert not wrong, "\n\n".join([f"{len(wrong)} of {templates.total()} kernels are wrong", *wrong])
    return templates


FOUND = {
    "another row, read where nothing is chosen of it": (
        "another_row",
        "gpu_rows",
        {"lanes": 2, "team": 32, "threads": 128},
    ),
    "the address of a constant": ("constant", "gpu_reduction", {"lane": "reduced", "lanes": 4}),
    "another row of what lies in another order": ("another_order", "gpu_rows", {"lanes": 2, "team": 512}),
    "a row read beyond what is written": ("beyond", "gpu_rows", {"team": 64, "place": "global"}),
}
"""Kernels, which are files of `found`, and their schedules."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_once(name):
    file, template, knobs = FOUND[name]
    subgraph = Subgraph.from_text((Path(__file__).parent / "found" / f"{file}.txt").read_text())
    schedule = complete(template, problem_of(subgraph), TARGETS[0], knobs)
    assert all(schedule[k] == value for k, value in knobs.items())
    assert all_verified([(name, subgraph, schedule)], TARGETS[0])


def test_random_programs():
    assert judged([2, 2001], TARGETS[0]).total() > 2


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_many_random_programs(part):
    templates = judged(range(part, PROGRAMS, PARTS), TARGETS[part % len(TARGETS)])
    print(f"part {part}: {templates.total()} kernels, {dict(templates)}")
    assert {"gpu_map", "gpu_reduction", "gpu_rows", "gpu_scatter"} <= templates.keys()
