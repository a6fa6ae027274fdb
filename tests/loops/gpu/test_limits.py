"""What no processor holds is refused in a sentence; and what is legal, of every template, a processor holds."""

import numpy as np
import pytest

from neoflow.architectures import ARCHITECTURES, architecture, gpu_target
from neoflow.loops import problem_of, space
from neoflow.loops.gpu.estimate import FORMS
from neoflow.loops.gpu.limits import held, holds, room
from neoflow.loops.gpu.occupancy import Block
from neoflow.loops.template import TEMPLATES
from tests.loops.programs import named_cases

AMPERE = ARCHITECTURES["sm_80"]
REFUSALS = {
    "48 threads are no whole warps, of 32 to 1024 threads": Block(48, 32),
    "2048 threads are no whole warps": Block(2048, 32),
    "a thread has 255 registers, and takes 256": Block(32, 256),
    "a processor of sm_80 has 65536 registers, too few for 1024 threads of 65 registers": Block(1024, 65),
    "a block has 4096 bytes of shared memory, and takes 4097": Block(32, 32, 4097),
    "a processor of sm_80 holds no such block: there is too little of registers": Block(544, 120),
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_what_no_processor_holds(reason):
    verdict = holds(REFUSALS[reason], AMPERE, 4096)
    assert not verdict.ok and reason in verdict.reason


def test_what_one_holds():
    assert str(holds(Block(256, 64, 4096), AMPERE, 4096)) == (
        "yes, a processor of sm_80 holds 4: 50% occupancy (registers)"
    )


def test_values_that_are_held():
    target = gpu_target("cuda", "sm_80")
    found = held((32, 64, 128), lambda n: Block(32, n), target, "powers of two")
    assert list(found.values) == [32, 64, 128] and found.reason == "powers of two"
    found = held((1, 2, 3), lambda n: Block(32, 32, (n != 2) * 5000), target, "numbers", 4096)
    assert list(found.values) == [2]
    assert found.reason == "numbers; with 1, a block has 4096 bytes of shared memory, and takes 5000"


def test_shared_memory_that_a_block_may_have():
    assert room(gpu_target("cuda", "sm_90")) == 227 << 10 and room(gpu_target("nvptx", "sm_90")) == 48 << 10


@pytest.mark.parametrize("name", ["cuda:sm_75", "cuda:sm_90", "nvptx:sm_80"])
def test_what_is_legal_is_held(name):
    """Threads, registers, shared memory and occupancy of schedules drawn from every template's space."""
    target, rng, met = gpu_target(*name.split(":")), np.random.default_rng(0), set()
    cases = list(named_cases())
    for case in [*cases[::4], *cases[-2:]]:
        problem = problem_of(case.subgraph)
        every = space(problem, target)
        for template in every.templates:
            ours = type(every)(problem, target, (template,))
            for schedule in [ours.sample(rng) for _ in range(4)]:
                block = FORMS[template].block(problem, target, schedule)
                verdict = holds(block, architecture(target), room(target))
                assert verdict.ok, (schedule, verdict)
                met.add(template)
    assert met >= {t.name for t in TEMPLATES.values() if t.device == "gpu"} - {"gpu_tensor_core"}
