"""The whole compiler against the meaning of the language: compiled == evaluated, on random programs with gradients."""

import numpy as np
import pytest

import neoflow as nf
from tests.strategies import random_program

pytestmark = pytest.mark.tvm


def compiled_agrees(seed, **limits):
    """Every output and gradient of a random program, compiled in float32, against NumPy in float64 and in float32.

    A value may differ from the exact one by a few times what NumPy's own float32 differs, or by float32 rounding of the
    largest element.
    """
    program = random_program(seed, jumps=False, **limits)
    roots, inputs = program.with_gradients(), list(program.feeds)
    function = nf.compile(roots, inputs)
    found = function(*(program.feeds[t] for t in inputs))
    exact = nf.evaluate(roots, program.feeds, dtype="float64")
    rounded = nf.evaluate(roots, program.feeds)
    for t, a, b, c in zip(roots, found, exact, rounded, strict=True):
        if not t.dtype.startswith("float"):
            np.testing.assert_array_equal(a, b, err_msg=f"seed {seed}: {t}")
            continue
        scale = max(1.0, float(np.max(np.abs(b), initial=0)))
        own = float(np.max(np.abs(np.where(np.isfinite(b), c - b, 0)), initial=0))
        bound = 1e-4 * scale + 20 * own
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=bound, err_msg=f"seed {seed}: {t}")


@pytest.mark.parametrize("seed", range(12))
def test_compiled_programs_agree(seed):
    compiled_agrees(seed)


@pytest.mark.slow
def test_two_thousand_compiled_programs_agree():
    for seed in range(5000, 7000):
        compiled_agrees(seed)


def test_updates_in_place_and_not():
    """Parameters that feed each other: new values come from old ones, whatever the order of the kernels."""
    a = nf.parameter((40, 40), name="a", init=np.ones((40, 40), np.float32))
    b = nf.parameter((40, 40), name="b", init=np.full((40, 40), 2, np.float32))
    k = nf.axis(40, "k")
    product = nf.compute((40, 40), lambda i, j: nf.sum(a[i, k] * b[k, j], axis=[k]))
    step = nf.compile([nf.sum(a)], [], {a: b * 1.0, b: a + product * 0.01})
    wanted_a, wanted_b = np.ones((40, 40)), np.full((40, 40), 2.0)
    for _ in range(3):
        (total,) = step()
        np.testing.assert_allclose(total, wanted_a.sum(), rtol=1e-5)
        wanted_a, wanted_b = wanted_b, wanted_a + wanted_a @ wanted_b * 0.01
    (final,) = nf.compile([a - b])()
    np.testing.assert_allclose(final, wanted_a - wanted_b, rtol=1e-4)


@pytest.mark.parametrize("shape", [(64, 48), (7, 37), (5,), (1, 1)])
def test_several_states_updated_in_place_by_one_kernel(shape):
    """Adam's moments and parameter: each new value needs old values that the others overwrite."""
    rng = np.random.default_rng(0)
    start = {n: rng.standard_normal(shape).astype(np.float32) ** 2 for n in "mvp"}
    m, v, p = (nf.parameter(shape, name=n, init=start[n]) for n in "mvp")
    g = nf.placeholder(shape, name="g")
    new_m, new_v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    new_p = p - 0.1 * new_m / (nf.sqrt(new_v) + 1e-3) + 0.01 * m * v
    step = nf.compile([nf.sum(g)], [g], {m: new_m, v: new_v, p: new_p})
    assert not step.plan.copies and not step.plan.saves
    gradient = rng.standard_normal(shape).astype(np.float32)
    a, b, c = (start[n].astype(np.float64) for n in "mvp")
    for _ in range(3):
        step(gradient)
        a, b, a_old, b_old = 0.9 * a + 0.1 * gradient, 0.99 * b + 0.01 * gradient**2, a, b
        c = c - 0.1 * a / (np.sqrt(b) + 1e-3) + 0.01 * a_old * b_old
    for t, wanted in zip((m, v, p), (a, b, c), strict=True):
        np.testing.assert_allclose(nf.compile([t + 0.0])()[0], wanted, rtol=1e-5, atol=1e-6)


def test_the_second_compilation_comes_from_the_cache():
    from neoflow import pipeline

    x = nf.placeholder((33, 21), name="x")
    first = pipeline.compile_program([nf.exp(x) + 0.125], [x])
    y = nf.placeholder((33, 21), name="y")
    again = pipeline.compile_program([nf.exp(y) + 0.125], [y])
    assert first.built == 1 and first.cached == 0
    assert again.built == 0 and again.cached == 1


def test_checked_mode_compares_each_kernel(monkeypatch):
    monkeypatch.setenv("NEOFLOW_CHECK", "1")
    x, w = nf.placeholder((19, 23), name="x"), nf.placeholder((17, 23), name="w")
    k = nf.axis(23, "k")
    y = nf.compute((19, 17), lambda i, j: nf.sum(x[i, k] * w[j, k], axis=[k]) * 0.375)
    nf.compile([y], [x, w])


def test_an_unknown_target_is_refused():
    x = nf.placeholder((3,), name="x")
    with pytest.raises(nf.ConfigError, match="target 'tpu' is not there yet; there is 'cpu'"):
        nf.compile([x * 2.0], [x], target="tpu")


def test_a_missing_input_is_named():
    x, y = nf.placeholder((3,), name="x"), nf.placeholder((3,), name="y")
    with pytest.raises(nf.GraphError, match="reads placeholder y"):
        nf.compile([x + y], [x])


def test_explain_prints_every_stage():
    x = nf.placeholder((5, 7), name="x")
    text = nf.compile([nf.sum(nf.exp(x))], [x]).explain()
    stages = [line.split()[1] for line in text.splitlines() if line.startswith("=== ")]
    expected = ["expressions", "canonicalize", "pad", "chain", "partition", "order", "schedules", "code", "plan"]
    assert stages == expected
