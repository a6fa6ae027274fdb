"""neoflow on this machine's GPU: right, near its ceilings, beside PyTorch.

    python -m benchmarks.gpu [--piece a|b|c|d|e|f] [--only REGEX] [--minutes 9] [--out FOLDER] [--dry] [--write]

(a) every template and model against NumPy's `evaluate`; (b) kernels as shares of the measured ceilings, beside
PyTorch's; (c) training steps beside PyTorch: eager, as one CUDA graph, compiled; (d) recurrences, their
loops as one launch each and turn by turn; (e) LSTM, GRU and RNN by cuDNN in the place of our kernels; (f) what a
search gains. Each row is a line of FOLDER/rows.jsonl, at once; no row is begun after so many minutes, and the same
command goes on with those that are left. Rows of another run: `--known FILE`. With `--together 8`, eight rows of (a)
to (d) are compiled side by side and timed in turn. Needs no network and no build tools but a CUDA compiler (nvcc or
NVRTC); without PyTorch its columns are empty. `--dry` runs tiny shapes in the emulator of `tests/`. `--write` puts all
rows there are into RESULTS.md.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile

from benchmarks import results
from benchmarks.gpu import dry
from benchmarks.gpu.rows import Outcome, Row, Setting, Task, append, read_rows
from benchmarks.gpu.tables import COMMAND, section
from benchmarks.gpu.tasks import TASKS
from benchmarks.gpu.turns import TIMING
from benchmarks.gpu.worker import Failed, Worker, failure
from neoflow.errors import RuntimeFault

OUT = Path("gpu-results")
ALONE = ("e", "f")
"""Pieces whose rows time while they compile."""
GRACE = 30.0
"""Seconds that the last row may take beyond the time there is."""
Perform = Callable[[Task, Setting, float], Outcome]


def wanted(piece: str | None, only: str, rows: Mapping[str, Row]) -> list[Task]:
    """Tasks that were asked for and have not been done."""
    asked = [t for t in TASKS if piece in (None, t.piece) and (only in t.key or re.search(only, t.key))]
    return [t for t in asked if t.key not in rows or not rows[t.key].is_done]


def perform_all(
    tasks: Sequence[Task], rows: dict[str, Row], path: Path, on: str, setting: Setting, end: float, perform: Perform
) -> int:
    """Do tasks, each a row in the file, until none is left or the time is up; how many are left."""
    for n, task in enumerate(tasks):
        left = end - time.monotonic()
        if left <= 0:
            return len(tasks) - n
        perform_one(task, rows, path, on, setting, min(setting.limit, left + GRACE), perform)
    return 0


def perform_one(
    task: Task, rows: dict[str, Row], path: Path, on: str, setting: Setting, limit: float, perform: Perform
) -> None:
    """Do a task, a row in the file."""
    start, is_done = time.monotonic(), True
    try:
        outcome = perform(task, setting, limit)
    except Failed as failed:
        outcome, is_done = Outcome(said=str(failed)), False
    rows[task.key] = Row(task.key, outcome.figures, outcome.said, on, datetime.date.today().isoformat(), is_done)
    append(path, rows[task.key])
    shown = " ".join(f"{name}={value:.4g}" for name, value in outcome.figures.items())
    say(f"{task.key}: {shown} {outcome.said} [{time.monotonic() - start:.1f} s]")


def perform_together(
    tasks: Sequence[Task], rows: dict[str, Row], path: Path, on: str, setting: Setting, end: float, count: int
) -> int:
    """The same, so many at a time: prepared side by side, each in a process of its own, and timed in turn."""
    workers = [Worker() for _ in range(count)]
    try:
        with ThreadPoolExecutor(count) as pool, NamedTemporaryFile() as lock:
            for first in range(0, len(tasks), count):
                left = end - time.monotonic()
                if left <= 0:
                    return len(tasks) - first
                each = replace(setting, lock=lock.name, limit=min(setting.limit, left + GRACE))

                def do(task: Task, worker: Worker, each: Setting = each) -> None:
                    most = each.limit + count * TIMING
                    perform_one(task, rows, path, on, each, most, lambda t, s, limit: worker.perform(t.key, s, limit))

                list(pool.map(do, tasks[first : first + count], workers))
        return 0
    finally:
        for worker in workers:
            worker.close()


def here(task: Task, setting: Setting, _: float) -> Outcome:
    """A task in this process. Raises `Failed`."""
    try:
        return task.run(setting)
    except Exception as error:  # as in a worker
        raise Failed(failure(error)) from error


def publish(rows: Mapping[str, Row]) -> None:
    """Replace the section of RESULTS.md."""
    places = sorted({f"{row.on} ({row.date})" for row in rows.values()})
    on = f"measured on {', '.join(places)}" if places else "no GPU was there when this was written: nothing is measured"
    title = "On a GPU: default schedules, without TF32"
    results.write("gpu", title, f"{on}; `{COMMAND} --write`", section(rows))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--piece", choices=("a", "b", "c", "d", "e", "f"))
    parser.add_argument("--only", default="", help="rows whose key this regular expression finds")
    parser.add_argument("--seconds", type=float, default=0.5, help="of runs that a time is taken from")
    parser.add_argument("--limit", type=float, default=Setting.limit, help="seconds of a row, which then has failed")
    parser.add_argument("--search", type=float, default=Setting.search, help="seconds of each search")
    parser.add_argument("--together", type=int, default=1, help="rows that are prepared side by side, timed in turn")
    parser.add_argument("--minutes", type=float, default=9.0, help="after which no row is begun")
    parser.add_argument("--out", type=Path, default=OUT, help="where rows.jsonl is")
    parser.add_argument("--known", type=Path, action="append", default=[], help="rows of another run")
    parser.add_argument("--again", action="store_true", help="do what is done once more")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    if options.dry and options.write:
        parser.error("a dry run measures nothing that could be written")
    path = options.out / "rows.jsonl"
    rows = read_rows([*options.known, path])
    tasks = wanted(options.piece, options.only, {} if options.again else rows)
    setting = Setting(options.seconds, options.limit, options.search, options.dry)
    with dry.emulator() if options.dry else nullcontext():
        try:
            left = (
                work(tasks, rows, path, results.gpu_here(), setting, 60 * options.minutes, options.together)
                if tasks
                else 0
            )
        except RuntimeFault as absent:
            say(f"nothing is measured: {absent.message}")
            left = len(tasks)
    print("\n".join(section(rows)), flush=True)
    if options.write:
        publish(rows)
    if left:
        say(f"{left} rows are left: the same command goes on")
    return int(left > 0)


def work(
    tasks: Sequence[Task],
    rows: dict[str, Row],
    path: Path,
    on: str,
    setting: Setting,
    seconds: float,
    together: int = 1,
) -> int:
    """All tasks, in a process beside this one, or so many, unless it is a dry run; how many are left."""
    end = time.monotonic() + seconds
    if setting.dry:
        return perform_all(tasks, rows, path, on, setting, end, here)
    if together > 1:
        side_by_side = [t for t in tasks if t.piece not in ALONE]
        left = perform_together(side_by_side, rows, path, on, setting, end, together)
        return left + work([t for t in tasks if t.piece in ALONE], rows, path, on, setting, end - time.monotonic())
    worker = Worker()
    try:
        return perform_all(tasks, rows, path, on, setting, end, lambda t, s, limit: worker.perform(t.key, s, limit))
    finally:
        worker.close()


def say(text: str) -> None:
    """What goes on, beside the tables."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
