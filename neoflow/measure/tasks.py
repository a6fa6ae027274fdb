"""What is asked of a worker: messages, and what becomes of their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from neoflow.kernel import Code
from neoflow.loops import Schedule
from neoflow.measure.build import Built
from neoflow.partition import Subgraph
from neoflow.target import Target
from neoflow.tune.process import Answer, Request
from neoflow.tune.trial import OUTCOMES, Trial

OK = OUTCOMES[0]
PREPARE, JUDGE, TIME, TURNS = "prepare", "judge", "time", "turns"
PREPARE_SECONDS = 300.0
"""For NumPy to compute what a subgraph means: minutes, where it has billions of operations."""
LEAST_SECONDS = 0.5
"""That a candidate has for its timing, however long it was judged."""


def prepare(subgraph: Subgraph, target: Target, seed: int) -> Request:
    """Make ready for the candidates of a subgraph: what they have to compute. Once a worker."""
    message = {"do": PREPARE, "subgraph": subgraph.to_text(), "target": target.to_text(), "seed": seed}
    return Request({**message, "key": f"{subgraph.digest} {target} {seed}"}, seconds=PREPARE_SECONDS)


def judge(schedule: Schedule, best: float | None, seconds: float, before: Request) -> Request:
    """Build a candidate, and compare it with NumPy; answers with its code, and with a rough time of a hopeless one."""
    message = {"do": JUDGE, "key": before.message["key"], "schedule": schedule.to_json(), "best": best}
    return Request(message, b"", seconds, before)


def time(built: Built, best: float | None, seconds: float, before: Request) -> Request:
    """Time a candidate that was judged."""
    message = {"do": TIME, "key": before.message["key"], "code": built.code.to_json(), "best": best}
    return Request(message, built.library, seconds, before)


def turns(built: Sequence[Built], rounds: int, seconds: float, before: Request) -> Request:
    """Time several in turns."""
    codes, sizes = [b.code.to_json() for b in built], [len(b.library) for b in built]
    message = {"do": TURNS, "key": before.message["key"], "codes": codes, "sizes": sizes, "rounds": rounds}
    return Request(message, b"".join(b.library for b in built), seconds, before)


def built_of(answer: Answer) -> Built | None:
    """The kernel of an answer to `judge`; None when there is none to be trusted."""
    if answer.outcome != OK or answer.message.get("outcome") != OK:
        return None
    return Built(Code.from_json(str(answer.message["code"])), answer.data)


def rough_of(answer: Answer) -> float | None:
    """The seconds of a candidate that is so much slower than the best that it is not timed again."""
    rough = answer.message.get("rough")
    return None if rough is None else float(rough)


def failed(schedule: Schedule, answer: Answer) -> Trial:
    """The trial of an answer to `judge` without a kernel, or to `time` without a time."""
    message: Mapping[str, Any] = answer.message
    outcome, reason = answer.outcome, answer.reason
    if outcome == OK:
        outcome, reason = str(message.get("outcome")), str(message.get("reason", ""))
    return Trial(schedule, outcome if outcome in OUTCOMES else "crash", reason=reason)


def timed(schedule: Schedule, answer: Answer) -> Trial:
    """The trial of an answer to `time`."""
    if answer.outcome != OK or answer.message.get("outcome") != OK:
        return failed(schedule, answer)
    return Trial(schedule, OK, float(answer.message["seconds"]), float(answer.message["spread"]))
