"""Operators at fixed sizes, tuned, beside four peers, in turns: the operator table.

    python -m benchmarks.operators [--rows REGEX] [--seconds-of-tuning 20] [--again] [--out FOLDER] [--write]
    python -m benchmarks.operators --meta-schedule 64 [--rows REGEX]

Each contender is a process of its own, so that a crash costs one cell: neoflow, from a cold cache, with default
schedules and with those of a search; PyTorch as installed, and in its expert setting; torch.compile in that setting;
JAX. Only one of them runs at a time. Times are those of calls from Python, medians over rounds, ratios medians of the
ratios within a round. The share is that of neoflow's kernels, timed one by one: of the measured peak of multiply-adds,
by the operations that a plain sum has (Winograd's may exceed it), or of the time that the measured bandwidth sets. Each
row is a line of FOLDER/operators.jsonl as soon as it ends, with its day and machine; the same command goes on with the
rows that are left. `--meta-schedule` tunes five rows with TVM's meta_schedule, so many trials each, and with neoflow in
1/50 of that time. `--write` puts all rows there are into RESULTS.md.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.results import append, while_apart, write
from benchmarks.rows import meta
from benchmarks.rows.cases import Row, rows
from benchmarks.rows.contest import Crew, Measured, Setting, read
from benchmarks.rows.tables import line, machines, summary, table

OUT = Path(__file__).parent / "measured"
"""Kept with the sources, as all rows take longer than one sitting."""
FILE = "operators.jsonl"
Assemble = Callable[[Setting], Crew]


def left(pattern: str, found: Mapping[str, Measured], again: bool, dry: bool) -> list[Row]:
    """The rows that were asked for and are not done."""
    asked = [r for r in rows(dry) if pattern in r.name or re.search(pattern, r.name)]
    return [r for r in asked if again or r.name not in found or not found[r.name].is_done]


def publish(found: Mapping[str, Measured], compared: Mapping[str, meta.Compared]) -> None:
    """Replace the section of RESULTS.md."""
    busy = max((m.foreign for m in found.values()), default=0.0)
    how = (
        f"{machines(found.values())}, other work took at most {busy:.1%} of the machine"
        f"{while_apart(m.apart for m in found.values())}; "
        "`python -m benchmarks.operators --write`"
    )
    every = rows()
    lines = [*summary(every, found), "", *table(every, found), "", *meta.table(compared)]
    write("operators", "Operators, tuned, beside four peers", how, lines)


def main(arguments: Sequence[str] | None = None, assemble: Assemble = Crew) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="", help="those whose name this regular expression finds")
    parser.add_argument("--list", action="store_true", help="names of the rows alone")
    parser.add_argument("--seconds-of-tuning", type=float, default=Setting.tune, help="of each row")
    parser.add_argument("--rounding", type=float, default=Setting.rounding, help="as of nf.tune.Limits")
    parser.add_argument("--rounds", type=int, default=Setting.rounds)
    parser.add_argument("--block", type=float, default=Setting.block, help="seconds of one")
    parser.add_argument("--again", action="store_true", help="measure what is done once more")
    parser.add_argument("--out", type=Path, default=OUT, help=f"where {FILE} is")
    parser.add_argument("--meta-schedule", type=int, metavar="TRIALS", help="the rows of meta_schedule instead")
    parser.add_argument("--dry", action="store_true", help="tiny sizes, whose times mean nothing")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    if options.dry and options.write:
        parser.error("a dry run measures nothing that could be written")
    try:
        re.compile(options.rows)
    except re.error as error:
        parser.error(f"--rows {options.rows!r} is no regular expression: {error}")
    tune, path = options.seconds_of_tuning, options.out / FILE
    setting = Setting(tune, options.rounding, options.rounds, options.block, dry=options.dry)
    found = read(path)
    chosen = left(options.rows, found, options.again, options.dry)
    if options.list:
        print(*(r.name for r in chosen), sep="\n")
        return 0
    compared = meta.read(options.out / meta.FILE)
    if options.meta_schedule:
        meta.compare_all(options.rows, options.meta_schedule, compared, options.out / meta.FILE, options.again, say)
        chosen = []
    with assemble(setting) as crew:
        for n, row in enumerate(chosen):
            say(f"{n + 1} of {len(chosen)}: {row.name}")
            found[row.name] = crew.measure(row)
            append(path, found[row.name])
            print(line(row, found[row.name]), flush=True)
    print("\n".join([*summary(rows(options.dry), found), "", *meta.table(compared)]))
    if options.write:
        publish(found, compared)
    return 0


def say(text: str) -> None:
    """What goes on, beside the tables."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
