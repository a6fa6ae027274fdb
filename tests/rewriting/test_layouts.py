"""Layouts of a whole program: what its kernels ask for, what is chosen of it, what it saves."""

import numpy as np
import pytest

import neoflow as nf
from neoflow.graph import Layout, Wish, make_graph, optimize
from neoflow.partition import partition
from neoflow.pipeline import compile_program
from neoflow.rewriting import stages
from neoflow.rewriting.layouts import MADE, OFTEN, Request, best_set, kernels_of, lay_out, packed_bytes, serves
from neoflow.trace import Trace
from neoflow.tune.trial import Trial
from neoflow.tuning.kept import records_in
from tests.codegen.kernels import WIDE

STEPS, BATCH, SIZE, GATES = 5, 64, 512, 2048


def recurrence(size=SIZE, gates=GATES, batch=BATCH, steps=STEPS):
    """Steps whose gradients go back through the same weights."""
    w = nf.parameter((gates, size), name="w", init=lambda shape, rng: 0.05 * rng.standard_normal(shape))
    v = nf.parameter((gates, size), name="v", init=lambda shape, rng: 0.05 * rng.standard_normal(shape))
    x = nf.placeholder((batch, size), name="x")
    k, g = nf.axis(size, "k"), nf.axis(gates, "g")
    h = x
    for _ in range(steps):
        u = nf.compute((batch, gates), lambda b, o, h=h: nf.tanh(nf.sum(h[b, k] * w[o, k], axis=[k])), name="u")
        h = nf.compute((batch, size), lambda b, o, u=u: nf.tanh(nf.sum(u[b, g] * v[g, o], axis=[g])), name="h")
    loss = nf.sum(h * h)
    return loss, x, (w, v)


def laid(graph):
    return lay_out(graph, WIDE, partition)


def step_of(**sizes):
    loss, x, weights = recurrence(**sizes)
    grads = nf.grad(loss, list(weights))
    updates = {w: w - 0.01 * d for w, d in zip(weights, grads, strict=True)}
    return optimize(make_graph([loss], [x], updates))


@pytest.fixture(scope="module")
def step():
    return step_of()


def test_weights_that_each_step_packs_are_packed_once():
    size = 1024
    found, nbytes = laid(step_of(size=size)), 4 * size * GATES
    assert len(found.derivation.steps) == 2, "each of the weights is packed along one of its dimensions"
    assert found.beside == 2 * nbytes and found.before - found.after == 2 * STEPS * nbytes
    assert found.after == packed_bytes(kernels_of(found.cut), WIDE)
    assert f"operands packed once, {found.beside} bytes" in found.summary and "pack shared at" in str(found)


def test_weights_that_are_read_in_place_too(step):
    found = laid(step)
    assert len(found.derivation.steps) == 2 and found.beside == 2 * 4 * SIZE * GATES
    assert found.before == found.after == packed_bytes(kernels_of(found.cut), WIDE)


def test_weights_that_many_steps_read_in_place_are_packed_where_the_estimate_says_alike():
    small = {"size": 128, "gates": 512}
    assert not laid(step_of(**small, steps=OFTEN - 1)).derivation.steps
    assert len(laid(step_of(**small, steps=OFTEN + 1)).derivation.steps) == 4  # each weight, forward and backward


def test_nothing_is_asked_for_where_nothing_is_shared():
    x, w = nf.placeholder((64, 64), name="x"), nf.placeholder((64, 64), name="w")
    k = nf.axis(64, "k")
    graph = optimize(make_graph([nf.compute((64, 64), lambda i, j: nf.sum(x[i, k] * w[k, j], axis=[k]))], [x, w]))
    found = laid(graph)
    assert found.graph is graph and found.cut is None
    assert found.summary == str(found)
    assert found.summary.startswith("no tensor is read by 3 contractions alike, and no parameter by one that does not")


def test_sizes_that_no_panel_divides_are_refused_and_stay():
    loss, x, weights = recurrence(size=504, gates=2040)
    graph = optimize(make_graph([loss, *nf.grad(loss, list(weights))], [x]))
    found = laid(graph)
    assert found.graph is graph and found.before == found.after > 0
    assert any("are not several blocks of" in s.reason for s in found.derivation.refused)


def inferring(batch=20, size=64, gates=160):
    """A projection by weights that no call changes, of more rows than a panel."""
    w, x = nf.parameter((gates, size), name="w", init=1.0), nf.placeholder((batch, size), name="x")
    k = nf.axis(size, "k")
    return w, x, nf.compute((batch, gates), lambda b, o: nf.tanh(nf.sum(x[b, k] * w[o, k], axis=[k])), name="y")


def test_a_parameter_that_stays_is_packed_for_one_kernel():
    w, x, y = inferring()
    graph = optimize(make_graph([y], [x]))
    kernels = []

    def may_last(kernel):
        kernels.append(kernel)
        return True

    found = lay_out(graph, WIDE, partition, may_last)
    assert "w is packed once for 1 that read it" in str(found) and found.beside == w.nbytes and kernels
    assert lay_out(graph, WIDE, partition).graph is graph, "of a package, say"
    assert lay_out(graph, WIDE, partition, lambda kernel: False).graph is graph, "what was measured stays"
    changing = optimize(make_graph([y], [x], {w: w * 0.9}))
    assert lay_out(changing, WIDE, partition, may_last).graph is changing


@pytest.mark.parametrize("shape", [(5, 1, 512), (1, 5, 512), (5, 512)])
def test_a_dimension_of_one_element_changes_nothing(shape):
    """Steps of one sample: the columns of a product, and a sample, are one loop of its kernel."""
    x = nf.placeholder(shape, name="x")
    w = nf.parameter((4096, 512), name="w")
    found = lay_out(optimize(make_graph([nf.nn.functional.linear(x, w)], [x])), WIDE, partition, lambda kernel: True)
    assert found.beside == w.nbytes and not found.after


@pytest.mark.tvm
def test_what_was_measured_is_not_replaced_by_what_was_not(tmp_path, monkeypatch):
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(tmp_path))
    _, x, y = inferring()
    f = nf.compile([y], [x])
    assert f.plan.prepared == 1
    monkeypatch.setenv("NEOFLOW_WITHOUT", "layouts, prepared")
    (plain,) = nf.compile([y], [x]).compiled.kernels
    monkeypatch.delenv("NEOFLOW_WITHOUT")
    records_in(tmp_path).add(plain.subgraph, plain.target, [Trial(plain.schedule, "ok", 1e-6)])
    assert nf.compile([y], [x]).plan.prepared == 0


def request(width, dimension=1, lanes=16):
    """Of panels of a width."""
    x = nf.placeholder((4, width * 4), name="x")
    y = nf.compute((4,), lambda i: x[i, 0] * float(dimension))
    return Request(Wish(y.definition, 0, Layout((), dimension, (1 - dimension,), width)), lanes)


def test_the_set_of_layouts_that_moves_the_fewest_bytes_is_chosen():
    narrow, wide, across = request(16), request(32), request(16, dimension=0)
    assert serves(wide.wish.layout, narrow) and not serves(narrow.wish.layout, wide)
    assert not serves(across.wish.layout, narrow)
    assert best_set([(narrow, MADE)]) == () and best_set([(narrow, MADE + 1)]) == (narrow.wish.layout,)
    # apart neither would pay; panels of the wider serve both
    assert best_set([(narrow, 2), (wide, 2)]) == (wide.wish.layout,)
    assert set(best_set([(narrow, 3), (wide, 3), (across, 3)])) == {wide.wish.layout, across.wish.layout}
    assert best_set([(narrow, 3), (wide, 3), (across, 1)]) == (wide.wish.layout,)


@pytest.mark.tvm
def test_a_program_with_packed_weights_computes_the_same():
    loss, x, weights = recurrence(64, 160, 20, 3)
    outputs = [loss, *nf.grad(loss, list(weights))]
    f = nf.compile(outputs, inputs=[x])
    assert "pack shared at" in f.explain("layouts")
    array = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    feeds = {x: array, **{w: nf.get_value(w) for w in weights}}
    for found, exact in zip(f(array), nf.evaluate(outputs, feeds, dtype="float64"), strict=True):
        np.testing.assert_allclose(found, exact, rtol=2e-3, atol=2e-3 * float(np.abs(exact).max()))


def test_a_gpu_lays_nothing_out():
    loss, x, _ = recurrence(64, 160, 20)
    assert "layouts" not in {r.name for r in compile_program([loss], [x], target="cuda:sm_80").trace.records}


def test_passes_can_be_left_out(monkeypatch):
    loss, x, weights = recurrence(64, 160, 20, 3)
    graph = make_graph([loss, *nf.grad(loss, list(weights))], [x])

    def run():
        trace = Trace()
        return {r.name for r in (stages(graph, trace, WIDE), *trace.records)[1:]}

    assert {"layouts", "batch"} <= run()
    monkeypatch.setenv("NEOFLOW_WITHOUT", "layouts, batch")
    assert {"layouts", "batch"}.isdisjoint(run()) and "partition" in run()
    assert "epilogues" in {d.rule for d in stages(graph, Trace(), WIDE)[1].decisions}
    monkeypatch.setenv("NEOFLOW_WITHOUT", "epilogues")
    assert "epilogues" not in {d.rule for d in stages(graph, Trace(), WIDE)[1].decisions}
    monkeypatch.setenv("NEOFLOW_WITHOUT", "laying")
    with pytest.raises(
        nf.ConfigError, match="NEOFLOW_WITHOUT: there is no transformation 'laying' to leave out; there are mapping, a"
    ):
        run()
