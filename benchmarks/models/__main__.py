"""Every model's training step and its inference at batch 1 beside four peers, in turns: the model table.

    python -m benchmarks.models [--models REGEX] [--mode train|infer] [--target TARGET] [--tune SECONDS] [--prepare]
        [--again] [--write]

Each contender is one process for all cells, which imports its framework once: neoflow; PyTorch as installed, and in its
expert setting; torch.compile in that setting; JAX. What it computes is compared first; only one of them runs at a time,
a block of steps each in every round. Times are medians over rounds, gains medians of the ratios within a round. A cell
is a file of FOLDER as soon as it is measured; the same command goes on with those that are left. What the contenders
compile they keep there too: `--prepare` compiles and measures nothing, and can be done while the machine is busy. With
`--tune`, neoflow searches for so long before each cell. `--write` puts all cells there are into RESULTS.md, with plots;
of steps that were not measured after so long a search, those after the longest shorter one, and says which.

`--target cuda` is this machine's GPU, `cuda:sm_90` one of that architecture: neoflow is compiled for it, the peers run
on it, a section and plots of its own show it. A step is fed from the host, and over when its loss is there and all of
its kernels are done. Where no such GPU is, that is said and nothing measured; `--write` puts in what was measured on
another machine.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.models import figures, tables
from benchmarks.models.cells import CPU, Cell, keep, read, read_shorter, tasks
from benchmarks.models.measure import Setting, measure, prepare
from benchmarks.results import while_apart, write
from neoflow.contest.contenders import ON_A_GPU, OURS, PEERS, Contender
from neoflow.contest.hall import Hall
from neoflow.contest.sides import Task
from neoflow.devices import device, resolve_target
from neoflow.errors import ConfigError, RuntimeFault
from neoflow.machine import processor

OUT = Path("model-results")
FIGURES = Path(__file__).resolve().parents[1] / "figures"
TITLES = {"train": "Training steps", "infer": "Inference at batch 1"}
Perform = Callable[[Task, Hall, Setting], Cell]


def publish(cells: tables.Cells, command: str, tune: float = 0.0, machine: str = "", target: str = CPU) -> None:
    """Replace the section of RESULTS.md, and the plots: that of default schedules, or of those that were searched for,
    which has the rows that were measured alone. machine: that of a section beside the usual one's; target: of all
    cells, of which each has a section."""
    name, title, titles = "models", "Every model beside four peers", TITLES
    if target != CPU:
        name, title = f"{name}-{target.replace(':', '-')}", f"{title}, on {target}"
        titles = {mode: f"{of} on {target}" for mode, of in TITLES.items()}
    if tune:
        name, title = "models-tuned", f"{title}, after at most {tune:g} seconds of tuning each"
    if machine:
        name, title = f"{name}-{machine.lower().replace(' ', '-')}", f"{title}, on {machine}"
    there = [c for c in cells.values() if c is not None]
    versions = dict.fromkeys(f"{k.split('-')[0]} {v}" for c in there for k, v in c.versions.items() if k != "inductor")
    found = (sorted({getattr(c, name) for c in there}) for name in ("date", "revision"))
    dates, revisions = (", ".join(v) for v in found)
    busy = max((c.foreign for c in there), default=0.0)
    how = f"{', '.join([*dict.fromkeys(c.on for c in there if c.on), processor(), *versions])}; measured {dates} "
    how += f"(sources {revisions}), other work took at most {busy:.1%} of the machine"
    how += f"{while_apart(c.apart for c in there)}; `{command}`"
    if target != CPU and not there:
        how = f"no GPU was there when this was written: nothing is measured; `{command}`"
    lines = [*tables.summary(cells), ""]
    for mode, of in titles.items():
        shown = [c for c in there if c.mode == mode]
        if tune and not shown:
            continue
        path = FIGURES / f"{name}-{mode}.svg"
        path.write_text(figures.drawn(f"{of}: neoflow's speed over each peer's", shown))
        rows = {task: c for task, c in cells.items() if c is not None} if tune else cells
        lines += [f"{of}, milliseconds:", "", *tables.table(rows, mode), ""]
        lines += [f"![{of}: how many times faster than each peer](figures/{path.name})", ""]
    lines += [*tables.notes(cells), *tables.searched(cells, tune), *tables.short(cells)]
    write(name, title, how, lines)


def target_of(name: str) -> str:
    """A target as cells have it: "cpu", or with its architecture, which `cuda` takes from the GPU that is here. Raises
    `ConfigError` for one that there is not."""
    found = resolve_target(name)
    return CPU if found.device == CPU else f"{found.kind}:{found.mcpu}"


def contenders_on(target: str) -> dict[str, Contender]:
    """Who takes part, by key."""
    return {c.key: c for c in (OURS, *(PEERS if target == CPU else ON_A_GPU))}


def is_here(target: str) -> bool:
    """Whether what is compiled for a target runs on this machine; where not, it is said why."""
    try:
        device(resolve_target(target))
    except RuntimeFault as absent:
        say(f"nothing is measured: {absent.message}")
        return False
    return True


def main(arguments: Sequence[str] | None = None, perform: Perform = measure) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="", help="those whose NAME/BATCH/MODE this regular expression finds")
    parser.add_argument("--mode", choices=list(TITLES), help="of the cells; default: both")
    parser.add_argument("--target", default=CPU, help="cpu, cuda (this machine's GPU), or cuda:sm_80 and the like")
    parser.add_argument("--tune", type=float, default=0.0, metavar="SECONDS", help="of a search before each cell")
    parser.add_argument("--seconds", type=float, default=Setting.seconds, help="of turns, of each cell")
    parser.add_argument("--block", type=float, default=Setting.block, help="seconds of one")
    parser.add_argument("--profile", type=float, default=Setting.profile, help="seconds of kernels one by one; 0: none")
    parser.add_argument("--only", default="", help="these contenders, by key: neoflow,torch,torch-expert,inductor,jax")
    parser.add_argument("--prepare", action="store_true", help="let all compile, and measure nothing")
    parser.add_argument("--again", action="store_true", help="measure what is done once more")
    parser.add_argument("--list", action="store_true", help="names of the cells that are left alone")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help="where cells and caches are")
    parser.add_argument("--machine", default="", help="of a section of its own, such as 'Zen 3'")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    try:
        target = target_of(options.target)
    except ConfigError as error:
        parser.error(error.message)
    contenders = contenders_on(target)
    only = [k for k in options.only.split(",") if k] or list(contenders)
    if unknown := set(only) - set(contenders):
        parser.error(f"there is no contender {', '.join(sorted(unknown))}; there are {', '.join(contenders)}")
    try:
        pattern = re.compile(options.models)
    except re.error as error:
        parser.error(f"--models {options.models!r} is no regular expression: {error}")
    every = tasks(options.tune, target)
    asked = [t for t in every if pattern.search(f"{t.model}/{t.batch}/{t.mode}") and options.mode in (None, t.mode)]
    cells: dict[Task, Cell | None] = {t: read(options.out, t) for t in every}
    left = [t for t in asked if options.again or options.prepare or (c := cells[t]) is None or not c.is_done]
    if options.list:
        print(*(f"{t.model}/{t.batch}/{t.mode}" for t in left), sep="\n")
        return 0
    absent = bool(left) and not is_here(target)
    setting = Setting(options.seconds, options.block, profile=options.profile)
    caches = options.out.resolve() / ("tuned" if options.tune else "caches")
    with Hall([contenders[k] for k in contenders if k in only], caches, tune=options.tune) as hall:
        for n, task in enumerate(() if absent else left):
            start = time.monotonic()
            if options.prepare:
                say(f"{n + 1} of {len(left)}: {task}: {prepare(task, hall)}")
                continue
            cell = perform(task, hall, setting)
            cells[task] = cell
            keep(options.out, cell)
            say(f"{n + 1} of {len(left)}: {task} in {time.monotonic() - start:.0f} s")
            print(tables.row(task, cell), flush=True)
    if not options.prepare:
        print("\n".join([*tables.summary(cells), *tables.notes(cells)]))
    if options.write:
        cells = {t: cells[t] or (read_shorter(options.out, t) if t.tune else None) for t in every}
        publish(cells, " ".join(["python -m benchmarks.models", *sys.argv[1:]]), options.tune, options.machine, target)
    return int(absent)


def say(line: str) -> None:
    """What goes on, beside the table."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
