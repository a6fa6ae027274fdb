"""Recurrences in strands: right, and refused where one needs another."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.expr.recurrence import Stacked, runs_of
from neoflow.expr.tensor import topological
from neoflow.partition import strands
from neoflow.partition.strands import LEAST_BYTES, strands_of
from tests.random_recurrences import draw, gradients

pytestmark = pytest.mark.tvm
ROOM = 1 << 20


@pytest.fixture
def of_any_size(monkeypatch):
    monkeypatch.setattr(strands, "LEAST_BYTES", 1)


def split(step, init, xs=None, length=4, threads=2, room=ROOM):
    """The strands of a scan."""
    last, ys = nf.scan(step, init, xs, length=None if xs is not None else length)
    roots = [t for t in (*(last if isinstance(last, tuple) else (last,)), ys) if t is not None]
    order = topological(roots)
    (run,) = runs_of(order)
    return strands_of(run, [t.of for t in order if isinstance(t, Stacked) and t.run is run], threads, room)


def test_a_step_without_other_rows_is_one_of_strands(of_any_size):
    x, w = nf.placeholder((5, 6, 3), name="x"), nf.placeholder((3, 3), name="w")
    found = split(lambda h, row: (nf.tanh(h @ w + row),) * 2, nf.zeros((6, 3)), x)
    assert found.count == 2 and [p.shape for p in found.recurrence.carried] == [(3, 3)]
    assert [p.shape for p in found.recurrence.slices] == [(3, 3)] and found.recurrence.fixed[0].shape == (3, 3)
    assert {found.sources[p].name for p in found.apart if p in found.sources} >= {"x"}


@pytest.mark.parametrize(
    ("extent", "threads", "count"), [(6, 2, 2), (3, 2, 3), (8, 3, 8), (1, 4, None), (7, 2, 7), (16, 16, 16)]
)
def test_the_fewest_that_are_quickest(of_any_size, extent, threads, count):
    found = split(lambda h, _: (nf.sin(h), None), nf.zeros((extent, 2)), threads=threads)
    assert (found and found.count) == count


def rows_ahead(h, _):
    return nf.compute(h.shape, lambda b, i: h[(b + 1) % 4, i]), None


def numbered(h, _):
    return nf.compute(h.shape, lambda b, i: h[b, i] + nf.cast(b, "float32")), None


def summed(h, _):
    return h - nf.sum(h, axis=0), None


def looked_up(h, _):
    return nf.compute(h.shape, lambda b, i: h[b, nf.cast(nf.cast(h[b, 0] > 0, "int32"), "int32")]), None


def nested(h, _):
    return nf.scan(lambda g, _: (nf.sin(g), None), h, length=2)[0], None


@pytest.mark.parametrize("step", [rows_ahead, numbered, summed, looked_up, nested])
def test_refused(of_any_size, step):
    assert split(step, nf.zeros((4, 4))) is None


def test_refused_where_the_first_axes_differ(of_any_size):
    assert split(lambda s, _: ((nf.sin(s[0]), s[1] * 2), None), (nf.zeros((4, 2)), nf.zeros((2, 2)))) is None
    assert split(lambda s, _: (nf.sin(s), None), nf.zeros(())) is None


def test_refused_where_all_would_read_more_than_a_cache_holds(of_any_size):
    w = nf.placeholder((8, 8), name="w")
    assert split(lambda h, _: (h @ w, None), nf.zeros((4, 8)), room=255) is None
    assert split(lambda h, _: (h @ w, None), nf.zeros((4, 8)), room=256).count == 2


def test_refused_where_a_strand_would_carry_next_to_nothing():
    width = LEAST_BYTES // 4
    assert split(lambda h, _: (nf.sin(h), None), nf.zeros((2, width))).count == 2
    assert split(lambda h, _: (nf.sin(h), None), nf.zeros((2, width - 1))) is None


def test_a_constant_with_rows_is_not_parted(of_any_size):
    table = nf.constant(np.arange(12, dtype=np.float32).reshape(4, 3))
    assert split(lambda h, _: (h * table, None), nf.zeros((4, 3))) is None


def compiled(outputs, feeds):
    return nf.compile(outputs, inputs=list(feeds))


def program(batch):
    """A recurrence with all that strands have: lags, context of their own rows, what all share, rows that are kept,
    sums with workspaces; backward too."""
    rng = np.random.default_rng(batch)
    x, context = nf.placeholder((6, batch, 40), name="x"), nf.placeholder((batch, 40), name="context")
    w, first = nf.placeholder((40, 40), name="w"), nf.placeholder((batch, 40), name="first")

    def step(state, row):
        new, old = state
        mixed = nf.tanh(nf.einsum("bi,ij->bj", new, w) * 0.3 + row * context) + old[:, ::-1] * 0.1
        return (mixed, new), nf.sum(mixed * context, axis=1)

    (last, _), ys = nf.scan(step, (first, first), x, reverse=True)
    loss = nf.sum(last * last) + nf.sum(ys * ys)
    feeds = {t: rng.standard_normal(t.shape).astype(np.float32) for t in (x, context, w, first)}
    return [ys, last, *nf.grad(loss, [x, context, w, first])], feeds


@pytest.mark.parametrize(
    ("batch", "threads"), [(4, 2), (3, 2), *(pytest.param(6, n, marks=pytest.mark.slow) for n in (3, 4))]
)
def test_strands_run(batch, threads, monkeypatch):
    monkeypatch.setenv("NEOFLOW_THREADS", str(threads))
    outputs, feeds = program(batch)
    f = compiled(outputs, feeds)
    assert sum(a.is_apart for a in f.plan.loops) == 2 and "side by side" in str(f.plan)
    for _ in range(5):
        for got, want in zip(f(*feeds.values()), nf.evaluate(outputs, feeds, dtype="float64"), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)
    assert len(f.profile(*feeds.values(), runs=1)) == len(f.plan.calls)


def test_they_may_be_left_out(monkeypatch):
    monkeypatch.setenv("NEOFLOW_WITHOUT", "strands")
    outputs, feeds = program(4)
    assert not any(a.is_apart for a in compiled(outputs, feeds).plan.loops)


def law(seeds):
    apart = 0
    for seed in seeds:
        d = draw(seed)
        outputs = [*d.scanned, *gradients(d, d.scanned)]
        inputs = [t for t in d.feeds if not isinstance(t, nf.Parameter)]
        f = nf.compile(outputs, inputs=inputs)
        for t, value in d.feeds.items():
            if isinstance(t, nf.Parameter):
                nf.set_value(t, value)
        apart += sum(a.is_apart for a in f.plan.loops)
        for got, want in zip(
            f(*(d.feeds[t] for t in inputs)), nf.evaluate(outputs, d.feeds, dtype="float64"), strict=True
        ):
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5, err_msg=f"seed {seed}")
    return apart


@pytest.mark.slow
@pytest.mark.parametrize("threads", [2, 3])
def test_random_recurrences_in_strands(of_any_size, threads, monkeypatch):
    monkeypatch.setenv("NEOFLOW_THREADS", str(threads))
    assert law(range(3000 + 40 * threads, 3040 + 40 * threads)) > 30
