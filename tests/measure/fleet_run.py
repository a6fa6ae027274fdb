"""A fleet of two nodes on this machine, one of them killed in the middle: prints what became of it as JSON."""

import json
import os
import sys
import time
from dataclasses import replace
from functools import partial

import numpy as np
import psutil
import ray
from ray.cluster_utils import Cluster

from neoflow.devices import resolve_target
from neoflow.loops import default_schedule, problem_of
from neoflow.loops.space import space
from neoflow.measure import Measurer
from neoflow.measure.fleet import Fleet
from tests.measure.test_measurer import product

MARK = os.environ["FLEET_RUN"]


class Doomed:
    """The actor of a station whose node is killed while its first request is under way: of a later one it might be that
    the other station is asked everything before."""

    def __init__(self, actor, kill):
        self.actor, self.kill, self.is_there = actor, kill, True
        self.answer, self.close = self, actor.close

    def remote(self, *question):
        """Ask; what is asked on top of that, should the answer have come before the end, no node is left for."""
        reference = self.actor.answer.remote(*question)
        if self.is_there:
            self.is_there = False
            self.kill()
        return reference


class Watched(Fleet):
    """Kills a node when it has been asked; counts what is lost."""

    cluster, victim, lost = None, None, 0

    def _gather(self):
        super()._gather()
        kill = partial(self.cluster.remove_node, self.victim, allow_graceful=False)
        doomed = [p.node == self.victim.node_id and not isinstance(p.actor, Doomed) for p in self._posts]
        pairs = zip(self._posts, doomed, strict=True)
        self._posts = [replace(p, actor=Doomed(p.actor, kill)) if d else p for p, d in pairs]

    def _lose(self, post):
        Watched.lost += 1
        super()._lose(post)


def listening():
    """Addresses at which this process or what it started takes connections."""
    found = set()
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            rows = process.net_connections(kind="inet")
        except psutil.Error:
            continue
        found |= {c.laddr.ip.removeprefix("::ffff:") for c in rows if c.status == "LISTEN"}
    return sorted(found)


def workers():
    """Processes that measure, and carry the mark of this run."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        is_worker = "neoflow.measure.worker" in (process.info["cmdline"] or [])
        if is_worker and (process.info["environ"] or {}).get("FLEET_RUN") == MARK:
            found.append(process.pid)
    return found


def main():
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "node_ip_address": "127.0.0.1"},
    )
    Watched.cluster, Watched.victim = cluster, cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1")
    subgraph, target, rng = product(), resolve_target("cpu"), np.random.default_rng(0)
    made = space(problem_of(subgraph), target)
    asked = [default_schedule(subgraph, target), *(made.sample(rng) for _ in range(11))]
    report = {"listening": listening()}
    with Measurer(partial(Watched, address=cluster.address)) as measure:
        start = time.monotonic()
        trials = measure(subgraph, target, asked)
        report["seconds"] = round(time.monotonic() - start, 1)
        report["left"] = len(measure._pool(target).machines)
        report["later"] = [t.outcome for t in measure(subgraph, target, asked[:2])]
        report["turns"] = [t.outcome for t in measure.interleaved(subgraph, target, asked[:2], rounds=3)]
        report["listening"] = sorted({*report["listening"], *listening()})
    report["outcomes"] = [t.outcome for t in trials]
    report["lost"] = Watched.lost
    report["in_order"] = [t.schedule for t in trials] == asked
    ray.shutdown()
    cluster.shutdown()
    end = time.monotonic() + 10.0
    while workers() and time.monotonic() < end:
        time.sleep(0.1)
    report["processes"] = len(workers())
    print(json.dumps(report))


if __name__ == "__main__":
    sys.exit(main())
