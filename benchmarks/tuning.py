"""What each part of the search is worth: the best after some trials with and without it, and against chance.

    python -m benchmarks.tuning [--seeds 5] [--trials 100] [--only product] [--synthetic] [--write]

A row is a form of kernel; a column a way to search it: the geometric mean over seeds of the best time found, by the
best that any of them found (1.00 is best). Then the static filter: candidates drawn by chance are all measured; how
many of them it would have left out, and how often one that was better than all before. `--synthetic` takes a formula
for the machine (`benchmarks/synthetic.py`); `--write` puts the tables into RESULTS.md.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

import neoflow as nf
from benchmarks.results import write
from benchmarks.synthetic import Synthetic
from neoflow.expr.tensor import Tensor
from neoflow.graph import make_graph, optimize
from neoflow.loops import Problem, Schedule, problem_of, space
from neoflow.machine import processor
from neoflow.measure.roofs import measure_roofs
from neoflow.nn import functional as F
from neoflow.partition import Subgraph, partition
from neoflow.roofs import Roofs
from neoflow.target import Target, cpu_target
from neoflow.tune import Found, Limits, Measure, Trial, search
from neoflow.tune.finals import is_timed
from neoflow.tune.floors import floor_of, least_seconds
from neoflow.tune.model import Model
from neoflow.tune.roofs import nominal

BATCH = 8


@dataclass(frozen=True)
class Form:
    """A kernel at the size that is searched, and at another of the same family, from which is learned."""

    name: str
    subgraph: Subgraph
    relative: Subgraph


@dataclass
class Filter:
    """Of candidates drawn by chance: how many, how many the filter would have left out, how many were better than all
    before them, how many of these it would have left out, and how many were faster than their floors."""

    candidates: int = 0
    dropped: int = 0
    better: int = 0
    lost: int = 0
    below: int = 0

    def add(self, trials: Sequence[Trial], floor: Callable[[Trial], float]) -> None:
        best = math.inf
        for t in trials:
            least = floor(t)
            self.candidates += 1
            self.dropped += least > best
            if is_timed(t) and t.seconds is not None:
                self.better += t.seconds < best
                self.lost += t.seconds < best and least > best
                self.below += t.seconds < least
                best = min(best, t.seconds)


def _kernel(function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> Subgraph:
    inputs = [nf.placeholder(s, name=f"x{n}") for n, s in enumerate(shapes)]
    return partition(optimize(make_graph([function(*inputs)], inputs))).subgraphs[-1]


def forms() -> Iterator[Form]:
    """A contraction of each shape, a row kernel, a reduction and a map."""
    rows: tuple[tuple[str, Callable[..., Tensor], tuple, tuple], ...] = (
        ("product", F.linear, ((256, 512), (512, 512)), ((128, 256), (768, 256))),
        (
            "convolution",
            lambda x, w: F.conv2d(x, w, padding=1),
            ((1, 64, 58, 58), (64, 64, 3, 3)),
            ((1, 128, 30, 30), (128, 128, 3, 3)),
        ),
        ("softmax", F.softmax, ((512, 1000),), ((2048, 128),)),
        ("columns", lambda x: nf.sum(x, axis=0), ((2000, 512),), ((500, 96),)),
        ("map", lambda x: nf.tanh(x) * 2.0, ((1000, 1000),), ((64, 640),)),
    )
    for name, function, shapes, others in rows:
        yield Form(name, _kernel(function, *shapes), _kernel(function, *others))


# --- ways to search


@dataclass(frozen=True)
class Run:
    """One search to make: what with, and the seed."""

    form: Form
    target: Target
    measure: Measure
    limits: Limits
    seed: int
    earlier: Found
    """of the relative"""
    trained: bytes
    """a model that has seen the relative"""


def _chance(run: Run) -> Sequence[Trial]:
    """Different random schedules, none left out."""
    here, rng = space(problem_of(run.form.subgraph), run.target), np.random.default_rng(run.seed)
    drawn: dict[Schedule, None] = {}
    for _ in range(20 * (run.limits.trials or 0)):
        if len(drawn) == run.limits.trials:
            break
        drawn[here.sample(rng)] = None
    schedules = list(drawn)
    made: list[Trial] = []
    for n in range(0, len(schedules), BATCH):
        made += run.measure(run.form.subgraph, run.target, schedules[n : n + BATCH])
    return made


def _searched(model: bool = False, transfer: bool = False, crossing: bool = True) -> Callable[[Run], Sequence[Trial]]:
    def way(run: Run) -> Sequence[Trial]:
        made = Model() if model else None
        if made is not None and transfer and run.trained:
            made.take(run.trained)
        start = [run.earlier.best.schedule] if transfer else []
        return search(
            run.form.subgraph, run.target, run.measure, run.limits, run.seed, start, made, crossing=crossing
        ).trials

    return way


WAYS: dict[str, Callable[[Run], Sequence[Trial]]] = {
    "chance": _chance,
    "without crossing": _searched(crossing=False),
    "genetic": _searched(),
    "with transfer": _searched(transfer=True),
    "with the model": _searched(model=True),
    "with both": _searched(model=True, transfer=True),
}


@dataclass
class Table:
    """Best seconds by form, way and seed; what the filter would have done."""

    best: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    filter: Filter = field(default_factory=Filter)

    def mean(self, form: str, way: str) -> float:
        """By the best that anybody found of this form."""
        found = min(min(times) for (name, _), times in self.best.items() if name == form)
        return math.exp(fmean(math.log(t / found) for t in self.best[form, way]))

    def lines(self) -> list[str]:
        names = list(dict.fromkeys(form for form, _ in self.best))
        lines = [f"| kernel | {' | '.join(WAYS)} |", "|---|" + "---:|" * len(WAYS)]
        for name in names:
            lines.append(f"| {name} | " + " | ".join(f"{self.mean(name, way):.2f}" for way in WAYS) + " |")
        every = [math.exp(fmean(math.log(self.mean(name, way)) for name in names)) for way in WAYS]
        lines.append("| geometric mean | " + " | ".join(f"{m:.2f}" for m in every) + " |")
        f = self.filter
        part = f.dropped / max(1, f.candidates)
        said = (
            f"Of {f.candidates} candidates drawn by chance the static filter would have left out {f.dropped} "
            f"({part:.0%}), and of the {f.better} that were better than all before them {f.lost}; {f.below} were "
            "faster than their floors."
        )
        return [*lines, "", said]


def ablate(
    chosen: Sequence[Form],
    target: Target,
    machine: Callable[[int], Measure],
    trials: int,
    seeds: int,
    roofs: Roofs,
    heard: Callable[[Table], object] = lambda table: None,
) -> Table:
    """Search every form in every way. machine: what measures, by the seed. heard: told of the table after each form."""
    table = Table()
    for form in chosen:
        problem = problem_of(form.subgraph)

        def floor(t: Trial, problem: Problem = problem) -> float:
            return least_seconds(floor_of(problem, t.schedule, target), target, roofs)

        for seed in range(seeds):
            measure, limits, model = machine(seed), Limits(trials=trials), Model()
            earlier = search(form.relative, target, measure, limits, seed, model=model)
            run = Run(form, target, measure, limits, seed, earlier, model.trees_as_bytes())
            for name, way in WAYS.items():
                made = way(run)
                times = [t.seconds for t in made if is_timed(t) and t.seconds is not None]
                table.best.setdefault((form.name, name), []).append(min(times, default=math.inf))
                if way is _chance:
                    table.filter.add(made, floor)
        heard(table)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--only", help="one of the kernels")
    parser.add_argument("--synthetic", action="store_true", help="a formula for the machine")
    parser.add_argument("--write", action="store_true", help="put the tables into RESULTS.md")
    options = parser.parse_args()
    chosen = [f for f in forms() if options.only in (None, f.name)]
    if not chosen:
        parser.error(f"there is no kernel {options.only!r}; there are {', '.join(f.name for f in forms())}")
    target = cpu_target()
    where = "a formula for the machine" if options.synthetic else f"{processor()}, {target.threads} threads"
    how = f"`python -m benchmarks.tuning --trials {options.trials} --seeds {options.seeds}`, {where}"

    def heard(table: Table) -> None:
        lines = table.lines()
        print("\n".join(lines), flush=True)
        if options.write:
            write("tuning", "What each part of the search is worth", how, lines)

    if options.synthetic:
        ablate(chosen, target, Synthetic, options.trials, options.seeds, nominal(target), heard)
    else:
        if importlib.util.find_spec("neoflow.measure") is None:
            parser.error("nothing measures kernels here: there is --synthetic")
        with importlib.import_module("neoflow.measure").Measurer() as measurer:
            roofs = measure_roofs(target)
            ablate(chosen, target, lambda _: measurer, options.trials, options.seeds, roofs, heard)


if __name__ == "__main__":
    main()
