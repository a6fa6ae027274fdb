"""What a person sees of a run: epochs, the loss once there is one, and what is being compiled when that is slow."""

import io
import re
import time

import pytest

import neoflow as nf
from neoflow import instep, trace
from neoflow.train import progress
from neoflow.train.progress import Bar, Lines, Silent, compiling, reporter
from tests.runtime.programs import InterpretedTrainer, Softmax, batches


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Listening(Silent):
    def __init__(self):
        self.texts = []

    def compiling(self, text):
        self.texts.append(text)


def test_lines_and_bar():
    assert type(reporter(True, io.StringIO())) is Lines and type(reporter(True, Terminal())) is Bar
    for file in (io.StringIO(), Terminal()):
        show = reporter(True, file)
        show.start(3, 5, 1, 2)
        show.step(0.5)
        show.epoch(2, {"loss": 0.25, "accuracy": 0.5}, 1.5)
        show.stop()
        assert re.search(r"epoch 2/3  loss 0\.25  accuracy 0\.5  1\.5 s", file.getvalue())
    assert reporter(False, Terminal()).stop() is None


def test_no_loss_before_the_first_step():
    file = Terminal()
    show = reporter(True, file)
    show.start(3, 5, 0, 0)
    show.stop()
    assert "nan" not in file.getvalue() and "loss" not in file.getvalue()
    show = reporter(True, file)
    show.start(3, 5, 0, 0)
    show.step(0.5)
    show.stop()
    assert "loss 0.5" in file.getvalue() and "nan" not in file.getvalue()


def test_a_pace_is_of_several_steps_but_for_the_first():
    pace = progress.Pace()
    pace.note(5.0)
    assert str(pace) == "no step is timed yet"
    for seconds in (0.004, 0.002, 0.003):
        pace.note(seconds)
    assert str(pace) == "a step takes 3.00 ms, at the start 3.00"
    for seconds in [0.003] * (progress.STEPS - 3) + [0.001] * progress.STEPS:
        pace.note(seconds)
    assert str(pace) == "a step takes 1.00 ms, at the start 3.00"


def test_a_search_is_shown_below_the_bar_where_there_is_one():
    text = "16 candidates, product: 12 us (80% of its floor's speed); a step takes 1.25 ms, at the start 2.50"
    file = Terminal()
    show = reporter(True, file)
    show.start(1, 5, 0, 0)
    show.step(0.5)
    assert "candidates" not in file.getvalue()
    show.step(0.25, text)
    show.stop()
    shown = " ".join(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue()).split())
    assert text in shown and "loss 0.25" in shown


class Steps(Silent):
    """What steps are shown with."""

    def __init__(self):
        self.searches, self.lines = [], []

    def step(self, loss, search=""):
        self.searches.append(search)

    def line(self, text):
        self.lines.append(text)


@pytest.mark.tvm
def test_what_a_step_takes_is_measured_while_a_search_goes_on(monkeypatch):
    from neoflow.train import kernels
    from tests.train.test_kernels import Found

    shows = []
    monkeypatch.setattr(kernels, "Exploration", Found)
    monkeypatch.setattr("neoflow.train.trainer.reporter", lambda show: shows.append(Steps()) or shows[-1])
    for mode in ("dynamic", "static"):
        history = Softmax().trainer(nf.Trainer, mode=mode).fit(batches(), 1)
        assert len(shows[-1].searches) == len(history.losses) > 2
        first, *others = shows[-1].searches
        if mode == "static":
            assert {first, *others} == {""}
        else:
            assert first == "told; no step is timed yet"
            assert all(re.fullmatch(r"told; a step takes [\d.]+ ms, at the start [\d.]+", other) for other in others)


@pytest.mark.tvm
def test_a_step_that_was_searched_for_says_what_it_took_and_takes(capsys):
    class Judged(nf.Trainer):
        @staticmethod
        def compile(*program, **options):
            function = nf.Trainer.compile(*program, **options)
            judged = instep.Judged("by themselves", {}, {"the default ones": 3e-3, "by themselves": 2e-3})
            function.compiled.trace.run("in the step", lambda: judged, lambda j: j.summary, str)
            return function

    Softmax().trainer(Judged, progress=True).step_function()
    said = "a step, schedules as by themselves: the default ones 3.000 ms, by themselves 2.000 ms"
    assert said in capsys.readouterr().err.splitlines()


def test_a_slow_compilation_is_told(monkeypatch):
    show = Listening()
    monkeypatch.setattr(progress, "SLOW", 0.02)
    with compiling(show, "step"):
        trace.tell("graph")
        assert show.texts == []
        deadline = time.monotonic() + 10
        while not show.texts and time.monotonic() < deadline:
            time.sleep(0.005)
        trace.tell("code", 3, 41)
    assert show.texts == ["compiling the step: graph", "compiling the step: code, 3 of 41 kernels", ""]
    trace.tell("code", 4, 41)
    assert len(show.texts) == 3


def test_a_fast_one_is_not(monkeypatch):
    show = Listening()
    monkeypatch.setattr(progress, "SLOW", 60.0)
    with compiling(show, "step"):
        trace.tell("graph")
    assert show.texts == []


def test_where_it_is_told():
    lines = Lines(io.StringIO())
    for text in ("compiling the step: graph", "compiling the step: code, 1 of 2 kernels", ""):
        lines.compiling(text)
    assert lines.file.getvalue() == "compiling the step: graph\n"
    bar = Bar(Terminal())
    for text in ("compiling the step: graph", "compiling the step: code, 1 of 2 kernels", ""):
        bar.compiling(text)
    assert "compiling the step" in bar.file.getvalue()
    bar.start(1, 2, 0, 0)
    bar.compiling("compiling the evaluation: plan")
    bar.stop()
    assert "compiling the evaluation: plan" in bar.file.getvalue()


@pytest.mark.tvm
def test_the_compiler_tells_its_stages_and_kernels(monkeypatch, tmp_path):
    monkeypatch.setenv("NEOFLOW_CACHE_DIR", str(tmp_path))
    x = nf.placeholder((5, 7), name="x")
    told = []
    with trace.listening(lambda *told_of: told.append(told_of)):
        nf.compile([nf.sum(nf.exp(x), axis=1), nf.expr("y[i,j] = sum(x[i,k] * x[j,k])", x=x)], [x])
    stages = list(dict.fromkeys(stage for stage, *_ in told))
    assert stages[0] == "expressions" and stages[-3:] == ["schedules", "code", "plan"]
    counts = [(done, total) for stage, done, total, _ in told if stage == "code" and total]
    assert counts[-1] == (2, 2) and counts == sorted(counts)


def test_a_trainer_tells_what_it_compiles(monkeypatch, capsys):
    class Slow(InterpretedTrainer):
        @staticmethod
        def compile(*program, **options):
            trace.tell("code", 1, 3)
            time.sleep(0.2)
            return InterpretedTrainer.compile(*program, **options)

    monkeypatch.setattr(progress, "SLOW", 0.02)
    run = Softmax().trainer(Slow, progress=True)
    run.fit(batches(), 1, validation=list(batches()))
    seen = capsys.readouterr().err
    assert "compiling the step: code, 1 of 3 kernels" in seen and "compiling the evaluation: code" in seen
    assert re.search(r"epoch 1/1  loss [\d.]+  accuracy [\d.]+  validation loss", seen)
