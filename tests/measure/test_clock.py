"""Times of recorded calls, on a device whose clock is ours."""

import numpy as np
import pytest

from neoflow.code import Code, Entry, Fault, Workspace
from neoflow.measure import clock
from neoflow.runtime.device.cpu import Cpu
from neoflow.runtime.executor import Loaded
from neoflow.target import Target

TARGET = Target(threads=2, l2_bytes=1 << 12)


class Machine(Cpu):
    """Every launch takes `seconds`; what was recorded is seen."""

    def __init__(self, monkeypatch, seconds):
        self.seconds, self.now, self.launched = seconds, 0.0, []
        monkeypatch.setattr(clock.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(clock, "waited", lambda: 0.0)

    def record(self, launches, table, status, threads, timed=False):
        return launches, table

    def launch(self, recording):
        self.launched.append(recording)
        self.now += self.seconds * len(recording[0])


def ring_of(machine, size=256):
    return clock.Ring(machine, [np.ones(size, np.float32)], [np.zeros(size, np.float32)], TARGET)


def stopwatch(machine, ring=None):
    code = Code((Entry("k", 4, True),), (Workspace(100, False),), (Fault(0, 3),))
    return clock.Stopwatch(machine, Loaded(code, (1,), None), ring or ring_of(machine), TARGET)


def test_a_time_is_of_a_call_and_blocks_are_long_enough(monkeypatch):
    machine = Machine(monkeypatch, 1e-5)
    found = stopwatch(machine).time()
    assert found.seconds == pytest.approx(1e-5) and found.spread == pytest.approx(0, abs=1e-9)
    assert len(machine.launched[-1][0]) == 100 and found.blocks == 16
    assert machine.now < 0.03


def test_calls_go_round_a_ring_larger_than_the_caches(monkeypatch):
    machine = Machine(monkeypatch, 1e-5)
    ring = ring_of(machine)
    assert len(ring.arrays) == 2 * 2 * 4096 // 2048
    stopwatch(machine, ring).time()
    launches, table = machine.launched[-1]
    starts = [int(table[launch.pointers]) for launch in launches]
    assert len(set(starts)) == len(ring.arrays) and starts[0] == starts[len(ring.arrays)]
    assert len(ring_of(machine, 1 << 16).arrays) == 1 and len(ring_of(machine, 1).arrays) == clock.MOST_COPIES


def test_kernels_in_turns_go_round_the_same_arrays(monkeypatch):
    """With a ring each, what one needs would be out of the caches after the others."""
    machine = Machine(monkeypatch, 1e-5)
    ring = ring_of(machine)
    clock.in_turns([stopwatch(machine, ring) for _ in range(3)], 2)
    blocks = [(launches, table) for launches, table in machine.launched if len(launches) > len(ring.arrays)]
    assert len({tuple(int(table[one.pointers]) for one in launches) for launches, table in blocks}) == 1


@pytest.mark.parametrize(("times", "blocks"), [(1.2, 17), (1.4, 2), (2.0, 2), (4.0, 1)])
def test_what_is_clearly_slower_is_given_up(monkeypatch, times, blocks):
    machine = Machine(monkeypatch, 1e-5 * times)
    found = stopwatch(machine).time(best=1e-5)
    assert found.seconds == pytest.approx(1e-5 * times)
    assert found.blocks <= blocks


def test_what_was_disturbed_is_timed_again(monkeypatch):
    """Of attempts in which others had the cores the calmest; none after a calm one."""
    now, delay, found = iter(range(100)), iter([0.0, 1.0, 1.0, 1.5, 1.5, 2.4]), iter("abcd")
    monkeypatch.setattr(clock.time, "perf_counter", lambda: next(now))
    monkeypatch.setattr(clock, "waited", lambda: next(delay))
    patience = clock.Patience()
    assert clock.undisturbed(lambda: next(found), 2, patience) == "b" and next(found) == "d"
    delay = iter([3.0, 3.0 + clock.DISTURBED])
    assert clock.undisturbed(lambda: "calm", 2, patience) == "calm"


def test_beside_a_program_that_runs_on_all_cores_one_attempt_has_to_do(monkeypatch):
    patience, tried, delay = clock.Patience(), [], iter(np.arange(1000.0))
    monkeypatch.setattr(clock, "waited", lambda: next(delay))
    for _ in range(clock.RETRIED + 1):
        before = len(tried)
        clock.undisturbed(lambda: tried.append(1), 1, patience)
        tried[before:] = [len(tried) - before]
    assert tried == [clock.ATTEMPTS] * clock.BUSY + [1] * (clock.RETRIED - clock.BUSY) + [clock.ATTEMPTS]
    monkeypatch.setattr(clock, "waited", lambda: 0.0)
    clock.undisturbed(lambda: None, 1, patience)
    assert patience.attempts == clock.ATTEMPTS


def test_the_system_tells_how_long_threads_waited(tmp_path, monkeypatch):
    assert 0 <= clock.waited() <= clock.waited()
    for task, text in (("1", "5000 2000000000 3"), ("2", "1 500000000 1"), ("3", "")):
        (tmp_path / task).mkdir()
        (tmp_path / task / "schedstat").write_text(text)
    monkeypatch.setattr(clock, "_TASKS", tmp_path)
    assert clock.waited() == 2.5
    monkeypatch.setattr(clock, "_TASKS", tmp_path / "absent")
    assert clock.waited() == 0


def test_a_slow_one_is_called_a_few_times(monkeypatch):
    machine = Machine(monkeypatch, 0.2)
    assert stopwatch(machine).time().blocks == 3 and len(machine.launched) <= 8


def test_in_turns_the_machine_s_pace_does_not_matter(monkeypatch):
    slow, fast = Machine(monkeypatch, 3e-5), Machine(monkeypatch, 1e-5)
    watches = [stopwatch(fast), stopwatch(slow)]
    pace = iter(np.repeat(np.random.default_rng(0).uniform(1, 5, 1000), 2))

    def block(machine, seconds):
        return lambda: seconds * next(pace)

    for watch, machine, seconds in zip(watches, (fast, slow), (1e-5, 3e-5), strict=True):
        monkeypatch.setattr(watch, "begin", lambda: 0.0)
        monkeypatch.setattr(watch, "block", block(machine, seconds))
    first, second = clock.in_turns(watches, 9)
    assert second.seconds / first.seconds == pytest.approx(3.0) and second.spread == pytest.approx(0)
