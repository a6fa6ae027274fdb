"""Rows prepared side by side and timed in turn."""

import fcntl
import sys

import pytest

from benchmarks.gpu import __main__ as command
from benchmarks.gpu import worker
from benchmarks.gpu.rows import Outcome, Setting, Task, read_rows
from benchmarks.gpu.turns import Turns, taking, turn

TIMES = """import json, sys, time
from contextlib import nullcontext
from pathlib import Path
from benchmarks.gpu.turns import Turns, taking, turn
for line in sys.stdin:
    question = json.loads(line)
    name, setting = question["key"].split("/")[1], question["setting"]
    log = Path(sys.argv[1])
    def say(what):
        with log.open("a") as file:
            file.write(f"{what} {name}\\n")
    with taking(Turns(Path(setting["lock"]), 60.0, lambda: None)):
        say("prepares")
        time.sleep(0.1 * int(name))
        say("prepared")
        with turn():
            say("begins")
            time.sleep(0.05)
            say("ends")
    print(json.dumps({"figures": {"x": float(name)}, "said": ""}), flush=True)
"""


def test_nobody_prepares_while_one_is_timed(tmp_path, monkeypatch):
    log = tmp_path / "log"
    make = worker.Worker
    monkeypatch.setattr(command, "Worker", lambda: make((sys.executable, "-c", TIMES, str(log))))
    tasks = [Task(f"c/{n}", lambda _: Outcome()) for n in range(5)]
    out = tmp_path / "rows.jsonl"
    assert command.work(tasks, {}, out, "here", Setting(), 60.0, together=3) == 0
    assert {k: r.figures["x"] for k, r in read_rows([out]).items()} == {f"c/{n}": float(n) for n in range(5)}
    lines = [line.split() for line in log.read_text().splitlines()]
    assert sorted(what for what, _ in lines) == ["begins"] * 5 + ["ends"] * 5 + ["prepared"] * 5 + ["prepares"] * 5
    prepares = set()
    for (what, name), after in zip(lines, [*lines[1:], None], strict=True):
        if what == "begins":  # nobody prepares meanwhile, or another one times
            assert not prepares and after == ["ends", name]
        prepares ^= {name} if what in ("prepares", "prepared") else set()


def test_one_that_prepares_too_long_ends_alone(tmp_path, monkeypatch):
    slow = f"import time\nfrom benchmarks.gpu import worker, tasks\nfrom benchmarks.gpu.rows import Task\n{HANGS}"
    monkeypatch.setattr(command, "Worker", lambda: worker.Worker((sys.executable, "-c", slow)))
    tasks = [Task("c/fine", lambda _: Outcome()), Task("c/hangs", lambda _: Outcome())]
    found = {}
    assert command.work(tasks, found, tmp_path / "rows.jsonl", "here", Setting(limit=1.0), 60.0, together=2) == 0
    assert found["c/fine"].is_done and not found["c/hangs"].is_done
    assert found["c/hangs"].said == f"{worker.LATE} 1 s"


HANGS = """
from benchmarks.gpu.rows import Outcome
from benchmarks.gpu.turns import turn
def fine(setting):
    with turn():
        return Outcome({"x": 1.0})
tasks.TASKS = (Task("c/fine", fine), Task("c/hangs", lambda _: time.sleep(60)))
worker.main()
"""


def test_a_process_without_others_times_at_once(tmp_path):
    with turn():
        pass
    late = []
    turns = Turns(tmp_path / "lock", 60.0, lambda: late.append(1))
    with taking(turns), turn(), open(tmp_path / "lock") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    assert not late
