"""Recurrences as loops over kernel calls: right, few, and in memory that does not grow with what is not kept."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.errors import ConfigError
from neoflow.expr.recurrence import Recurrence, Run
from neoflow.runtime.plan import Call, Moving, Plan, Repeated
from neoflow.runtime.turns import turns
from tests.random_recurrences import draw, gradients

pytestmark = pytest.mark.tvm


def run(outputs, feeds):
    inputs = [t for t in feeds if not isinstance(t, nf.Parameter)]
    f = nf.compile(outputs, inputs=inputs)
    for t, value in feeds.items():
        if isinstance(t, nf.Parameter):
            nf.set_value(t, value)
    return f(*(feeds[t] for t in inputs))


def law(seeds):
    for seed in seeds:
        d = draw(seed)
        outputs = [*d.scanned, *gradients(d, d.scanned)]
        for got, want in zip(run(outputs, d.feeds), nf.evaluate(outputs, d.feeds, dtype="float64"), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5, err_msg=f"seed {seed}")


def test_random_recurrences_run():
    law(range(3))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_many_random_recurrences_run(part):
    law(range(100 * part + 1000, 100 * part + 1100))


def network(steps, batch=4, width=8):
    x = nf.placeholder((steps, batch, width), name="x")
    w, u = nf.parameter((width, width), name="w"), nf.parameter((width, width), name="u")

    def step(h, row):
        h = nf.tanh(h @ u + row @ w)
        return h, h

    last, ys = nf.scan(step, nf.zeros((batch, width)), x)
    return x, w, u, last, ys


def compiled(steps, batch=4):
    x, w, u, _, ys = network(steps, batch)
    loss = nf.mean(ys * ys)
    updates = {p: p - 0.1 * g for p, g in zip((w, u), nf.grad(loss, [w, u]), strict=True)}
    return nf.compile([loss], inputs=[x], updates=updates)


def test_updates_come_after_all_turns_that_read_the_parameters():
    """Losses of training steps are those of the loop written out."""

    def losses(loop):
        x, h0 = nf.placeholder((5, 3, 6), name="x"), nf.zeros((3, 6))
        w = nf.parameter((6, 6), name="w", init=np.linspace(-1, 1, 36, dtype=np.float32).reshape(6, 6))
        last, _ = loop(lambda h, row: (nf.tanh(h @ w + row), None), h0, x)
        loss = nf.mean(last * last)
        f = nf.compile([loss], inputs=[x], updates={w: w - 0.5 * nf.grad(loss, [w])[0]})
        rng = np.random.default_rng(0)
        return [float(f(rng.standard_normal(x.shape).astype(np.float32))[0]) for _ in range(5)]

    np.testing.assert_allclose(losses(nf.scan), losses(nf.nn.functional.unrolled), rtol=1e-5)


def test_the_plan_does_not_grow_with_the_steps():
    few, many = compiled(3), compiled(50)
    assert len(few.plan.calls) == len(many.plan.calls)
    assert [loop.turns for loop in many.plan.loops] == [50, 50]
    assert "run 50 times" in str(many.plan)


def test_products_with_the_inputs_are_done_at_once():
    plan = compiled(20).plan
    inside = {n for loop in plan.loops for n in range(loop.first, loop.first + loop.count)}
    reading_x = [n for n, call in enumerate(plan.calls) if plan.inputs[0] in call.arguments]
    assert reading_x and not inside & set(reading_x)


def test_what_is_not_kept_takes_two_places():
    x, _, _, last, _ = network(500)
    plan = nf.compile([last], inputs=[x]).plan
    ring = next(b for b in plan.buffers if b.name.endswith("carried"))
    assert ring.shape == (2, 4, 8)


def test_a_loop_in_a_loop_runs_in_turns():
    inner = Repeated(1, 1, 2, (Moving(0, 4, 2, 1),))
    outer = Repeated(0, 2, 3, (Moving(0, 10, 5, 0), Moving(1, 1, 2, 0)))
    calls = tuple(Call(0, (), (), name) for name in "abc")
    plan = Plan((), calls, (), (), (), (), (), (), 0, 0, loops=(inner, outer))
    found = turns(plan)
    assert found.calls.tolist() == [0, 1, 1, 0, 1, 1, 0, 1, 1, 2]
    assert found.offsets[0].tolist() == [0, 4, 0, 10, 14, 10, 20, 24, 20, 0]
    assert found.offsets[1].tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0, 0]


def test_a_plan_with_loops_reads_back():
    plan = compiled(3).plan
    assert Plan.from_text(plan.to_text()) == plan


def test_a_loop_among_the_outputs_and_updates():
    state = nf.parameter((3,), name="state", init=np.arange(3, dtype=np.float32))
    last, rows = nf.scan(lambda old, _: (old * 2, old), state, length=3)
    f = nf.compile([last, rows, last], inputs=[], updates={state: last})
    a, b, c = f()
    assert a.tolist() == c.tolist() == [0, 8, 16] and b[:, 2].tolist() == [2, 4, 8]
    assert f()[0].tolist() == [0, 64, 128]


def others(kind, old, new):
    """What is carried on of four tensors, of which the first is computed anew."""
    a, b, c, d = old
    return {
        "one after the other": (new, a, b, c),
        "two of one": (new, a, a, b),
        "two of one, and one after the second": (new, a, a, c),
        "in a circle": (new, c, d, b),
        "still": (new, b, a, d),
    }[kind]


@pytest.mark.parametrize("kind", ["one after the other", "two of one, and one after the second"])
def test_what_is_carried_from_one_place_to_the_next(kind, counts=(3,), reverses=(True,)):
    for count in counts:
        for reverse in reverses:
            passed_on(kind, count, reverse)


def passed_on(kind, count, reverse):
    x = nf.placeholder((count, 3), name="x")
    first = [nf.placeholder((3,), name=name) for name in "abcd"]

    def step(old, row):
        new = nf.tanh(old[0] + 0.5 * old[1] * old[3] - 0.25 * old[2] + row)
        return others(kind, old, new), (old[3], new)

    last, rows = nf.scan(step, tuple(first), x, reverse=reverse)
    loss = sum(nf.sum((n + 2) * t * t) for n, t in enumerate((*last, *rows)))
    rng = np.random.default_rng(count)
    feeds = {t: rng.standard_normal(t.shape).astype(np.float32) for t in (x, *first)}
    for outputs in ([*last], [*last, *rows], [loss, *nf.grad(loss, [x, *first])]):
        for got, want in zip(run(outputs, feeds), nf.evaluate(outputs, feeds, "float64"), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5, err_msg=f"{kind} {count} {reverse}")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["two of one", "one after the other", "in a circle", "still"])
def test_all_ways_to_carry_on(kind):
    for count in (1, 2, 3, 4, 5, 8):
        for reverse in (False, True):
            passed_on(kind, count, reverse)


def test_what_was_a_step_ago_is_not_copied():
    x = nf.placeholder((9,), "int64", name="x")
    f = nf.expr("f[t] = f[t-1] + f[t-2] + x[t] given f[-1] = 1, f[-2] = 0", x=x)
    plan = nf.compile([f], inputs=[x]).plan
    assert [loop.count for loop in plan.loops] == [1]


def test_a_row_that_a_step_gives_as_it_was_is_not_copied():
    x, c = nf.placeholder((9, 4), name="x"), nf.placeholder((9, 4), name="c")
    last, _ = nf.scan(lambda old, row: (nf.tanh(old) + row, None), nf.zeros((4,)), x)
    f = nf.compile(nf.vjp(last, [x], c[0]), inputs=[x, c])
    feeds = {t: np.random.default_rng(n).standard_normal(t.shape).astype(np.float32) for n, t in enumerate((x, c))}
    assert [loop.count for loop in f.plan.loops] == [1, 1]
    (got,), (want,) = f(*feeds.values()), nf.evaluate(nf.vjp(last, [x], c[0]), feeds, "float64")
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_rows_of_an_input_are_an_output_as_they_were():
    x, a = nf.placeholder((3, 4), name="x"), nf.placeholder((4,), name="a")
    last, ys = nf.scan(lambda old, row: (old * 0.5 + row, (row * 1.0, old + 0.0, row)), a, x)
    feeds = {t: np.random.default_rng(n).standard_normal(t.shape).astype(np.float32) for n, t in enumerate((x, a))}
    outputs = [last, *ys]
    for got, want in zip(run(outputs, feeds), nf.evaluate(outputs, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_packaged_recurrence(tmp_path):
    x, w, u, last, ys = network(6)
    f = nf.compile([last, ys], inputs=[x])
    rng = np.random.default_rng(0)
    for p in (w, u):
        nf.set_value(p, rng.standard_normal(p.shape).astype(np.float32))
    f.save(tmp_path / "r.nflib")
    given = rng.standard_normal(x.shape).astype(np.float32)
    for a, b in zip(nf.load(tmp_path / "r.nflib")(given), f(given), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_limit_to_memory_is_told():
    x, _, _, _, ys = network(100)
    with pytest.raises(ConfigError, match="keep of their steps only what a gradient reads"):
        nf.compile([ys], inputs=[x], memory="1KiB")


def test_a_fault_in_a_step_names_the_kernel():
    ids, table = nf.placeholder((4,), "int64", name="ids"), nf.placeholder((3, 2), name="table")
    last, _ = nf.scan(lambda old, i: (old + nf.take(table, i, axis=0), None), nf.zeros((2,)), ids)
    f = nf.compile([last], inputs=[ids, table])
    ones = np.ones((3, 2), np.float32)
    assert f(np.array([0, 1, 2, 0]), ones)[0].tolist() == [4, 4]
    with pytest.raises(nf.RuntimeFault, match="index out of range"):
        f(np.array([0, 1, 3, 0]), ones)


def test_two_runs_of_one_recurrence_have_their_own_constants():
    """What a step computes of nothing is written by both, each in its place."""
    x = nf.placeholder((6, 3), name="x")
    a, b, row = (nf.placeholder((3,), name=name) for name in ("a", "b", "row"))
    r = Recurrence((a, b), (row,), (), (a + row * b, nf.full((3,), 0.5)), 3)
    first = Run(r, (nf.full((3,), 1.0), nf.full((3,), 2.0), x[:3]))
    again = Run(r, (first.last(0), first.last(1), x[3:]))
    outputs = [again.last(0), again.last(1)]
    value = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    for got, want in zip(run(outputs, {x: value}), nf.evaluate(outputs, {x: value}), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)
