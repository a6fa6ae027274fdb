"""What no processor holds is refused in a sentence; and what is legal, of every template, a processor holds."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.architectures import ARCHITECTURES, architecture, gpu_target
from neoflow.loops import complete, legal, problem_of, space
from neoflow.loops.gpu.estimate import FORMS
from neoflow.loops.gpu.limits import held, holds, room
from neoflow.loops.gpu.occupancy import Block
from neoflow.loops.schedule import schedule_of
from neoflow.loops.template import TEMPLATES
from neoflow.nn import functional as F
from tests.codegen.kernels import subgraph_of
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
    assert met >= {t.name for t in TEMPLATES.values() if t.device == "gpu"} - {"gpu_tensor_core", "gpu_wgmma"}


def problems():
    """A kernel for each template."""
    x, w, h = nf.placeholder((37, 50)), nf.placeholder((50, 41)), nf.placeholder((64, 64), "float16")
    ids, b, c = nf.placeholder((300,), "int64"), nf.axis(300, "b"), nf.axis(40, "c")
    g, i = nf.placeholder((300, 40)), nf.axis(50, "i")
    k = nf.axis(64, "k")
    wide = nf.compute(
        (64, 64), lambda r, s: nf.sum(nf.cast(h[r, k], "float32") * nf.cast(h[k, s], "float32"), axis=[k])
    )
    return {
        "gpu_map": subgraph_of([x * 2.0], [x]),
        "gpu_reduction": subgraph_of([nf.compute((37,), lambda r: nf.max(x[r, i], axis=[i]))], [x]),
        "gpu_rows": subgraph_of([F.softmax(x)], [x], rows=1),
        "gpu_scatter": subgraph_of([nf.scatter((9000, 40), [b, c], (ids[b], c), g[b, c])], [ids, g]),
        "gpu_contraction": subgraph_of([nf.expr("y[i,j] = sum(x[i,k] * w[k,j])", x=x, w=w)], [x, w]),
        "gpu_tensor_core": subgraph_of([wide], [h]),
    }


FITS = "a block has 32 to 1024 threads, a thread keeps its sums in 255 registers, a processor of sm_80 has 65536"
REFUSED = (
    ("gpu_map", {"threads": 2048}, "powers of two from a warp to the 1024 that a block may have"),
    ("gpu_map", {"lanes": 8}, "powers of two up to 16 bytes of the widest type"),
    ("gpu_reduction", {"lane": "reduced", "lanes": 4}, "powers of two that divide 50"),
    ("gpu_reduction", {"threads": 32, "team": 64}, "powers of two up to the threads of a block"),
    ("gpu_rows", {"lanes": 4}, "powers of two, up to what divides an axis of a nest and is one access"),
    ("gpu_rows", {"team": 64, "threads": 32}, "powers of two from a warp and a team to the 1024 that a block may have"),
    ("gpu_scatter", {"rows": 9000}, "shared memory has room for"),
    ("gpu_contraction", {"block_k": 64}, FITS),
    ("gpu_contraction", {"block_k": 32, "block_m": 256, "block_n": 256, "thread_m": 1}, FITS),
    ("gpu_tensor_core", {"block_m": 8}, FITS),
)


@pytest.mark.parametrize(("template", "knobs", "reason"), REFUSED)
def test_every_template_refuses_in_a_sentence(template, knobs, reason):
    target = gpu_target("cuda", "sm_80")
    problem = problem_of(problems()[template])
    given = {**dict(complete(template, problem, target, {}).knobs), **knobs}
    verdict = legal(problem, schedule_of(template, given), target)
    assert not verdict.ok and reason in verdict.reason, verdict.reason
