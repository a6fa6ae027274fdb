"""Whatever a worker does costs its own request, and no worker outlives its parent."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from neoflow.errors import RuntimeFault
from neoflow.tune.jobs import Job
from neoflow.tune.process import Request, Worker
from neoflow.tune.workers import Workers
from tests.tune.wild import EXPECTED

WILD = [sys.executable, "-m", "tests.tune.wild"]
DEADLINE = 0.5


@pytest.fixture(scope="module")
def workers():
    with Workers(WILD, 2, memory=256 << 20) as made:
        made.settle()
        yield made


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def all_gone(pids) -> bool:
    """Within 2 s."""
    end = time.monotonic() + 2.0
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    return not any(map(alive, pids))


def test_answers_come_in_order_with_their_bytes(workers):
    asked = [Request({"do": "nothing", "say": n}, bytes(n)) for n in range(20)]
    answers = workers.answers(asked)
    assert [(a.outcome, a.message["said"], len(a.data)) for a in answers] == [("ok", n, n) for n in range(20)]
    assert 1 <= len({a.message["pid"] for a in answers}) <= 2


def test_large_messages(workers):
    data = os.urandom(1 << 22)
    assert [a.data == data for a in workers.answers([Request({"do": "nothing"}, data)] * 3)] == [True] * 3


def test_what_is_printed_is_no_message(workers):
    (answer,) = workers.answers([Request({"do": "print once", "say": "x"})])
    assert answer.message["said"] == "x"


@pytest.mark.parametrize("fault", ["lock", "stop", "segfault", "memory", "family"])
def test_a_fault_costs_its_own_request_and_no_more_than_two_seconds(workers, fault):
    """All of them, many times: tests/attack/test_workers.py."""
    workers.answers([Request({"do": "nothing"})] * 2)  # they are up
    start = time.monotonic()
    first, broken = workers.answers(
        [Request({"do": "nothing"}), Request({"do": fault}, seconds=30.0 if fault in EXPECTED else DEADLINE)]
    )
    spent = time.monotonic() - start
    outcome, reason = EXPECTED.get(fault, ("deadline", "no answer in 0.5 s"))
    assert (first.outcome, broken.outcome) == ("ok", outcome) and reason in broken.reason
    assert spent < DEADLINE + 2.0
    assert [a.outcome for a in workers.answers([Request({"do": "nothing"})] * 2)] == ["ok", "ok"]


def test_what_a_worker_shares_with_its_children_counts_once(workers):
    """Each has more than half of what all may have."""
    (answer,) = workers.answers([Request({"do": "share"}, seconds=30.0)], together=1)
    assert answer.outcome == "ok", answer.reason


def test_what_comes_before_is_asked_once_and_again_when_it_is_forgotten(workers):
    first = Request({"do": "remember"})
    asked = [Request({"do": "recall"}, before=first)] * 4
    answers = workers.answers(asked, together=1)
    assert [a.message["remembered"] for a in answers] == [1] * 4
    workers.answers([Request({"do": "forget"})], together=1)
    assert workers.answers(asked[:1], together=1)[0].message == {"remembered": 1}


def test_a_killed_worker_takes_its_group_along(workers):
    (answer,) = workers.answers([Request({"do": "child"})], together=1)
    child = answer.message["child"]
    assert alive(child)
    workers.answers([Request({"do": "exit"})], together=1)
    assert all_gone([child])


def test_one_that_dies_with_nothing_to_do_costs_nothing(workers):
    (answer,) = workers.answers([Request({"do": "nothing"})])
    os.kill(answer.message["pid"], signal.SIGKILL)
    time.sleep(0.1)
    assert [a.outcome for a in workers.answers([Request({"do": "nothing"})] * 2)] == ["ok", "ok"]


def test_a_command_that_is_no_worker():
    with (
        Workers([sys.executable, "-c", "raise SystemExit('no worker here')"], 1) as workers,
        pytest.raises(RuntimeFault, match=r"do not come up \(crash\): exited with status 1: no worker here"),
    ):
        workers.answers([Request({})])


def test_a_command_that_is_not_there():
    with Workers(["/no/such/program"], 1) as workers, pytest.raises(RuntimeFault, match="cannot be started"):
        workers.answers([Request({})])


def test_none_is_left_when_they_are_closed():
    with Workers(WILD, 1) as workers:
        workers.answers([Request({"do": "nothing"})])
        workers.settle()
        pids = workers.pids
        assert len(pids) == 2
    assert all_gone(pids)


def test_two_threads_may_end_a_worker_at_once(monkeypatch):
    worker, closed, close = Worker(WILD, 256 << 20, {}), [], os.close

    def slowly(file):
        time.sleep(0.05)
        closed.append(file)
        close(file)

    monkeypatch.setattr(os, "close", slowly)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: worker.end(), range(2)))
    assert len(closed) == 1


def test_closed_while_they_are_asked():
    made = Workers(WILD, 2, memory=256 << 20)
    assert [a.outcome for a in made.answers([Request({"do": "nothing"})] * 2)] == ["ok", "ok"]
    asked = [made.submit(Job(lambda: Request({"do": "stop"}, seconds=30.0))) for _ in range(2)]
    while not all(a.running() for a in asked):
        time.sleep(0.01)
    made.close()
    assert {a.result(timeout=10).outcome for a in asked} == {"crash"}


def test_none_outlives_a_parent_that_is_killed(fault="lock"):
    parent = subprocess.Popen([sys.executable, "-m", "tests.tune.parent", fault], stdout=subprocess.PIPE, text=True)
    pids = [int(p) for p in parent.stdout.readline().split()]
    time.sleep(0.2)
    assert len(pids) == 3 and all(map(alive, pids))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert all_gone(pids)
