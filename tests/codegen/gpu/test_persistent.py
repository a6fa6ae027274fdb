"""Loops that are one launch on a GPU, which is the emulator: random recurrences, launches counted, faults planted."""

import shutil

import numpy as np
import pytest

import neoflow as nf
from neoflow import codegen, persisting
from neoflow.codegen.gpu.resources import resources
from neoflow.loops import persistent as forms
from neoflow.pipeline import compile_program
from tests.emulator import Fault
from tests.emulator.driver import emulated

pytestmark = [pytest.mark.tvm, pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs g++")]


@pytest.fixture
def gpu(monkeypatch):
    return emulated(monkeypatch)


def launches(function):
    """Of a call."""
    return function._executor.launches


def agree(outputs, inputs, seed=0, rtol=1e-4, atol=1e-5):
    """Compile for the GPU, run, compare with `evaluate`; the function."""
    rng = np.random.default_rng(seed)
    feeds = {t: (rng.standard_normal(t.shape) * 0.5).astype(np.float32) for t in inputs}
    f = nf.compile(outputs, inputs, target="cuda")
    wanted = nf.evaluate(outputs, feeds, "float64")
    for _ in range(2):  # the second one finds what the first has left in memory
        for a, b in zip(f(*feeds.values()), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
    return f


def plant(monkeypatch, right, wrong):
    """Let loops be compiled with a fault in the place of a text of their source."""
    plain = codegen.lower_persistent

    def planted(loop, target):
        key, source, code = plain(loop, target)
        first, kernel = source.rsplit('extern "C"', 1)
        assert right in kernel
        return f"{key[:-4]}{abs(hash(wrong)) % 10000:04}", f'{first}extern "C"{kernel.replace(right, wrong)}', code

    monkeypatch.setattr(persisting.codegen, "lower_persistent", planted, raising=False)


FUNCTIONS = (nf.tanh, nf.sigmoid, nf.sin, lambda t: t * 0.5)


def drawn(rng, steps):
    """A recurrence of points: some tensors are carried, one perhaps since two steps ago; rows, what is fixed, what
    comes out of each step; and gradients of it all."""
    shape = tuple(int(n) for n in rng.integers(1, 8, rng.integers(1, 4)))
    count, back = int(rng.integers(1, 4)), bool(rng.integers(2))
    x = nf.placeholder((steps, *shape), name="x")
    row = nf.placeholder((steps, *shape[-1:]), name="row")
    fixed = nf.placeholder(shape[-1:], name="fixed")
    first = [nf.placeholder(shape, name=f"first{n}") for n in range(count)]
    lags = bool(rng.integers(2))
    kinds = [FUNCTIONS[n] for n in rng.integers(len(FUNCTIONS), size=count)]
    others = rng.integers(count, size=count)

    def step(old, given):
        now, r = given
        states = old[:count]
        new = [f(a * fixed + now) * r + 0.5 * states[o] for f, a, o in zip(kinds, states, others, strict=True)]
        if lags:
            new[0] = new[0] + 0.25 * old[count]
        kept = new[0] * states[-1] if count > 1 else new[0]
        return (*new, states[0]) if lags else tuple(new), kept

    start = (*first, nf.zeros(shape)) if lags else tuple(first)
    last, ys = nf.scan(step, start, (x, row), reverse=back)
    inputs = [x, row, fixed, *first]
    loss = sum((nf.sum(t * t) for t in last[:count]), nf.sum(ys))
    return [ys, *last[:count], *nf.grad(loss, inputs)], inputs


@pytest.mark.parametrize("seed", range(3))
def test_recurrences_of_points(gpu, seed):
    rng = np.random.default_rng(seed)
    agree(*drawn(rng, int(rng.integers(1, 9))), seed)


def selective(steps=5, batch=3, channels=4, states=2):
    """x, delta [T, B, D], enter, leave [T, B, N]: what a selective scan does in its steps."""
    x, delta = (nf.placeholder((steps, batch, channels), name=n) for n in ("x", "delta"))
    enter, leave = (nf.placeholder((steps, batch, states), name=n) for n in ("enter", "leave"))
    keep = nf.placeholder((channels, states), name="keep")

    def step(h, row):
        x, delta, b, c = row
        body = "h[s,i,n] = exp(delta[s,i] * keep[i,n]) * old[s,i,n] + delta[s,i] * x[s,i] * b[s,n]"
        h = nf.expr(body, delta=delta, keep=keep, old=h, x=x, b=b)
        return h, nf.expr("y[s,i] = sum[n](h[s,i,n] * c[s,n])", h=h, c=c)

    _, ys = nf.scan(step, nf.zeros((batch, channels, states)), (x, delta, enter, leave))
    return ys, [x, delta, enter, leave, keep]


def test_a_selective_scan_is_one_launch_each_way(gpu, monkeypatch):
    ys, inputs = selective(steps=64)
    outputs = [ys, *nf.grad(nf.sum(ys * ys), inputs)]
    f = agree(outputs, inputs)
    assert [(a.count, a.turns) for a in f.plan.loops] == [(1, 64), (1, 64)]
    few = launches(f)
    assert few == len(f.plan.calls) + len(f.plan.copies) + len(f.plan.saves)
    assert f.explain("persistent").count("64 turns in one launch: each point alone") == 2
    assert len(f.profile(*(np.zeros(t.shape, np.float32) for t in inputs))) == len(f.plan.calls)
    monkeypatch.setenv("NEOFLOW_WITHOUT", "persistent")
    assert launches(agree(outputs, inputs)) == few + 2 * 63


def test_a_package_goes_turn_by_turn(gpu, tmp_path):
    ys, inputs = selective()
    feeds = [np.ones(t.shape, np.float32) for t in inputs]
    f = nf.compile([ys], inputs, target="cuda")
    f.save(tmp_path / "scan")
    np.testing.assert_array_equal(nf.load(tmp_path / "scan")(*feeds)[0], f(*feeds)[0])


def neighbours(steps=6):
    """A step reads its neighbour: points that are not alone."""
    x = nf.placeholder((steps, 64), name="x")
    first = nf.placeholder((64,), name="first")

    def step(h, row):
        return nf.expr("g[i] = select(i > 0, 0.5 * h[i - 1], 0.0) + row[i]", h=h, row=row), None

    return [nf.scan(step, first, x)[0]], [x, first]


def test_points_that_need_others_are_a_block(gpu):
    f = agree(*neighbours())
    assert "6 turns in one launch: a barrier after each kernel, a block of 64 threads" in f.explain("persistent")


def test_what_would_happen_else_is_found(gpu, monkeypatch):
    monkeypatch.setattr(forms, "_mixing", lambda parts, nests: None)
    with pytest.raises(Fault, match="race"):
        agree(*neighbours())


def test_where_a_block_takes_longer_turns_are_launches(gpu, monkeypatch):
    monkeypatch.setattr(forms, "PART_SECONDS", 1.0)
    f = agree(*neighbours())
    [found] = f.compiled.loops.found
    assert "other points than its own; by one block it takes 1000000.0 us a turn" in found.kernel.reason
    assert launches(f) >= 6 and "6 launches" in f.explain("persistent")


def mixing(rng, steps):
    """A recurrence whose steps multiply by a matrix, read neighbours, and add up what they carry; and its gradients."""
    rows, width, back = int(rng.integers(1, 5)), int(rng.integers(2, 40)), bool(rng.integers(2))
    x = nf.placeholder((steps, rows, width), name="x")
    w = nf.placeholder((width, width), name="w")
    first = [nf.placeholder((rows, width), name=f"first{n}") for n in range(2)]
    which = rng.permutation(4)[: int(rng.integers(1, 4))]

    def step(old, row):
        h, g = old
        new = row
        for n in which:
            if n == 0:
                new = new + 0.3 * (h @ w)
            elif n == 1:
                new = new + nf.pad(h[:, 1:], ((0, 0), (0, 1))) * g
            elif n == 2:
                new = new * nf.sigmoid(nf.sum(g, axis=1, keepdims=True))
            else:
                new = new + nf.mean(g * h, axis=0)
        new = nf.tanh(new)
        return (new, h), nf.sum(new * new, axis=1)

    (last, _), ys = nf.scan(step, tuple(first), x, reverse=back)
    inputs = [x, w, *first]
    return [ys, last, *nf.grad(nf.sum(ys) + nf.sum(last), inputs, allow_unused=True)], inputs


@pytest.fixture
def always(monkeypatch):
    """A block, however long it takes."""
    monkeypatch.setattr(forms, "_alone_seconds", lambda part, target: 0.0)


def check_mixing(seed):
    rng = np.random.default_rng(seed)
    f = agree(*mixing(rng, int(rng.integers(1, 7))), seed, rtol=1e-3, atol=1e-4)
    assert all(found.is_one for found in f.compiled.loops.found), f.explain("persistent")


@pytest.mark.parametrize("seed", range(3))
def test_recurrences_by_a_block(gpu, always, seed):
    check_mixing(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 103))
def test_many_recurrences_by_a_block(gpu, always, seed):
    check_mixing(seed)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of kernels after the one at fault
def test_a_missing_barrier_is_found(gpu, always, monkeypatch):
    plant(monkeypatch, "__syncthreads();", ";")
    with pytest.raises(Fault, match="race"):
        agree(*neighbours())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of kernels after the one at fault
@pytest.mark.parametrize(
    ("right", "wrong"),
    [("turn < 5;", "turn < 4;"), ("int turn = 0;", "int turn = 1;"), ("LL * turn", "LL * (turn / 2)")],
)
def test_faults_in_the_turns_are_found(gpu, monkeypatch, right, wrong):
    plant(monkeypatch, right, wrong)
    ys, inputs = selective()
    with pytest.raises((AssertionError, Fault)):
        agree([ys], inputs)


def lstm(steps=4, batch=6, size=8):
    """With its gradients."""
    x, w = nf.placeholder((steps, batch, size), name="x"), nf.placeholder((2 * size, 4 * size), name="w")
    start = nf.zeros((batch, size))

    def step(state, row):
        h, c = state
        i, f, g, o = nf.split(nf.concat([h, row], axis=1) @ w, 4, axis=1)
        c = nf.sigmoid(f) * c + nf.sigmoid(i) * nf.tanh(g)
        h = nf.sigmoid(o) * nf.tanh(c)
        return (h, c), h

    ys = nf.scan(step, (start, start), x)[1]
    return [ys, *nf.grad(nf.sum(ys * ys), [x, w])], [x, w]


@pytest.mark.parametrize("batch", [6, 130])
def test_rows_of_a_batch_are_strands(gpu, always, batch):
    f = agree(*lstm(batch=batch), rtol=1e-3, atol=1e-4)
    count = {6: 6, 130: 65}[batch]  # of 2 rows, on 108 processors
    told = f.explain("persistent")
    assert told.count(f"4 turns in one launch: {count} strands, a barrier after each kernel, {count} blocks") == 2
    assert f.explain("strands").count(f"{count} parts, each alone") == 2


def test_strands_that_do_not_pay_are_no_blocks(gpu, monkeypatch):
    monkeypatch.setattr(forms, "PART_SECONDS", 1.0)
    f = agree(*lstm(), rtol=1e-3, atol=1e-4)
    assert not any(a.is_apart for a in f.plan.loops) and "a turn by estimate" in f.explain("persistent")
    monkeypatch.setenv("NEOFLOW_WITHOUT", "persistent")
    assert launches(agree(*lstm(), rtol=1e-3, atol=1e-4)) == launches(f)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("right", "wrong"), [("__syncthreads();", ";"), ("((int)blockIdx.x)", "0")])
def test_faults_in_strands_are_found(gpu, always, monkeypatch, right, wrong):
    plant(monkeypatch, right, wrong)
    with pytest.raises((Fault, AssertionError)):
        agree(*lstm(), rtol=1e-3, atol=1e-4)


def test_strands_are_launches_in_a_package(gpu, always, tmp_path):
    outputs, inputs = lstm()
    feeds = [np.full(t.shape, 0.1, np.float32) for t in inputs]
    f = nf.compile(outputs, inputs, target="cuda")
    f.save(tmp_path / "cell")
    loaded = nf.load(tmp_path / "cell")
    assert any(a.is_apart for a in f.plan.loops) and not any(a.is_apart for a in loaded.run.plan.loops)
    for a, b in zip(loaded(*feeds), f(*feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def scans():
    """A selective scan, by points."""
    ys, inputs = selective(steps=256, batch=8, channels=256, states=16)
    return [ys, *nf.grad(nf.sum(ys * ys), inputs)], inputs


ARCHITECTURES = ["sm_75", pytest.param("sm_80", marks=pytest.mark.slow), pytest.param("sm_90", marks=pytest.mark.slow)]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc says what kernels take")
@pytest.mark.parametrize("program", [scans, lambda: lstm(64, 64, 64), neighbours])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_nvcc_compiles_them_without_spills(architecture, program, always):
    made = compile_program(*program(), target=f"cuda:{architecture}")
    assert made.loops.found and all(found.is_one for found in made.loops.found)
    for found in made.loops.found:
        for kernel in resources(codegen.persistent_source(found.kernel, made.target), made.target).values():
            assert not kernel.spills and not kernel.stack


def test_other_languages_have_no_loops_in_one_launch():
    ys, inputs = selective()
    made = compile_program([ys], inputs, target="nvptx:sm_80")
    assert "CUDA C++ alone" in made.explain("persistent")
