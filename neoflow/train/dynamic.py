"""Better kernels for a function that runs: searched for by another process, swapped in between two calls.

    exploration = Exploration(function, share=0.25)
    ...
    function(x)                                   as ever; nothing of the search holds the interpreter
    for swap in exploration.take():               between two calls: what is better is adopted
        print(swap)

(NeoFlow, section 6: exploring, compiling and executing overlap.)
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from neoflow import config
from neoflow.errors import ConfigError
from neoflow.loops import Schedule
from neoflow.loops.template import schedule_from_json
from neoflow.measure.here import environment
from neoflow.partition import HandedCall
from neoflow.pipeline import Compiled, adopt
from neoflow.runtime.function import Function
from neoflow.tune import Limits
from neoflow.tuning import SearchCurve, uses_of

PATIENCE = Limits(patience=400)
"""When a search beside a run ends that is not told: so many candidates of all kernels without a better one."""
SHARE = 0.25
"""Of the cores' time that a search beside a run takes."""
COMMAND = (sys.executable, "-m", "neoflow.tuning.explorer")
GRACE = 2.0
"""Seconds in which it may end by itself."""


@dataclass(frozen=True)
class Swap:
    """A kernel that took another's place: its name, and seconds of a call before and since, timed in turns beside the
    program."""

    name: str
    subgraph: str
    schedule: Schedule
    before: float
    seconds: float

    def __str__(self) -> str:
        gain = self.before / self.seconds
        return f"{self.name}: {self.before * 1e6:.1f} -> {self.seconds * 1e6:.1f} us ({gain:.2f}x)"


class Exploration:
    """A search for better kernels of a function, in a process of its own until `close`, or the end of this one.

    share: of the cores' time. Raises `ConfigError` for a function whose kernels cannot be searched for here.
    """

    def __init__(self, function: Function, limits: Limits | None = None, share: float = SHARE, seed: int = 0):
        compiled = function.compiled
        if not isinstance(compiled, Compiled):
            raise ConfigError("there is nothing to search for: the function was not compiled by neoflow here")
        if not 0 < share <= 1:
            raise ConfigError(f"the share of a search is above 0 and at most 1, not {share}")
        self.function, self.told, self.stopped = function, "", ""
        """told: how far the search is, stopped: why it has ended; "" before"""
        self._curves: dict[str, SearchCurve] = {}
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment()}
        )
        self._say(json.dumps(_asked(compiled, limits or PATIENCE, share, seed)))
        self._reader = threading.Thread(target=self._read, name="neoflow-exploration", daemon=True)
        self._reader.start()

    def __enter__(self) -> Exploration:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_over(self) -> bool:
        """Whether the search has ended; what it found may still be there to `take`."""
        return bool(self.stopped)

    @property
    def curves(self) -> tuple[SearchCurve, ...]:
        """How the search has gone for each kernel so far."""
        return tuple(self._curves.values())

    def take(self) -> list[Swap]:
        """Adopt what was found since the last time: to be called between two calls of the function. Never waits."""
        latest: dict[str, dict[str, Any]] = {}
        while True:
            try:
                event = self._events.get_nowait()
            except queue.Empty:
                break
            latest[event["subgraph"]] = event
        if not latest:
            return []
        swaps = [
            Swap(e["name"], e["subgraph"], schedule_from_json(e["schedule"]), e["before"], e["seconds"])
            for e in latest.values()
        ]
        adopt(self.function, {s.subgraph: s.schedule for s in swaps})
        return swaps

    def pause(self) -> None:
        """Measure nothing until `resume`."""
        self._say("pause")

    def resume(self) -> None:
        """Go on."""
        self._say("resume")

    def close(self) -> None:
        """End the search; what it has found is kept beside the kernels."""
        process = self._process
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._reader.join(GRACE)
        if process.stdout is not None:
            process.stdout.close()

    def _say(self, line: str) -> None:
        with suppress(OSError, ValueError):  # it may have ended
            if self._process.stdin is not None:
                self._process.stdin.write(line + "\n")
                self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            if "better" in event:
                self._events.put(event["better"])
            if "curve" in event:
                self._curves[event["of"]] = _longer(self._curves.get(event["of"]), event["curve"])
            self.told = event.get("told", self.told)
            self.stopped = event.get("stopped", self.stopped)
        self.stopped = self.stopped or "the process of the search has ended"


def _longer(curve: SearchCurve | None, event: dict[str, Any]) -> SearchCurve:
    """A curve with what the search has told of it."""
    before = () if curve is None else curve.points
    points = (*before, *((float(t), int(n), float(s)) for t, n, s in event["points"]))
    return SearchCurve(event["name"], event["calls"], event["floor"], points)


def _asked(compiled: Compiled, limits: Limits, share: float, seed: int) -> dict[str, Any]:
    schedules = schedules_of(compiled)
    uses = [
        {
            "subgraph": u.subgraph.to_text(),
            "calls": u.calls,
            "name": u.name,
            "schedule": schedules[u.subgraph.digest].to_json(),
        }
        for u in uses_of([c for c in compiled.calls if not isinstance(c, HandedCall)])
    ]
    return {
        "target": compiled.target.to_text(),
        "folder": str(config.load().cache_dir),
        "seed": seed,
        "share": share,
        "limits": asdict(limits),
        "uses": uses,
    }


def schedules_of(compiled: Compiled) -> Mapping[str, Schedule]:
    """By the digest of its subgraph, how each kernel is made now."""
    return {k.subgraph.digest: k.schedule for k in compiled.kernels}
