"""Scatters that add atomically, only where somebody asks for it; without, the same bits at every run."""

import shutil
import subprocess

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.architectures import gpu_target
from neoflow.loops import complete, default_schedule, legal, problem_of
from neoflow.loops.gpu.estimate import estimate
from tests.codegen.gpu.running import all_verified, run_gpu
from tests.codegen.kernels import subgraph_of

pytestmark = [pytest.mark.tvm, pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs g++")]
AMPERE = gpu_target("cuda", "sm_80")


def adding(dtype="float32", width=5, count=130):
    """Rows of a table: most points fall into few of them."""
    ids, g = nf.placeholder((count,), "int64"), nf.placeholder((count, width), dtype)
    b, h = nf.axis(count, "b"), nf.axis(width, "h")
    return subgraph_of([nf.scatter((11, width), [b, h], (ids[b], h), g[b, h])], [ids, g])


def atomic(subgraph, **knobs):
    problem = problem_of(subgraph)
    schedule = complete("gpu_scatter", problem, AMPERE, {"atomics": True, **knobs})
    verdict = legal(problem, schedule, AMPERE)
    assert verdict.ok, verdict.reason
    return schedule


def test_nobody_adds_atomically_unasked():
    subgraph = adding()
    schedule = default_schedule(subgraph, AMPERE)
    assert schedule["atomics"] is False
    assert (
        "nf_add("
        not in codegen.source([codegen.lower(subgraph, schedule, AMPERE, "k")], AMPERE, "cuda").split("k_0")[1]
    )


def test_what_atomics_refuse():
    problem = problem_of(adding("float16"))
    schedule = complete("gpu_scatter", problem, AMPERE, {"atomics": True})
    assert "float16 is not added atomically where it lies" in legal(problem, schedule, AMPERE).reason
    problem = problem_of(adding())
    for knobs, reason in (
        ({"rows": 2}, "with atomics a block owns no rows"),
        ({"splits": 2}, "with atomics there are no parts to add in order"),
        ({"threads": 48}, "powers of two from a warp to the 1024 that a block may have"),
    ):
        schedule = complete("gpu_scatter", problem, AMPERE, {"atomics": True, **knobs})
        assert reason in legal(problem, schedule, AMPERE).reason
    found = estimate(problem, complete("gpu_scatter", problem, AMPERE, {"atomics": True}), AMPERE)
    assert (found.launches, found.block.shared_bytes) == (2, 0)


def test_the_default_gives_the_same_bits_in_every_order_of_blocks():
    """With atomics the order decides about the last bits, and only about these."""
    rng = np.random.default_rng(0)
    subgraph = adding(width=7, count=500)
    ids, g = rng.integers(0, 3, 500), rng.standard_normal((500, 7)).astype(np.float32)
    exact = np.zeros((11, 7))
    np.add.at(exact, ids, g.astype(np.float64))
    found = {}
    for name, schedule in (("default", default_schedule(subgraph, AMPERE)), ("atomics", atomic(subgraph, threads=32))):
        for seed in (None, 1, 1):
            out = np.zeros(77, np.float32)
            run_gpu(subgraph, schedule, AMPERE, seed=seed)([ids, g.ravel(), out])
            np.testing.assert_allclose(out.reshape(11, 7), exact, rtol=1e-5, atol=1e-5)
            found.setdefault(name, []).append(out.tobytes())
    assert len(set(found["default"])) == 1
    assert len(set(found["atomics"])) > 1


@pytest.mark.slow
def test_atomics_of_every_type_and_shape():
    jobs = []
    for dtype in ("float32", "float64", "int32", "int64"):
        jobs.append((dtype, subgraph := adding(dtype), atomic(subgraph, threads=64, width=4)))
    ids, g = nf.placeholder((40, 3), "int32"), nf.placeholder((40, 3))
    b, h = nf.axis(40, "b"), nf.axis(3, "h")
    jobs.append(
        ("no columns", s := subgraph_of([nf.scatter((9,), [b, h], (ids[b, h],), g[b, h])], [ids, g]), atomic(s))
    )
    assert all(c.faults for c in all_verified(jobs, AMPERE))


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas, and libdevice beside it")
def test_ptx_of_atomics_is_assembled(tmp_path):
    target = gpu_target("nvptx", "sm_75")
    graphs = [adding(dtype) for dtype in ("float32", "float64", "int32", "int64")]
    kernels = [codegen.lower(g, atomic(g), target, f"k{n}") for n, g in enumerate(graphs)]
    text = codegen.source(kernels, target, "ptx")
    assert ".extern" not in text and text.count("red.add.") == 4
    (tmp_path / "k.ptx").write_text(text)
    command = ["ptxas", "-arch=sm_75", str(tmp_path / "k.ptx"), "-o", str(tmp_path / "k.cubin")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
