"""Recurrences as scans, T = 16 to 4096, value and gradients, beside PyTorch, torch.compile and jax.lax.scan, in turns.

    python -m benchmarks.recurrences [--rows REGEX] [--again] [--out FOLDER] [--write]

Each contender is a process of its own, and only one runs at a time; neoflow has default schedules. Times are medians
over rounds, ratios medians of the ratios within a round. The seconds to compile are neoflow's alone, those to the first
result everyone's. Each row is a line of FOLDER/recurrences.jsonl as soon as it ends; the same command goes on with
those that are left. `--write` puts all rows there are into RESULTS.md.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.recurrences.cases import KINDS, STEPS, rows
from benchmarks.results import append, write
from benchmarks.rows.cases import Row
from benchmarks.rows.contest import NAMES, Crew, Measured, Setting, read
from benchmarks.rows.tables import mean, speed
from benchmarks.rows.worker import DEFAULT
from neoflow.contest.contenders import OURS, PEERS
from neoflow.machine import processor

OUT = Path("recurrence-results")
FILE = "recurrences.jsonl"
TABLE = "benchmarks.recurrences"
WANTED = 2.0
"""The geometric mean of the best peer's time over ours."""
ROUNDS = 3
WRONG = 5e-2
"""Of the largest entry: more is no rounding. PyTorch's own CTC is 6e-3 from the others after 1024 steps."""
OTHERS = tuple(p.name for p in PEERS)
Assemble = Callable[[Setting], Crew]


def table(every: Sequence[Row], found: Mapping[str, Measured]) -> list[str]:
    """All rows that were measured."""
    heads = ["recurrence", "neoflow ms", *(f"{n} ms" for n in OTHERS), "best peer", "best / neoflow", ""]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "--:|" * (1 + len(OTHERS)) + "---|--:|---|"]
    return [*lines, *(_line(found[r.name]) for r in every if r.name in found)]


def _line(found: Measured) -> str:
    times = [found.seconds.get(n) for n in (NAMES[DEFAULT], *OTHERS)]
    best = found.best()
    ratio = speed(found, best)
    cells = [found.name, *("-" if t is None else f"{1e3 * t:.3f}" for t in times)]
    cells += [best or "-", "-" if ratio is None else f"{ratio:.2f}", "; ".join(_said(found))]
    return "| " + " | ".join(cells) + " |"


def _said(found: Measured) -> list[str]:
    """What a reader has to know of a row."""
    wrong = [f"WRONG: {n} is off by {e:.1e}" for n, e in found.errors.items() if not e <= WRONG]
    return [*wrong, *(f"no {name}: {why}".replace("|", "/")[:160] for name, why in found.missing.items())]


def compiling(found: Mapping[str, Measured]) -> list[str]:
    """The seconds to compile, by the number of steps."""
    heads = ["seconds", *(f"T = {t}" for t in STEPS)]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "--:|" * len(STEPS)]
    for title, _, _ in KINDS.values():
        there = [found.get(f"{title}, T = {t}") for t in STEPS]
        if any(m is not None for m in there):
            lines += _compiling(title, there)
    return lines


def _compiling(title: str, there: Sequence[Measured | None]) -> Iterator[str]:
    own = [None if m is None else m.told.get("compile") for m in there]
    yield _seconds(f"{title}: neoflow, to compile", own)
    for name in (OURS.name, *OTHERS):
        yield _seconds(f"{title}: {name}, first result", [None if m is None else m.first.get(name) for m in there])


def _seconds(what: str, values: Sequence[float | None]) -> str:
    return "| " + " | ".join([what, *("-" if v is None else f"{v:.2f}" for v in values)]) + " |"


def summary(every: Sequence[Row], found: Mapping[str, Measured]) -> list[str]:
    """The goal, and what was reached."""
    there = [found[r.name] for r in every if r.name in found and found[r.name].is_done]
    reached = mean(speed(m, m.best()) for m in there)
    return [
        f"{len(there)} of {len(every)} rows; the best peer's time over neoflow's, geometric mean: "
        f"{'-' if reached is None else f'{reached:.2f}'} (wanted: {WANTED:.1f})."
    ]


def publish(found: Mapping[str, Measured]) -> None:
    """Replace the section of RESULTS.md."""
    every = rows()
    dates = sorted({m.date for m in found.values()})
    busy = max((m.foreign for m in found.values()), default=0.0)
    how = (
        f"{processor()}, {', '.join(dates)}, other work took at most {busy:.1%} of the machine; "
        "`python -m benchmarks.recurrences --write`"
    )
    lines = [*summary(every, found), "", *table(every, found), "", *compiling(found)]
    write("recurrences", "Recurrences as scans, beside four peers", how, lines)


def main(arguments: Sequence[str] | None = None, assemble: Assemble = Crew) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="those whose name this regular expression finds")
    parser.add_argument("--list", action="store_true", help="names of the rows alone")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--block", type=float, default=Setting.block, help="seconds of one")
    parser.add_argument("--again", action="store_true", help="measure what is done once more")
    parser.add_argument("--out", type=Path, default=OUT, help=f"where {FILE} is")
    parser.add_argument("--dry", action="store_true", help="tiny sizes, whose times mean nothing")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    if options.dry and options.write:
        parser.error("a dry run measures nothing that could be written")
    try:
        asked = [r for r in rows(options.dry) if options.rows in r.name or re.search(options.rows, r.name)]
    except re.error as error:
        parser.error(f"--rows {options.rows!r} is no regular expression: {error}")
    path = options.out / FILE
    found = read(path)
    left = [r for r in asked if options.again or r.name not in found or not found[r.name].is_done]
    if options.list:
        print(*(r.name for r in left), sep="\n")
        return 0
    with assemble(Setting(0.0, rounds=options.rounds, block=options.block, dry=options.dry, table=TABLE)) as crew:
        for n, row in enumerate(left):
            print(f"{n + 1} of {len(left)}: {row.name}", file=sys.stderr, flush=True)
            found[row.name] = crew.measure(row)
            append(path, found[row.name])
            print(_line(found[row.name]), flush=True)
    print("\n".join([*summary(rows(options.dry), found), "", *compiling(found)]))
    if options.write:
        publish(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
