"""Recurrences as calls of PyTorch: the law against `evaluate`, when they are called and when not, training, faults."""

import sys

import numpy as np
import pytest

import neoflow as nf
from neoflow import pipeline, trials
from neoflow.expr.foreign import calls_of
from neoflow.expr.recurrence import Looped, runs_of
from neoflow.expr.replace import replaced
from neoflow.graph import make_graph
from neoflow.mapping.foreign import found_in, handed
from neoflow.mapping.gradients import apart
from neoflow.nn import functional as F
from neoflow.report.kernels import kernel_rows
from neoflow.report.timeline import events
from neoflow.verdict import Verdict

torch = pytest.importorskip("torch")

FASTER, SLOWER = (1.0, 0.5), (1.0, 0.95)


@pytest.fixture(autouse=True)
def asked(monkeypatch, tmp_path):
    monkeypatch.setenv("NEOFLOW_WITH", "torch cells")
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(trials.Trials, "beside", lambda *given: FASTER)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def weights(gates, inputs, hidden, biases, prefix=""):
    shapes = [(gates * hidden, inputs), (gates * hidden, hidden), *[(gates * hidden,)] * biases]
    return [nf.parameter(s, name=f"{prefix}{n}") for s, n in zip(shapes, "wuba", strict=False)]


def lstm(x, hidden, biases=2, order="ifgo", reverse=False, prefix=""):
    """(all h, last h, last c, weights) of one layer over x [T, B, I]"""
    zeros = nf.constant(np.zeros((x.shape[1], hidden), np.float32))
    own = weights(4, x.shape[2], hidden, biases, prefix)

    def step(state, row):
        then = F.lstm_cell(row, *state, *own[:2], *[*own[2:], None, None][:2], gates=order)
        return then, then[0]

    (h, c), ys = nf.scan(step, (zeros, zeros), x, reverse=reverse)
    return ys, h, c, own


def gru(x, hidden, biases=2):
    own = weights(3, x.shape[2], hidden, biases)
    zeros = nf.constant(np.zeros((x.shape[1], hidden), np.float32))
    h, ys = nf.scan(lambda h, row: (t := F.gru_cell(row, h, *own), t), zeros, x)
    return ys, h, own


def rnn(x, hidden, function):
    w, u, b = weights(1, x.shape[2], hidden, 1)
    zeros = nf.constant(np.zeros((x.shape[1], hidden), np.float32))
    h, ys = nf.scan(lambda h, row: (t := function(F.linear(row, w, b) + F.linear(h, u)), t), zeros, x)
    return ys, h, [w, u, b]


def case(kind, steps, batch, inputs, hidden):
    """(input, outputs with gradients)"""
    x = nf.placeholder((steps, batch, inputs), name="x")
    if kind.startswith("lstm"):
        options = {
            "lstm": {},
            "lstm, one bias": {"biases": 1},
            "lstm, no bias": {"biases": 0},
            "lstm, iofg": {"order": "iofg"},
            "lstm, backwards": {"reverse": True, "order": "iofg"},
        }[kind]
        ys, h, c, own = lstm(x, hidden, **options)
        loss = nf.mean(ys * ys) + nf.mean(h * c)
    elif kind == "gru":
        ys, h, own = gru(x, hidden)
        loss = nf.mean(ys * ys) + nf.mean(h)
    else:
        ys, h, own = rnn(x, hidden, {"tanh": nf.tanh, "relu": nf.relu}[kind])
        loss = nf.mean(ys * ys) + nf.mean(h)
    return x, own, [loss, ys, *nf.grad(loss, [x, *own])]


def values(tensors, seed=0):
    rng = np.random.default_rng(seed)
    return {t: (0.4 * rng.standard_normal(t.shape)).astype(t.dtype) for t in tensors}


KINDS = ("lstm", "lstm, one bias", "lstm, no bias", "lstm, iofg", "lstm, backwards", "gru", "tanh", "relu")


def as_calls(graph):
    """The graph with every recurrence that PyTorch has as a call of it, or why not."""
    parts = apart(graph)
    edit = {}
    for run in runs_of(parts.graph.order):
        found = found_in(run)
        if found is None:
            continue
        wanted = [t for t in parts.graph.order if isinstance(t, Looped) and t.run is run]
        made = handed(run, wanted, *found)
        if isinstance(made, Verdict):
            return made
        edit |= made
    return parts.joined(replaced(parts.graph.roots, edit.get))


@pytest.mark.parametrize("kind", KINDS)
def test_calls_mean_what_the_loops_mean(kind):
    x, own, outputs = case(kind, 5, 3, 4, 7)
    graph = make_graph(outputs, [x])
    new = as_calls(graph)
    assert len(calls_of(new.order)) == 2 and not runs_of(new.order)
    feeds = values([x, *own])
    for a, b in zip(nf.evaluate(graph.roots, feeds), nf.evaluate(new.roots, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


SIZES = ((1, 1, 1, 1), (5, 3, 4, 7), (13, 2, 9, 5))
QUICK = {("lstm", SIZES[1]), ("gru", SIZES[2])}
CASES = [pytest.param(k, s, marks=() if (k, s) in QUICK else pytest.mark.slow) for k in KINDS for s in SIZES]


@pytest.mark.parametrize(("kind", "size"), CASES)
def test_pytorch_computes_what_evaluate_does(kind, size):
    x, own, outputs = case(kind, *size)
    f = nf.compile(outputs, [x])
    assert "called" in f.explain("torch cells") and any(c.name.startswith("torch.") for c in f.plan.calls)
    feeds = values([x, *own])
    for p in own:
        nf.set_value(p, feeds[p])
    for _ in range(2):
        found = f(feeds[x])
    for a, b in zip(found, nf.evaluate(outputs, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def two_layers():
    x = nf.placeholder((6, 3, 4), name="x")
    below, *_, first = lstm(x, 5, prefix="first ")
    above, h, _, second = lstm(below, 7, prefix="second ")
    loss = nf.mean(above * above) + nf.mean(h)
    own = [*first, *second]
    gradients = nf.grad(loss, own)
    return x, own, loss, {p: p - 0.5 * g for p, g in zip(own, gradients, strict=True)}


def trained(steps, x, own, loss, updates):
    f = nf.compile([loss], [x], updates=updates)
    feeds = values([x, *own])
    for p in own:
        nf.set_value(p, feeds[p])
    return f, [float(f(feeds[x])[0]) for _ in range(steps)]


def test_training_has_the_losses_of_our_own(monkeypatch):
    program = two_layers()
    f, theirs = trained(8, *program)
    assert [c.name for c in f.plan.calls if c.name.startswith("torch.")] == [
        *["torch.lstm"] * 2,
        *["torch.lstm gradient"] * 2,
    ]
    monkeypatch.delenv("NEOFLOW_WITH")
    g, ours = trained(8, *program)
    assert not any(c.name.startswith("torch.") for c in g.plan.calls)
    np.testing.assert_allclose(theirs, ours, rtol=1e-5)
    assert theirs[-1] < theirs[0]


def test_what_is_slower_is_not_called(monkeypatch):
    monkeypatch.setattr(trials.Trials, "beside", lambda *given: SLOWER)
    x, _, outputs = case("lstm", 5, 3, 4, 7)
    f = nf.compile(outputs, [x])
    assert not any(c.name.startswith("torch.") for c in f.plan.calls)
    assert f.explain("torch cells") == (
        "torch.lstm of 5 steps and its gradient: 950 ms, ours 1000 ms: not called, which takes less than 90% of ours"
    )


def test_what_is_wrong_is_not_called(monkeypatch):
    right = trials.Trials.values
    monkeypatch.setattr(trials.Trials, "values", lambda *given: [a + np.float32(1e-3) for a in right(*given)])
    x, _, outputs = case("lstm", 5, 3, 4, 7)
    f = nf.compile(outputs, [x])
    assert "wrong by up to" in f.explain("torch cells")
    assert not any(c.name.startswith("torch.") for c in f.plan.calls)


def test_it_is_measured_in_this_process(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("NEOFLOW_WITH", "torch cells")
    monkeypatch.setattr(trials, "TRIED", 0.01)
    x, _, outputs = case("lstm", 3, 2, 4, 5)
    assert "torch.lstm of 3 steps and its gradient: " in nf.compile(outputs, [x]).explain("torch cells")


def test_nobody_asked():
    x, _, outputs = case("lstm", 5, 3, 4, 7)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("NEOFLOW_WITH")
        f = nf.compile(outputs, [x])
    assert "torch cells" not in [r.name for r in f.compiled.trace.records]


def test_memory_is_counted():
    x, _, outputs = case("lstm", 5, 3, 4, 7)
    f = nf.compile(outputs, [x], memory="1MiB")
    assert "what PyTorch takes is not known" in f.explain("torch cells")


def test_without_pytorch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    x, _, outputs = case("lstm", 5, 3, 4, 7)
    f = nf.compile(outputs[:2], [x])
    assert f.explain("torch cells") == "PyTorch is not installed"
    np.testing.assert_array_equal(f(values([x])[x])[1].shape, (5, 3, 7))


def test_pytorch_vanishes_between_compiling_and_running(monkeypatch):
    x, _, outputs = case("lstm", 5, 3, 4, 7)
    compiled = pipeline.compile_program(outputs, [x])
    monkeypatch.delitem(sys.modules, "neoflow.runtime.torch_cells")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(nf.errors.RuntimeFault, match=r"compiled with torch\.lstm, and torch cannot be imported"):
        pipeline.bind(compiled)


def test_pytorch_fails(monkeypatch):
    x, _, outputs = case("lstm", 5, 3, 4, 7)
    f = nf.compile(outputs, [x])
    from neoflow.runtime import torch_cells

    before = torch_cells._forward

    def fails(*given):
        raise MemoryError("none left")

    monkeypatch.setattr(torch_cells, "_forward", fails)
    with pytest.raises(
        nf.errors.RuntimeFault, match=r"torch\.lstm failed: MemoryError: none left; no parameter has chang"
    ):
        f(values([x])[x])
    assert f.runs == 0
    monkeypatch.setattr(torch_cells, "_forward", before)
    f(values([x])[x])
    assert f.runs == 1


def test_an_exception_from_outside_comes_after_the_step(monkeypatch):
    program = two_layers()
    x, own, *_ = program
    f, _ = trained(1, *program)
    from neoflow.runtime import torch_cells

    forward, calls = torch_cells._forward, []

    def interrupted(*given):
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return forward(*given)

    monkeypatch.setattr(torch_cells, "_forward", interrupted)
    old = [nf.get_value(p).copy() for p in own]
    with pytest.raises(KeyboardInterrupt):
        f(values([x])[x])
    assert f.runs == 2 and len(calls) == 3
    assert all((nf.get_value(p) != a).any() for p, a in zip(own, old, strict=True))


def test_a_package_has_none_of_it(tmp_path):
    x, _, outputs = case("lstm", 5, 3, 4, 7)
    f = nf.compile(outputs[:2], [x])
    f.save(tmp_path / "lstm.nflib")
    loaded = nf.load(tmp_path / "lstm.nflib")
    feeds = values([x])
    np.testing.assert_allclose(loaded.run(feeds[x])[1], f(feeds[x])[1], rtol=1e-5, atol=1e-6)


def test_a_profile_tells_what_it_takes():
    x, _, outputs = case("lstm", 5, 3, 4, 7)
    f = nf.compile(outputs, [x])
    told = {t.name: t.seconds for t in f.profile(values([x])[x], runs=2)}
    assert told["torch.lstm"] > 0 and told["torch.lstm gradient"] > 0


def test_gradients_of_gradients_are_what_the_loops_give():
    x = nf.placeholder((3, 2, 3), name="x")
    ys, _, _, own = lstm(x, 3)
    (first,) = nf.grad(nf.mean(ys * ys), [x])
    second = nf.grad(nf.sum(first * first), own)
    graph = make_graph(second, [x])
    feeds = values([x, *own])
    for a, b in zip(nf.evaluate(second, feeds), nf.evaluate(as_calls(graph).roots, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def _read_inside():
    x = nf.placeholder((4, 2, 3), name="x")
    w, u = weights(4, 3, 3, 0)
    zeros = nf.constant(np.zeros((2, 3), np.float32))

    def step(state, row):
        then = F.lstm_cell(row, *state, w, u)
        return then, then[1]

    return x, nf.scan(step, (zeros, zeros), x)[1]


def _computed_inside():
    x = nf.placeholder((4, 2, 3), name="x")
    w, u = weights(4, 3, 3, 0)
    zeros = nf.constant(np.zeros((2, 3), np.float32))

    def step(state, row):
        then = F.lstm_cell(nf.exp(row), *state, w, u)
        return then, then[0]

    return x, nf.scan(step, (zeros, zeros), x)[1]


@pytest.mark.parametrize(
    ("program", "reason"),
    [(_read_inside, "it gives all steps of h alone"), (_computed_inside, "is computed in every step")],
)
def test_what_it_does_not_give(program, reason):
    x, y = program()
    found = as_calls(make_graph([y], [x]))
    assert isinstance(found, Verdict) and reason in found.reason


def test_on_a_gpu_nothing_is_called_yet():
    x, _, outputs = case("lstm", 5, 3, 4, 7)
    compiled = pipeline.compile_program(outputs[:1], [x], target="cuda:sm_80")
    assert compiled.explain("torch cells") == "calls of another library go into plans for a CPU alone so far"
    assert not compiled.foreign


def test_reports_of_it():
    x, _, outputs = case("lstm", 5, 3, 4, 7)
    f = nf.compile(outputs, [x])
    times = f.profile(values([x])[x], runs=1)
    rows = kernel_rows(f.compiled, times)
    assert len(rows) == len(f.compiled.kernels)
    told = {e["name"]: e["args"]["schedule"] for e in events(f.compiled, times, []) if "schedule" in e.get("args", {})}
    assert told["torch.lstm"] == "another library's"
