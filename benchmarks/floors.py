"""Whole training steps beside the sum of their kernels' floors, before and after tuning, and what limits the rest.

    python -m benchmarks.floors [--models capsnet/16,...] [--tune 60] [--seconds 6] [--again] [--out FILE] [--write]

Each model is measured in a process of its own with a cold cache, steps by default schedules and by those of the search
in turns. A floor is the longer of a kernel's operations at the measured peak and its bytes at the measured bandwidth of
the memory that holds them; the share is the sum of the floors of the default step over a step's time, so that an
algorithm of fewer operations may exceed 1. Each model is a line of FILE as soon as it ends, and the same command goes
on with those that are left. `--write` puts all of them into RESULTS.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.results import append, last_of_each, write
from neoflow.machine import processor
from neoflow.report.gaps import KernelGap, gap_table, kernel_gaps

WANTED = {"capsnet/16": 0.88, "mi_lstm_ptb/64": 0.8, "resnet50/1": 0.8, "shufflenet/16": 0.7}
"""Of the models and batches: the share to reach."""
OUT = Path("operator-results") / "floors.jsonl"
SHOWN = 12
"""Kernels of a model, those that are furthest above their floors."""
PATIENCE = 900.0
"""Seconds that a model may take beyond its search."""
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Step:
    """A model's step: seconds by default schedules and by those of the search; floors: of the default step's kernels,
    and of the tuned one's. missing: why it was not measured."""

    model: str
    date: str
    before: float = 0.0
    after: float = 0.0
    floor: float = 0.0
    own_floor: float = 0.0
    trials: int = 0
    search: float = 0.0
    algorithms: str = ""
    kernels: tuple[KernelGap, ...] = ()
    missing: str = ""


def measure(key: str, tune: float, seconds: float) -> Step:
    """One model, in this process. Raises what the compiler raises."""
    from functools import partial

    from neoflow.autodiff import grad
    from neoflow.measure.roofs import measure_roofs
    from neoflow.models import build_model
    from neoflow.pipeline import bind, compile_program
    from neoflow.report import compare
    from neoflow.report.kernels import kernel_work, profile
    from neoflow.train.step import reset, sgd_updates

    name, _, batch = key.partition("/")
    model = build_model(name, int(batch) if batch else None)
    gradients = grad(model.loss, list(model.parameters.values()))
    build = partial(compile_program, [model.loss], model.inputs, sgd_updates(model, gradients))
    before = build()
    after = build(tune=tune) if tune else before
    roofs = measure_roofs(before.target, 0.5)
    steps, arrays = [bind(before), bind(after)], model.example()
    reset(model)
    times = compare.measure([partial(s, *arrays) for s in steps], seconds)
    kernels = kernel_gaps(after, profile(steps[1], arrays, seconds / 2), roofs)
    chosen = [r.summary for r in after.trace.records if r.name == "algorithms"]
    return Step(
        key,
        datetime.date.today().isoformat(),
        times[0] / 1e3,
        times[1] / 1e3,
        sum(work.floor(roofs) for work in kernel_work(before)),
        sum(work.floor(roofs) for work in kernel_work(after)),
        after.tuned.trials,
        after.tuned.seconds,
        *chosen[:1],
        kernels=kernels,
    )


def alone(key: str, tune: float, seconds: float) -> Step:
    """One model in a process of its own with a cold cache; a failure is said in what it gives."""
    command = [sys.executable, "-m", "benchmarks.floors", "--one", key, "--tune", str(tune), "--seconds", str(seconds)]
    with tempfile.TemporaryDirectory(prefix="neoflow-floors-") as folder:
        environment = {**os.environ, "NEOFLOW_CACHE_DIR": folder}
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE + 2 * tune
            )
            return from_json(done.stdout)
        except subprocess.TimeoutExpired as late:
            said = f"it took more than {late.timeout:.0f} s"
        except (ValueError, TypeError, KeyError):
            last = (done.stderr.strip().splitlines() or ["no word"])[-1]
            said = f"its process ended with status {done.returncode}: {last}"[:300]
    return Step(key, datetime.date.today().isoformat(), missing=said)


def from_json(text: str) -> Step:
    """A line of the file. Raises `ValueError`, `TypeError` or `KeyError` for none."""
    said = json.loads(text)
    return Step(**{**said, "kernels": tuple(KernelGap(**k) for k in said["kernels"])})


def read(path: Path) -> dict[str, Step]:
    """By model, the last one of each; a line that was cut off is passed over."""
    return last_of_each(path, from_json, lambda found: found.model)


def table(found: Mapping[str, Step]) -> list[str]:
    """Shares before and after, a model a line; then the kernels of each."""
    heads = ["model", "default ms", "tuned ms", "floor ms", "share before", "share after", "wanted", "", "the search"]
    lines = ["| " + " | ".join(heads) + " |", "|---|--:|--:|--:|--:|--:|--:|---|---|"]
    for s in found.values():
        if s.missing:
            lines.append(f"| {s.model} | - | - | - | - | - | - | {s.missing.replace('|', '/')} | |")
            continue
        wanted, share = WANTED.get(s.model), s.floor / s.after
        mark = "" if wanted is None else "reached" if share >= wanted else "missed"
        cells = [f"{1e3 * v:.2f}" for v in (s.before, s.after, s.floor)]
        cells += [f"{s.floor / s.before:.2f}", f"{share:.2f}", "-" if wanted is None else f"{wanted}", mark]
        cells.append("; ".join(filter(None, (f"{s.trials} candidates in {s.search:.0f} s", s.algorithms))))
        lines.append("| " + " | ".join([s.model, *cells]) + " |")
    for s in found.values():
        lines += ["", *kernel_table(s)] if s.kernels else []
    return lines


def kernel_table(step: Step) -> list[str]:
    """What the tuned step spends beyond its floors, the kernel with most of it first."""
    over = step.after - step.own_floor
    head = f"{step.model}: {1e3 * over:.2f} ms of {1e3 * step.after:.2f} are beyond the floors of its kernels."
    return [head, "", *gap_table(step.kernels, step.after, SHOWN)]


def main(arguments: Sequence[str] | None = None, perform: Callable[[str, float, float], Step] = alone) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(WANTED), help="names and batches; default: those with a goal")
    parser.add_argument("--tune", type=float, default=60.0, help="seconds of the search of each; 0: default schedules")
    parser.add_argument("--seconds", type=float, default=6.0, help="of steps, for each model")
    parser.add_argument("--again", action="store_true", help="measure what is done once more")
    parser.add_argument("--out", type=Path, default=OUT, help="the file that keeps what was measured")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    if options.one:
        print(json.dumps(asdict(measure(options.one, options.tune, options.seconds))))
        return
    found = read(options.out)
    for key in options.models.split(","):
        if not options.again and key in found and not found[key].missing:
            continue
        print(f"{key}: tuning for {options.tune:.0f} s", file=sys.stderr, flush=True)
        found[key] = perform(key, options.tune, options.seconds)
        append(options.out, found[key])
    lines = table(found)
    print("\n".join(lines))
    if options.write:
        how = f"{processor()}; `python -m benchmarks.floors --tune {options.tune:.0f} --write`"
        write("floors", "Whole steps beside the sum of their floors", how, lines)


if __name__ == "__main__":
    main()
