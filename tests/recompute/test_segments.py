"""Recurrences that run again in segments: equal to those that keep everything, in less memory, at a price."""

from itertools import pairwise

import numpy as np
import pytest

import neoflow as nf
from neoflow.errors import ConfigError
from neoflow.graph import make_graph
from neoflow.recompute import in_segments, pairs
from neoflow.rewriting.segmenting import ways
from tests.random_recurrences import draw, gradients


def agree(outputs, feeds, rng):
    """All pairs of runs in any number of segments beside the program as it is, in float64; how many there were."""
    graph = make_graph(outputs, [t for t in feeds if not isinstance(t, nf.Parameter)])
    found, want = pairs(graph), nf.evaluate(outputs, feeds, dtype="float64")
    counts = {p.forward.recurrence: int(rng.integers(0, p.steps)) for p in found}
    other = in_segments(graph, counts)
    for a, b in zip(nf.evaluate(list(other.outputs), feeds, dtype="float64"), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
    return sum(n > 0 and p.rest(n) > 0 for p, n in zip(found, counts.values(), strict=True))


def law(seeds):
    count = 0
    for seed in seeds:
        d, rng = draw(seed, lengths=(2, 10)), np.random.default_rng(seed)
        count += agree([*d.scanned, *gradients(d, d.scanned)], d.feeds, rng)
    return count


def test_random_recurrences_in_segments():
    assert law(range(8)) >= 2


def ended(steps, reverse):
    """One that ends early, after as many steps as its data says."""
    x, h = nf.placeholder((steps, 3), name="x"), nf.placeholder((3,), name="h")

    def step(old, row):
        a, n = old
        return (nf.tanh(a * row + 0.5), n + 1), nf.sin(a) * row

    (last, _), ys = nf.scan(step, (h, nf.constant(np.int32(0))), x, reverse=reverse, until=lambda old: old[1] >= 5)
    return [x, h], nf.sum(last * last) + nf.sum(ys * ys)


def earlier(steps, reverse):
    """One that reads several earlier steps."""
    x, w = nf.placeholder((steps, 3), name="x"), nf.placeholder((3, 3), name="w")

    def step(old, row):
        a, b, c = old
        return (nf.tanh(a @ w + 0.5 * c + row), a, b), a * c

    (last, *_), ys = nf.scan(step, tuple(nf.full((3,), 0.1 * n) for n in range(3)), x, reverse=reverse)
    return [x, w], nf.sum(last * last) + nf.sum(nf.sin(ys))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("make", [ended, earlier])
def test_recurrences_that_end_and_that_look_back(make, reverse):
    inputs, loss = make(11, reverse)
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape) for t in inputs}
    outputs = [loss, *nf.grad(loss, inputs)]
    graph = make_graph(outputs, inputs)
    (pair,), want = pairs(graph), nf.evaluate(outputs, feeds, dtype="float64")
    for count in (n for n in range(1, 11) if pair.rest(n) > 0):
        other = in_segments(graph, {pair.forward.recurrence: count})
        for a, b in zip(nf.evaluate(list(other.outputs), feeds, dtype="float64"), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def layers(steps, count=1, width=16, batch=8):
    """The loss of LSTM-like layers with updates; only what the last step gives is read."""
    x = nf.placeholder((steps, batch, width), name="x")
    rng, weights, rows = np.random.default_rng(0), [], x
    for n in range(count):
        w, u = (
            nf.parameter((width, width), name=f"{name}{n}", init=(rng.standard_normal((width, width)) / 4).astype("f"))
            for name in "wu"
        )

        def step(h, row, w=w, u=u):
            z = nf.tanh(h @ u + row @ w)
            return 0.5 * h + 0.5 * z * nf.sigmoid(z), z

        last, rows = nf.scan(step, nf.zeros((batch, width)), rows)
        weights += [w, u]
    loss = nf.mean(last * last)
    return x, loss, {w: w - 0.1 * g for w, g in zip(weights, nf.grad(loss, weights), strict=True)}


def losses(step, x):
    rng = np.random.default_rng(1)
    return [step(rng.standard_normal(x.shape).astype("f"))[0].item() for _ in range(3)]


@pytest.mark.tvm
def test_memory_falls_as_planned_and_losses_stay():
    x, loss, updates = layers(101)
    whole = nf.compile([loss], x, updates)
    want = losses(whole, x)
    (pair,) = pairs(whole.compiled.written)
    sizes = [whole.plan.nbytes]
    for share in (0.7, 0.5):
        x, loss, updates = layers(101)
        f = nf.compile([loss], x, updates, memory=int(share * whole.plan.nbytes))
        sizes.append(f.plan.nbytes)
        assert f.plan.nbytes <= share * whole.plan.nbytes
        np.testing.assert_allclose(losses(f, x), want, rtol=1e-4)
        assert "segments of" in f.explain("segments") and "by the estimate from" in f.explain("segments")
    assert sizes == sorted(sizes, reverse=True)
    counts = [n for (n,) in ways([pair])]
    assert counts[:3] == [0, 1, 2] and pair.kept_bytes(counts[-1]) < pair.kept_bytes(1) / 3
    assert all(pair.kept_bytes(b) < pair.kept_bytes(a) for a, b in pairwise(counts[1:]))


@pytest.mark.tvm
def test_two_layers_in_the_least_memory_there_is():
    x, loss, updates = layers(9, 2)
    want = losses(nf.compile([loss], x, updates), x)
    x, loss, updates = layers(9, 2)
    with pytest.raises(ConfigError, match="its recurrences in segments; with everything kept it takes") as caught:
        nf.compile([loss], x, updates, memory="4KiB")
    least = int(str(caught.value).split(" bytes (")[0].split()[-1])
    f = nf.compile([loss], x, updates, memory=least)
    assert f.plan.nbytes == least
    np.testing.assert_allclose(losses(f, x), want, rtol=1e-4)
    enough = nf.compile([loss], x, updates, memory="1GiB")
    assert enough.explain("segments") == "nothing need be computed again"


@pytest.mark.tvm
def test_without_segments(monkeypatch):
    monkeypatch.setenv("NEOFLOW_WITHOUT", "segments")
    x, loss, updates = layers(40)
    with pytest.raises(ConfigError, match="only what a gradient reads is computed again"):
        nf.compile([loss], x, updates, memory="4KiB")


@pytest.mark.tvm
def test_what_lies_within_an_input_is_not_stored_for_a_loop():
    x = nf.placeholder((12, 4), name="x")
    last, _ = nf.scan(
        lambda h, row: (nf.tanh(h + nf.sum(row, axis=0)), None), nf.zeros((4,)), nf.reshape(x[2:10], (4, 2, 4))
    )
    f = nf.compile([last], x)
    assert not any(b.kind == "temporary" and b.nbytes >= 4 * 2 * 4 * 4 for b in f.plan.buffers)
    value = np.random.default_rng(0).standard_normal(x.shape).astype("f")
    np.testing.assert_allclose(f(value)[0], nf.evaluate([last], {x: value})[0], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.tvm
def test_random_recurrences_run_in_segments(seeds=range(2000, 2060)):
    for seed in seeds:
        d, rng = draw(seed, lengths=(4, 10)), np.random.default_rng(seed)
        inputs = [t for t in d.feeds if not isinstance(t, nf.Parameter)]
        graph = make_graph([*d.scanned, *gradients(d, d.scanned)], inputs)
        other = in_segments(graph, {p.forward.recurrence: int(rng.integers(1, p.steps)) for p in pairs(graph)})
        for t in (t for t in d.feeds if isinstance(t, nf.Parameter)):
            nf.set_value(t, d.feeds[t])
        got = nf.compile(list(other.outputs), inputs)(*(d.feeds[t] for t in inputs))
        for a, b in zip(got, nf.evaluate(list(graph.outputs), d.feeds, dtype="float64"), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5, err_msg=f"seed {seed}")
