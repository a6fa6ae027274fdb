"""Linear recurrences in blocks: what is linear is found and equal, what is not is refused, and blocks are taken where
they pay."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.recurrence import runs_of
from neoflow.graph import make_graph
from neoflow.graph.blocks import blocked, linear
from neoflow.graph.fission import split_steps
from neoflow.verdict import Verdict


class _Drawn:
    """A random recurrence, linear in what it carries at each point."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.steps, self.count = int(rng.integers(2, 12)), int(rng.integers(1, 4))
        shape = tuple(int(n) for n in rng.integers(1, 4, int(rng.integers(0, 3))))
        rows = [nf.placeholder((self.steps, *shape), name=f"x{n}") for n in range(3)]
        fixed = [nf.placeholder(shape, name=f"w{n}") for n in range(2)]
        first = [nf.placeholder(shape, name=f"h{n}") for n in range(self.count)]
        plan = rng.integers(0, 1 << 16, (int(rng.integers(1, 8)), 4)).tolist()
        ends = rng.integers(0, 1 << 16, self.count).tolist()

        def step(old, row):
            free, pool = [*row, *fixed], list(old)
            for kind, i, j, k in plan:
                a, b, f = pool[i % len(pool)], pool[j % len(pool)], free[k % len(free)]
                pool.append(
                    [
                        lambda a, b, f: a * f,
                        lambda a, b, f: a + b * 0.5,
                        lambda a, b, f: f - a,
                        lambda a, b, f: nf.select(f > 0, a, b * nf.sin(f)),
                        lambda a, b, f: -a / (2 + f * f),
                        lambda a, b, f: nf.tanh(f) * a + f,
                        lambda a, b, f: a - b,
                    ][kind % 7](a, b, f)
                )
            return [pool[-1 - e % len(pool)] for e in ends], nf.tanh(pool[-1])

        last, ys = nf.scan(step, first, rows, reverse=bool(rng.integers(2)))
        self.inputs = [*rows, *fixed, *first]
        self.feeds = {t: rng.standard_normal(t.shape) for t in self.inputs}
        loss = sum(nf.sum(nf.sin(t)) for t in (*last, ys))
        self.outputs = [*last, ys, *nf.grad(loss, self.inputs, allow_unused=True)]
        self.blocks = int(rng.integers(2, self.steps + 1))


def law(seeds):
    count = 0
    for seed in seeds:
        d = _Drawn(seed)
        graph = split_steps(make_graph(d.outputs, d.inputs)).graph
        found = blocked(graph, lambda run, form, led, d=d: d.blocks)
        count += sum(v.ok for _, v in found.found)
        got = nf.evaluate(list(found.graph.outputs), d.feeds, dtype="float64")
        for a, b in zip(got, nf.evaluate(d.outputs, d.feeds, dtype="float64"), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8, err_msg=f"seed {seed}")
    return count


def test_random_linear_recurrences_in_blocks():
    assert law(range(10)) >= 15


NEAR = {
    "is not linear in what is carried": [
        lambda h, x: nf.tanh(h) * x,
        lambda h, x: h * h + x,
        lambda h, x: x / h,
        lambda h, x: nf.maximum(h, x),
        lambda h, x: nf.select(h > 0, h, x),
        lambda h, x: nf.abs(h) + x,
        lambda h, x: h * (h + x),
    ],
    "reads h at other places than its own": [
        lambda h, x: nf.flip(h, 0) + x,
        lambda h, x: nf.roll(h, 1, axis=0) * x,
        lambda h, x: h[0] * x,
    ],
    "sums over what is carried": [lambda h, x: nf.sum(h, axis=0) * x, lambda h, x: h - nf.mean(h) + x],
    "has another shape": [lambda h, x: nf.sum(h[None, :] * x[:, None], axis=0)],
}


@pytest.mark.parametrize("reason", NEAR)
def test_what_is_not_linear_is_refused(reason):
    h, x = nf.placeholder((3,), name="h"), nf.placeholder((5, 3), name="x")
    for step in NEAR[reason]:
        last, _ = nf.scan(lambda old, row, step=step: (step(old, row), None), h, x)
        (run,) = runs_of(make_graph([last], [h, x]).order)
        found = linear(run.recurrence)
        assert isinstance(found, Verdict) and not found.ok
        assert reason in found.reason or "other places" in found.reason or "shape" in found.reason, found.reason


def test_integers_and_recurrences_inside_are_refused():
    n = nf.placeholder((5,), "int64", name="n")
    total, _ = nf.scan(lambda old, i: (old + i, None), nf.constant(np.int64(0)), n)
    x = nf.placeholder((5, 2), name="x")
    inner, _ = nf.scan(lambda h, row: (nf.scan(lambda a, b: (a + b, None), h, row)[0], None), nf.zeros(()), x)
    for t, inputs, reason in ((total, [n], "is int64"), (inner, [x], "follows from a recurrence inside")):
        run = runs_of(make_graph([t], inputs).order)[-1]
        found = linear(run.recurrence)
        assert isinstance(found, Verdict) and reason in found.reason


@pytest.mark.tvm
def test_one_number_for_long_goes_in_blocks(monkeypatch):
    x, a = nf.placeholder((1100,), name="x"), nf.placeholder((1100,), name="a")
    last, ys = nf.scan(lambda h, row: (row[1] * h + row[0],) * 2, nf.constant(np.float32(0.5)), (x, a))
    outputs = [last, *nf.grad(nf.sum(ys * ys), [x, a])]
    f = nf.compile(outputs, [x, a])
    assert f.explain("blocks").count("blocks of") == 2 and max(loop.turns for loop in f.plan.loops) < 100
    rng = np.random.default_rng(0)
    feeds = {x: rng.standard_normal(1100).astype("f"), a: rng.uniform(0.5, 1, 1100).astype("f")}
    want = nf.evaluate(outputs, feeds, dtype="float64")
    for got, exact in zip(f(*feeds.values()), want, strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4)
    monkeypatch.setenv("NEOFLOW_WITHOUT", "blocks")
    assert {loop.turns for loop in nf.compile(outputs, [x, a]).plan.loops} == {1100}


@pytest.mark.tvm
def test_where_blocks_do_not_pay_it_is_said():
    x = nf.placeholder((2000, 16), name="x")
    total, _ = nf.scan(lambda h, row: (h * 0.5 + row, None), nf.zeros((16,)), x)
    assert "linear, but a step has 16 numbers side by side" in nf.compile([total], x).explain("blocks")
