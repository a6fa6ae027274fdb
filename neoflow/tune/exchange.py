"""Schedules for another machine, as JSON lines: what was measured, of which subgraph, for which target. Never binaries.

    {"neoflow": "schedule", "version": 1, "subgraph": text, "target": text, "template": version, "schedule": {...},
     "outcome": "ok", "seconds": 0.0012, "spread": 0.01, "reason": "", "sum": SHA-256 of the rest}

A line is believed for nothing it says: its subgraph and its target are read and checked, its schedule has to be legal
for them, and its time only puts schedules in order that are verified and measured before they are used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from neoflow.errors import NeoflowError, ScheduleError, shown
from neoflow.loops import legal, problem_of, schedule_from_json
from neoflow.partition import Subgraph
from neoflow.target import Target
from neoflow.tune.records import Records, trial_from, trial_json

VERSION = 1
LINE = 1 << 20
"""Bytes of a line at most; longer ones are passed over."""
NAMED = 20
"""Lines that were refused, of which a report says why."""
REASON = 300
"""Characters of such a reason."""

_KEYS = {"neoflow", "version", "subgraph", "target", "template", "sum"}
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What data may lead to that is not what it is said to be, in what judges it."""


@dataclass(frozen=True)
class Imported:
    """What became of the lines of a file: new schedules, those known already, those refused; why, of the first ones."""

    new: int
    known: int
    refused: int
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        said = f"{self.new} schedules imported, to be verified and measured before they are used; {self.known} known"
        return "\n".join([f"{said} already, {self.refused} lines refused", *self.reasons])


def export_lines(records: Records, best: int | None = None) -> Iterator[str]:
    """The lines of what was measured here and is fast: of each subgraph on each target all, or the `best` fastest."""
    of, number = ("", ""), 0
    for entry in records.entries():
        number = number + 1 if of == (entry.subgraph, entry.target) else 1
        of = (entry.subgraph, entry.target)
        if not entry.is_own or not records.is_present(entry) or entry.trial.outcome != "ok":
            number -= 1
        elif best is None or number <= best:
            said = {
                **{"neoflow": "schedule", "version": VERSION, "subgraph": entry.subgraph, "target": entry.target},
                **{"template": entry.version, **trial_json(entry.trial)},
            }
            yield json.dumps({**said, "sum": line_sum(said)})


def import_lines(records: Records, lines: Iterable[bytes]) -> Imported:
    """Keep the schedules of lines that are right, as to be verified and measured; count and name the others."""
    new = known = refused = 0
    reasons: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            added = _import(records, line)
        except _UNREADABLE as error:
            refused += 1
            reasons += [f"line {number}: {type(error).__name__}: {' '.join(str(error).split())[:REASON]}"]
        except NeoflowError as error:
            refused += 1
            reasons += [f"line {number}: {' '.join(error.message.split())[:REASON]}"]
        else:
            new, known = new + added, known + 1 - added
    more = [f"and {refused - NAMED} more"] if refused > NAMED else []
    return Imported(new, known, refused, (*reasons[:NAMED], *more))


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, of each no more than shows that it is too long."""
    while line := file.readline(LINE + 2):
        rest = line
        while not rest.endswith(b"\n") and (rest := file.readline(LINE)):
            pass
        yield line


def line_sum(said: dict[str, Any]) -> str:
    """Of what a line says beside it."""
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _import(records: Records, line: bytes) -> int:
    """1 for a schedule that is new, else 0. Raises `NeoflowError` or one of `_UNREADABLE`."""
    if len(line) > LINE:
        raise ScheduleError(f"it has more than {LINE} bytes")
    said = json.loads(line)
    if not isinstance(said, dict) or said.get("neoflow") != "schedule":
        raise ScheduleError("it is no schedule of neoflow")
    if said.get("version") != VERSION:
        raise ScheduleError(f"it is of version {shown(said.get('version'))}, and this neoflow reads {VERSION}")
    if said.pop("sum", None) != line_sum(said):
        raise ScheduleError("it is damaged: its sum is another one")
    if not all(isinstance(said.get(key), str) for key in ("subgraph", "target", "template")):
        raise ScheduleError("it lacks a subgraph, a target or the version of a template")
    trial = trial_from({key: value for key, value in said.items() if key not in _KEYS})
    if trial.outcome != "ok":
        raise ScheduleError("its schedule is none that was measured")
    subgraph, target = Subgraph.from_text(said["subgraph"]), Target.from_text(said["target"])
    schedule = schedule_from_json(json.dumps(said["schedule"]))
    verdict = legal(problem_of(subgraph), schedule, target)
    if not verdict.ok:
        raise ScheduleError(f"its schedule is not legal: {verdict.reason}")
    return records.add_foreign(subgraph, target, [trial], said["template"])
