"""Sums of what a contraction makes ride along with its tiles: where, why not, and that values stay."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.errors import PartitionError
from neoflow.graph import make_graph, optimize
from neoflow.loops import fits, problem_of
from neoflow.partition import Subgraph, cost_of, object_for_gpu, object_to, partition
from neoflow.partition.rules import RIDERS
from neoflow.roofs import STATED
from tests.codegen.kernels import subgraph_of
from tests.partition.test_fuse import run


def in_tiles(subgraph):
    return fits("contraction", problem_of(subgraph))


def anyhow(rule, facts, state, candidate):
    """Whatever is legal rides along, whether it pays or not."""
    return None if rule == RIDERS.name else object_to(rule, facts, state, candidate)


def divided(roots, inputs, choose=anyhow, **options):
    graph = optimize(make_graph(roots, inputs))
    return graph, partition(graph, choose=choose, in_tiles=in_tiles, **options)


def reasons(parts, ok=False):
    return [d.verdict.reason for d in parts.decisions if d.rule == RIDERS.name and d.verdict.ok == ok]


def dense(m=24, k=16, n=40):
    x, w, b = nf.placeholder((m, k), name="x"), nf.placeholder((k, n), name="w"), nf.placeholder((n,), name="b")
    r = nf.axis(k)
    return nf.compute((m, n), lambda i, j: nf.sum(x[i, r] * w[r, j], axis=[r]), name="y"), x, w, b


def test_a_bias_gradient_and_its_update_ride_along_with_what_they_add():
    """As in a step of training: the sum of what another contraction hands back, through a relu, and what follows."""
    y, x, w, b = dense()
    dy = nf.compute(y.shape, lambda i, j: nf.select(x[i, 0] > 0, y[i, j], 0.0), name="dy")
    new = b - nf.sum(dy, axis=[0]) * 0.1
    graph, parts = divided([dy, new], [x, w, b])
    (call,) = parts.calls
    assert len(call.subgraph.riders) == 1 and set(call.subgraph.outputs) & {*call.subgraph.behind}
    assert reasons(parts, ok=True) == ["it adds up what tiles have at hand"]
    assert len(divided([dy, new], [x, w, b], without=[RIDERS.name])[1].calls) == 2
    assert len(partition(graph).calls) == 2  # nobody said what has tiles
    feeds = {t: np.random.default_rng(0).standard_normal(t.shape) for t in (x, w, b)}
    values = run(parts, feeds)
    for t, wanted in zip(graph.outputs, nf.evaluate([dy, new], feeds, dtype="float64"), strict=True):
        np.testing.assert_allclose(values[t], wanted, rtol=1e-9, atol=1e-9)


def test_several_sums_of_the_same_ride_along():
    y, x, w, _ = dense()
    _, parts = divided([y, nf.sum(y, axis=[0]), nf.sum(y * y, axis=[0])], [x, w])
    (call,) = parts.calls
    assert len(call.subgraph.riders) == 2
    assert Subgraph.from_text(call.subgraph.to_text()) == call.subgraph
    assert call.subgraph.family.digest


def test_it_is_taken_where_reading_again_takes_longer():
    small, large = dense(), dense(1 << 15, 32, 512)
    for (y, x, w, _), is_taken in ((small, False), (large, True)):
        _, parts = divided([y, nf.sum(y, axis=[0])], [x, w], choose=object_to)
        assert bool(reasons(parts, ok=True)) == is_taken
    apart = partition(optimize(make_graph([y, nf.sum(y, axis=[0])], [x, w])))
    (one,), two = parts.calls, apart.calls
    assert sum(cost_of(c.subgraph).nbytes for c in two) - cost_of(one.subgraph).nbytes == y.nbytes
    assert cost_of(one.subgraph).spent(STATED) < sum(cost_of(c.subgraph).spent(STATED) for c in two)
    y, x, w, _ = dense(512, 64, 512)
    _, parts = divided([y, nf.sum(y, axis=[0])], [x, w], choose=object_to)
    (reason,) = reasons(parts)
    assert reason.startswith("one kernel would take about ") and " instead of " in reason


def test_refusals():
    y, x, w, _ = dense()
    mean = nf.sum(y, axis=[0]) * (1 / 24)
    variance = nf.sum((y - mean) * (y - mean), axis=[0])
    assert any("away from the" in r or "reads" in r for r in reasons(divided([y, mean, variance], [x, w])[1]))
    i = nf.axis(12)
    part = nf.compute((40,), lambda j: nf.sum(y[i * 2, j], axis=[i]), name="part")
    assert any("adds up something else than the kernel's points" in r for r in reasons(divided([y, part], [x, w])[1]))
    x3, r, c = nf.placeholder((4, 6, 16), name="x3"), nf.axis(16), nf.axis(6)
    three = nf.compute((4, 6, 40), lambda a, c, j: nf.sum(x3[a, c, r] * w[r, j], axis=[r]), name="three")
    some = nf.compute((4, 40), lambda a, j: nf.sum(three[a, c, j], axis=[c]), name="some")
    assert any("some of the axes of a side" in r for r in reasons(divided([three, some], [x3, w])[1]))


def test_a_gpu_has_none():
    y, x, w, _ = dense()
    assert object_for_gpu(RIDERS.name, None, None, None) is not None
    assert len(divided([y, nf.sum(y, axis=[0])], [x, w], choose=object_for_gpu)[1].calls) == 2


def test_what_is_no_rider_is_refused_by_the_check():
    y, x, w, _ = dense()
    i, j = nf.axis(24), nf.axis(40)
    total = nf.compute((40,), lambda j: nf.sum(y[i, j], axis=[i]), name="total")
    for outputs, sentence in (
        ([y, nf.compute((40,), lambda j: nf.max(y[i, j], axis=[i]))], "is no sum"),
        ([y, nf.compute((20,), lambda k: nf.sum(y[i, k], axis=[i]))], "something else than the kernel's points"),
        ([total], "stored before anything"),
        ([total, y], "stored before anything"),
        ([y, nf.compute((40,), lambda j: total[39 - j])], "away from its own point"),
        ([y, nf.compute((), lambda: nf.sum(total[j], axis=[j]))], "something else than the kernel's points"),
    ):
        with pytest.raises(PartitionError, match=sentence):
            subgraph_of(outputs, [x, w])


def program(seed):
    """A contraction, what follows from it at its points, and sums of that over some of its dimensions."""
    rng = np.random.default_rng(seed)

    def pick(*of):
        return of[int(rng.integers(len(of)))]

    batch, m, n, k = (int(rng.integers(2, 9)) for _ in range(4))
    x, w = nf.placeholder((batch, m, k), name="x"), nf.placeholder((k, n), name="w")
    h, b, r = nf.placeholder((batch, m, n), name="h"), nf.placeholder((n,), name="b"), nf.axis(k)
    y = nf.compute((batch, m, n), lambda i, p, j: nf.sum(x[i, p, r] * w[r, j], axis=[r]), name="y")
    z = pick(lambda: y, lambda: nf.relu(y + b), lambda: nf.tanh(y) * h, lambda: nf.select(h > 0.0, y, 0.0))()
    of = pick(lambda: z, lambda: z * z, lambda: z * h)()
    axes = pick((0, 1), (0, 1), (2,), (0, 1, 2), (1,), (1, 2))
    s = nf.sum(of, axis=axes)
    loss = nf.sum(z * 0.5) + nf.sum(nf.tanh(s))
    feeds = {t: rng.uniform(-1, 1, t.shape) for t in (x, w, h, b)}
    roots = [z, pick(lambda: s, lambda: s * 0.5 + 1.0)(), *nf.grad(loss, [x, w, h], allow_unused=True)]
    return roots, feeds


def law(seeds, choose=anyhow):
    taken = 0
    for seed in seeds:
        roots, feeds = program(seed)
        graph, parts = divided(roots, list(feeds), choose)
        taken += len(reasons(parts, ok=True))
        values = run(parts, feeds)
        for t, wanted in zip(graph.outputs, nf.evaluate(roots, feeds, dtype="float64"), strict=True):
            got = values[t] if t in values else feeds[t]
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)
    return taken


def test_law_on_random_programs_with_gradients():
    assert law(range(25)) >= 6


def test_the_reward_speaks_against_small_ones():
    assert law(range(8), object_to) == 0
