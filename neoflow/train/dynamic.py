"""Better kernels for a function that runs: searched for by another process, swapped in between two calls.

    exploration = Exploration(function, share=0.25)
    ...
    function(x)                                   as ever; nothing of the search holds the interpreter
    for swap in exploration.take():               between two calls: what is better is adopted
        print(swap)

(NeoFlow, section 6: exploring, compiling and executing overlap.) The search times kernels by themselves. On a CPU it is
told first what each takes in the program, so that it begins with those that matter; what it finds is tried in a few
calls of the program, between calls with the kernels there were, and goes again where it takes no less there: see
`neoflow.instep`.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from neoflow import config
from neoflow.errors import ConfigError
from neoflow.loops import Schedule
from neoflow.loops.template import schedule_from_json
from neoflow.measure.here import environment
from neoflow.partition import HandedCall
from neoflow.pipeline import Compiled, adopt
from neoflow.runtime.function import Function
from neoflow.tune import Limits
from neoflow.tune.records import Verdict
from neoflow.tuning import SearchCurve, Use, keep_verdict, uses_of

PATIENCE = Limits(patience=400)
"""When a search beside a run ends that is not told: so many candidates of all kernels without a better one."""
SHARE = 0.25
"""Of the cores' time that a search beside a run takes."""
COMMAND = (sys.executable, "-m", "neoflow.tuning.explorer")
GRACE = 2.0
"""Seconds in which it may end by itself."""


@dataclass(frozen=True)
class Swap:
    """A kernel that took another's place: its name, and seconds of a call before and since, timed in the program; where
    kernels are not (on a GPU), in turns beside it."""

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
        self._trial: Trial | None = None
        self._is_tried = compiled.target.device == "cpu"
        self._first: list[Sequence[float]] | None = [] if self._is_tried else None
        """what kernel calls took at first; None once the search was told"""
        self._is_judged = False
        """whether kernels have been found to be better in the program"""
        self._found: dict[str, Swap] = {}
        """what has been found and is not adopted yet, by subgraph"""
        self._curves: dict[str, SearchCurve] = {}
        self._events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment()}
        )
        self._say(json.dumps(_asked(compiled, limits or PATIENCE, share, seed)))
        if self._first is not None:
            function.watch(self._first.append)
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
        """Adopt what was found since the last time: to be called between two calls of the function. Never waits.

        What is tried first is among what some later call gives, or among none.
        """
        if self._first is not None:
            if len(self._first) < FIRST:
                return []
            self._tell_times()
        while True:
            try:
                e = self._events.get_nowait()
            except queue.Empty:
                break
            schedule = schedule_from_json(e["schedule"])
            self._found[e["subgraph"]] = Swap(e["name"], e["subgraph"], schedule, e["before"], e["seconds"])
        if self._trial is not None:
            if not self._trial.is_over():
                return []
            kept = self._end_trial()
            self.resume()
            return kept
        if not self._found:
            return []
        swaps, self._found = list(self._found.values()), {}
        if self._is_tried:
            self.pause()
            self._trial = Trial(self.function, swaps)
            return []
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
        if self._first is not None:
            self.function.watch(None)
        if self._trial is not None:
            self._end_trial()
        compiled = self.function.compiled
        if self._is_judged and isinstance(compiled, Compiled):
            verdict = Verdict(schedules_of(compiled), {})
            keep_verdict(_uses(compiled), verdict, compiled.target, config.load().cache_dir)
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

    def _tell_times(self) -> None:
        assert self._first is not None and isinstance(self.function.compiled, Compiled)
        self.function.watch(None)
        counts = {u.subgraph.digest: u.calls for u in _uses(self.function.compiled)}
        took = _seconds_of(self.function, self._first, np.min)  # the search starts meanwhile, and disturbs
        self._say(json.dumps({digest: took[digest] / n for digest, n in counts.items()}))
        self._first = None

    def _end_trial(self) -> list[Swap]:
        assert self._trial is not None
        kept, self._trial = self._trial.end(), None
        self._is_judged |= bool(kept)
        return kept

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


CALLS = 5
"""Of the program, that kernels are timed in: with those that there are, and with others in their place."""
FIRST = 10
"""Of the program, that kernels are timed in before the search begins."""


class Trial:
    """Kernels tried in the calls of a program, which go on as ever: `CALLS` are timed before these take the others'
    place and as many after it, but for the first, which finds new code."""

    def __init__(self, function: Function, swaps: Sequence[Swap]):
        compiled = function.compiled
        assert isinstance(compiled, Compiled)
        self._function, self._swaps = function, swaps
        self._used = schedules_of(compiled)
        self._is_swapped = False
        self._before: list[Sequence[float]] = []
        self._after: list[Sequence[float]] = []
        function.watch(self._before.append)

    def is_over(self) -> bool:
        """Whether enough calls are timed. To be asked between two of them: swaps when those before are."""
        if not self._is_swapped and len(self._before) >= CALLS:
            adopt(self._function, {s.subgraph: s.schedule for s in self._swaps})
            self._is_swapped = True
            self._function.watch(self._after.append)
        return len(self._after) > CALLS

    def end(self) -> list[Swap]:
        """Leave in their places those that take less there, and give these. With too few calls none stays."""
        self._function.watch(None)
        if not self._is_swapped:
            return []
        enough = len(self._after) > CALLS
        before = _seconds_of(self._function, self._before)
        after = _seconds_of(self._function, self._after[1:] or self._after or self._before)
        kept = [
            replace(s, before=before[s.subgraph], seconds=after[s.subgraph])
            for s in self._swaps
            if enough and after[s.subgraph] < before[s.subgraph]
        ]
        if sum(after.values()) > (1 + NOISE) * sum(before.values()):
            kept = []
        stay = {s.subgraph for s in kept}
        adopt(self._function, {s.subgraph: self._used[s.subgraph] for s in self._swaps if s.subgraph not in stay})
        return kept


def _seconds_of(
    function: Function, samples: Sequence[Sequence[float]], of: Callable[..., np.ndarray] = np.median
) -> dict[str, float]:
    """Of all calls of each kernel in a call of the program, by digest. of: what stands for several samples of a time
    (default: their median)."""
    assert isinstance(function.compiled, Compiled)
    digests = [k.subgraph.digest for k in function.compiled.kernels]
    found = dict.fromkeys(digests, 0.0)
    for call, took in zip(function.plan.calls, of(np.array(samples), axis=0).tolist(), strict=True):
        if call.kernel < len(digests):
            found[digests[call.kernel]] += took
    return found


NOISE = 0.02
"""Part of a call of the program by which it may take longer with new kernels: beyond it none of them stays."""


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
        for u in _uses(compiled)
    ]
    return {
        "target": compiled.target.to_text(),
        "folder": str(config.load().cache_dir),
        "seed": seed,
        "share": share,
        "limits": asdict(limits),
        "uses": uses,
    }


def _uses(compiled: Compiled) -> tuple[Use, ...]:
    return uses_of([c for c in compiled.calls if not isinstance(c, HandedCall)])


def schedules_of(compiled: Compiled) -> Mapping[str, Schedule]:
    """By the digest of its subgraph, how each kernel is made now."""
    return {k.subgraph.digest: k.schedule for k in compiled.kernels}
