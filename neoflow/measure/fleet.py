"""A fleet: candidates built, judged and timed by many machines, through Ray (`pip install 'neoflow[fleet]'`).

    with Measurer(partial(Fleet, address="10.0.0.1:6379")) as measure: ...

There is a station for every core of every node, for a GPU target one for every GPU. What a lost machine had not
answered is asked of others; machines that join are used from the next batch on. Timings take turns on a machine, and
go to machines of one processor model only, the commonest, as their times are compared.

WHO MAY REACH ITS PORTS: whoever reaches a port of Ray runs any code as the user of its nodes. A fleet that is started
here (`address="local"`) listens on 127.0.0.1 alone, and asks for a token that only this process and its children have.
`ray start` on several machines opens ports (6379 and ranges of others) to whatever network they are on: do so inside of
a private one or a VPN, never on a public address, and with tokens: `RAY_AUTH_MODE=token` on every node and here (it
is the default here), with the token of `ray get-auth-token --generate`. Tokens travel in clear unless TLS is set up
(`RAY_USE_TLS`).
"""

from __future__ import annotations

import os
import secrets
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from neoflow.codegen.keys import compiler_digest
from neoflow.errors import ConfigError, RuntimeFault
from neoflow.measure.station import Station, packed, unpacked
from neoflow.target import Target
from neoflow.tune.process import Answer, Request
from neoflow.tune.workers import START_SECONDS

LOCAL = "local"
LOST = 2
"""Machines that may be lost with a candidate before it is held to be why."""


@dataclass(frozen=True, eq=False)
class _Post:
    """A station: its actor, the node it is on, and the processor or GPU there."""

    actor: Any
    node: str
    machine: str


class Fleet:
    """A `Pool` of a fleet's stations. Raises `RuntimeFault` when none of its machines can measure for the target."""

    def __init__(self, target: Target, address: str = LOCAL, cores: int | None = None):
        """address: "local", which starts one of this machine; or "HOST:PORT" of one that runs. cores: that a local
        fleet uses."""
        self._target = target
        self._ray = _connected(address, cores)
        self._posts: list[_Post] = []
        self._nodes: set[str] = set()
        """looked at already"""
        self._gather()

    @property
    def machines(self) -> list[str]:
        """The nodes with stations that are there."""
        return sorted({post.node for post in self._posts})

    def judged(self, requests: Sequence[Request]) -> list[Answer]:
        """By all stations side by side."""
        self._gather()
        return self._spread([partial(_same, r) for r in requests], lambda: self._posts, False, _nobody)

    def timed(self, requests: Sequence[Callable[[], Request]], heard: Callable[[Answer], None]) -> list[Answer]:
        """By one station of every machine of the commonest kind."""
        return self._spread(requests, self._timers, True, heard)

    def close(self) -> None:
        """End the stations, and a fleet that was started here."""
        closing = [post.actor.close.remote() for post in self._posts]
        self._ray.wait(closing, num_returns=len(closing), timeout=5.0) if closing else None
        for post in self._posts:
            self._ray.kill(post.actor)
        self._posts.clear()
        self._ray.shutdown()

    def _timers(self) -> list[_Post]:
        commonest = Counter(post.machine for post in self._posts).most_common(1)
        alike = [post for post in self._posts if post.machine == commonest[0][0]]
        return list({post.node: post for post in reversed(alike)}.values())

    def _gather(self) -> None:
        """Stations on the nodes that have come since."""
        options, new = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy, []
        unit = "GPU" if self._target.device == "gpu" else "CPU"
        for node in self._ray.nodes():
            if not node["Alive"] or node["NodeID"] in self._nodes:
                continue
            self._nodes.add(node["NodeID"])
            needs = {"num_gpus": 1, "num_cpus": 0} if unit == "GPU" else {"num_cpus": 1}
            made = self._ray.remote(Station).options(**needs, scheduling_strategy=options(node["NodeID"], soft=False))
            for _ in range(int(node["Resources"].get(unit, 0))):
                actor = made.remote(self._target.to_text())
                new.append((actor, node["NodeID"], actor.describe.remote()))
        seen = {"there is no core or GPU of it that is free"} if not new else set()
        for actor, node_id, description in new:
            try:
                said = self._ray.get(description, timeout=START_SECONDS)
            except (self._ray.exceptions.RayError, TimeoutError) as error:
                seen.add(str(error).strip().splitlines()[-1])
                continue
            if said["compiler"] != compiler_digest():
                seen.add("its neoflow is another one")
            elif said["target"] != str(self._target):
                seen.add(f"it is for {said['target']}")
            else:
                self._posts.append(_Post(actor, node_id, said["machine"]))
                continue
            self._ray.kill(actor)
        if not self._posts:
            raise RuntimeFault(f"no machine of the fleet measures for {self._target}: {'; '.join(sorted(seen))}")

    def _spread(
        self,
        requests: Sequence[Callable[[], Request]],
        posts: Callable[[], Sequence[_Post]],
        is_timed: bool,
        heard: Callable[[Answer], None],
    ) -> list[Answer]:
        """The answers in order; what a lost station had is asked of another one."""
        found: list[Answer | None] = [None] * len(requests)
        waiting, lost = deque(range(len(requests))), Counter[int]()
        running: dict[Any, tuple[_Post, int]] = {}
        while waiting or running:
            busy = [post for post, _ in running.values()]
            for post in [p for p in posts() if p not in busy][: len(waiting)]:
                n = waiting.popleft()
                running[post.actor.answer.remote(*packed(requests[n]()), is_timed)] = post, n
            if not running:
                self._gather()
                continue
            done, _ = self._ray.wait(list(running), num_returns=1)
            for reference in done:
                post, n = running.pop(reference)
                try:
                    answer = unpacked(*self._ray.get(reference))
                except self._ray.exceptions.RayError as error:
                    self._lose(post)
                    lost[n] += 1
                    if lost[n] < LOST:
                        waiting.appendleft(n)
                        continue
                    answer = Answer("crash", reason=f"{LOST} machines were lost with it: {type(error).__name__}")
                found[n] = answer
                heard(answer)
        return [answer for answer in found if answer is not None]

    def _lose(self, post: _Post) -> None:
        """Do without a station; a node that has none left is looked at again."""
        self._posts = [p for p in self._posts if p is not post]
        self._nodes &= {p.node for p in self._posts} | (self._nodes - {post.node})


def _same(request: Request) -> Request:
    return request


def _nobody(_: Answer) -> None:
    pass


def _connected(address: str, cores: int | None) -> Any:
    """Ray, connected. What it may tell its makers it does not, and it opens no port to a network on its own.

    Raises `ConfigError` when it is not installed, `RuntimeFault` when nothing answers at the address.
    """
    host = address.rpartition(":")[0]
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    if address == LOCAL or host in ("127.0.0.1", "localhost"):
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # or Ray takes an address that others reach
    if address == LOCAL:
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError:
        raise ConfigError("a fleet needs Ray: pip install 'neoflow[fleet]'") from None
    started = {"num_cpus": cores, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
    try:
        ray.init(log_to_driver=False, configure_logging=False, **({} if address != LOCAL else started), **_at(address))
    except Exception as error:  # ConnectionError, RuntimeError, ValueError and Ray's own, by what is wrong
        raise RuntimeFault(f"no fleet answers at {address!r}: {error}") from error
    return ray


def _at(address: str) -> dict[str, str]:
    return {} if address == LOCAL else {"address": address}
