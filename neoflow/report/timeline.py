"""A run as a timeline: trace events that Perfetto (ui.perfetto.dev) and chrome://tracing open.

Three tracks: the stages of the compilation, the steps of the run with their losses, and the calls of one step, each
with its median time, one after the other as they run. Source: the Trace Event Format (Chromium), events "X", "C", "M".
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from neoflow.pipeline import Compiled
from neoflow.runtime.bound import KernelTime
from neoflow.train.records import StepRecord

Event = dict[str, Any]
_COMPILE, _RUN, _STEP = 1, 2, 3
_TRACKS = {_COMPILE: "compilation", _RUN: "training steps", _STEP: "calls of one step"}


def _schedule(compiled: Compiled, number: int) -> str:
    """Of a kernel; what another library computes has none of ours."""
    return str(compiled.kernels[number].schedule) if number < len(compiled.kernels) else "another library's"


def events(compiled: Compiled, times: Sequence[KernelTime], records: Sequence[StepRecord]) -> list[Event]:
    """The events of a run; `ts` and `dur` in microseconds, each track from 0 on. times: of the plan's calls."""
    named = [
        {"ph": "M", "name": "process_name", "pid": track, "tid": 0, "args": {"name": name}}
        for track, name in _TRACKS.items()
    ]
    stages = ((r.name, r.seconds, {"result": r.summary}) for r in compiled.trace.records)
    steps = ((f"step {r.step + 1}", r.seconds, {**_said(r.values), "epoch": r.epoch + 1}) for r in records)
    calls = (
        (t.name, t.seconds, {"kernel": call.kernel, "schedule": _schedule(compiled, call.kernel)})
        for t, call in zip(times, compiled.plan.calls, strict=True)
    )
    losses = [
        {"ph": "C", "name": "loss", "pid": _RUN, "ts": ts, "args": _said({"loss": record.values["loss"]})}
        for ts, record in zip(_ends(r.seconds for r in records), records, strict=True)
    ]
    return [*named, *_spans(_COMPILE, stages), *_spans(_RUN, steps), *losses, *_spans(_STEP, calls)]


def _said(values: Mapping[str, float]) -> dict[str, float | str]:
    """Values as JSON has them: what is not finite as text."""
    return {name: float(v) if math.isfinite(v) else str(v) for name, v in values.items()}


def _ends(seconds: Iterable[float]) -> Iterator[float]:
    end = 0.0
    for spent in seconds:
        end += spent * 1e6
        yield end


def _spans(track: int, parts: Iterable[tuple[str, float, dict[str, Any]]]) -> Iterator[Event]:
    """One span after the other."""
    start = 0.0
    for name, seconds, more in parts:
        spent = seconds * 1e6
        yield {"ph": "X", "name": name, "pid": track, "tid": 0, "ts": start, "dur": spent, "args": more}
        start += spent


def write_timeline(
    path: str | os.PathLike, compiled: Compiled, times: Sequence[KernelTime], records: Sequence[StepRecord]
) -> None:
    """Write the events as JSON, making the folder where there is none."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    found = {"traceEvents": events(compiled, times, records), "displayTimeUnit": "ms"}
    Path(path).write_text(json.dumps(found, allow_nan=False), encoding="utf-8")
