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
from tests.mapping.cells import KINDS, case, interrupt_once, lstm, trained, two_layers, values, weights

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
    interrupt_once(monkeypatch, f, x, own)


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


def test_for_a_gpu_that_is_not_here_nothing_is_called():
    x, _, outputs = case("lstm", 5, 3, 4, 7)
    compiled = pipeline.compile_program(outputs[:1], [x], target="cuda:sm_80")
    said = compiled.explain("torch cells")
    assert said.startswith("what is called is measured beside ours, and that cannot be here: ")
    assert not compiled.foreign


def test_reports_of_it():
    x, _, outputs = case("lstm", 5, 3, 4, 7)
    f = nf.compile(outputs, [x])
    times = f.profile(values([x])[x], runs=1)
    rows = kernel_rows(f.compiled, times)
    assert len(rows) == len(f.compiled.kernels)
    told = {e["name"]: e["args"]["schedule"] for e in events(f.compiled, times, []) if "schedule" in e.get("args", {})}
    assert told["torch.lstm"] == "another library's"
