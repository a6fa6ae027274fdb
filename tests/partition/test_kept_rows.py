"""What a step changes one row of is written in place: right, in so many bytes, and where it is proved."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.recurrence import runs_of
from neoflow.graph import make_graph
from neoflow.graph.kept_rows import KeptRow, kept_row

pytestmark = pytest.mark.tvm
STEPS, BATCH, WIDTH = 7, 2, 4


def put(old, n, new, first=0):
    return nf.expr("kept[t,b,i] = select(t == n + first, new[b,i], old[t,b,i])", n=n, new=new, old=old, first=first)


def attended(x, n, keys, values, steps):
    scores = nf.einsum("bi,tbi->bt", x, keys)
    scores = nf.nn.functional.softmax(nf.select(nf.arange(steps) <= n, scores, -1e8))
    return nf.einsum("bt,tbi->bi", scores, values)


def decoder(layers=1, reverse=False, first=0, places=STEPS):
    """Attention over what earlier steps kept, one layer after the other; its inputs and outputs."""
    x0 = nf.placeholder((BATCH, WIDTH), name="x0")
    weights = [nf.placeholder((WIDTH, WIDTH), name=f"w{n}") for n in range(3 * layers)]
    caches = [nf.placeholder((places, BATCH, WIDTH), name=f"c{n}") for n in range(2 * layers)]

    def step(old, n):
        x, *kept = old
        for k in range(layers):
            wq, wk, wv = weights[3 * k : 3 * k + 3]
            kept[2 * k], kept[2 * k + 1] = put(kept[2 * k], n, x @ wk, first), put(kept[2 * k + 1], n, x @ wv, first)
            x = x + attended(x @ wq, n, kept[2 * k], kept[2 * k + 1], places)
        return (nf.tanh(x), *kept), x

    last, ys = nf.scan(step, (x0, *caches), nf.arange(STEPS), reverse=reverse)
    return [x0, *weights, *caches], [*last, ys]


def agree(inputs, outputs):
    feeds = {t: np.random.default_rng(n).standard_normal(t.shape).astype("f") for n, t in enumerate(inputs)}
    f = nf.compile(outputs, inputs)
    for _ in range(2):
        for a, b in zip(f(*feeds.values()), nf.evaluate(outputs, feeds, dtype="float64"), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    return f


def written(f):
    """Bytes that the kernels of the loop write in a step."""
    (loop,) = f.plan.loops
    calls = f.compiled.calls[loop.first : loop.first + loop.count]
    return sum(t.nbytes for c in calls for t in c.outputs)


@pytest.mark.parametrize(("layers", "reverse", "first"), [(1, False, 0), (2, False, 0), (1, True, 2)])
def test_a_decoder_writes_rows(layers, reverse, first):
    f = agree(*decoder(layers, reverse, first, STEPS + first))
    assert f.explain("rows_in_place").count("yes, a step writes it in place") == 2 * layers
    assert sum(b.name.startswith("kept") and b.kind == "temporary" for b in f.plan.buffers) == 0


def test_bytes_of_a_step(monkeypatch):
    """Two rows, and not what is kept of all steps, whatever else a step writes."""
    row, whole = BATCH * WIDTH * 4, 64 * BATCH * WIDTH * 4
    few = written(agree(*decoder(places=64)))
    monkeypatch.setenv("NEOFLOW_WITHOUT", "rows_in_place")
    assert written(agree(*decoder(places=64))) - few >= 2 * (whole - row) and few < whole


def test_a_row_alone_is_all_that_is_written():
    h, x = nf.placeholder((STEPS, BATCH, WIDTH), name="h"), nf.placeholder((STEPS, BATCH, WIDTH), name="x")
    last, _ = nf.scan(lambda old, r: (put(old, r[0], nf.tanh(r[1])), None), h, (nf.arange(STEPS), x))
    assert written(agree([h, x], [last])) == BATCH * WIDTH * 4


def test_what_a_step_was_given_as_a_row():
    """The row is what is carried, or a slice, as it is: copied before it is read."""
    h, g = nf.placeholder((STEPS, BATCH, WIDTH), name="h"), nf.placeholder((BATCH, WIDTH), name="g")
    x = nf.placeholder((STEPS, BATCH, WIDTH), name="x")

    def step(old, r):
        kept, a, twice = put(old[0], r[0], old[1]), old[1], put(old[2], r[0], r[1])
        return (kept, nf.tanh(a + nf.sum(kept - twice, axis=0) + r[1]), twice), a

    last, ys = nf.scan(step, (h, g, h * 2), (nf.arange(STEPS), x))
    f = agree([h, g, x], [*last, ys])
    assert f.explain("rows_in_place").count("yes") == 2


OTHERS = {
    "which row a step changes is not known before it runs": lambda old, r: put(old, r[2], r[1]),
    "is outside of it": lambda old, r: put(old, r[0], r[1], 1),
}


@pytest.mark.parametrize("reason", OTHERS)
def test_what_is_not_proved_is_copied(reason):
    h, x = nf.placeholder((STEPS, BATCH, WIDTH), name="h"), nf.placeholder((STEPS, BATCH, WIDTH), name="x")
    ids = nf.placeholder((STEPS,), "int64", name="ids")
    last, _ = nf.scan(lambda old, r: (OTHERS[reason](old, r), None), h, (nf.arange(STEPS), x, ids))
    feeds = {h: np.ones(h.shape, "f"), x: np.random.default_rng(0).standard_normal(x.shape).astype("f")}
    feeds[ids] = np.array([3, 3, 0, 6, 100, -1, 2])
    f = nf.compile([last], list(feeds))
    assert reason in f.explain("rows_in_place")
    np.testing.assert_allclose(f(*feeds.values())[0], nf.evaluate([last], feeds)[0], rtol=1e-5)


def test_what_is_read_as_it_was_is_copied():
    h, x = nf.placeholder((STEPS, BATCH, WIDTH), name="h"), nf.placeholder((STEPS, BATCH, WIDTH), name="x")

    def step(old, r):
        return put(old, r[0], r[1] + nf.sum(old, axis=0)), None

    last, _ = nf.scan(step, h, (nf.arange(STEPS), x))
    f = agree([h, x], [last])
    assert "is read, too" in f.explain("rows_in_place")
    kept, rows = nf.scan(lambda old, r: (put(old, r[0], r[1]),) * 2, h, (nf.arange(STEPS), x))
    assert "kept of every step" in agree([h, x], [kept, rows]).explain("rows_in_place")


def test_gradients_are_of_what_is_kept_of_every_step():
    inputs, outputs = decoder()
    loss = nf.sum(outputs[-1] * outputs[-1])
    agree(inputs, [loss, *nf.grad(loss, inputs)])


def test_near_misses():
    h, x = nf.placeholder((STEPS, 3), name="h"), nf.placeholder((STEPS, 3), name="x")
    bodies = [
        "kept[t,i] = select(t == n, new[i], old[t,i] + 0.5)",
        "kept[t,i] = select(t == n, old[t,i], new[i])",
        "kept[t,i] = select(t <= n, new[i], old[t,i])",
        "kept[t,i] = select(i == n, new[i], old[t,i])",
        "kept[t,i] = select(t == n, old[t,i] * 2, old[t,i])",
        "kept[t,i] = select(t == n, new[i] * t, old[t,i])",
        "kept[t,i] = select(t == 2 * n, new[i], old[t,i])",
    ]
    for body in bodies:
        last, _ = nf.scan(
            lambda old, r, body=body: (nf.expr(body, n=r[0], new=r[1], old=old), None), h, (nf.arange(STEPS), x)
        )
        (run,) = runs_of(make_graph([last], [h, x]).order)
        assert not isinstance(kept_row(run, 0, []), KeptRow), body


def test_what_reads_all_rows_of_a_step_is_computed_in_it():
    """Words that are given, and what is computed of each and the ones before: rows are not kept of every step."""
    x = nf.placeholder((STEPS, BATCH, WIDTH), name="x")
    w = [nf.placeholder((WIDTH, WIDTH), name=f"w{n}") for n in range(3)]
    nothing = nf.zeros((STEPS, BATCH, WIDTH))

    def step(old, r):
        keys, values = put(old[0], r[0], r[1] @ w[1]), put(old[1], r[0], r[1] @ w[2])
        return (keys, values), attended(r[1] @ w[0], r[0], keys, values, STEPS)

    _, ys = nf.scan(step, (nothing, nothing), (nf.arange(STEPS), x))
    f = agree([x, *w], [ys])
    assert f.explain("rows_in_place").count("yes") == 2
    assert max(b.nbytes for b in f.plan.buffers) <= 3 * STEPS * BATCH * WIDTH * 4  # those of all words at once
