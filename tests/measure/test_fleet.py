"""A fleet: what a lost machine had not answered is asked of others, and nobody outside reaches its ports."""

import json
import os
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest

from neoflow.errors import ConfigError, RuntimeFault
from neoflow.measure.fleet import Fleet
from neoflow.measure.station import Station
from neoflow.target import Target, cpu_target
from neoflow.tune.process import Request

TARGET = cpu_target(2)


class Gone(Exception):
    """Of Ray: the actor is not there any more."""


class FakeRay(ModuleType):
    """Ray in this process: nodes of stations, each of which answers or is gone, as `script` says in turn."""

    def __init__(self, nodes, answer):
        super().__init__("ray")
        self.known, self.answer, self.gone = nodes, answer, set()
        self.exceptions = SimpleNamespace(RayError=Gone)
        self.util = ModuleType("ray.util")
        self.util.scheduling_strategies = ModuleType("ray.util.scheduling_strategies")
        self.util.scheduling_strategies.NodeAffinitySchedulingStrategy = lambda node, soft: node
        self.machines = {}

    def init(self, **options):
        self.options = options

    def nodes(self):
        return [{"NodeID": n, "Alive": n not in self.gone, "Resources": {"CPU": c}} for n, c in self.known.items()]

    def remote(self, kind):
        return SimpleNamespace(
            options=lambda scheduling_strategy, **_: SimpleNamespace(remote=self.actor_on(scheduling_strategy))
        )

    def actor_on(self, node):
        def started(target):
            def asked(text, data, before, is_timed):
                return node, lambda: self.answer(node, json.loads(text)["message"], is_timed)

            station = Station(target)
            said = {**station.describe(), "machine": self.machines.get(node, "one")}
            return SimpleNamespace(
                describe=SimpleNamespace(remote=lambda: (node, lambda: said)),
                answer=SimpleNamespace(remote=asked),
                close=SimpleNamespace(remote=lambda: (node, lambda: None)),
            )

        return started

    def wait(self, references, num_returns, timeout=None):
        return references[:1], references[1:]

    def get(self, reference, timeout=None):
        node, answer = reference
        if node in self.gone:
            raise Gone(f"{node} is gone")
        return answer()

    def kill(self, actor):
        pass

    def shutdown(self):
        self.is_shut = True


def faked(monkeypatch, nodes, answer):
    ray = FakeRay(nodes, answer)
    for name, module in (
        ("ray", ray),
        ("ray.util", ray.util),
        ("ray.util.scheduling_strategies", ray.util.scheduling_strategies),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    for name in ("USAGE_STATS_ENABLED", "AUTH_MODE", "AUTH_TOKEN", "ENABLE_WINDOWS_OR_OSX_CLUSTER"):
        monkeypatch.delenv(f"RAY_{name}", raising=False)
        monkeypatch.setenv(f"RAY_{name}", "x")
        monkeypatch.delenv(f"RAY_{name}")
    return ray


def said(number, is_timed):
    return json.dumps({"outcome": "ok", "message": {"n": number, "timed": is_timed}, "reason": "", "seconds": 0.0}), b""


def test_what_a_lost_node_had_is_asked_of_another(monkeypatch):
    asked = []

    def answer(node, message, is_timed):
        asked.append((node, message["n"]))
        if node == "b" and len(asked) > 2:
            ray.gone.add("b")
            raise Gone
        return said(message["n"], is_timed)

    ray = faked(monkeypatch, {"a": 1, "b": 2}, answer)
    fleet = Fleet(TARGET)
    assert fleet.machines == ["a", "b"] and ray.options["_node_ip_address"] == "127.0.0.1"
    answers = fleet.judged([Request({"n": n}) for n in range(8)])
    assert [a.message["n"] for a in answers] == list(range(8)) and fleet.machines == ["a"]
    ray.known["c"] = 1
    fleet.judged([])
    assert fleet.machines == ["a", "c"]
    fleet.close()
    assert ray.is_shut


def test_a_candidate_that_loses_machines_is_not_asked_for_ever(monkeypatch):
    def answer(node, message, is_timed):
        if message["n"] == 1:
            raise Gone
        return said(message["n"], is_timed)

    faked(monkeypatch, {"a": 2, "b": 2}, answer)
    answers = Fleet(TARGET).judged([Request({"n": n}) for n in range(3)])
    assert [a.outcome for a in answers] == ["ok", "crash", "ok"]
    assert answers[1].reason == "2 machines were lost with it: Gone"


def test_timings_go_to_one_station_of_each_machine_of_a_kind(monkeypatch):
    seen, heard = [], []

    def answer(node, message, is_timed):
        seen.append(node)
        return said(message["n"], is_timed)

    ray = faked(monkeypatch, {"a": 2, "b": 2, "c": 1}, answer)
    ray.machines["c"] = "another"
    answers = Fleet(TARGET).timed([lambda n=n: Request({"n": n}) for n in range(4)], heard.append)
    assert [a.message for a in answers] == [{"n": n, "timed": True} for n in range(4)]
    assert set(seen) == {"a", "b"} and len(heard) == 4


def test_no_machine_for_the_target(monkeypatch):
    faked(monkeypatch, {"a": 1}, None)
    with pytest.raises(RuntimeFault, match=r"no machine of the fleet measures for cpu\(x86-64-v3.*: it is for cpu"):
        Fleet(Target())
    faked(monkeypatch, {"a": 0}, None)
    with pytest.raises(RuntimeFault, match="no core or GPU of it that is free"):
        Fleet(TARGET)
    faked(monkeypatch, {"a": 1}, None)
    monkeypatch.setattr("neoflow.measure.fleet.compiler_digest", lambda: "older")
    with pytest.raises(RuntimeFault, match="its neoflow is another one"):
        Fleet(TARGET)


def test_no_ray_and_no_fleet(monkeypatch):
    def refuse(**_):
        raise ConnectionError("nobody there")

    ray = faked(monkeypatch, {}, None)
    ray.init = refuse
    with pytest.raises(RuntimeFault, match=r"no fleet answers at '192\.0\.2\.1:6379': nobody there"):
        Fleet(TARGET, address="192.0.2.1:6379")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"a fleet needs Ray: pip install 'neoflow\[fleet\]'"):
        Fleet(TARGET)


@pytest.mark.slow
@pytest.mark.tvm
def test_a_node_killed_in_the_middle_loses_nothing():
    """Two nodes of Ray on this machine, their ports on 127.0.0.1 alone."""
    there = {
        "FLEET_RUN": "this test",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "a token of this test alone, " + "0" * 16,
    }
    command = [sys.executable, "-m", "tests.measure.fleet_run"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **there})
    assert run.returncode == 0, run.stderr[-2000:]
    report = json.loads(run.stdout.splitlines()[-1])
    assert report["outcomes"] == ["ok"] * 12 and report["in_order"]
    assert report["lost"] >= 1 and report["left"] == 1 and report["processes"] == 0
    assert report["later"] == report["turns"] == ["ok", "ok"]
    assert report["listening"] == ["127.0.0.1"]
