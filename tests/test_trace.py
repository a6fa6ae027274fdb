"""Who waits long for the compiler is told why, once."""

import gc
import warnings

import pytest

import neoflow as nf
from neoflow import rewriting
from neoflow.graph import make_graph
from neoflow.trace import PATIENCE, YOUNG, SlowCompileWarning, Trace, collected_seldom, listening, tell, tick


class Clock:
    """Moves on by `step` seconds whenever it is asked."""

    def __init__(self, step):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


def test_a_long_compilation_says_in_which_stage_it_is():
    clock = Clock(0.0)
    trace = Trace(clock=clock)

    def work(seconds):
        clock.now += seconds
        trace.tick()
        return seconds

    trace.run("passes", lambda: work(PATIENCE - 1), lambda n: "300 computes")
    with pytest.warns(SlowCompileWarning) as found:
        trace.run("code", lambda: work(2.0), str, of="40 kernels of 90 nodes")
        trace.run("plan", lambda: work(1000.0), str)
    (warning,) = found
    assert str(warning.message) == (
        "compiling has taken 61 s so far and is in stage `code`, 40 kernels of 90 nodes; before that: "
        "passes 59 s (300 computes). Fewer or more equal steps of what is unrolled compile faster"
    )


@pytest.mark.parametrize("say", [tick, lambda: tell("code", 1, 40)])
def test_what_is_told_reaches_the_stage_it_runs_in(say):
    clock = Clock(0.0)
    trace, told = Trace(clock=clock), []

    def fails():
        raise ValueError("no code")

    with listening(lambda *told_of: told.append(told_of)):
        with pytest.raises(ValueError, match="no code"):
            trace.run("plan", fails, str)
        clock.now += PATIENCE + 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            say()  # outside of a stage
        with pytest.warns(SlowCompileWarning, match="is in stage `code`"):
            trace.run("code", say, str)
    assert [stage for stage, *_ in told if stage == "plan"] == ["plan"]
    assert told.count(("code", 1, 40, "")) == 2 * (say is not tick)


def test_a_short_compilation_says_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace = Trace(clock=Clock(0.1))
        for _ in range(int(PATIENCE / 0.1) // 4 - 1):
            trace.run("code", lambda: None, str)


@pytest.mark.parametrize("stage", ["canonicalize", "partition"])
def test_long_stages_say_so_before_they_end(stage):
    x = nf.placeholder((8,), name="x")
    y = x
    for n in range(20):
        y = nf.exp(y) * (1.0 + n)
    clock = Clock(0.0)
    trace = Trace(clock=clock)
    graph = make_graph([y], [x])
    whole = trace.run

    def run(name, work, *more):
        clock.step = 10.0 if name == stage else 0.0
        return whole(name, work, *more)

    trace.run = run
    with pytest.warns(SlowCompileWarning, match=rf"is in stage `{stage}`, \d+ computes"):
        rewriting.stages(graph, trace)


def test_while_a_stage_runs_python_collects_seldom():
    before, trace = gc.get_threshold(), Trace()
    assert trace.run("passes", gc.get_threshold, str) == (YOUNG, *before[1:])
    assert gc.get_threshold() == before
    with pytest.raises(ZeroDivisionError):
        trace.run("passes", lambda: 1 // 0, str)
    assert gc.get_threshold() == before


@pytest.mark.parametrize("threshold", [(0, 10, 10), (2 * YOUNG, 5, 5)])
def test_who_collects_never_or_more_seldom_is_left_alone(threshold):
    before = gc.get_threshold()
    try:
        gc.set_threshold(*threshold)
        with collected_seldom():
            assert gc.get_threshold() == threshold
        assert gc.get_threshold() == threshold
    finally:
        gc.set_threshold(*before)


def test_stages_of_two_threads_leave_the_collector_as_it_was():
    before, first, second = gc.get_threshold(), collected_seldom(), collected_seldom()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before
