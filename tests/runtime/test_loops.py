"""Recurrences on a GPU, which is the emulator."""

import numpy as np
import pytest

import neoflow as nf
from tests.emulator.driver import emulated


@pytest.fixture
def gpu(monkeypatch):
    return emulated(monkeypatch)


def recurrence(steps, reverse):
    x, first = nf.placeholder((steps, 2, 3), name="x"), nf.placeholder((2, 3), name="first")
    w = nf.placeholder((3, 3), name="w")

    def step(old, row):
        h, before = old
        new = nf.tanh(h @ w + row) * nf.sigmoid(before)
        return (new, h), nf.sum(new, axis=1)

    (last, _), ys = nf.scan(step, (first, first), x, reverse=reverse)
    loss = nf.sum(last * last) + nf.sum(ys * ys)
    return [ys, last, *nf.grad(loss, [x, first, w])], [x, first, w]


@pytest.mark.parametrize(("steps", "reverse"), [(4, False), (3, True)])
def test_steps_and_their_gradients(gpu, steps, reverse):
    outputs, inputs = recurrence(steps, reverse)
    feeds = {t: np.random.default_rng(n).standard_normal(t.shape).astype(np.float32) for n, t in enumerate(inputs)}
    got = nf.compile(outputs, inputs, target="cuda")(*feeds.values())
    for a, b in zip(got, nf.evaluate(outputs, feeds, "float64"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_steps_in_steps(gpu):
    x = nf.placeholder((3, 2), name="x")

    def step(old, row):
        inner, _ = nf.scan(lambda h, _: (nf.sin(h) + row, None), old, length=2)
        return inner, inner

    last, ys = nf.scan(step, nf.zeros((2,)), x)
    outputs = [last, ys, *nf.grad(nf.sum(last * last), [x])]
    feeds = {x: np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)}
    for a, b in zip(nf.compile(outputs, [x], target="cuda")(feeds[x]), nf.evaluate(outputs, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
