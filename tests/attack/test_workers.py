"""Workers that go wrong in every way, many times; parents killed at moments of their own."""

import random
import subprocess
import sys
import time

import psutil
import pytest

from neoflow.tune.process import Request
from neoflow.tune.workers import Workers
from tests.tune.test_workers import WILD, all_gone
from tests.tune.wild import EXPECTED, FAULTS

DEADLINE = 0.5


@pytest.mark.slow
def test_every_fault_costs_its_own_request():
    """Each of 14 faults 6 times, among requests that have to be answered; what is left afterwards is nothing."""
    rng, late = random.Random(0), []
    with Workers(WILD, 2, memory=256 << 20) as workers:
        for fault in [f for f in FAULTS for _ in range(6)]:
            workers.answers([Request({"do": "nothing"})] * 2)
            asked = [Request({"do": "nothing", "say": n}) for n in range(rng.randrange(4))]
            place = rng.randrange(len(asked) + 1)
            asked.insert(place, Request({"do": fault}, seconds=30.0 if fault in EXPECTED else DEADLINE))
            start = time.monotonic()
            answers = workers.answers(asked)
            spent = time.monotonic() - start
            outcome, reason = EXPECTED.get(fault, ("deadline", "no answer in 0.5 s"))
            assert answers[place].outcome == outcome and reason in answers[place].reason, (fault, answers[place])
            assert [a.outcome for n, a in enumerate(answers) if n != place] == ["ok"] * (len(asked) - 1)
            if fault not in EXPECTED:
                late.append(spent - DEADLINE)
        workers.settle()
        pids = workers.pids
    assert all_gone(pids)
    print(f"{6 * len(FAULTS)} faults; the latest {max(late):.2f} s after its deadline")
    assert max(late) < 2.0


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["hang", "lock", "stop", "loop", "ignore"])
def test_no_worker_outlives_its_parent(fault):
    """4 parents killed at random moments, from before their workers are up."""
    rng = random.Random(fault)
    for n in range(4):
        parent = subprocess.Popen([sys.executable, "-m", "tests.tune.parent", fault], stdout=subprocess.PIPE, text=True)
        time.sleep(rng.random() * 1.5)
        pids = [] if n % 2 else [int(p) for p in parent.stdout.readline().split()]
        found = children(parent.pid)
        parent.kill()
        parent.wait()
        parent.stdout.close()
        assert all_gone({*pids, *found})


def children(pid: int) -> list[int]:
    return [c.pid for c in psutil.Process(pid).children(recursive=True)]
