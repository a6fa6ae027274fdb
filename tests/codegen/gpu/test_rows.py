"""Reductions, row kernels and scatters on a GPU: each by schedules of its space, run by the emulator, judged."""

import re
import shutil
import subprocess

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen
from neoflow.architectures import gpu_target
from neoflow.loops import Schedule, complete, default_schedule, legal, nearest, problem_of, space
from neoflow.loops.gpu.estimate import estimate
from neoflow.loops.gpu.rows import PLACES
from neoflow.nn import functional as F
from tests.codegen.gpu.running import all_verified, run_gpu
from tests.codegen.kernels import LOOKED_UP, subgraph_of
from tests.loops.programs import named_cases, random_subgraphs, subgraphs

pytestmark = [pytest.mark.tvm, pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs g++")]
AMPERE, TURING = gpu_target("cuda", "sm_80"), gpu_target("cuda", "sm_75")
PTX = gpu_target("nvptx", "sm_80")
OURS = ("gpu_reduction", "gpu_rows", "gpu_scatter")


def drawn(subgraph, count, rng, templates=OURS):
    """Different schedules of the templates tested here."""
    problem = problem_of(subgraph)
    every = space(problem, AMPERE)
    ours = type(every)(problem, AMPERE, tuple(t for t in every.templates if t in templates))
    return list(dict.fromkeys(ours.sample(rng) for _ in range(count if ours.templates else 0)))


def scheduled(subgraph, **knobs):
    """The default with some knobs chosen, which has to be legal."""
    problem = problem_of(subgraph)
    [template] = [t for t in space(problem, AMPERE).templates if t in OURS]
    schedule = complete(template, problem, AMPERE, knobs)
    verdict = legal(problem, schedule, AMPERE)
    assert verdict.ok, verdict.reason
    return schedule


def one(outputs, inputs):
    """The only kernel of a program."""
    [found] = subgraphs(outputs, inputs)
    return found


# ------------------------------------------------------------------------------------------------------ reductions


def sums(dtype="float32"):
    x, b = nf.placeholder((9, 300), dtype), nf.placeholder((9,), dtype)
    yield "rows", subgraph_of([nf.sum(x * x, axis=1) + b], [x, b])
    y = nf.placeholder((300, 24), dtype)
    yield "columns", subgraph_of([nf.sum(y, axis=0)], [y])
    yield "everything", subgraph_of([nf.sum(x)], [x])


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_sums_by_teams_of_every_size(dtype):
    wide = 2 if dtype == "float64" else 4
    knobs = (
        {"lane": "reduced", "lanes": wide, "threads": 128, "team": 64, "unroll": 1},
        {"lane": "reduced", "lanes": 1, "threads": 64, "team": 4, "unroll": 4},
        {"lane": "output", "lanes": 1, "threads": 128, "team": 32, "unroll": 2},
        {"lane": "output", "lanes": wide, "threads": 32, "team": 1, "splits": 3, "unroll": 1},
    )
    jobs = []
    for name, subgraph in sums(dtype):
        for chosen in knobs:
            problem = problem_of(subgraph)
            schedule = complete("gpu_reduction", problem, AMPERE, chosen)
            if legal(problem, schedule, AMPERE).ok:
                jobs.append((name, subgraph, schedule))
    assert len(jobs) >= 8 and len(all_verified(jobs, AMPERE)) == len(jobs)


@pytest.mark.parametrize("reducer", [nf.min, nf.argmax])
def test_extremes_and_where_the_first_is(reducer):
    x = nf.placeholder((5, 200))
    subgraph = subgraph_of([reducer(x, axis=1)], [x])
    knobs = ({"team": 64, "threads": 64}, {"team": 8, "lanes": 4, "unroll": 2}, {"team": 4, "splits": 5})
    jobs = [("extreme", subgraph, scheduled(subgraph, lane="reduced", **k)) for k in knobs]
    all_verified(jobs, AMPERE)
    tied = np.zeros(1000, np.float32)
    tied[3:] = 1
    for *_, schedule in jobs:
        found = np.zeros(5, np.int64 if "arg" in reducer.__name__ else np.float32)
        run_gpu(subgraph, schedule, AMPERE)([tied, found])
        np.testing.assert_array_equal(found, nf.evaluate([reducer(x, axis=1)], {x: tied.reshape(5, 200)})[0])


def test_blocks_in_another_order_give_the_same_bits():
    x = nf.placeholder((3, 5000))
    total = subgraph_of([nf.sum(x, axis=1)], [x])
    ids, g = nf.placeholder((300,), "int64"), nf.placeholder((300, 40))
    table = nf.placeholder((7, 40))
    y = nf.compute((300, 40), lambda i, h: table[ids[i], h])
    added = one(nf.vjp(y, [table], g), [ids, g])
    rng = np.random.default_rng(0)
    values = {"float32": lambda n: rng.standard_normal(n).astype(np.float32), "int64": lambda n: rng.integers(0, 7, n)}
    for subgraph, knobs in ((total, {"team": 32, "splits": 7}), (added, {"threads": 64, "splits": 3})):
        arrays = [values[v.dtype](int(np.prod(v.shape))) for v in subgraph.inputs]
        size = int(np.prod(subgraph.value(subgraph.outputs[0]).shape))
        found = []
        for seed in (1, 2):
            out = np.zeros(size, np.float32)
            run_gpu(subgraph, scheduled(subgraph, **knobs), AMPERE, seed=seed)([*arrays, out])
            found.append(out)
        np.testing.assert_array_equal(*found)


def test_an_output_in_the_place_of_an_input():
    x, b = nf.placeholder((6, 50)), nf.placeholder((6,))
    subgraph = subgraph_of([nf.tanh(nf.sum(x, axis=1) + b)], [x, b])
    rng = np.random.default_rng(0)
    values, place = rng.standard_normal(300).astype(np.float32), rng.standard_normal(6).astype(np.float32)
    want = np.tanh(values.reshape(6, 50).sum(1) + place)
    for knobs in ({"team": 32}, {"team": 1, "splits": 4}):
        at = place.copy()
        run_gpu(subgraph, scheduled(subgraph, **knobs), AMPERE)([values, at, at])
        np.testing.assert_allclose(at, want, rtol=1e-5, atol=1e-5)


def test_what_is_no_schedule_of_a_reduction():
    x = nf.placeholder((6, 50))
    problem = problem_of(subgraph_of([nf.sum(x, axis=1)], [x]))
    schedule = complete("gpu_reduction", problem, AMPERE, {"threads": 32, "team": 64})
    assert "powers of two up to the threads of a block, and" in legal(problem, schedule, AMPERE).reason
    schedule = complete("gpu_reduction", problem, AMPERE, {"lane": "reduced", "lanes": 4})
    assert "powers of two that divide 50" in legal(problem, schedule, AMPERE).reason


# ------------------------------------------------------------------------------------------------------------ rows


@pytest.mark.parametrize("shape", [(5, 17), (3, 64), (2, 1500)])
def test_rows_by_teams_of_every_size(shape):
    x, g, b = nf.placeholder(shape), nf.placeholder(shape[1:]), nf.placeholder(shape[1:])
    jobs = []
    norm = subgraph_of([F.layer_norm(x, g, b)], [x, g, b], rows=1)
    kernels = {"softmax": subgraph_of([F.softmax(x)], [x], rows=1), "norm": norm}
    for name, subgraph in kernels.items():
        jobs += [
            (name, subgraph, scheduled(subgraph, team=1, threads=32)),
            (name, subgraph, scheduled(subgraph, team=8, threads=32, place="global")),
            (name, subgraph, scheduled(subgraph, team=64, threads=128)),
            (name, subgraph, default_schedule(subgraph, AMPERE)),
        ]
    all_verified(jobs, AMPERE)


def test_an_index_is_checked_by_the_dimension_it_is_of():
    """What lies beside it in the tensor is another team's."""
    jobs = [(name, s, default_schedule(s, AMPERE)) for name, s in LOOKED_UP.items()]
    for name in ("in a row", "in what a row writes"):
        subgraph = LOOKED_UP[name]
        every = (1 << len(problem_of(subgraph).optional)) - 1
        for place in PLACES:
            jobs.append((name, subgraph, scheduled(subgraph, stored=every, place=place, team=8, threads=32)))
            assert jobs[-1][2]["place"] == place and jobs[-1][2]["stored"] == every
    assert all(c.faults for c in all_verified(list(dict.fromkeys(jobs)), AMPERE))


def test_a_row_over_its_own_input():
    x = nf.placeholder((5, 33))
    subgraph = subgraph_of([F.softmax(x)], [x], rows=1)
    values = np.random.default_rng(0).standard_normal(165).astype(np.float32)
    exact = np.exp(values.reshape(5, 33).astype(np.float64))
    for team in (1, 16, 64):
        place = values.copy()
        run_gpu(subgraph, scheduled(subgraph, team=team), AMPERE)([place, place])
        np.testing.assert_allclose(place.reshape(5, 33), exact / exact.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("place", PLACES)
def test_what_a_row_reads_in_vain_is_its_own(place):
    """A choice reads on both sides; what it does not take lies in no other row, which another team may be writing."""
    x = nf.placeholder((13, 33))
    y = F.softmax(x)
    late = nf.compute((13, 33), lambda i, j: nf.select(j > 2, y[i, j - 3], 0.5) * y[i, j])
    subgraph = subgraph_of([late], [x], rows=1)
    every = (1 << len(problem_of(subgraph).optional)) - 1
    schedule = scheduled(subgraph, stored=every, team=8, threads=64, place=place)
    text = codegen.source([codegen.lower(subgraph, schedule, AMPERE, "k")], AMPERE, "cuda")
    chosen = re.findall(r"row\d+(?:_ptr)?\[\(.* \? .* : (.*)\)\];", text)
    assert chosen and all("threadIdx" in c for c in chosen)


@pytest.mark.slow
def test_a_race_of_rows_that_a_random_program_had():
    for subgraph in random_subgraphs(20031):
        if subgraph.rows is not None:
            all_verified(
                [("row", subgraph, scheduled(subgraph, lanes=2, team=16, threads=128, place="global"))], AMPERE
            )


@pytest.mark.parametrize("reducer", [nf.argmin, nf.argmax])
def test_where_a_constant_is_least(reducer):
    """A literal has no address that its bits could be read at."""
    k = nf.axis(7, "k")
    subgraph = subgraph_of([nf.compute((5,), lambda i: reducer(nf.cast(1.25, "float32"), axis=[k]))], [])
    kernel = codegen.lower(subgraph, default_schedule(subgraph, AMPERE), AMPERE, "k")
    assert "&(0x" not in codegen.source([kernel], AMPERE, "cuda")
    (found,) = nf.evaluate(list(subgraph.tensors()[1]), {})
    out = np.ones(5, np.int64)
    run_gpu(subgraph, default_schedule(subgraph, AMPERE), AMPERE)([out])
    np.testing.assert_array_equal(out, found)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(4, 6, 9, 9), (3, 40, 5, 7)])
def test_batch_norm_by_rows_in_pieces(shape):
    """Its statistics, and the sums of its gradients: what is between two sums of a row is computed in place."""
    x, dy = nf.placeholder(shape, name="x"), nf.placeholder(shape, name="dy")
    gamma, beta, mean, variance = (nf.parameter((shape[1],), name=n) for n in ("gamma", "beta", "mean", "variance"))
    made = F.batch_norm(nf.exp(x), gamma, beta, mean, variance)
    outputs = [*nf.vjp(nf.relu(made.y), [x, gamma, beta], dy), made.mean, made.variance]
    rows = [s for s in subgraphs(outputs, [x, dy]) if s.rows is not None]
    (both,) = rows
    assert both.strays
    rng = np.random.default_rng(0)
    jobs = [("rows", both, k) for k in (default_schedule(both, AMPERE), *drawn(both, 4, rng))]
    assert len(all_verified(jobs, AMPERE)) == len(jobs)


def long_rows(size=20001):
    x = nf.placeholder((2, size))
    return subgraph_of([F.softmax(x)], [x], rows=1)


def test_rows_that_no_shared_memory_holds():
    """They lie in scratch; whatever is a row kernel has a schedule."""
    subgraph = long_rows()
    problem = problem_of(subgraph)
    everything = {"stored": (1 << len(problem.optional)) - 1}
    for target, most in ((TURING, 64 << 10), (PTX, 48 << 10)):
        schedule = complete("gpu_rows", problem, target, everything)
        assert schedule["place"] == "global"
        shared = complete("gpu_rows", problem, target, {**dict(schedule.knobs), "place": "shared"})
        assert f"a block has {most} bytes of shared memory, and takes 1" in legal(problem, shared, target).reason
    all_verified([("long", subgraph, complete("gpu_rows", problem, TURING, everything))], AMPERE)


def test_rows_that_a_launch_asks_shared_memory_for():
    """Several buffers in one piece of it, of types of their own; a source has such kernels of any type."""
    y = nf.placeholder((3, 5003))
    both = subgraph_of([F.softmax(nf.cast(F.softmax(y), "float64") * 1e3)], [y], rows=1)
    jobs = [("long", long_rows(), default_schedule(long_rows(), AMPERE))]
    jobs += [("two types", both, scheduled(both, team=64, threads=64, place="shared"))]
    lowered = [codegen.lower(s, k, AMPERE, f"k{n}") for n, (_, s, k) in enumerate(jobs)]
    for (_, subgraph, schedule), kernel in zip(jobs, lowered, strict=True):
        (entry,) = kernel.code.entries
        assert 48 << 10 < entry.shared_bytes < estimate(problem_of(subgraph), schedule, AMPERE).block.shared_bytes
    text = codegen.source(lowered, AMPERE, "cuda")
    assert {"float", "double"} <= set(re.findall(r"extern __shared__ __align__\(16\) (\w+) ", text))
    all_verified(jobs[1:], AMPERE)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_memory_of_a_launch_of_several_types_compiles():
    """A name in it may have one type in a source."""
    kernels, knobs = [], {"block_k": 32, "block_m": 128, "block_n": 128, "stages": 2}
    for n, dtype in enumerate(("float32", "float64")):
        x = nf.placeholder((512, 512), dtype)
        subgraph = subgraph_of([nf.expr("y[i,j] = sum(x[i,k] * x[k,j])", x=x)], [x])
        schedule = nearest(problem_of(subgraph), Schedule("gpu_contraction", tuple(knobs.items())), AMPERE)
        kernels.append(codegen.lower(subgraph, schedule, AMPERE, f"k{n}"))
        assert kernels[-1].code.entries[0].shared_bytes > 48 << 10, schedule
    assert codegen.build(kernels, AMPERE)[:4] == b"\x7fELF"


# -------------------------------------------------------------------------------------------------------- scatters


ONE_BY_ONE = {"atomics": True, "threads": 32, "width": 1}


def test_scatters_by_rows_and_columns():
    jobs = []
    for width in (1, 5, 40):
        ids, g = nf.placeholder((130,), "int64"), nf.placeholder((130, width))
        b, h = nf.axis(130, "b"), nf.axis(width, "h")
        subgraph = subgraph_of([nf.scatter((11, width), [b, h], (ids[b], h), g[b, h])], [ids, g])
        jobs += [(f"{width} columns", subgraph, default_schedule(subgraph, AMPERE))]
        jobs += [(f"{width} columns", subgraph, scheduled(subgraph, threads=64, rows=3, splits=2))]
    ids, g = nf.placeholder((40, 3), "int32"), nf.placeholder((40, 3))
    b, h = nf.axis(40, "b"), nf.axis(3, "h")
    wider = subgraph_of([nf.scatter((9, 4), [b, h], (ids[b, 0], h), g[b, h])], [ids, g])
    jobs += [("a column that gets nothing", wider, default_schedule(wider, AMPERE))]
    jobs += [("a column that gets nothing", wider, complete("gpu_scatter", problem_of(wider), AMPERE, ONE_BY_ONE))]
    subgraph = subgraph_of([nf.scatter((9,), [b, h], (ids[b, h],), g[b, h])], [ids, g])
    jobs += [("no columns", subgraph, default_schedule(subgraph, AMPERE))]
    certificates = all_verified(jobs, AMPERE)
    assert all(c.faults for c in certificates)


# ------------------------------------------------------------------------------------------------------------ laws


def test_sampled_schedules():
    rng = np.random.default_rng(0)
    jobs = [(c.name, c.subgraph, s) for c in list(named_cases())[::5] for s in drawn(c.subgraph, 1, rng)]
    assert len(all_verified(jobs, AMPERE)) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_many_sampled_schedules(dtype):
    """Of random programs: `test_programs.py`."""
    rng, cases = np.random.default_rng(1), list(named_cases(dtype))
    jobs = [(c.name, c.subgraph, s) for c in cases for s in drawn(c.subgraph, 4, rng, ("gpu_map", *OURS))]
    assert len(all_verified(jobs, AMPERE)) == len(jobs) > len(cases)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_a_compiler_takes_them():
    kernels = []
    for n, case in enumerate(list(named_cases())[::4]):
        schedule = default_schedule(case.subgraph, AMPERE)
        kernel = codegen.lower(case.subgraph, schedule, AMPERE, f"k{n}")
        if schedule.template in OURS and not kernel.is_shared:
            kernels.append(kernel)
    assert codegen.build(kernels, AMPERE)[:4] == b"\x7fELF"


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs ptxas, and libdevice beside it")
def test_ptx_of_them_is_assembled(tmp_path):
    target, kernels = gpu_target("nvptx", "sm_80"), []
    for n, case in enumerate(list(named_cases())[-14:]):
        schedule = default_schedule(case.subgraph, target)
        kernel = codegen.lower(case.subgraph, schedule, target, f"k{n}")
        if schedule.template in OURS and not kernel.is_shared:
            kernels.append(kernel)
    text = codegen.source(kernels, target, "ptx")
    assert "shfl.sync.bfly" in text and ".extern" not in text
    (tmp_path / "k.ptx").write_text(text)
    command = ["ptxas", "-arch=sm_80", str(tmp_path / "k.ptx"), "-o", str(tmp_path / "k.cubin")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
