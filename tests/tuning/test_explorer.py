"""What a search beside a program begins with; without a process."""

import io
import json
import math
import sys
import threading

import pytest

import neoflow as nf
from neoflow import tuning
from neoflow.devices import resolve_target
from neoflow.machine import available_cores
from neoflow.measure.here import Here
from neoflow.train.dynamic import _asked, schedules_of
from neoflow.tune import Limits
from neoflow.tune.process import Request
from neoflow.tuning import explorer as exploring
from neoflow.tuning.explorer import Explorer, Spared


def asked():
    x = nf.placeholder((8, 16), name="x")
    compiled = nf.compile([nf.sum(nf.exp(x), axis=1)], [x]).compiled
    return compiled, _asked(compiled, Limits(trials=1), 0.25, 0)


@pytest.mark.tvm
def test_it_waits_for_what_kernels_take_in_the_program():
    compiled, said = asked()
    explorer = Explorer(said, io.StringIO())
    assert not explorer.heard.is_set()
    ((digest, schedule),) = schedules_of(compiled).items()
    explorer.hear({digest: 2e-6})
    (use,) = explorer.uses
    assert explorer.heard.is_set() and use.there == (schedule, 2e-6)


@pytest.mark.tvm
@pytest.mark.parametrize("share", [0.25, 1.0])
def test_it_has_as_many_workers_as_its_share(share):
    _, said = asked()
    workers = Explorer({**said, "share": share}, io.StringIO()).measurer._start.keywords["count"]
    assert share * available_cores() <= workers < share * available_cores() + 1


@pytest.mark.tvm
def test_of_a_gpu_nobody_times_a_program_and_one_worker_is_enough():
    _, said = asked()
    explorer = Explorer({**said, "target": resolve_target("cuda:sm_90").to_text()}, io.StringIO())
    assert explorer.heard.is_set() and explorer.measurer._start.keywords["count"] is None


@pytest.mark.tvm
def test_it_tells_what_is_tuned_and_leaves_the_steps_time_to_who_runs_it():
    compiled, said = asked()
    out = io.StringIO()
    explorer = Explorer(said, out)
    (use,), (schedule,) = explorer.uses, schedules_of(compiled).values()
    points = ((1.0, 2, 3e-6), (1.5, 3, 2e-6))
    choices = [
        tuning.Choice(use, schedule, "tuned", 2e-6, 3e-6, 1e-6, 3, points),
        tuning.Choice(use, schedule, trials=4),
    ]
    explorer._watch(choices, 0, "as the compiler says it")
    told = json.loads(out.getvalue())
    assert told["told"] == f"7 candidates, {use.name}: 2 us (50% of its floor's speed)"
    assert told["curve"] == {"name": use.name, "calls": 1, "floor": 1e-6, "points": [list(points[-1])]}


# --- pauses

WHILE = 0.3
"""Seconds in which what is paused has time to do what it must not."""
AT_MOST = 60.0
"""Seconds waited for what is to happen."""


class Asked:
    """A measurer that answers at once."""

    def __init__(self):
        self.asked = []

    def __call__(self, *asked):
        self.asked.append(asked)
        return []

    interleaved = __call__


class Going(Explorer):
    """One without a program: its pauses, its share."""

    def __init__(self, share=1.0):
        self.share, self.going, self.paused = share, threading.Event(), 0.0
        self.going.set()


def test_a_pause_lasts_until_it_is_told_to_go_on(monkeypatch):
    """Whatever other tests have spent before in the same process."""
    monkeypatch.setattr(exploring, "_spent", lambda: 0.0)
    going, measurer = Going(), Asked()
    spared = Spared(measurer, going)
    for ask in (spared, spared.interleaved):
        going.listen(["pause\n"])
        thread = threading.Thread(target=ask, args=(None, None, []), daemon=True)
        thread.start()
        thread.join(WHILE)
        assert thread.is_alive() and not measurer.asked
        going.listen(["resume\n"])
        thread.join(AT_MOST)
        assert not thread.is_alive() and measurer.asked.pop()[2] == []


def test_what_kernels_take_is_no_word_of_a_pause():
    heard, going = [], Going()
    going.hear = heard.append
    going.listen(["pause\n", '{"digest": 2e-6}\n'])
    assert heard == [{"digest": 2e-6}] and not going.going.is_set()


def test_workers_are_asked_nothing_while_paused_and_hold_no_turn():
    """Of candidates under way too: built, judged, timed."""
    from neoflow.measure.turn import turn

    going = threading.Event()
    nothing = Request({"do": "nothing", "say": "x"})
    pool = Here(resolve_target("cpu"), 1, command=(sys.executable, "-m", "tests.tune.wild"), going=going)
    try:
        asks = (
            lambda: pool.build(nothing),
            lambda: pool.judge(lambda: nothing, 0),
            lambda: pool.time(lambda: nothing, 0),
        )
        for ask in asks:
            going.clear()
            answer = ask()
            with pytest.raises(TimeoutError):
                answer.result(WHILE)
            with turn() as mine:
                assert mine
                going.set()
            assert answer.result(AT_MOST).message["said"] == "x"
    finally:
        going.set()
        pool.close()


@pytest.mark.tvm
def test_the_workers_of_an_explorer_pause_with_it():
    _, said = asked()
    explorer = Explorer(said, io.StringIO())
    explorer.listen(["pause\n"])
    assert explorer.measurer._start.keywords["going"] is explorer.going and not explorer.going.is_set()


# --- its share


class Clock:
    """A machine of so many cores: `measure` takes seconds of it and of its processors, a sleep none of these."""

    def __init__(self, costs):
        self.now = self.spent = self.slept = 0.0
        self.costs = iter(costs)
        self.begins = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now, self.slept = self.now + seconds, self.slept + seconds

    def __call__(self, *_):
        self.begins.append((self.now, self.spent))
        seconds, processors = next(self.costs)
        self.now, self.spent = self.now + seconds, self.spent + processors
        return []

    interleaved = __call__


@pytest.mark.parametrize("share", [0.05, 0.25, 1.0])
def test_it_takes_its_share_of_the_cores_time_and_sleeps_no_longer(share, monkeypatch):
    """Of two cores; batches of a core and of both, short and long ones."""
    costs = [(0.5, 0.5), (1.0, 2.0), (3.0, 0.5), (0.1, 0.2), (2.0, 4.0), (0.5, 0.4), (1.0, 1.5)] * 4
    clock = Clock(costs)
    monkeypatch.setattr(exploring, "time", clock)
    monkeypatch.setattr(exploring, "_spent", lambda: clock.spent)
    monkeypatch.setattr(exploring, "available_cores", lambda: 2)
    spared = Spared(clock, Going(share))
    for n in range(len(costs)):
        (spared.interleaved if n % 5 == 4 else spared)(None, None, [])
    owed = 0.0
    for (begun, spent), (seconds, _) in zip(clock.begins, costs, strict=True):
        assert spent <= share * 2 * begun * (1 + 1e-9)
        assert begun == pytest.approx(max(owed, spent / (2 * share)))
        owed = begun + seconds
    assert (clock.slept == 0.0) == (share == 1.0)
    assert math.isclose(clock.now - clock.slept, sum(seconds for seconds, _ in costs))


def test_a_pause_is_no_time_to_make_up_for(monkeypatch):
    """Told twice it is one."""
    clock = Clock([(1.0, 1.0)] * 3)
    monkeypatch.setattr(exploring, "time", clock)
    monkeypatch.setattr(exploring, "_spent", lambda: clock.spent)
    monkeypatch.setattr(exploring, "available_cores", lambda: 2)
    going = Going(0.25)
    spared = Spared(clock, going)
    spared(None, None, [])
    going.listen(["pause\n"])
    clock.now += 50.0
    going.listen(["pause\n"])
    clock.now += 50.0
    going.listen(["resume\n", "resume\n"])
    for _ in range(2):
        spared(None, None, [])
    assert clock.begins == [(0.0, 0.0), (102.0, 1.0), (104.0, 2.0)]
