"""Reductions whose teams take several outputs: what these read alike is read once, nothing beyond an edge written."""

import re
import shutil

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.architectures import gpu_target
from neoflow.codegen.gpu.resources import resources
from neoflow.loops import complete, legal, problem_of
from neoflow.loops.gpu.estimate import estimate
from neoflow.nn import functional as F
from tests.codegen.gpu.running import all_verified, run_gpu
from tests.codegen.kernels import subgraph_of

pytestmark = pytest.mark.tvm
EMULATED = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs g++")
AMPERE = gpu_target("cuda", "sm_80")


def tropical(m=5, n=11, k=23, dtype="float32"):
    """A product with a maximum for its sum: the rows of x and the columns of w meet each other."""
    x, w = nf.placeholder((m, k), dtype), nf.placeholder((k, n), dtype)
    return subgraph_of([nf.expr("y[i,j] = max[k](x[i,k] + w[k,j])", x=x, w=w)], [x, w])


def weighted(rows=7, terms=300):
    """Sums that share their weights."""
    x, w, b = nf.placeholder((rows, terms)), nf.placeholder((terms,)), nf.placeholder((rows,))
    return subgraph_of([nf.tanh(nf.expr("y[i] = sum(x[i,k] * w[k])", x=x, w=w) + b)], [x, w, b])


def nearest(rows=5, columns=8, terms=13):
    """Of each pair of columns the place where they are nearest."""
    x, c, k = nf.placeholder((terms, rows)), nf.placeholder((terms, columns)), nf.axis(terms, "k")
    y = nf.compute((rows, columns), lambda i, j: nf.argmin(nf.abs(x[k, i] - c[k, j]), axis=[k]))
    return subgraph_of([y], [x, c])


def schedule(subgraph, target=AMPERE, **knobs):
    problem = problem_of(subgraph)
    found = complete("gpu_reduction", problem, target, knobs)
    verdict = legal(problem, found, target)
    assert verdict.ok, verdict.reason
    return found


@EMULATED
@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_teams_of_several_outputs_compute_what_they_do_of_one(many):
    t, w, n = tropical(), weighted(), nearest()
    even, wide = tropical(6, 16, 23), tropical(5, 10, 23, "float64")
    jobs = [
        ("by outputs", t, schedule(t, lane="output", lanes=1, threads=32, team=1, tile_rows=4)),
        ("by vectors", even, schedule(even, lane="output", lanes=4, threads=64, team=16, tile_rows=2, unroll=1)),
        ("wide vectors", wide, schedule(wide, lane="output", lanes=2, threads=32, team=2, tile_rows=8, unroll=2)),
        ("in parts", even, schedule(even, lane="output", lanes=4, threads=32, team=2, tile_rows=4, splits=3)),
        ("by terms", w, schedule(w, lane="reduced", lanes=4, threads=64, team=32, tile_rows=2, unroll=2)),
        ("far apart", w, schedule(w, lane="reduced", lanes=1, threads=128, team=64, tile_rows=4, unroll=1)),
        ("parts of terms", w, schedule(w, lane="reduced", lanes=4, threads=32, team=8, tile_rows=8, splits=4)),
        ("places", n, schedule(n, lane="output", lanes=1, threads=32, team=4, tile_rows=4)),
    ]
    jobs = jobs if many else jobs[3:6]
    assert len(all_verified(jobs, AMPERE)) == len(jobs)


@EMULATED
@pytest.mark.slow
def test_an_output_in_the_place_of_an_input():
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(n).astype(np.float32) for n in (2100, 300, 7))
    want = np.tanh(x.reshape(7, 300).astype(float) @ w + b)
    found = weighted()
    for knobs in ({"team": 32, "tile_rows": 4}, {"team": 4, "tile_rows": 2, "splits": 3}):
        place = b.copy()
        run_gpu(found, schedule(found, lane="reduced", **knobs), AMPERE)([x, w, place, place])
        np.testing.assert_allclose(place, want, rtol=1e-4, atol=1e-4)


def test_what_is_shared_is_read_once():
    """Of one column and four rows five elements a step, not eight."""
    subgraph = tropical(8, 64, 16)
    loads = {}
    for rows in (1, 4):
        chosen = schedule(subgraph, lane="output", lanes=1, threads=32, team=1, unroll=1, tile_rows=rows)
        text = codegen.source([codegen.lower(subgraph, chosen, AMPERE, "k")], AMPERE, "cuda")
        loads[rows] = len(re.findall(r"= in[01]\[", text))
    assert loads == {1: 2, 4: 5}


def test_what_is_no_schedule_of_rows():
    alone = nf.placeholder((6, 50))
    problem = problem_of(subgraph_of([nf.max(alone, axis=1)], [alone]))
    found = complete("gpu_reduction", problem, AMPERE, {"tile_rows": 2})
    assert "nothing that is read stays as it is along an axis of the outputs" in legal(problem, found, AMPERE).reason
    problem = problem_of(tropical(70, 64, 64, "float64"))
    for knobs, reason in (
        ({"tile_rows": 16}, "powers of two up to 8, of 70 neighbours that read the same"),
        (
            {"lanes": 2, "tile_rows": 8, "threads": 1024},
            "with 1024, a processor of sm_80 has 65536 registers, too few for 1024 threads of 72 registers",
        ),
        (
            {"lanes": 2, "tile_rows": 8, "threads": 512, "team": 16},
            "with 2, a block has 49152 bytes of shared memory, and takes 65536",
        ),
        (
            {"lanes": 2, "tile_rows": 8, "threads": 512, "team": 1, "unroll": 4},
            "with 4, a processor of sm_80 has 65536 registers, too few for 512 threads of 168 registers",
        ),
    ):
        found = complete("gpu_reduction", problem, AMPERE, {"lane": "output", **knobs})
        assert reason in legal(problem, found, AMPERE).reason, legal(problem, found, AMPERE).reason


def test_the_default_shares_where_the_device_stays_full():
    assert schedule(tropical(2000, 4096, 16))["tile_rows"] == 4
    assert schedule(tropical(5, 11, 16))["tile_rows"] == 1
    x, w = nf.placeholder((4, 64, 66, 66)), nf.placeholder((64, 1, 3, 3))
    depthwise = schedule(subgraph_of([F.conv2d(x, w, groups=64)], [x, w]))
    assert depthwise["tile_rows"] == 4 and depthwise["lane"] == "output"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("name", ["sm_75", "sm_80", "sm_90"])
def test_rows_stay_in_registers(name):
    target, graphs = gpu_target("cuda", name), [tropical(64, 64, 64), tropical(64, 64, 64, "float64"), weighted(64)]
    lowered = []
    for n, (subgraph, rows) in enumerate((g, rows) for g in graphs for rows in (2, 4, 8)):
        chosen = schedule(subgraph, target, tile_rows=rows)
        lowered.append((subgraph, chosen, codegen.lower(subgraph, chosen, target, f"k{n}")))
    found = resources(codegen.source([k for *_, k in lowered], target, "cuda"), target)
    for subgraph, chosen, kernel in lowered:
        used, said = found[kernel.code.entries[0].symbol], estimate(problem_of(subgraph), chosen, target).block
        assert not used.spills and used.stack == 0, (chosen, used)
        assert used.shared_bytes <= said.shared_bytes, (chosen, used)
        assert used.registers <= 1.15 * said.registers, (chosen, used, said)
