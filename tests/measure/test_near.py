"""Cores that are near each other, or apart: what is timed meanwhile, and how long is waited."""

import os
import threading

import pytest

from neoflow.devices import cpu
from neoflow.measure import near

ARE_NEAR = near.are_near
"""As it is, before tests are told that cores are near."""


class Moving:
    """Cores whose looks give what is said; each takes no time, as waiting does."""

    def __init__(self, *looks):
        self.looks = list(looks)

    def __call__(self):
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(near, "SOON", 0.0)


def test_what_is_timed_while_cores_are_apart_is_timed_again():
    numbers = iter(range(9))
    cores = near.Cores(30.0, Moving(True, False, True, True, False, False, True, True))
    assert [cores.between(lambda: next(numbers)) for _ in range(3)] == [1, 2, 3]
    assert cores.timed == 3 and cores.apart == 0 and cores.share_apart == 0


def test_cores_that_stay_apart_are_timed_as_they_are():
    cores = near.Cores(0.02, Moving(False))
    assert [cores.between(lambda: "timed") for _ in range(4)] == ["timed"] * 4
    assert cores.timed == cores.apart == 4 and cores.share_apart == 1 and cores.patience <= 0


def test_nothing_timed_was_apart():
    assert near.Cores().share_apart == 0


@pytest.mark.tvm
def test_a_line_goes_to_another_core_and_back():
    mask, threads = os.sched_getaffinity(0), threading.active_count()
    first, *others = sorted(mask)
    for other in others:
        assert 5e-9 < min(cpu().team.round_trip((first, other)) for _ in range(20)) < 1e-4
    assert os.sched_getaffinity(0) == mask and threading.active_count() == threads
    assert near.farthest(20) < 1e-4


@pytest.mark.tvm
def test_nobody_answers(monkeypatch):
    """The other thread does not come: the first one leaves after a while."""
    monkeypatch.setattr(threading.Thread, "start", lambda self: None)
    monkeypatch.setattr(threading.Thread, "join", lambda self: None)
    first = min(os.sched_getaffinity(0))
    assert cpu().team.round_trip((first, first), rounds=3) == float("inf")


@pytest.mark.parametrize(("seconds", "apart"), [(55e-9, False), (330e-9, True), (5e-6, False), (float("inf"), False)])
def test_what_is_apart(monkeypatch, seconds, apart):
    """What takes longer than between any two cores was disturbed, and says nothing."""
    monkeypatch.setattr(near, "farthest", lambda: seconds)
    monkeypatch.setattr(near, "cpu_features", lambda: {"hypervisor"})
    assert near.are_apart(seconds) == apart and ARE_NEAR() != apart
    monkeypatch.setattr(near, "cpu_features", lambda: set())
    assert ARE_NEAR(), "a machine's own stay where they are"


def test_waiting_takes_patience():
    cores = near.Cores(0.05, Moving(False, False, True))
    assert cores.wait() and 0 < cores.patience < 0.05
    cores = near.Cores(0.01, Moving(False))
    assert not cores.wait() and cores.patience <= 0


def test_looks_are_soon_at_first_and_seldom_later(monkeypatch):
    pauses = []
    monkeypatch.setattr(near, "SOON", 0.02)
    monkeypatch.setattr(near.time, "sleep", pauses.append)
    assert near.Cores(9.0, Moving(*[False] * 6, True)).wait()
    assert pauses == [0.02, 0.04, 0.08, 0.16, near.PAUSE, near.PAUSE]


def test_one_core_is_near_itself(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    assert near.farthest() == 0
