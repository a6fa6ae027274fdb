"""Recurrences as calls of PyTorch on a GPU, which is the emulator, with PyTorch for CPUs in the place of cuDNN: the law
against `evaluate`, what is in which graph, when nothing is called, training, faults."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import neoflow as nf
from neoflow import pipeline, trials
from tests.mapping.cells import KINDS, case, interrupt_once, lstm, trained, two_layers, values

torch = pytest.importorskip("torch")

from neoflow.runtime import torch_cells, torch_cuda  # noqa: E402
from tests.emulator.cuda_torch import emulated_torch  # noqa: E402
from tests.emulator.driver import emulated  # noqa: E402
from tests.runtime.foreign import STREAM, Torch  # noqa: E402

pytestmark = [pytest.mark.tvm, pytest.mark.torch]
FASTER = (1.0, 0.5)
FOREIGN = "torch."


@pytest.fixture(autouse=True)
def gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("NEOFLOW_WITH", "torch cells")
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(trials.Trials, "beside", lambda *given: FASTER)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield emulated(monkeypatch)
    torch.set_num_threads(threads)


@pytest.fixture
def stood(monkeypatch, gpu):
    return emulated_torch(monkeypatch, gpu)


def called(f):
    return [c.name for c in f.plan.calls if c.name.startswith(FOREIGN)]


def small():
    """(input, outputs, weights): an LSTM and what comes before and after it."""
    x = nf.placeholder((3, 2, 4), name="x")
    ys, _, _, own = lstm(nf.tanh(x), 5)
    return x, [nf.sum(ys * ys), ys], own


def in_order(f):
    """The calls of a plan, kernels that nothing of another library parts as one."""
    found = []
    for c in f.plan.calls:
        what = "torch" if c.name.startswith(FOREIGN) else "run"
        if what == "torch" or found[-1:] != [what]:
            found.append(what)
    return found


SIZES = ((1, 1, 1, 1), (5, 3, 4, 7), (13, 2, 9, 5))
QUICK = {("lstm, one bias", SIZES[1]), ("gru", SIZES[2])}
CASES = [pytest.param(k, s, marks=() if (k, s) in QUICK else pytest.mark.slow) for k in KINDS for s in SIZES]


@pytest.mark.parametrize(("kind", "size"), CASES)
def test_values_and_gradients_are_those_of_evaluate(stood, kind, size):
    x, own, outputs = case(kind, *size)
    f = nf.compile(outputs, [x], target="cuda")
    assert "called" in f.explain("torch cells") and len(called(f)) == 2
    feeds = values([x, *own])
    for p in own:
        nf.set_value(p, feeds[p])
    for _ in range(2):
        found = f(feeds[x])
    for a, b in zip(found, nf.evaluate(outputs, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert set(stood.precisions) == {"ieee"} and torch.backends.cudnn.rnn.fp32_precision != "ieee"


def test_a_step_is_graphs_and_calls_in_their_order(stood, gpu):
    program = two_layers()
    x, own, *_ = program
    f, _ = trained(1, *program, target="cuda")
    feeds = values([x, *own])
    f(feeds[x])
    graphs = gpu.driver.calls.count("graph")
    begun = len(gpu.driver.calls)
    f(feeds[x])
    asked = gpu.driver.calls[begun:]
    assert [name for name in asked if name in ("run", "torch")] == in_order(f)
    assert in_order(f).count("torch") == 4 and gpu.driver.calls.count("graph") == graphs
    last = len(asked) - asked[::-1].index("torch")
    assert "synchronize" not in asked[:last] and "to_host" not in asked[:last], "the host waits for nothing"
    assert f.runs == 3


def test_training_has_the_losses_of_our_own(monkeypatch, stood):
    program = two_layers()
    f, theirs = trained(4, *program, target="cuda")
    assert called(f) == [*["torch.lstm"] * 2, *["torch.lstm gradient"] * 2]
    monkeypatch.delenv("NEOFLOW_WITH")
    _, ours = trained(4, *program)
    np.testing.assert_allclose(theirs, ours, rtol=1e-5)
    assert theirs[-1] < theirs[0]


def test_a_call_alone_and_one_at_each_end(stood, gpu):
    x = nf.placeholder((3, 2, 4), name="x")
    w = nf.parameter((20, 4), name="w")
    u = nf.parameter((20, 5), name="u")
    zeros = nf.placeholder((2, 5), name="zeros")

    def step(state, row):
        then = nf.nn.functional.lstm_cell(row, *state, w, u)
        return then, then[0]

    _, ys = nf.scan(step, (zeros, zeros), x)
    f = nf.compile([ys], [x, zeros], target="cuda")
    feeds = values([x, w, u]) | {zeros: np.zeros((2, 5), np.float32)}
    for p in (w, u):
        nf.set_value(p, feeds[p])
    for _ in range(2):
        (found,) = f(feeds[x], feeds[zeros])
    np.testing.assert_allclose(found, nf.evaluate([ys], feeds)[0], rtol=1e-4, atol=1e-6)
    assert called(f) == ["torch.lstm"] and f.runs == 2


def test_what_lies_on_the_gpu_is_used_there(stood, gpu):
    x, outputs, own = small()
    f = nf.compile(outputs, [x], target="cuda")
    feeds = values([x, *own])
    for p in own:
        nf.set_value(p, feeds[p])
    there = gpu.allocate(x.shape, x.dtype)
    gpu.copy(there, feeds[x])
    found = f(there)
    wanted = nf.evaluate(outputs, feeds)
    np.testing.assert_allclose(np.asarray(found[1]), wanted[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("fails", [False, True])
def test_who_lends_waits_for_all_that_was_launched(monkeypatch, stood, gpu, fails):
    monkeypatch.setattr(torch.cuda, "current_stream", lambda ordinal: SimpleNamespace(cuda_stream=STREAM))
    x, outputs, _ = small()
    f = nf.compile(outputs, [x], target="cuda")
    lent = Torch(gpu, values([x])[x])
    f(lent)
    begun = len(gpu.driver.calls)
    if fails:
        monkeypatch.setattr(torch_cells, "_forward", lambda *given: 1 / 0)
        with pytest.raises(nf.RuntimeFault, match="ZeroDivisionError"):
            f(lent)
    else:
        f(lent)
    asked = gpu.driver.calls[begun:]
    assert gpu.driver.led[-1] == STREAM and "lead" in asked
    assert asked.index("lead") > len(asked) - 1 - asked[::-1].index("torch")


def test_short_kernels_go_together_beside_it(monkeypatch, stood):
    monkeypatch.setenv("NEOFLOW_WITH", "torch cells,together")
    program = two_layers()
    f, theirs = trained(2, *program, target="cuda")
    assert len(called(f)) == 4
    monkeypatch.delenv("NEOFLOW_WITH")
    np.testing.assert_allclose(theirs, trained(2, *program)[1], rtol=1e-5)


def test_it_is_measured_beside_ours(monkeypatch, gpu):
    monkeypatch.undo()
    place = emulated(monkeypatch)
    emulated_torch(monkeypatch, place)
    monkeypatch.setenv("NEOFLOW_WITH", "torch cells")
    monkeypatch.setattr(trials, "TRIED", 0.01)
    x, outputs, _ = small()
    said = nf.compile(outputs[:1], [x], target="cuda").explain("torch cells")
    assert said.startswith("torch.lstm of 3 steps: ") and "ms, ours " in said


def test_ours_is_timed_with_its_loops_as_one_launch(monkeypatch, gpu):
    monkeypatch.delenv("NEOFLOW_WITH")
    x = nf.placeholder((13, 2, 9), name="x")
    outputs = lstm(x, 5)
    compiled = pipeline.compile_program(outputs[:1], [x], target="cuda")
    assert compiled.loops.built
    launches = trials.alone(compiled)._executor.launches
    assert launches == pipeline.bind(compiled)._executor.launches < 13


def test_what_is_wrong_is_not_called(monkeypatch, stood):
    right = trials.Trials.values
    monkeypatch.setattr(trials.Trials, "values", lambda *given: [a + np.float32(1e-3) for a in right(*given)])
    x, outputs, _ = small()
    f = nf.compile(outputs, [x], target="cuda")
    assert "wrong by up to" in f.explain("torch cells") and not called(f)


def no_cuda(patch):
    patch.setattr(torch.backends.cuda, "is_built", lambda: False)


def no_gpu(patch):
    patch.setattr(torch.cuda, "is_available", lambda: False)


def no_cudnn(patch):
    patch.setattr(torch.backends.cudnn, "is_available", lambda: False)


def off(patch):
    patch.setattr(torch.backends.cudnn, "enabled", False)


def none_visible(patch):
    patch.setattr(torch.cuda, "device_count", lambda: 0)


def another(patch):
    patch.setattr(torch.cuda, "get_device_capability", lambda ordinal: (9, 0))


WORDS = [
    (no_cuda, f"PyTorch {torch.__version__} was built without CUDA"),
    (no_gpu, f"PyTorch {torch.__version__} reaches no GPU here"),
    (no_cudnn, f"PyTorch {torch.__version__} has no cuDNN"),
    (off, "cuDNN is switched off: torch.backends.cudnn.enabled is False"),
    (none_visible, "PyTorch sees 0 GPUs, and the program is for cuda:0"),
    (another, "PyTorch's cuda:0 is another GPU, sm_90: the program's is sm_80"),
]


@pytest.mark.parametrize(("change", "words"), WORDS, ids=[change.__name__ for change, _ in WORDS])
def test_what_cannot_be_called_is_told(monkeypatch, stood, change, words):
    x, outputs, _ = small()
    with monkeypatch.context() as patch:
        change(patch)
        f = nf.compile(outputs[:1], [x], target="cuda")
    assert f.explain("torch cells") == words and not called(f)


def test_this_pytorch_is_judged_as_it_is(gpu):
    x, outputs, _ = small()
    said = nf.compile(outputs[:1], [x], target="cuda").explain("torch cells")
    assert said == torch_cuda.refusal(gpu) or (torch.cuda.is_available() and torch.backends.cudnn.is_available())


def test_memory_is_counted(stood):
    x, outputs, _ = small()
    f = nf.compile(outputs[:1], [x], target="cuda", memory="1MiB")
    assert "what PyTorch takes is not known" in f.explain("torch cells") and not called(f)


def test_without_pytorch(monkeypatch, gpu):
    monkeypatch.setitem(sys.modules, "torch", None)
    x, outputs, _ = small()
    f = nf.compile(outputs[:1], [x], target="cuda")
    assert f.explain("torch cells") == "PyTorch is not installed"


def test_cudnn_vanishes_between_compiling_and_running(monkeypatch, stood):
    x, outputs, _ = small()
    compiled = pipeline.compile_program(outputs[:1], [x], target="cuda")
    no_cudnn(monkeypatch)
    words = r"compiled with torch\.lstm, and PyTorch .* has no cuDNN; put that right, or compile again without"
    with pytest.raises(nf.RuntimeFault, match=words):
        pipeline.bind(compiled)


def test_a_call_that_fails_ends_the_step(monkeypatch, stood, gpu):
    program = two_layers()
    x, own, *_ = program
    f, _ = trained(1, *program, target="cuda")
    feeds, old = values([x]), [nf.get_value(p).copy() for p in own]
    begun = len(gpu.driver.calls)

    def fails(*given):
        raise MemoryError("none left")

    with monkeypatch.context() as patch:
        patch.setattr(torch_cells, "_back", fails)
        words = r"torch\.lstm gradient failed: MemoryError: none left; no parameter has changed"
        with pytest.raises(nf.RuntimeFault, match=words):
            f(feeds[x])
    asked = [name for name in gpu.driver.calls[begun:] if name in ("run", "torch")]
    at = in_order(f).index("torch", in_order(f).index("torch", in_order(f).index("torch") + 1) + 1)
    assert asked == [*in_order(f)[: at + 1], "torch"], "nothing comes after the call that failed twice"
    assert f.runs == 1 and all((nf.get_value(p) == a).all() for p, a in zip(own, old, strict=True))
    f(feeds[x])
    assert f.runs == 2 and all((nf.get_value(p) != a).any() for p, a in zip(own, old, strict=True))


def test_an_exception_from_outside_comes_after_the_step(monkeypatch, stood):
    program = two_layers()
    x, own, *_ = program
    f, _ = trained(1, *program, target="cuda")
    interrupt_once(monkeypatch, f, x, own)


def test_an_index_out_of_its_table_is_told_beside_it(stood):
    table, ids = nf.placeholder((7, 4), name="table"), nf.placeholder((3, 2), "int64", name="ids")
    ys, _, _, own = lstm(nf.nn.functional.embedding(table, ids), 5)
    f = nf.compile([ys], [table, ids], target="cuda")
    feeds = values([table, *own])
    for p in own:
        nf.set_value(p, feeds[p])
    right = np.array([[0, 6], [1, 2], [3, 3]])
    f(feeds[table], right)
    with pytest.raises(nf.RuntimeFault, match="7"):
        f(feeds[table], np.full((3, 2), 7))
    assert called(f) == ["torch.lstm"] and f.runs == 1
    (found,) = f(feeds[table], right)
    np.testing.assert_allclose(found, nf.evaluate([ys], feeds | {ids: right})[0], rtol=1e-4, atol=1e-6)


def test_a_profile_tells_what_it_takes(stood):
    x, outputs, _ = small()
    f = nf.compile(outputs, [x], target="cuda")
    told = {t.name: t.seconds for t in f.profile(values([x])[x], runs=2)}
    assert len(told) == len(f.plan.calls) and all(s > 0 for s in told.values()) and f.runs == 2


@pytest.mark.parametrize("is_old", [False, True])
def test_float32_is_float32_whatever_pytorch_is_set_to(monkeypatch, is_old):
    cudnn = torch.backends.cudnn
    if is_old:  # before each operator had a precision of its own
        monkeypatch.setattr(cudnn, "rnn", SimpleNamespace())

    def rounds():
        return cudnn.allow_tf32 if is_old else cudnn.rnn.fp32_precision == "tf32"

    for allowed in (True, False):
        monkeypatch.setattr(cudnn, "allow_tf32", allowed)
        with pytest.raises(ZeroDivisionError), torch_cuda._float32_as_it_is():
            assert not rounds()
            raise ZeroDivisionError
        assert rounds() == allowed and cudnn.allow_tf32 == allowed


def test_nothing_is_drawn_at_random(stood):
    before = torch.get_rng_state()
    x, outputs, _ = small()
    nf.compile(outputs, [x], target="cuda")(values([x])[x])
    assert (before == torch.get_rng_state()).all()


def test_a_package_has_none_of_it(tmp_path, stood):
    x, outputs, _ = small()
    f = nf.compile(outputs, [x], target="cuda")
    f.save(tmp_path / "lstm.nflib")
    feeds = values([x])
    loaded = nf.load(tmp_path / "lstm.nflib").run(feeds[x])
    np.testing.assert_allclose(loaded[1], f(feeds[x])[1], rtol=1e-5, atol=1e-6)
