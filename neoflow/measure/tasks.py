"""What is asked of a worker: messages, and what becomes of their answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from neoflow.code import Code
from neoflow.loops import Schedule
from neoflow.measure.build import Built
from neoflow.partition import Subgraph
from neoflow.target import Target
from neoflow.tune.process import Answer, Request
from neoflow.tune.trial import OUTCOMES, Trial

OK = OUTCOMES[0]
KNOW, PREPARE, BUILD, JUDGE, TIME, TURNS = "know", "prepare", "build", "judge", "time", "turns"
PREPARE_SECONDS = 300.0
"""For NumPy to compute what a subgraph means: minutes, where it has billions of operations."""
LEAST_SECONDS = 0.5
"""That a candidate has for its timing, however long it was judged."""


def know(subgraph: Subgraph, target: Target) -> Request:
    """Tell what candidates are of, for those who build them. Once a worker."""
    message = {"do": KNOW, "subgraph": subgraph.to_text(), "target": target.to_text()}
    return Request({**message, "key": f"{subgraph.digest} {target}"})


def prepare(subgraph: Subgraph, target: Target, seed: int) -> Request:
    """Make ready for the candidates of a subgraph: what they have to compute. Once a worker that judges them."""
    message = {"do": PREPARE, "subgraph": subgraph.to_text(), "target": target.to_text(), "seed": seed}
    return Request({**message, "key": f"{subgraph.digest} {target} {seed}"}, seconds=PREPARE_SECONDS)


def build(schedule: Schedule, seconds: float, before: Request) -> Request:
    """Build a candidate; answers with its code."""
    message = {"do": BUILD, "key": before.message["key"], "schedule": schedule.to_json()}
    return Request(message, b"", seconds, before)


def judge(schedule: Schedule, best: float | None, seconds: float, before: Request) -> Request:
    """Build a candidate, and compare it with NumPy; answers with its code, and with a rough time of a hopeless one."""
    message = {"do": JUDGE, "key": before.message["key"], "schedule": schedule.to_json(), "best": best}
    return Request(message, b"", seconds, before)


def judge_built(built: Built, best: float | None, seconds: float, before: Request) -> Request:
    """Compare a candidate that was built with NumPy; answers with a rough time of a hopeless one."""
    message = {"do": JUDGE, "key": before.message["key"], "code": built.code.to_json(), "best": best}
    return Request(message, built.library, seconds, before)


def time(built: Built, best: float | None, seconds: float, before: Request) -> Request:
    """Time a candidate that was judged."""
    message = {"do": TIME, "key": before.message["key"], "code": built.code.to_json(), "best": best}
    return Request(message, built.library, seconds, before)


def turns(built: Sequence[Built], rounds: int, seconds: float, before: Request) -> Request:
    """Time several in turns."""
    codes, sizes = [b.code.to_json() for b in built], [len(b.library) for b in built]
    message = {"do": TURNS, "key": before.message["key"], "codes": codes, "sizes": sizes, "rounds": rounds}
    return Request(message, b"".join(b.library for b in built), seconds, before)


def built(answer: Answer) -> Built | None:
    """The kernel of an answer to `build`; None when there is none."""
    return Built(Code.from_json(str(answer.message["code"])), answer.data) if _is_ok(answer) else None


def to_be_timed(answer: Answer) -> Built | None:
    """The kernel of an answer to `judge`; None when it is not right, or so slow that its time is known well enough."""
    return built(answer) if is_to_be_timed(answer) else None


def is_to_be_timed(answer: Answer) -> bool:
    """Of an answer to `judge` or `judge_built`: whether it is right, and not so slow that its time is known."""
    return _is_ok(answer) and answer.message.get("rough") is None


def unmeasured(schedule: Schedule, answer: Answer) -> Trial:
    """The trial of an answer to `build` or `judge`, as long as it is not timed: ok only of what is hopelessly slow."""
    rough = answer.message.get("rough")
    return Trial(schedule, OK, float(rough)) if _is_ok(answer) and rough is not None else _failed(schedule, answer)


def timed(schedule: Schedule, answer: Answer) -> Trial:
    """The trial of an answer to `time`."""
    seconds = seconds_of(answer)
    return (
        _failed(schedule, answer) if seconds is None else Trial(schedule, OK, seconds, float(answer.message["spread"]))
    )


def seconds_of(answer: Answer) -> float | None:
    """Of an answer to `time`."""
    return float(answer.message["seconds"]) if _is_ok(answer) and "spread" in answer.message else None


def of_turns(schedule: Schedule, answer: Answer, place: int) -> Trial:
    """The trial of the kernel in this place of an answer to `turns`."""
    if not _is_ok(answer):
        return _failed(schedule, answer)
    return Trial(schedule, OK, float(answer.message["seconds"][place]), float(answer.message["spreads"][place]))


def _is_ok(answer: Answer) -> bool:
    return answer.outcome == OK and answer.message.get("outcome") == OK


def _failed(schedule: Schedule, answer: Answer) -> Trial:
    message: Mapping[str, Any] = answer.message
    outcome, reason = answer.outcome, answer.reason
    if outcome == OK:
        outcome, reason = str(message.get("outcome")), str(message.get("reason", ""))
    return Trial(schedule, outcome if outcome in OUTCOMES else "crash", reason=reason)
