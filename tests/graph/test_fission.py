"""What leaves the steps of recurrences: gradients of what is fixed are contractions over all steps."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr import recurrence
from neoflow.expr.recurrence import Looped, runs_of
from neoflow.graph import make_graph
from neoflow.graph.fission import split_steps
from tests.graph.programs import recurrences

STEPS = 7


def used_twice(h, w, x):
    return nf.tanh(nf.tanh(h @ w + x) @ w)


def of_vectors(h, w, x):
    return nf.tanh(nf.einsum("i,ij->j", h, w) + x)


def scaled(h, w, x):
    return nf.tanh(h * w[0] + x) + nf.einsum("i,ij->j", x, w)


def gradients(step, batch):
    x = nf.placeholder((STEPS, *batch, 4), name="x")
    w, first = nf.placeholder((4, 4), name="w"), nf.placeholder((*batch, 4), name="first")
    last, _ = nf.scan(lambda h, row: (step(h, w, row), None), first, x)
    return [x, w, first], nf.grad(nf.sum(last * last), [x, w, first])


@pytest.mark.parametrize(("step", "batch"), [(used_twice, (3,)), (of_vectors, ()), (scaled, ())])
def test_no_gradient_of_a_weight_is_kept_of_every_step(step, batch):
    inputs, outputs = gradients(step, batch)
    split = split_steps(make_graph(outputs, inputs)).graph
    shapes = {t.shape for t in split.order if t not in inputs}
    assert (STEPS, 4, 4) not in shapes and (4, 4) in shapes
    feeds = {t: np.random.default_rng(n).standard_normal(t.shape) for n, t in enumerate(inputs)}
    for a, b in zip(*(nf.evaluate(list(g), feeds, "float64") for g in (split.outputs, outputs)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.tvm
def test_they_are_so_when_compiled():
    inputs, outputs = gradients(used_twice, (3,))
    feeds = {t: np.random.default_rng(n).standard_normal(t.shape).astype(np.float32) for n, t in enumerate(inputs)}
    got = nf.compile(outputs, inputs)(*feeds.values())
    for a, b in zip(got, nf.evaluate(outputs, feeds, "float64"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_what_grows_out_of_a_step_is_made_of_all_steps():
    x, h = nf.placeholder((STEPS, 4), name="x"), nf.placeholder((4,), name="h")
    _, ys = nf.scan(lambda old, row: (nf.tanh(old + row), old[:, None] * row[None, :]), h, x)
    found = split_steps(make_graph([ys], [x, h]))
    assert not any(isinstance(t, Looped) and t.shape == (STEPS, 4, 4) for t in found.graph.order)
    assert found.moved == (f"after: mul[4, 4] of {STEPS} steps",)


def test_of_a_sum_that_leads_to_one_thing_that_is_kept():
    """d tanh(z) is 1 - tanh(z)^2, so that z is not needed again."""
    inputs, outputs = gradients(lambda h, w, x: nf.tanh(h @ w + 0.5) * nf.sigmoid(x), (3,))
    forward, backward = runs_of(make_graph(outputs, inputs).order)
    kept = {t.of.name for t in backward.inputs if isinstance(t, Looped) and t.run is forward}
    assert "tanh" in kept and not {"einsum", "matmul"} & kept, kept


def grown_over(total, size=16, batch=2):
    """A loop of whose steps something larger than what they read is asked, and what `total` makes of it."""
    x, h = nf.placeholder((STEPS, batch, size), name="x"), nf.placeholder((batch, size), name="h")
    w = nf.placeholder((size, size), name="w")

    def step(old, row):
        new = nf.tanh(old @ w + row)
        return new, nf.einsum("bi,bj->ij", new, row)

    return [x, h, w], total(nf.scan(step, h, x)[1])


TOTALS = {
    "summed": lambda y: nf.sum(y, axis=0),
    "summed twice": lambda y: nf.sum(y, axis=0) + 2.0 * nf.sum(y, axis=0),
    "and read": lambda y: nf.sum(y, axis=0) + y[2],
    "of its squares": lambda y: nf.sum(y * y, axis=0),
    "over a dimension": lambda y: nf.sum(y, axis=1),
    "the largest": lambda y: nf.max(y, axis=0),
}


@pytest.mark.parametrize("name", TOTALS)
def test_what_is_only_summed_over_steps_is_not_there_however_large(name, monkeypatch):
    """A gradient of a large weight is one contraction; what is read otherwise stays in the steps."""
    monkeypatch.setattr(recurrence, "LARGE", 0)
    monkeypatch.setattr(recurrence, "MANY", 1)
    inputs, root = grown_over(TOTALS[name])
    (run,) = runs_of(make_graph([root], inputs).order)
    assert any(run.recurrence.is_huge(t.of) for t in make_graph([root], inputs).order if isinstance(t, Looped))
    split = split_steps(make_graph([root], inputs))
    is_there = any(t.shape == (STEPS, 16, 16) for t in split.graph.order)
    assert is_there == (name not in ("summed", "summed twice")), split.moved
    assert bool(split.moved) != is_there
    feeds = {t: np.random.default_rng(n).standard_normal(t.shape) for n, t in enumerate(inputs)}
    for a, b in zip(*(nf.evaluate(r, feeds, "float64") for r in (list(split.graph.outputs), [root])), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("step", "batch"), [(used_twice, (3,)), (of_vectors, ()), (scaled, ())])
@pytest.mark.parametrize("many", [0, 1])
def test_gradients_are_the_same_whatever_is_called_huge(step, batch, many, monkeypatch):
    monkeypatch.setattr(recurrence, "LARGE", 0)
    monkeypatch.setattr(recurrence, "MANY", many)
    inputs, outputs = gradients(step, batch)
    split = split_steps(make_graph(outputs, inputs)).graph
    feeds = {t: np.random.default_rng(n).standard_normal(t.shape) for n, t in enumerate(inputs)}
    for a, b in zip(*(nf.evaluate(list(g), feeds, "float64") for g in (split.outputs, outputs)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_what_would_be_huge_of_all_steps_stays_in_them(monkeypatch):
    """Whatever is called huge: the values and gradients of random recurrences are the same."""
    given = {}
    for large in (1 << 25, 0):
        monkeypatch.setattr(recurrence, "LARGE", large)
        monkeypatch.setattr(recurrence, "MANY", 1 if large else 0)
        for seed in range(3):
            case = recurrences(seed)
            graph = split_steps(make_graph(case.roots, list(case.feeds))).graph
            for a, b in zip(case.values(graph.outputs), given.setdefault(seed, case.values(case.roots)), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=f"seed {seed}, from {large} bytes")
