"""What was measured, kept: the trials of subgraphs on targets, for every process and the next one.

    family, sizes    the structure of a subgraph without extents, and its extents: what serves at other sizes
    subgraph         its digest
    target           `str(target)`, as in the keys of kernels
    template         and its version, a hash of its own files: an edit elsewhere keeps records, one of the template
                     marks its own as to be measured again
    value            JSON: the schema, the schedule, what became of it

What was imported is not believed: its schedules are offered to be measured, and its times order them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neoflow.errors import TextError
from neoflow.expr.ir import Axis
from neoflow.loops import TEMPLATES, KnobValue, Schedule
from neoflow.loops.schedule import schedule_of
from neoflow.partition import Subgraph
from neoflow.target import Target
from neoflow.tune.store import RecordWarning, Store
from neoflow.tune.tables import SCHEMA, Row
from neoflow.tune.trial import OUTCOMES, Trial

__all__ = ["Entry", "RecordWarning", "Records", "Verdict", "sizes_of", "trial_from", "trial_json"]

FILE = "records.sqlite"
"""The name of the file, beside the kernels."""
REASON = 2000
"""Characters of a reason that are kept."""


@dataclass(frozen=True)
class Entry:
    """A trial with the text of what it is of: `Subgraph.from_text` and `Target.from_text` read them.

    version: of the template that it was measured with. is_own: measured here, not imported.
    """

    subgraph: str
    target: str
    version: str
    is_own: bool
    trial: Trial


@dataclass(frozen=True)
class Verdict:
    """What is best in a whole program: the schedules of its subgraphs by their digests, and the seconds of a call of
    the program with each set of schedules that was compared."""

    schedules: Mapping[str, Schedule]
    seconds: Mapping[str, float]


def sizes_of(subgraph: Subgraph) -> tuple[int, ...]:
    """The extents of a subgraph, in an order that its family shares: of inputs, then of each node's axes."""
    found = [n for value in subgraph.inputs for n in value.shape]
    for node in subgraph.nodes:
        axes: tuple[Axis, ...] = node.definition.reduction_axes
        found += [*node.definition.shape, *(a.extent for a in axes)]
    return tuple(found)


class Records:
    """The trials of a file, for any number of processes that read and write; with one warning, of this process alone
    where the file cannot be used.

    version_of: of a template, by its name: changes when the template's own files do. judge: of the folder, before the
    file in it is used: raises `OSError` when it cannot be, `ConfigError` when it must not be (`runtime.folder.Folder`).
    """

    def __init__(
        self, path: Path, version_of: Callable[[str], str], judge: Callable[[Path], object] = lambda folder: None
    ):
        self.path = path
        self._version_of = version_of
        self._versions: dict[str, str] = {}
        self._store = Store(path, judge, {"is_present": self._is_present})

    # --- what was measured

    def add(self, subgraph: Subgraph, target: Target, trials: Sequence[Trial]) -> bool:
        """Keep trials; one of a schedule that was tried before takes its place.

        Whether they are in the file: once this has returned true, they outlast the end of any process. Raises
        `ValueError` for a trial that says nothing: an outcome that is none, seconds that are no time.
        """
        rows = [self._row(subgraph, target, t, is_own=True) for t in trials]
        return self._store.add(_texts(subgraph, target), rows)[1]

    def best(self, subgraph: Subgraph, target: Target) -> Trial | None:
        """The fastest, of those measured here with the present template; None: there is none."""
        found = self.fastest(subgraph, target, 1)
        return found[0] if found else None

    def fastest(self, subgraph: Subgraph, target: Target, most: int) -> list[Trial]:
        """Those of the shortest times, of those measured here with the present template, in order."""
        where = "subgraph = ? AND target = ? AND seconds IS NOT NULL AND is_own AND is_present(template, version)"
        return self._store.rows("trials", _trial, where, (subgraph.digest, str(target)), "seconds, id", most=most)

    def trials(self, subgraph: Subgraph, target: Target) -> list[Trial]:
        """All that were measured here with the present templates, in order: what need not be measured again."""
        where = "subgraph = ? AND target = ? AND is_own AND is_present(template, version)"
        return self._store.rows("trials", _trial, where, (subgraph.digest, str(target)))

    def has_times(self, target: Target) -> bool:
        """Whether anything was measured here on such a target with the present templates."""
        where = "target = ? AND seconds IS NOT NULL AND is_own AND is_present(template, version)"
        return bool(self._store.rows("trials", _trial, where, (str(target),), "id", most=1))

    def to_measure(self, subgraph: Subgraph, target: Target) -> list[Schedule]:
        """Schedules said to be good, and to be measured before that is believed: imported, or measured with a template
        that has changed since. What was fastest comes first; `loops.nearest` makes them legal."""
        where = "subgraph = ? AND target = ? AND seconds IS NOT NULL AND NOT (is_own AND is_present(template, version))"
        found = self._store.rows("trials", _trial, where, (subgraph.digest, str(target)), "seconds, id")
        return [t.schedule for t in found if t.schedule.template in TEMPLATES]

    def relatives(self, subgraph: Subgraph, target: Target) -> list[tuple[tuple[int, ...], Trial]]:
        """The best of each subgraph of the same family at other sizes, and these (see `sizes_of`); the most similar
        sizes first."""
        those = "family = ? AND target = ? AND subgraph != ? AND seconds IS NOT NULL AND is_own"
        best = f"SELECT id, MIN(seconds) FROM trials WHERE {those} AND is_present(template, version) GROUP BY subgraph"
        values = (subgraph.family.digest, str(target), subgraph.digest)
        found = self._store.rows("trials", _sized, f"id IN (SELECT id FROM ({best}))", values)
        own = sizes_of(subgraph)
        return sorted(found, key=lambda one: _distance(own, one[0]))

    # --- what is best in a program

    def keep_verdict(self, program: str, target: Target, verdict: Verdict) -> bool:
        """Keep what was found best in a whole program, in place of what was before; whether it is in the file.

        program: a hash of what its calls are.
        """
        schedules = {digest: json.loads(s.to_json()) for digest, s in verdict.schedules.items()}
        versions = {t: self._version(t) for t in sorted({s.template for s in verdict.schedules.values()})}
        said = {"schema": SCHEMA, "schedules": schedules, "versions": versions, "seconds": dict(verdict.seconds)}
        return self._store.put("verdicts", (program, str(target), json.dumps(said)))

    def verdict(self, program: str, target: Target) -> Verdict | None:
        """What was; None where nobody has judged, or a template has changed since."""
        found = self._store.rows("verdicts", _verdict, "program = ? AND target = ?", (program, str(target)))
        if not found or not all(self._is_present(*version) for version in found[0][1].items()):
            return None
        return found[0][0]

    # --- what is passed on

    def add_foreign(self, subgraph: Subgraph, target: Target, trials: Sequence[Trial], version: str = "") -> int:
        """Keep what another machine says; what is known here stays as it is. How many are new."""
        rows = [self._row(subgraph, target, t, is_own=False, version=version) for t in trials]
        return self._store.add(_texts(subgraph, target), rows, instead=False)[0]

    def entries(self) -> Iterator[Entry]:
        """All trials whose subgraph and target are known, those of a subgraph together, the fastest first."""
        texts = dict(self._store.rows("texts", lambda row: (row[0], row[2])))
        order = "subgraph, target, seconds IS NULL, seconds, id"
        for subgraph, target, version, is_own, trial in self._store.rows("trials", _whole, order=order):
            if subgraph in texts and target in texts:
                yield Entry(texts[subgraph], texts[target], version, is_own, trial)

    def subgraph_text(self, digest: str) -> str | None:
        """The text of a subgraph; None where there are no trials of it."""
        found = self._store.rows("texts", lambda row: str(row[2]), "digest = ?", (digest,))
        return found[0] if found else None

    def is_present(self, entry: Entry) -> bool:
        """Whether the template of a trial is what it was."""
        return self._is_present(entry.trial.schedule.template, entry.version)

    # --- the file

    def count(self) -> dict[str, int]:
        """How many there are of "trials", of "texts" (subgraphs and targets), of "verdicts", and of rows "damaged"."""
        return self._store.count()

    def nbytes(self) -> int:
        """Of the file and what belongs to it."""
        return sum(p.stat().st_size for p in self._store.files())

    def clear(self) -> None:
        """Forget all, and remove the file. Raises `OSError`."""
        self._store.clear()

    def close(self) -> None:
        """Let go of the file, until it is asked for again."""
        self._store.close()

    def _row(self, subgraph: Subgraph, target: Target, trial: Trial, is_own: bool, version: str | None = None) -> Row:
        template = trial.schedule.template
        said = trial_json(trial)
        trial_from(said)
        return (
            *(subgraph.family.digest, json.dumps(sizes_of(subgraph)), subgraph.digest, str(target), template),
            self._version(template) if version is None else version,
            hashlib.sha256(trial.schedule.to_json().encode()).hexdigest(),
            trial.seconds if trial.outcome == "ok" else None,
            int(is_own),
            json.dumps({"schema": SCHEMA, **said}),
        )

    def _version(self, template: str) -> str:
        if template not in self._versions:
            self._versions[template] = self._version_of(template)
        return self._versions[template]

    def _is_present(self, template: str, version: str) -> bool:
        return template in TEMPLATES and self._version(template) == version


def _texts(subgraph: Subgraph, target: Target) -> tuple[Row, Row]:
    return (subgraph.digest, "subgraph", subgraph.to_text()), (str(target), "target", target.to_text())


def _distance(a: Sequence[int], b: Sequence[int]) -> float:
    """How unlike sizes are: by what factors."""
    return sum(abs(math.log(m / n)) for m, n in zip(a, b, strict=True)) if len(a) == len(b) else math.inf


# --- JSON


def trial_json(trial: Trial) -> dict[str, Any]:
    """A trial as plain data."""
    return {
        "schedule": json.loads(trial.schedule.to_json()),
        "outcome": trial.outcome,
        "seconds": None if trial.seconds is None else float(trial.seconds),
        "spread": float(trial.spread),
        "reason": trial.reason[:REASON],
        "times": trial.times,
    }


def trial_from(said: Any) -> Trial:
    """The trial of `trial_json`; its schedule may be one of a template that has changed. Raises `ValueError`."""
    try:
        outcome, seconds, spread = said["outcome"], said["seconds"], said["spread"]
        is_time = type(seconds) in (int, float) and 0 < seconds < math.inf
        if outcome not in OUTCOMES or is_time != (outcome == "ok") or not (is_time or seconds is None):
            raise ValueError(f"outcome {outcome!r} with {seconds!r} seconds")
        if type(spread) not in (int, float) or not 0 <= spread < math.inf or not isinstance(said["reason"], str):
            raise ValueError(f"a spread of {spread!r}")
        times = said.get("times", 1)
        if type(times) is not int or times < 1:
            raise ValueError(f"measured {times!r} times")
        found = float(seconds) if is_time else None
        return Trial(_schedule(said["schedule"]), outcome, found, float(spread), said["reason"], times)
    except (LookupError, TypeError, AttributeError, RecursionError, TextError) as error:
        raise ValueError(f"no trial: {error}") from None


def _schedule(said: Any) -> Schedule:
    """A schedule as it was, whatever knobs its template has by now."""
    knobs: dict[str, KnobValue] = dict(said["knobs"])
    if not isinstance(said["template"], str) or any(type(v) not in (int, str, bool) for v in knobs.values()):
        raise ValueError("no schedule")
    return schedule_of(said["template"], knobs, tuple(_schedule(s) for s in said.get("inner", ())))


def _trial(row: Row) -> Trial:
    said = json.loads(row[-1])
    if said["schema"] != SCHEMA:
        raise ValueError(f"schema {said['schema']}")
    return trial_from(said)


def _verdict(row: Row) -> tuple[Verdict, dict[str, str]]:
    """And the versions of the templates that it is of."""
    said = json.loads(row[-1])
    if said["schema"] != SCHEMA:
        raise ValueError(f"schema {said['schema']}")
    schedules = {str(digest): _schedule(s) for digest, s in dict(said["schedules"]).items()}
    seconds = {str(name): float(s) for name, s in dict(said["seconds"]).items()}
    return Verdict(schedules, seconds), {str(t): str(v) for t, v in dict(said["versions"]).items()}


def _sized(row: Row) -> tuple[tuple[int, ...], Trial]:
    return tuple(json.loads(row[1])), _trial(row)


def _whole(row: Row) -> tuple[str, str, str, bool, Trial]:
    return row[2], row[3], row[5], bool(row[8]), _trial(row)
