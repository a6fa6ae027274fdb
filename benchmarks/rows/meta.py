"""Rows beside TVM's meta_schedule: its trials, and neoflow's search in 1/50 of the time that they took."""

from __future__ import annotations

import datetime
import json
import re
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results import append, last_of_each
from benchmarks.rows import contest
from benchmarks.rows.cases import Row, rows
from benchmarks.rows.contest import NAMES, Setting
from benchmarks.rows.ours import program
from benchmarks.rows.worker import TUNED
from neoflow.contest.contenders import OURS, Contender, environment
from neoflow.contest.process import Worker, WorkerFailure, wait_until_quiet

ROWS = (
    "matmul 512 A B",
    "matmul 1024 A B",
    "matmul 64x512x2048 A B",
    "matmul batched 96x128x64x128",
    "conv 3x3 64->64 56x56 b1, y",
)
FILE = "meta_schedule.jsonl"
PROGRAM = ("-m", "benchmarks.rows.meta_worker")
THEIRS = Contender("meta_schedule", "meta_schedule")
PART = 50
"""Of their time is ours."""
LEAST = 1.0
"""Seconds of a search of ours."""
PATIENCE = 60.0
"""Seconds that a trial of theirs may take."""
WRONG = 1e-3


@dataclass(frozen=True)
class Compared:
    """Of one row: seconds of meta_schedule's tuning and of a call of what it found; of ours; why it is not there."""

    name: str
    date: str
    trials: int
    their_tuning: float = 0.0
    theirs: float | None = None
    our_tuning: float = 0.0
    ours: float | None = None
    missing: str = ""


def read(path: Path) -> dict[str, Compared]:
    """By row, the last of each; a line that was cut off is passed over."""
    return last_of_each(path, lambda line: Compared(**json.loads(line)), lambda found: found.name)


def compare_all(
    pattern: str,
    trials: int,
    found: dict[str, Compared],
    path: Path,
    again: bool,
    say: Callable[[str], None],
    dry: bool = False,
) -> None:
    """All rows that were asked for and are not done, each a line of the file as soon as it ends."""
    chosen = [r for r in rows(dry) if r.name in ROWS and re.search(pattern, r.name)]
    for row in chosen:
        if not again and row.name in found and not found[row.name].missing:
            continue
        say(f"meta_schedule, {trials} trials: {row.name}")
        found[row.name] = compare(row, trials, dry)
        append(path, found[row.name])


def compare(row: Row, trials: int, dry: bool = False) -> Compared:
    """Theirs is tuned, then ours in so much less time; then both are timed in turns."""
    date, setting = datetime.date.today().isoformat(), Setting(dry=dry)
    workers: list[Worker] = []
    with tempfile.TemporaryDirectory(prefix="neoflow-meta-") as name:
        folder = Path(name)
        out = [d for v in program(row)[2] for d in v.shape]
        request = {"row": row.name, "dry": dry, "trials": trials, "folder": name, "out": out}
        try:
            theirs = Worker(request, environment(THEIRS, folder, None), PROGRAM, PATIENCE * (trials + 2))
            workers.append(theirs)
            tuning = theirs.ready["tuning"]
            if theirs.ready["error"] > WRONG:
                return Compared(row.name, date, trials, tuning, missing="what meta_schedule found is WRONG")
            asked = {"row": row.name, "table": setting.table, "kind": "neoflow", "dry": dry}
            asked |= {"tune": max(LEAST, tuning / PART)}
            asked |= {"rounding": setting.rounding, "results": str(folder / "ours.npz")}
            ours = Worker(asked, environment(OURS, folder, None), contest.PROGRAM, setting.patience + tuning)
            workers.append(ours)
            pairs = []
            for _ in range(setting.rounds):
                wait_until_quiet(workers)
                first = theirs.block(setting.block)
                wait_until_quiet(workers)
                pairs.append((first, ours.block(setting.block, which=TUNED)))
        except WorkerFailure as failure:
            return Compared(row.name, date, trials, missing=str(failure))
        finally:
            for worker in workers:
                worker.close()
    a, b = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Compared(row.name, date, trials, tuning, a, asked["tune"], b)


def table(found: Mapping[str, Compared]) -> Sequence[str]:
    """Theirs beside ours."""
    heads = ["row", "trials", "meta_schedule tuned s", "its ms", f"{NAMES[TUNED]} tuned s", "its ms", "ratio", ""]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "--:|" * 6 + "---|"]
    for c in (found[name] for name in ROWS if name in found):
        if c.theirs is None or c.ours is None:
            cells = [str(c.trials), *["-"] * 5, c.missing.replace("|", "/")]
        else:
            cells = [str(c.trials), f"{c.their_tuning:.0f}", f"{1e3 * c.theirs:.3f}"]
            cells += [f"{c.our_tuning:.1f}", f"{1e3 * c.ours:.3f}", f"{c.theirs / c.ours:.2f}"]
            cells.append("reached" if c.ours <= c.theirs else "missed")
        lines.append("| " + " | ".join([c.name, *cells]) + " |")
    return lines if found else ()
