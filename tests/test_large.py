"""The law of `test_pipeline` on programs of the size of small models: compiled == evaluated, gradients, training."""

import itertools

import numpy as np
import pytest

import neoflow as nf
from tests.large import large_program

pytestmark = pytest.mark.tvm

OPTIMIZERS = (
    lambda: nf.optim.SGD(0.01, momentum=0.9),
    lambda: nf.optim.SGD(0.01, momentum=0.9, nesterov=True, weight_decay=0.01),
    lambda: nf.optim.Adam(0.01, eps=0.1),
    lambda: nf.optim.AdamW(0.01, eps=0.1, clip=1.0),
)


def assert_rounded(found, exact, rounded, what):
    """`found` differs from the exact value by what float32 costs NumPy (`rounded`), or by rounding of the largest."""
    scale = max(1.0, float(np.max(np.abs(exact), initial=0)))
    own = float(np.max(np.abs(rounded - exact), initial=0))
    assert np.isfinite(exact).all(), what
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=2e-5 * scale + 20 * own, err_msg=what)


def compiled_agrees(seed, threads, monkeypatch):
    """Every output, the loss and its gradient by every float input, compiled in float32, against NumPy in float64."""
    monkeypatch.setenv("NEOFLOW_THREADS", str(threads))
    program = large_program(seed)
    gradients = nf.grad(program.loss, program.float_inputs, allow_unused=True)
    roots, inputs = [*program.outputs, program.loss, *gradients], list(program.feeds)
    exact = nf.evaluate(roots, program.feeds, dtype="float64")
    rounded = nf.evaluate(roots, program.feeds)
    found = nf.compile(roots, inputs)(*program.feeds.values())
    for t, a, b, c in zip(roots, found, exact, rounded, strict=True):
        assert_rounded(a, b, c, f"seed {seed}, {threads} threads: {t}")


def training_agrees(seed, threads, monkeypatch):
    """Three steps of an optimizer, and of parameters that feed each other, against NumPy in float64 after each step."""
    monkeypatch.setenv("NEOFLOW_THREADS", str(threads))
    program = large_program(seed, training=True)
    parameters = program.parameters
    if not parameters:
        return
    gradients = nf.grad(program.loss, parameters, allow_unused=True)
    optimizer = OPTIMIZERS[seed % len(OPTIMIZERS)]()
    updates = optimizer.updates(parameters, gradients)
    average = nf.parameter(parameters[0].shape, name="average")
    updates[average] = 0.75 * average + 0.25 * parameters[0]
    for a, b in itertools.pairwise(parameters):
        if a.shape == b.shape:
            updates[a], updates[b] = updates[b], updates[a] * 0.5 + 0.5 * b
    states = [p for p in updates if p not in set(parameters)]
    for p in updates:
        nf.set_value(p, program.feeds[p] if p in program.feeds else np.zeros(p.shape))
    inputs = [t for t in program.feeds if t not in set(parameters)]
    step = nf.compile([program.loss, *program.outputs], inputs, updates)
    exact = {**program.feeds, **{p: np.zeros(p.shape, p.dtype) for p in states}}
    rounded = dict(exact)
    for count in range(3):
        found = step(*(program.feeds[t] for t in inputs))
        roots = [program.loss, *program.outputs]
        wide = nf.evaluate([*roots, *updates.values()], exact, dtype="float64")
        narrow = nf.evaluate([*roots, *updates.values()], rounded)
        values = [*found, *map(nf.get_value, updates)]
        exact.update(zip(updates, wide[len(roots) :], strict=True))
        rounded.update(zip(updates, narrow[len(roots) :], strict=True))
        for t, a, b, c in zip([*roots, *updates], values, wide, narrow, strict=True):
            assert_rounded(a, b, c, f"seed {seed}, {threads} threads, step {count}: {t.name}")


@pytest.mark.parametrize("seed", range(6))
def test_large_programs_agree(seed, monkeypatch):
    compiled_agrees(seed, 2 - seed % 2, monkeypatch)


@pytest.mark.parametrize("seed", range(4))
def test_training_agrees(seed, monkeypatch):
    training_agrees(seed, 2 - seed % 2, monkeypatch)


@pytest.mark.slow
def test_many_large_programs_agree(monkeypatch):
    for seed in range(1000, 1140):
        compiled_agrees(seed, 2 - seed % 2, monkeypatch)


@pytest.mark.slow
def test_training_of_many_programs_agrees(monkeypatch):
    for seed in range(1000, 1060):
        training_agrees(seed, 2 - seed % 2, monkeypatch)
