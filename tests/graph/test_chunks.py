"""Linear recurrences of matrices in chunks: unrolled, scanned and in chunks they are equal, forward and backward; what
is none is refused; chunks are taken where they pay, and no state of a step is stored then."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.recurrence import Stacked, runs_of
from neoflow.expr.scan import unrolled
from neoflow.graph import make_graph
from neoflow.graph.chunked import chunked
from neoflow.graph.fission import split_steps
from neoflow.verdict import Verdict


class _Drawn:
    """A random recurrence whose steps add products to a state of one to three axes, and what is asked of its states."""

    def __init__(self, seed):
        rng = self.rng = np.random.default_rng(seed)
        self.steps = int(rng.integers(2, 14))
        self.shape = tuple(int(n) for n in rng.integers(1, 4, int(rng.integers(1, 4))))
        self.feeds = {}
        self.moving = []
        decay = self._factors(int(rng.integers(0, 3)), 0.9)
        scale = float(rng.choice([1.0, 0.5, -0.75]))
        added = [self._factors(int(rng.integers(1, 4))) for _ in range(int(rng.integers(1, 3)))]
        asked = [self._factors(int(rng.integers(1, 3))) for _ in range(int(rng.integers(1, 3)))]
        over = [tuple(np.flatnonzero(rng.integers(0, 2, len(self.shape))).tolist()) for _ in asked]
        of, minus = rng.integers(0, 3, len(asked)).tolist(), bool(rng.integers(2))
        first = self._given(self.shape) if rng.integers(2) else nf.zeros(self.shape)

        def step(h, row):
            value = dict(zip(self.moving, row, strict=True))
            then = h * scale if scale != 1.0 else h
            then = self._product(decay, value, then)
            for n, factors in enumerate(added):
                b = self._product(factors, value, None)
                then = then - b if minus and n else then + b
            ys = []
            for factors, axes, which in zip(asked, over, of, strict=True):
                state = (h, then, h + then * 0.5)[which]
                ys.append(nf.sum(self._product(factors, value, state), axis=axes or (0,)))
            return then, ys

        reverse = bool(rng.integers(2))
        scanned = nf.scan(step, first, self.moving, self.steps, reverse)
        written = unrolled(step, first, self.moving, self.steps, reverse)
        is_last, is_grad = bool(rng.integers(2)), bool(rng.integers(2))
        self.inputs = list(self.feeds)
        self.scanned, self.unrolled = (self._outputs(last, ys, is_last, is_grad) for last, ys in (scanned, written))
        self.length = int(rng.integers(1, self.steps + 2))

    def _outputs(self, last, ys, is_last, is_grad):
        found = [*ys, last] if is_last else list(ys)
        loss = sum(nf.sum(nf.sin(t)) for t in found)
        return [*found, *nf.grad(loss, self.inputs, allow_unused=True)] if is_grad else found

    def _given(self, shape, low=None):
        t = nf.placeholder(shape, name=f"v{len(self.feeds)}")
        self.feeds[t] = self.rng.standard_normal(shape) if low is None else self.rng.uniform(-low, 1, shape)
        return t

    def _factors(self, count, low=None):
        """Of each the tensor, whether it moves, its axes among those of the state, and what is done to it."""
        found = []
        for _ in range(count):
            axes = np.flatnonzero(self.rng.integers(0, 3, len(self.shape)) > 0)
            shape = tuple(self.shape[a] for a in axes)
            is_moving = bool(self.rng.integers(4))
            t = self._given((self.steps, *shape) if is_moving else shape, low)
            if is_moving:
                self.moving.append(t)
            found.append((t, is_moving, axes, int(self.rng.integers(4))))
        return found

    def _product(self, factors, value, total):
        for t, is_moving, axes, kind in factors:
            x = value[t] if is_moving else t
            x = (x, nf.tanh(x), x / 2, -x)[kind]
            x = nf.reshape(x, tuple(n if a in axes else 1 for a, n in enumerate(self.shape)))
            total = x if total is None else total * x
        return total


def law(seeds):
    count = 0
    for seed in seeds:
        d = _Drawn(seed)
        graph = split_steps(make_graph(d.scanned, d.inputs)).graph
        found = chunked(graph, lambda group, d=d: d.length)
        count += sum(v.ok for _, v in found.found)
        want = nf.evaluate(d.unrolled, d.feeds, dtype="float64")
        for t in (d.scanned, list(found.graph.outputs)):
            for a, b in zip(nf.evaluate(t, d.feeds, dtype="float64"), want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8, err_msg=f"seed {seed}")
    return count


def test_random_recurrences_of_matrices_unrolled_scanned_and_in_chunks():
    assert law(range(8)) >= 4


def _rows(h, row):
    q, k, v = row
    then = h + k[:, None] * v[None, :]
    return then, nf.sum(q[:, None] * then, axis=0)


NEAR = {
    "is not linear in h at its own point": [
        lambda h, k, v: nf.tanh(h) + k[:, None] * v[None, :],
        lambda h, k, v: h * h + k[:, None] * v[None, :],
        lambda h, k, v: nf.transpose(h) + k[:, None] * v[None, :],
        lambda h, k, v: nf.maximum(h, k[:, None] * v[None, :]),
    ],
    "sum is no product of what a step is given": [
        lambda h, k, v: h - k[:, None] * nf.sum(k[:, None] * h, axis=0)[None, :],
    ],
    "nothing is added in a step": [lambda h, k, v: h * v[None, :]],
    "it carries nothing on": [lambda h, k, v: k[:, None] * v[None, :]],
}


@pytest.mark.parametrize("reason", NEAR)
def test_steps_that_are_none_are_refused(reason):
    for step in NEAR[reason]:
        verdict = _verdict(lambda h, row, step=step: (then := step(h, row[1], row[2]), nf.sum(then, axis=0)))
        assert not verdict.ok and reason in verdict.reason, verdict.reason


ASKED = {
    "is asked for of every step": lambda h, q: h * q[:, None],
    "no sum of products": lambda h, q: nf.sum(nf.tanh(h), axis=0),
    "sum of products": lambda h, q: nf.max(h, axis=0),
}


@pytest.mark.parametrize("reason", ASKED)
def test_what_is_no_sum_of_products_is_refused(reason):
    verdict = _verdict(lambda h, row: (_rows(h, row)[0], ASKED[reason](h, row[0])))
    assert not verdict.ok and reason in verdict.reason, verdict.reason


def _verdict(step):
    h = nf.placeholder((3, 3), name="h")
    rows = [nf.placeholder((6, 3), name=n) for n in "qkv"]
    last, ys = nf.scan(step, h, rows)
    graph = split_steps(make_graph([last, ys], [h, *rows])).graph
    found = chunked(graph, lambda group: 2)
    assert found.graph is graph
    ((_, verdict),) = found.found
    return verdict


def test_several_carried_tensors_and_integers_are_refused():
    n, m = nf.placeholder((5, 3), "int64", name="n"), nf.placeholder((3,), "int64", name="m")
    x, h = nf.placeholder((5, 3), name="x"), nf.placeholder((3,), name="h")
    one, _ = nf.scan(lambda old, i: (old + i, None), m, n)
    (a, b), _ = nf.scan(lambda old, r: ((old[0] + r, old[1] + old[0]), None), (h, h), x)
    for outputs, inputs, reason in (([one], [n, m], "m is int64"), ([a, b], [x, h], "2 tensors are carried")):
        ((_, verdict),) = chunked(make_graph(outputs, inputs), lambda group: 2).found
        assert verdict == Verdict(False, reason)


def _attention(steps, heads, width, decay):
    """Linear attention with a decay of each head, and its gradients."""
    q, k, v, w = (nf.placeholder((steps, heads, width), name=n) for n in "qkvw")
    a = nf.placeholder((steps, heads), name="a")
    inputs = [q, k, v, a] if decay else [q, k, v]

    def step(state, row):
        old = state * row[3][:, None, None] if decay else state
        new = old + row[1][:, :, None] * row[2][:, None, :]
        return new, nf.sum(row[0][:, :, None] * new, axis=1)

    _, ys = nf.scan(step, nf.zeros((heads, width, width)), inputs)
    return [ys, *nf.grad(nf.sum(ys * w), inputs)], [*inputs, w]


@pytest.mark.tvm
def test_linear_attention_stores_no_state_of_a_step(monkeypatch):
    outputs, inputs = _attention(512, 1, 64, True)
    f = nf.compile(outputs, inputs)
    text = f.explain("chunks")
    assert text.startswith("loop over 512 steps of") and "chunks of" in text and "by contractions" in text
    assert max((loop.turns for loop in f.plan.loops), default=0) <= 64
    rng = np.random.default_rng(0)
    feeds = {t: rng.uniform(-0.5, 1, t.shape).astype("f") for t in inputs}
    want = nf.evaluate(outputs, feeds, dtype="float64")
    for got, exact in zip(f(*feeds.values()), want, strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)
    monkeypatch.setenv("NEOFLOW_WITHOUT", "chunks")
    other = nf.compile(outputs, inputs)
    assert max(loop.turns for loop in other.plan.loops) == 512 and other.plan.nbytes > 2 * f.plan.nbytes


@pytest.mark.tvm
def test_where_chunks_do_not_pay_it_is_said():
    outputs, inputs = _attention(32, 1, 4, True)
    assert "steps it takes about" in nf.compile(outputs, inputs).explain("chunks")
    h, x = nf.placeholder((4, 4), name="h"), nf.placeholder((64, 4, 4), name="x")
    _, ys = nf.scan(lambda s, row: (s * 0.5 + row, nf.sum(s, axis=0)), h, x)
    text = "what a step adds is no product of tensors that are smaller than its state"
    assert text in nf.compile([ys], [h, x]).explain("chunks")


def test_a_state_is_a_product_of_what_is_left():
    """Decays of zero, and negative ones: nothing is divided, no logarithm is taken."""
    outputs, inputs = _attention(12, 2, 3, True)
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape) for t in inputs}
    feeds[inputs[3]][::3] = 0.0
    graph = split_steps(make_graph(outputs, inputs)).graph
    found = chunked(graph, lambda group: 4)
    assert [v.ok for _, v in found.found] == [True]
    assert not any(isinstance(t, Stacked) and len(t.shape) == 4 and t.shape[0] == 12 for t in found.graph.order)
    assert {r.recurrence.steps for r in runs_of(found.graph.order)} == {3, 4}
    want = nf.evaluate(outputs, feeds, dtype="float64")
    for a, b in zip(nf.evaluate(list(found.graph.outputs), feeds, dtype="float64"), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_states_that_do_not_follow_from_each_other_are_looked_at_alone():
    """Linear attention over what its keys add up to."""
    q, k, v = rows = [nf.placeholder((10, 3), name=n) for n in "qkv"]

    def step(old, row):
        q, k, v = row
        s, z = old[0] + k[:, None] * v[None, :], old[1] + k
        return (s, z), nf.sum(q[:, None] * s, axis=0) / (1 + nf.sum(q * z) ** 2)

    (_, z), ys = nf.scan(step, (nf.zeros((3, 3)), nf.zeros((3,))), (q, k, v))
    outputs = [ys, z, *nf.grad(nf.sum(nf.sin(ys)), rows)]
    found = chunked(split_steps(make_graph(outputs, rows)).graph, lambda group: 4)
    assert [str(v).startswith("yes") for _, v in found.found].count(True) == 1
    assert sorted(r.recurrence.steps for r in runs_of(found.graph.order)) == [3, 3, 10, 10]
    rng = np.random.default_rng(0)
    feeds = {t: rng.standard_normal(t.shape) for t in rows}
    want = nf.evaluate(outputs, feeds, dtype="float64")
    for a, b in zip(nf.evaluate(list(found.graph.outputs), feeds, dtype="float64"), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_roundings_stay_inside_of_their_bound():
    """docs/numbers.md: |computed - exact| <= (2 T + c) u sum |terms|, c = 64; in float32, decays of a head."""
    steps, width, u = 96, 4, 2.0**-24
    q, k, v, a = rows = [nf.placeholder((steps, width), name=n) for n in "qkv"] + [nf.placeholder((steps,), name="a")]
    _, ys = nf.scan(lambda s, r: _rows(s * r[3], r[:3]), nf.zeros((width, width)), rows)
    found = chunked(split_steps(make_graph([ys], rows)).graph, lambda group: 16)
    assert [v.ok for _, v in found.found] == [True]
    for seed in range(5):
        rng = np.random.default_rng(seed)
        feeds = {t: rng.standard_normal(t.shape).astype("f") for t in (q, k, v)}
        feeds[a] = rng.uniform(-1.05, 1.05, steps).astype("f")
        (exact,) = nf.evaluate([ys], feeds, dtype="float64")
        (terms,) = nf.evaluate([ys], {t: np.abs(x) for t, x in feeds.items()}, dtype="float64")
        (got,) = nf.evaluate(list(found.graph.outputs), feeds)
        assert got.dtype == np.float32
        assert (np.abs(got - exact) <= (2 * steps + 64) * u * terms).all()
