"""What is computed when parameters change: never stale, whoever changes them; memory that nothing else uses."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.loops.schedule import schedule_of
from neoflow.pipeline import adopt
from tests.chance import Chance

pytestmark = pytest.mark.tvm
N = 24


def doubled(w, name="p"):
    """A parameter turned and scaled, stored: too costly to compute where it is read."""
    return nf.compute((N, N), lambda i, j: nf.exp(w[j, i] * 0.5), name=name)


def product(x, p):
    k = nf.axis(N, "k")
    return nf.compute((N, N), lambda i, j: nf.sum(x[i, k] * p[k, j], axis=[k]), name="y")


@pytest.fixture
def program():
    w = nf.parameter((N, N), name="w", init=lambda shape, rng: rng.standard_normal(shape))
    x = nf.placeholder((N, N), name="x")
    y = product(x, doubled(w))
    return w, x, y, nf.compile([y], [x])


def exact(w, x, array, y):
    return nf.evaluate([y], {x: array, w: nf.get_value(w)}, dtype="float64")[0]


def agrees(f, w, x, y, array):
    np.testing.assert_allclose(f(array)[0], exact(w, x, array, y), rtol=2e-4, atol=1e-3)


def draw(seed):
    return np.random.default_rng(seed).standard_normal((N, N)).astype(np.float32)


def test_prepared_once_and_again_when_the_value_is_set(program):
    w, x, y, f = program
    assert f.plan.prepared == 1 and "1 of 2 kernel calls" in str(f.explain()) and f.explain("prepared") == "p"
    laid = f._executor._laid
    for n in range(3):
        agrees(f, w, x, y, draw(n))
    assert (laid.recording.runs, laid.rest.runs, f.runs) == (1, 2, 3)
    nf.set_value(w, draw(9))
    agrees(f, w, x, y, draw(3))
    assert (laid.recording.runs, laid.rest.runs) == (2, 2)
    f.profile(draw(4), runs=2)
    agrees(f, w, x, y, draw(5))
    assert f.runs == 7


def test_a_step_that_changes_the_parameter_is_seen(program):
    w, x, y, f = program
    step = nf.compile([nf.sum(w)], [], {w: w * 0.9 + 0.1})
    for n in range(3):
        agrees(f, w, x, y, draw(n))
        step()
        agrees(f, w, x, y, draw(n))


def test_a_step_whose_own_parameters_change_prepares_what_is_not_its_own(program):
    w, x, _, _ = program
    v = nf.parameter((N, N), name="v", init=0.5)
    loss = nf.sum(product(x, doubled(w)) * v)
    f = nf.compile([loss], [x], {v: v - 0.01 * nf.grad(loss, [v])[0]})
    assert f.plan.prepared == 1
    for n in range(3):
        array = draw(n)
        expected = nf.evaluate([loss], {x: array, w: nf.get_value(w), v: nf.get_value(v)}, dtype="float64")[0]
        np.testing.assert_allclose(f(array)[0], expected, rtol=1e-3)


def test_other_kernels_prepare_again(program):
    w, x, y, f = program
    agrees(f, w, x, y, draw(0))
    one = next(k for k in f.compiled.kernels if "parallel" in dict(k.schedule.knobs))
    knobs = {**dict(one.schedule.knobs), "parallel": not one.schedule["parallel"]}
    assert adopt(f, {one.subgraph.digest: schedule_of(one.schedule.template, knobs)}) == 1
    assert not f._executor._laid.is_prepared
    agrees(f, w, x, y, draw(1))
    assert f._executor._laid.is_prepared and f.runs == 2


def test_passes_left_out_prepare_nothing(program, monkeypatch):
    w, x, y, _ = program
    monkeypatch.setenv("NEOFLOW_WITHOUT", "prepared")
    f = nf.compile([y], [x])
    assert f.plan.prepared == 0
    agrees(f, w, x, y, draw(0))


def test_a_package_runs_everything_at_every_call(program, tmp_path):
    f = program[-1]
    f.save(tmp_path / "p.nflib")
    loaded = nf.load(tmp_path / "p.nflib").run
    assert f.plan.prepared == 1 and loaded.plan.prepared == 0
    np.testing.assert_array_equal(loaded(draw(0))[0], f(draw(0))[0])


def drawn(seed):
    """(parameters, input, outputs, updates) of a random program, and what went on drawing it."""
    make = Chance(np.random.default_rng(seed))
    w = [nf.parameter((N, N), name=f"w{n}", init=lambda shape, rng: rng.standard_normal(shape)) for n in range(2)]
    x = nf.placeholder((N, N), name="x")
    pool = [x, *w]
    for n in range(make.between(3, 8)):
        a, b = make.pick(pool), make.pick(pool)
        kind = make.pick(("product", "turn", "sum"))
        if kind == "product":
            pool.append(nf.tanh(product(a, b) * 0.2))
        elif kind == "turn":
            pool.append(nf.compute((N, N), lambda i, j, a=a: nf.exp(nf.tanh(a[j, i])), name=f"t{n}"))
        else:
            pool.append(a * 0.5 + nf.tanh(b))
    outputs = [pool[-1], make.pick(pool[3:])]
    return w, x, outputs, {w[1]: nf.tanh(make.pick(pool[1:]))} if make.chance(0.4) else {}, make


def law(seed):
    """Programs over parameters and inputs, run again and again while some parameters change; how much is prepared."""
    w, x, outputs, updates, make = drawn(seed)
    f = nf.compile(outputs, [x], updates)
    for n in range(4):
        feeds = {x: draw(100 * seed + n), **{p: nf.get_value(p) for p in w}}
        for found, expected in zip(f(feeds[x]), nf.evaluate(outputs, feeds, dtype="float64"), strict=True):
            np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3, err_msg=f"seed {seed}, call {n}")
        if make.chance(0.4):
            nf.set_value(make.pick(w), make.rng.standard_normal((N, N)).astype(np.float32))
    return f.plan.prepared


def test_random_programs_are_never_stale():
    assert sum(map(law, range(2))) >= 1


@pytest.mark.slow
def test_many_random_programs_are_never_stale():
    assert sum(map(law, range(100, 400))) >= 100
