"""The process that builds, judges and times candidates: `python -m neoflow.measure.worker PLACE` (`tune.serving`)."""

from __future__ import annotations

import gc
import importlib
import sys
import time
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from neoflow import codegen
from neoflow import dtype as dt
from neoflow.code import Code
from neoflow.codegen.verify import Judge, verifier_version
from neoflow.devices import device
from neoflow.errors import CodegenError, NeoflowError
from neoflow.imports import without_torch
from neoflow.loops.template import schedule_from_json
from neoflow.measure.build import Built, build, load
from neoflow.measure.clock import Ring, Stopwatch, in_turns
from neoflow.measure.tasks import BUILD, JUDGE, KNOW, PREPARE, TIME, TURNS
from neoflow.partition import Subgraph
from neoflow.runtime.executor import run_on
from neoflow.target import Target
from neoflow.tune.messages import Message
from neoflow.tune.serving import serve

KEPT = 1 << 30
"""Bytes of what subgraphs mean, of those that were asked about last."""
TOO_SLOW, FIRST_CALL = 10.0, 2e-3
"""Times the best, and seconds that the first call of a kernel may take besides: one that is slower than both is judged
on the most special draw alone, and not timed again."""
_JUDGES: OrderedDict[str, tuple[Judge, Target]] = OrderedDict()
"""By key, the one used last at the end."""
_KNOWN: OrderedDict[str, tuple[Subgraph, Target]] = OrderedDict()
"""What is built here, in the same order."""
MOST_KNOWN = 64
"""Subgraphs that are kept to be built: with what templates ask of them."""


def handle(message: Message, data: bytes) -> tuple[Message, bytes]:
    """The answer to a request of `tasks`."""
    key = str(message["key"])
    if message["do"] == PREPARE:
        return _prepare(key, message), b""
    if message["do"] == KNOW:
        return _know(key, message), b""
    if message["do"] == BUILD:
        return _build(*_KNOWN[key], str(message["schedule"])) if key in _KNOWN else ({"forgotten": key}, b"")
    if key not in _JUDGES:
        return {"forgotten": key}, b""
    _JUDGES.move_to_end(key)
    judge, target = _JUDGES[key]
    if message["do"] == JUDGE:
        if "code" in message:
            return _judge(judge, target, Built(Code.from_json(str(message["code"])), data), message["best"]), b""
        return _built_and_judged(judge, target, str(message["schedule"]), message["best"])
    if message["do"] == TIME:
        found = _stopwatch(_ring(judge, target), target, str(message["code"]), data).time(message["best"])
        return {"outcome": "ok", "seconds": found.seconds, "spread": found.spread}, b""
    assert message["do"] == TURNS, message["do"]
    ends = np.cumsum(message["sizes"])
    parts = [data[end - size : end] for end, size in zip(ends, message["sizes"], strict=True)]
    ring = _ring(judge, target)
    watches = [_stopwatch(ring, target, code, part) for code, part in zip(message["codes"], parts, strict=True)]
    rows = in_turns(watches, int(message["rounds"]))
    return {"outcome": "ok", "seconds": [r.seconds for r in rows], "spreads": [r.spread for r in rows]}, b""


def _prepare(key: str, message: Message) -> Message:
    judge = Judge(Subgraph.from_text(str(message["subgraph"])), int(message["seed"]), KEPT)
    judge.prepare()
    _JUDGES[key] = judge, Target.from_text(str(message["target"]))
    while len(_JUDGES) > 1 and sum(j.nbytes for j, _ in _JUDGES.values()) > KEPT:
        _JUDGES.popitem(last=False)
    return {"outcome": "ok"}


def _know(key: str, message: Message) -> Message:
    _KNOWN[key] = Subgraph.from_text(str(message["subgraph"])), Target.from_text(str(message["target"]))
    while len(_KNOWN) > MOST_KNOWN:
        _KNOWN.popitem(last=False)
    return {"outcome": "ok"}


def _build(subgraph: Subgraph, target: Target, schedule: str) -> tuple[Message, bytes]:
    try:
        built = build(subgraph, schedule_from_json(schedule), target)
    except NeoflowError as error:
        return {"outcome": "refused", "reason": error.message}, b""
    except MemoryError:
        raise
    except Exception as error:  # TVM's own have no common class: to a search they all say "not this one"
        return {"outcome": "refused", "reason": f"{type(error).__name__}: {str(error).strip()[-300:]}"}, b""
    return {"outcome": "ok", "code": built.code.to_json()}, built.library


def _built_and_judged(judge: Judge, target: Target, schedule: str, best: float | None) -> tuple[Message, bytes]:
    made, library = _build(judge.subgraph, target, schedule)
    if made["outcome"] != "ok":
        return made, b""
    found = _judge(judge, target, Built(Code.from_json(str(made["code"])), library), best)
    return {**made, **found}, library


def _judge(judge: Judge, target: Target, built: Built, best: float | None) -> Message:
    place = device(target)
    kernel, calls = load(place, built), list[float]()

    def run(arrays: Sequence[np.ndarray]) -> None:
        start = time.perf_counter()
        run_on(place, kernel, arrays, target.threads)
        calls.append(time.perf_counter() - start)

    def is_hopeless() -> bool:
        return best is not None and calls[0] > max(TOO_SLOW * best, best + FIRST_CALL)

    try:
        judge.judge(run, "the candidate", is_hopeless)
    except CodegenError as error:
        return {"outcome": "wrong", "reason": error.message}
    return {"outcome": "ok", "rough": calls[0] if is_hopeless() else None}


def _ring(judge: Judge, target: Target) -> Ring:
    values = [judge.subgraph.lying(n) for n in judge.subgraph.outputs]
    outputs = [np.zeros(v.shape, dt.NUMPY[v.dtype]) for v in values]
    return Ring(device(target), judge.arrays(), outputs, target)


def _stopwatch(ring: Ring, target: Target, code: str, library: bytes) -> Stopwatch:
    place = device(target)
    return Stopwatch(place, load(place, Built(Code.from_json(code), library)), ring, target)


def warm() -> None:
    """Import the compiler, and start the threads of kernels."""
    with without_torch():
        importlib.import_module(codegen.DEVICES["cpu"])
    device()
    verifier_version()
    gc.collect()
    gc.freeze()  # a compiler's modules are a hundred thousand objects, which every collection would look through


def main(place: str) -> None:
    """Answer until the parent is gone."""
    serve(handle, place, warm)


if __name__ == "__main__":
    main(sys.argv[1])
