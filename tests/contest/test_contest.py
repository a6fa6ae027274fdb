"""A contest: who may take part, turns, what becomes of one that fails, processes that serve one step after another."""

import json

import pytest

from neoflow.contest import hall, sides, turns
from neoflow.contest.bench import Bench
from neoflow.contest.contenders import ON_A_GPU, OURS, PEERS, Contender, chosen
from neoflow.contest.kinds import KINDS
from neoflow.contest.process import WorkerFailure
from neoflow.contest.sides import Task
from neoflow.errors import ConfigError
from neoflow.measure.near import Cores

ANSWERS = """
import json, sys
request = json.loads(sys.argv[1])
print("{}", flush=True)
for line in sys.stdin:
    question = json.loads(line)
    if question.get("model") == "deadly":
        sys.exit(3)
    if question.get("model") == "absent":
        print(json.dumps({"failure": "ConfigError: there is no model absent"}), flush=True)
    elif question.get("do") == "load":
        print(json.dumps({"values": request["kind"] == "odd" and [2.0] or [1.0], "first": 0.1}), flush=True)
    else:
        print(json.dumps({"step": 0.5}), flush=True)
"""


class Steady:
    """Takes so long for a step, and fails at its nth block."""

    pid = 2**22 + 1

    def __init__(self, seconds, fails_at=None):
        self.seconds, self.fails_at, self.blocks = seconds, fails_at, 0

    def block(self, seconds):
        self.blocks += 1
        if self.blocks == self.fails_at:
            raise WorkerFailure("its process ended with status -9")
        return self.seconds


def test_peers_that_are_asked_for():
    assert [c.name for c in chosen(["torch", "torch-expert", "inductor", "torch"])] == [p.name for p in PEERS[:3]]
    with pytest.raises(ConfigError, match="there is no peer 'abacus'; there are torch, torch-expert, inductor, jax"):
        chosen(["torch", "abacus"])
    assert all(c.kind in KINDS for c in (OURS, *PEERS, *ON_A_GPU)) and not OURS.is_peer and PEERS[0].is_peer


def test_a_peer_that_is_not_installed(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"jax is not installed: pip install 'neoflow\[jax\]'"):
        chosen(["jax"])


def test_turns_go_on_without_one_that_fails():
    found, missing = turns.in_turn(
        {"a": Steady(1.0), "b": Steady(2.0, fails_at=2), "c": Steady(4.0)}, 0.0, 0.1, Cores()
    )
    assert found == {"a": [1.0] * 3, "c": [4.0] * 3}
    assert missing == {"b": "its process ended with status -9"}
    assert turns.median_ratio([1.0, 2.0, 9.0], [2.0, 2.0, 3.0]) == 1.0
    assert turns.in_turn({}, 0.0, 0.1, Cores()) == ({}, {})


def test_a_block_that_was_timed_while_cores_were_apart_is_timed_again():
    """Looks before and after each block: the second block's cores are apart at its end."""
    looks = iter([True, True, True, False, *[True] * 90])
    timed, cores = {"a": Steady(1.0), "b": Steady(2.0)}, Cores(look=lambda: next(looks))
    found, _ = turns.in_turn(timed, 0.0, 0.1, cores)
    assert found == {"a": [1.0] * 3, "b": [2.0] * 3}
    assert [t.blocks for t in timed.values()] == [3, 4] and cores.timed == 6 and cores.apart == 0


def test_what_two_contenders_gave():
    assert hall.distance([1.0, -4.0], [1.0, -4.4]) == pytest.approx(0.4 / 4.4)
    assert hall.distance([1.0], [1.0, 2.0]) == float("inf") and hall.distance([0.0], [0.0]) == 0


class Counting:
    """A side whose calls take no time."""

    def __init__(self):
        self.resets = self.calls = 0

    def reset(self):
        self.resets += 1

    def call(self):
        self.calls += 1


def test_a_block_begins_from_the_first_values(monkeypatch):
    side = Counting()
    assert sides.block(side, 0.01) > 0 and side.resets == 1 and side.calls > 2
    monkeypatch.setattr(sides, "LONG", 0.0)
    side = Counting()
    assert sides.block(side, 0.0) > 0 and side.calls == 1  # a long step counts at once


def test_processes_serve_one_step_after_another(monkeypatch):
    monkeypatch.setattr(hall, "PROGRAM", ("-S", "-c", ANSWERS))
    made = [Contender(name, name, key=name) for name in ("even", "odd")]
    with hall.Hall(made) as there:
        workers, ready, missing = there.load(Task("tiny", 1, "train"))
        assert list(workers) == list(ready) == ["even"] and workers["even"].block(0.1) == 0.5
        assert missing == {"odd": "its values are off by 1.0e+00 of the largest: it computes something else"}
        first = set(there.pids)
        assert there.load(Task("absent", 1, "train"))[2]["even"] == "ConfigError: there is no model absent"
        assert set(there.pids) == first  # who says no goes on
        assert there.load(Task("deadly", 1, "train"))[2]["odd"] == "its process ended with status 3"
        assert there.pids == [] and list(there.load(Task("tiny", 1, "train"))[0]) == ["even"]
        monkeypatch.setattr(hall, "LARGE", 0)
        there.end_large()
        assert there.pids == []


def test_a_contender_whose_setting_cannot_be_had(monkeypatch):
    monkeypatch.setattr(hall, "build_expert", lambda folder: "no gcc here")
    with hall.Hall([PEERS[1]]) as there:
        assert there.load(Task("tiny", 1, "train"))[2] == {"torch-expert": "no gcc here"}


def test_a_comparison_in_words():
    found = Bench("tiny", 2, "train", 1.0, {"torch": 4.0}, 2.5, {"torch": 0.25}, {"jax": "no word"}, 3.0, 7)
    assert str(found).splitlines() == [
        "tiny batch 2 train, loss 2.50000000",
        "7 candidates in a search of 3 s",
        "neoflow     1.00 ms",
        "torch       4.00 ms  (neoflow takes 0.25 of its time)",
        "jax     not measured: no word",
    ]


@pytest.mark.slow
@pytest.mark.tvm
@pytest.mark.torch
@pytest.mark.jax
@pytest.mark.parametrize("mode", ["train", "infer"])
def test_every_contender_serves_both_modes(mode, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    with hall.Hall([OURS, *PEERS], tmp_path) as there:
        workers, ready, missing = there.load(Task("mi_lstm_mnist", 2, mode))
        assert missing == {} and list(workers) == [OURS.key, *(p.key for p in PEERS)]
        assert ready[OURS.key]["calls"] >= ready[OURS.key]["kernels"] > 0
        found, missing = turns.in_turn(workers, 0.1, 0.05, Cores())
        assert missing == {} and all(0 < t < 60 for times in found.values() for t in times)
        told = workers[OURS.key].ask({"do": "kernels", "seconds": 0.1})
        assert told["kernels"][0]["floor"] > 0 and json.dumps(told["roofs"])
