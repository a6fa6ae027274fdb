"""Groups of kernels as one launch: the same bits as one after the other, by any number of threads, and on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import neoflow as nf
from neoflow import pipeline
from neoflow.loops import problem_of, space
from neoflow.partition import together
from neoflow.runtime.device import Launch
from neoflow.runtime.device.cpu import PIECES, native_form
from neoflow.runtime.device.cuda.recording import BRANCHES
from tests.emulator.driver import emulated
from tests.strategies import random_program

SIZES = (40_003, 70_000, 9, 50_021, 33, 61_440)
"""Of parameters: some have tasks for several threads, others none."""


def launch(function, tasks, is_parallel=True, group=None, call=None, status=None):
    return Launch(function, 10 * function, tasks, is_parallel, status, call, group=group)


def regions(launches, threads=2, timed=False):
    """(functions of its phases, pieces of each) by region."""
    form = native_form(launches, threads, timed)
    found = []
    for first, word, _ in form.regions.tolist():
        count, pieces = word & 0xFFFFFFFF, word >> 32
        phases = form.phases[first : first + count]
        own = (phases[:, 2] >> 32).tolist()
        assert sum(own) == pieces
        found.append((phases[:, 0].tolist(), own))
    return found


def test_the_calls_of_a_group_are_regions_of_their_phases():
    """Call 3 has two phases, call 5 nothing to share."""
    group = [launch(1, 100, group=3, call=3), launch(2, 3, group=3, call=3)]
    group += [launch(3, 50, group=3, call=4), launch(4, 7, is_parallel=False, group=3, call=5)]
    launches = [launch(9, 100, call=2), *group, launch(8, 1, is_parallel=False, call=6)]
    most = -(-PIECES * 2 // 3)
    assert regions(launches) == [([9], [8]), ([1, 3, 4], [most, most, 1]), ([2], [3]), ([8], [0])]
    assert regions(launches, threads=1) == [([9, 1, 3, 4, 2, 8], [0] * 6)]
    assert [f for f, _ in regions(launches, timed=True)] == [[9], [1], [2], [3], [4], [8]]
    beside = [*group, launch(5, 10, group=6, call=6), launch(6, 10, group=6, call=7)]
    assert [f for f, _ in regions(beside)] == [[1, 3, 4], [2], [5, 6]]


def test_a_group_that_shares_nothing_is_done_by_one_thread_with_its_neighbours():
    alone = [launch(n, 1, is_parallel=False, group=1, call=n) for n in (1, 2)]
    assert regions([launch(7, 1, is_parallel=False), *alone]) == [([7, 1, 2], [0, 0, 0])]


def updates(sizes=SIZES):
    """A step that moves parameters of several sizes along given arrays, with Adam's running means."""
    given = [nf.placeholder((n,), name=f"g{n}") for n in sizes]
    start = np.random.default_rng(7)
    parameters = [nf.parameter((n,), name=f"p{n}", init=start.normal(size=n).astype("float32")) for n in sizes]
    step = {p: p * 0.99 - 0.1 * nf.tanh(g) for p, g in zip(parameters, given, strict=True)}
    total = sum(nf.sum(g * g) for g in given)
    return given, parameters, [total], step


def results(asked="together", target="cpu", steps=3):
    """Of some steps: what they gave, the parameters, and the function."""
    os.environ["NEOFLOW_WITH"] = asked
    given, parameters, outputs, step = updates()
    f = nf.compile(outputs, given, step, target=target)
    rng = np.random.default_rng(5)
    told = []
    for _ in range(steps):
        told.append(np.array(f(*(rng.normal(size=g.shape).astype("float32") for g in given))[0]))
    return told, [nf.get_value(p) for p in parameters], f


@pytest.fixture(autouse=True)
def _without(monkeypatch):
    monkeypatch.setenv("NEOFLOW_WITH", "together")


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip([*one[0], *one[1]], [*other[0], *other[1]], strict=True))


@pytest.mark.tvm
def test_a_step_gives_the_same_bits_with_and_without():
    with_groups, without = results(), results("")
    assert same(with_groups, without)
    assert with_groups[2].plan.together and "run together" in with_groups[2].explain("together") + str(
        with_groups[2].plan
    )
    assert not without[2].plan.together and "together" not in [r.name for r in without[2].compiled.trace.records]
    with_groups[2].profile(*(np.ones(n, np.float32) for n in SIZES), runs=2)


@pytest.mark.tvm
@pytest.mark.parametrize("seed", range(4))
def test_random_programs_give_the_same_bits_with_and_without(seed, monkeypatch):
    """All kernels are short."""
    monkeypatch.setattr(together, "SHORT", 1.0)
    same_bits(seed, monkeypatch)


def same_bits(seed, monkeypatch):
    program = random_program(seed, jumps=False)
    roots, inputs = program.with_gradients(), list(program.feeds)
    told = []
    for asked in ("together", ""):
        monkeypatch.setenv("NEOFLOW_WITH", asked)
        f = nf.compile(roots, inputs)
        told.append([a.copy() for a in f(*(program.feeds[t] for t in inputs))])
    assert all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(*told, strict=True)), seed
    return f


@pytest.mark.tvm
@pytest.mark.slow
def test_a_hundred_random_programs_give_the_same_bits(monkeypatch):
    monkeypatch.setattr(together, "SHORT", 1.0)
    for seed in range(9000, 9100):
        same_bits(seed, monkeypatch)


@pytest.mark.tvm
def test_any_number_of_threads(tmp_path):
    """Digests of the parameters after some steps, of other processes."""
    code = (
        "import hashlib; from tests.runtime.test_together import results\n"
        "told, values, f = results()\n"
        "print(hashlib.sha256(b''.join(v.tobytes() for v in values)).hexdigest(), len(f.plan.together))"
    )
    found = {}
    for threads in ("1", "3"):
        flags = {**os.environ, "NEOFLOW_THREADS": threads, "PYTHONPATH": os.getcwd()}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=flags)
        assert done.returncode == 0, done.stderr
        found[threads] = done.stdout.split()
    assert len({digest for digest, _ in found.values()}) == 1
    assert found["1"][1] == "0" and found["3"][1] != "0"


@pytest.mark.tvm
def test_other_schedules_run_on_and_share_no_scratch():
    step, fixed = results()[2], results("together")[2]
    for seed in range(3):
        rng = np.random.default_rng(seed)
        kernels = step.compiled.kernels
        drawn = {k.subgraph.digest: space(problem_of(k.subgraph), k.target).sample(rng) for k in kernels}
        pipeline.adopt(step, drawn)
        plan = step.plan
        for first, count in plan.together:
            spaces = [w for c in plan.calls[first : first + count] for w in c.workspaces]
            assert not any(plan.buffers[w].kind == "scratch" for w in spaces)
        data = [rng.normal(size=n).astype("float32") for n in SIZES]
        np.testing.assert_allclose(step(*data)[0], fixed(*data)[0], rtol=1e-5)
    for p, q in zip(step.parameters, fixed.parameters, strict=True):
        np.testing.assert_allclose(nf.get_value(p), nf.get_value(q), rtol=1e-5, atol=1e-6)


@pytest.mark.tvm
def test_a_package_has_its_groups(tmp_path):
    _, _, f = results()
    f.save(tmp_path / "step.nflib", "step")
    library = nf.load(tmp_path / "step.nflib")
    assert library.step.plan.together == f.plan.together != ()
    data = [np.full(n, 0.25, np.float32) for n in SIZES]
    assert np.array_equal(library.step(*data)[0], f(*data)[0])


@pytest.mark.tvm
def test_on_a_gpu_the_calls_of_a_group_are_branches(monkeypatch):
    """Those of the emulator go in the wrong order."""
    gpu = emulated(monkeypatch)
    found, without = results(target="cuda"), results("", target="cuda")
    count = sum(min(n, BRANCHES) for _, n in found[2].plan.together)
    assert same(found, without) and gpu.driver.branched == count > 1
    found[2].profile(*(np.ones(n, np.float32) for n in SIZES), runs=1)
    assert gpu.driver.branched == count  # one after the other where they are timed
