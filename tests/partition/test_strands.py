"""Recurrences in strands: right, and refused where one needs another."""

import numpy as np
import pytest

import neoflow as nf
from neoflow import pipeline
from neoflow.expr.recurrence import Stacked, runs_of
from neoflow.expr.tensor import topological
from neoflow.loops import problem_of, space
from neoflow.partition import strands
from neoflow.partition.strands import LEAST_BYTES, strands_of
from neoflow.verdict import Verdict
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


def refused(*given, **options):
    """Why there are none."""
    found = split(*given, **options)
    assert isinstance(found, Verdict) and not found.ok
    return found.reason


def test_a_step_without_other_rows_is_one_of_strands(of_any_size):
    x, w = nf.placeholder((5, 6, 3), name="x"), nf.placeholder((3, 3), name="w")
    found = split(lambda h, row: (nf.tanh(h @ w + row),) * 2, nf.zeros((6, 3)), x)
    assert found.count == 2 and [p.shape for p in found.recurrence.carried] == [(3, 3)]
    assert [p.shape for p in found.recurrence.slices] == [(3, 3)] and found.recurrence.fixed[0].shape == (3, 3)
    assert {found.sources[p].name for p in found.apart if p in found.sources} >= {"x"}


@pytest.mark.parametrize(
    ("extent", "threads", "count"), [(6, 2, 2), (3, 2, 3), (8, 3, 8), (1, 4, 2), (7, 2, 7), (16, 16, 16)]
)
def test_the_fewest_that_are_quickest(of_any_size, extent, threads, count):
    found = split(lambda h, _: (nf.sin(h), None), nf.zeros((extent, 2)), threads=threads)
    assert found.count == count


def test_axes_with_one_place_are_passed_over(of_any_size):
    scale = nf.placeholder((8, 3), name="scale")

    def step(h, _):
        new = nf.expr("new[s,i,n] = sin(h[s,i,n]) * scale[i,n]", h=h, scale=scale)
        return new, nf.sum(new, axis=(0, 2))

    found = split(step, nf.zeros((1, 8, 3)))
    assert found.count == 2 and found.recurrence.carried[0].shape == (1, 4, 3) and found.kept[0].shape == (4,)
    assert [p.shape for p in found.recurrence.fixed] == [(4, 3)]
    reason = "an axis of 1 places is nothing for 2 threads"
    assert refused(lambda h, _: (nf.sin(h), None), nf.zeros((1, 1))) == reason


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


def crossed(h, _):
    return nf.compute(h.shape, lambda b, i: h[i, b]), None


def elsewhere(h, _):
    longer = nf.compute((5, 4), lambda b, i: nf.cast(i, "float32"))
    return nf.compute(h.shape, lambda b, i: h[b, i] + longer[b, i]), None


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (rows_ahead, "is computed from the number of its place"),
        (numbered, "is computed from the number of its place"),
        (summed, "a step reads full at other places than its own"),
        (looked_up, "reads or writes at an index that is data"),
        (nested, "follows from a recurrence inside"),
        (crossed, "is computed from the number of its place"),
        (elsewhere, " along another axis"),
    ],
)
def test_refused(of_any_size, step, reason):
    assert reason in refused(step, nf.zeros((4, 4)))


def test_refused_where_the_first_axes_differ(of_any_size):
    both = nf.zeros((4, 2)), nf.zeros((2, 2))
    reason = "what is carried and kept has no axis in common"
    assert refused(lambda s, _: ((nf.sin(s[0]), s[1] * 2), None), both) == reason
    assert "an axis of 1 places" in refused(lambda s, _: (nf.sin(s), None), nf.zeros(()))


def test_refused_where_all_would_read_more_than_a_cache_holds(of_any_size):
    w = nf.placeholder((8, 8), name="w")
    reason = "all read 256 bytes in every step, more than the 255 of a core's cache"
    assert refused(lambda h, _: (h @ w, None), nf.zeros((4, 8)), room=255) == reason
    assert split(lambda h, _: (h @ w, None), nf.zeros((4, 8)), room=256).count == 2


def test_refused_where_all_would_read_much_for_a_few_rows(of_any_size):
    w = nf.placeholder((128, 128), name="w")
    assert split(lambda h, _: (h @ w, None), nf.zeros((16, 128))).count == 2
    reason = "each would read 65536 bytes that all share for 3584 of its own in every step"
    assert refused(lambda h, _: (h @ w, None), nf.zeros((14, 128))) == reason


def test_refused_where_a_strand_would_carry_next_to_nothing():
    width = LEAST_BYTES // 4
    assert split(lambda h, _: (nf.sin(h), None), nf.zeros((2, width))).count == 2
    reason = f"each would carry less than {LEAST_BYTES} bytes"
    assert refused(lambda h, _: (nf.sin(h), None), nf.zeros((2, width - 1))) == reason


def test_a_constant_with_rows_is_not_parted(of_any_size):
    table = nf.constant(np.arange(12, dtype=np.float32).reshape(4, 3))
    assert "is one for all" in refused(lambda h, _: (h * table, None), nf.zeros((4, 3)))


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


def channels():
    """A recurrence of one sample whose channels go alone: a selective scan."""
    rng = np.random.default_rng(5)
    x, keep = nf.placeholder((7, 1, 16), name="x"), nf.placeholder((16, 8), name="keep")
    enter = nf.placeholder((7, 1, 8), name="enter")

    def step(h, row):
        x, enter = row
        h = nf.expr("h[s,i,n] = exp(keep[i,n]) * old[s,i,n] + x[s,i] * b[s,n]", keep=keep, old=h, x=x, b=enter)
        return h, nf.expr("y[s,i] = sum[n](h[s,i,n])", h=h)

    _, ys = nf.scan(step, nf.zeros((1, 16, 8)), (x, enter))
    feeds = {t: 0.1 * rng.standard_normal(t.shape).astype(np.float32) for t in (x, keep, enter)}
    return [ys, *nf.grad(nf.sum(ys * ys), [x, keep, enter])], feeds


@pytest.mark.parametrize(
    ("made", "threads"), [(4, 2), (3, 2), (0, 2), *(pytest.param(6, n, marks=pytest.mark.slow) for n in (3, 4))]
)
def test_strands_run(made, threads, monkeypatch):
    monkeypatch.setenv("NEOFLOW_THREADS", str(threads))
    outputs, feeds = program(made) if made else channels()
    f = nf.compile(outputs, inputs=list(feeds))
    assert sum(a.is_apart for a in f.plan.loops) == 2 and "side by side" in str(f.plan)
    assert "parts, each alone" in f.explain("strands")
    for _ in range(5):
        for got, want in zip(f(*feeds.values()), nf.evaluate(outputs, feeds, dtype="float64"), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)
    assert len(f.profile(*feeds.values(), runs=1)) == len(f.plan.calls)


def test_they_may_be_left_out(monkeypatch):
    monkeypatch.setenv("NEOFLOW_WITHOUT", "strands")
    outputs, feeds = program(4)
    assert not any(a.is_apart for a in nf.compile(outputs, inputs=list(feeds)).plan.loops)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_strands_by_any_schedules(seed):
    """Kernels that are adopted, with workspaces of their own, which strands go through side by side."""
    outputs, feeds = program(4)
    f = nf.compile(outputs, inputs=list(feeds))
    rng = np.random.default_rng(seed)
    chosen = {k.subgraph.digest: space(problem_of(k.subgraph), k.target).sample(rng) for k in f.compiled.kernels}
    assert pipeline.adopt(f, chosen)
    for _ in range(20):
        for got, want in zip(f(*feeds.values()), nf.evaluate(outputs, feeds, dtype="float64"), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


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
def test_random_recurrences_in_strands_of_three_threads(of_any_size, monkeypatch):
    monkeypatch.setenv("NEOFLOW_THREADS", "3")
    assert law(range(3120, 3160)) > 30
