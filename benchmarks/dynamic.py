"""Training in dynamic mode beside PyTorch, from the start of the process: step time and samples over wall time.

    python -m benchmarks.dynamic [--models capsnet/16,mi_lstm_mnist/64] [--seconds 90] [--share 0.25] [--beside 80]
        [--write]

(NeoFlow's figure 12.) Each contender is a process of its own that has the machine to itself, neoflow's with a cold
cache: it imports, builds, compiles default schedules and trains, while a search beside it takes `share` of the cores'
time and what is better is swapped in between two steps; PyTorch, eager, as installed. Times count from the start of the
process. What was measured is in FOLDER/dynamic-MODEL.json, the figure in benchmarks/figures; `--write` puts the numbers
into RESULTS.md. `--draw` measures nothing: it draws and writes what is there.

What the search costs is measured after that, in `--beside` seconds: steps by the kernels that there are then, while
another search goes on that never ends, and while it pauses, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Protocol

from benchmarks.figure import Panel, drawn
from benchmarks.results import write
from neoflow.machine import processor

MODELS = ("capsnet/16", "mi_lstm_mnist/64")
FIRST_STEP, IN_TOTAL = 12.0, 60.0
"""Seconds: wanted, at most."""
BUCKET = 0.2
"""Seconds that a point of a curve stands for."""
BLOCKS, SETTLE = 8, 0.1
"""Of steps beside a search, and as many without; part of each that does not count: what was asked for still comes."""
COMING = 120.0
"""Seconds waited for a search to measure."""
NEAR = 5
"""Points on both sides over which a single disturbed one does not count."""
RATE = 0.01
OUT = Path("operator-results")
FIGURES = Path(__file__).with_name("figures")
ROOT = Path(__file__).resolve().parents[1]
CONTENDERS = ("neoflow", "PyTorch")


@dataclass(frozen=True)
class Run:
    """points: (seconds since the process began, steps so far, seconds of a step then). first: the end of the first
    step. swaps: (seconds, what was swapped in). told: how the search went. missing: why there is nothing. beside:
    seconds of a step by the same kernels while a search goes on, and without it; where that was measured."""

    contender: str
    batch: int
    first: float = 0.0
    points: tuple[tuple[float, int, float], ...] = ()
    swaps: tuple[tuple[float, str], ...] = ()
    told: str = ""
    missing: str = ""
    beside: tuple[float, float] | None = None

    def steps_at(self, seconds: float) -> float:
        """Steps until then, between two points in proportion."""
        times = [p[0] for p in self.points]
        n = bisect_right(times, seconds)
        if n == 0:
            return 0.0
        (t, steps, _), after = self.points[n - 1], self.points[n : n + 1]
        return steps + (after[0][1] - steps) * (seconds - t) / (after[0][0] - t) if after else steps


def loop(
    step: Callable[[], object], between: Callable[[float], object], begun: float, seconds: float
) -> tuple[float, tuple[tuple[float, int, float], ...]]:
    """Steps until so many seconds have gone by since the process began; the end of the first, and points."""
    points, steps = [], 0
    first = last = 0.0
    done = 0
    while (now := time.time() - begun) < seconds or not steps:
        step()
        steps += 1
        now = time.time() - begun
        between(now)
        if steps == 1:
            first = last = now
            points.append((now, 1, now))
            done = 1
        elif now - last >= BUCKET:
            points.append((now, steps, (now - last) / (steps - done)))
            last, done = now, steps
    return first, tuple(points)


class Searching(Protocol):
    """An `Exploration`, of which nothing is taken."""

    @property
    def told(self) -> str: ...

    @property
    def is_over(self) -> bool: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


def beside(
    step: Callable[[], object], search: Searching, seconds: float, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, float] | None:
    """Seconds of a step while a search goes on and while it pauses, over `BLOCKS` blocks of each in turns; None where
    it does not come to measure anything, or ends before that. Means: the search takes its share in bursts."""
    end = clock() + COMING
    while not search.told and not search.is_over and clock() < end:
        step()
    times, steps = [0.0, 0.0], [0, 0]
    for n in range(2 * BLOCKS):
        is_paused = (n + n // 2) % 2  # and each is first as often
        (search.pause if is_paused else search.resume)()
        _block(step, SETTLE * seconds / (2 * BLOCKS), clock)
        took, made = _block(step, (1 - SETTLE) * seconds / (2 * BLOCKS), clock)
        times[is_paused], steps[is_paused] = times[is_paused] + took, steps[is_paused] + made
    if not search.told or search.is_over:
        return None
    return times[0] / steps[0], times[1] / steps[1]


def _block(step: Callable[[], object], seconds: float, clock: Callable[[], float]) -> tuple[float, int]:
    """Seconds of so many steps, one at least."""
    begun, made = clock(), 0
    while made == 0 or clock() - begun < seconds:
        step()
        made += 1
    return clock() - begun, made


def neoflow_run(name: str, batch: int, seconds: float, share: float, begun: float, cost: float) -> Run:
    """In this process."""
    import neoflow as nf
    from neoflow.models import build_model
    from neoflow.train.dynamic import FIRST, Exploration
    from neoflow.train.step import reset, sgd_updates
    from neoflow.tune import Limits

    model = build_model(name, batch)
    gradients = nf.grad(model.loss, list(model.parameters.values()))
    reset(model)
    function = nf.compile([model.loss], model.inputs, sgd_updates(model, gradients))
    arrays, swaps = model.example(), []
    exploring: list[Exploration] = []

    def between(now: float) -> None:
        if not exploring:
            exploring.append(Exploration(function, share=share))
        for swap in exploring[0].take():
            swaps.append((now, str(swap)))

    try:
        first, points = loop(lambda: function(*arrays), between, begun, seconds)
        told = exploring[0].told
    finally:
        for e in exploring:
            e.close()
    took = None
    if cost:
        with Exploration(function, Limits(), share) as search:
            for _ in range(FIRST + 1):  # after which it knows what to search for
                function(*arrays)
                search.take()
            took = beside(lambda: function(*arrays), search, cost)
    return Run(CONTENDERS[0], batch, first, points, tuple(swaps), told, beside=took)


def torch_run(name: str, batch: int, seconds: float, _: float, begun: float, __: float) -> Run:
    """In this process; the model's first values and inputs are neoflow's."""
    from neoflow.models import build_model, find_peer

    model = build_model(name, batch)
    peer = find_peer("torch", name, model.values())
    arrays = model.example()
    first, points = loop(lambda: peer.step(*arrays, RATE), lambda _: None, begun, seconds)
    return Run(CONTENDERS[1], batch, first, points)


def alone(contender: str, key: str, seconds: float, share: float, cost: float) -> Run:
    """A contender in a process of its own; a failure is said in what it gives. cost: seconds in which that of the
    search is measured."""
    batch = int(key.partition("/")[2])
    command = [sys.executable, "-m", "benchmarks.dynamic", "--one", contender, "--models", key]
    command += ["--seconds", str(seconds), "--share", str(share), "--beside", str(cost)]
    with tempfile.TemporaryDirectory(prefix="neoflow-dynamic-") as folder:
        environment = {**os.environ, "NEOFLOW_CACHE_DIR": folder}
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=3 * (seconds + cost) + COMING + 120,
            )
            return from_json(json.loads(done.stdout))
        except subprocess.TimeoutExpired:
            said = "it did not end"
        except (ValueError, TypeError, KeyError):
            last = (done.stderr.strip().splitlines() or ["no word"])[-1]
            said = f"its process ended with status {done.returncode}: {last}"[:300]
    return Run(contender, batch, missing=said)


def from_json(said: dict) -> Run:
    """Raises `TypeError` or `KeyError` for what is none."""
    pairs = {n: tuple(map(tuple, said[n])) for n in ("points", "swaps")}
    took = said.get("beside")
    return Run(**{**said, **pairs, "beside": None if took is None else tuple(took)})


def ahead_per_step(ours: Run, theirs: Run) -> float | None:
    """Seconds from which on a step of ours, by the median of the points around it, is faster than theirs is in the
    middle of its run."""
    usual, points = median(p[2] for p in theirs.points[1:]), ours.points[1:]
    around = [median(p[2] for p in points[max(0, n - NEAR) : n + NEAR + 1]) for n in range(len(points))]
    slow = [t for (t, _, _), s in zip(points, around, strict=True) if s >= usual]
    later = [t for t, _, _ in points if not slow or t > slow[-1]]
    return later[0] if later else None


def ahead_in_total(ours: Run, theirs: Run) -> float | None:
    """Seconds from which on we have made more steps."""
    end = min(ours.points[-1][0], theirs.points[-1][0])
    times = sorted({p[0] for run in (ours, theirs) for p in run.points if p[0] <= end})
    behind = [t for t in times if ours.steps_at(t) <= theirs.steps_at(t)]
    later = [t for t in times if not behind or t > behind[-1]]
    return later[0] if later else None


def figure(key: str, ours: Run, theirs: Run) -> str:
    """Step time, and samples, over wall time."""
    runs = (ours, theirs)
    steps = {r.contender: [(t, 1e3 * s) for t, _, s in r.points[1:]] for r in runs}
    samples = {r.contender: [(t, float(n * r.batch)) for t, n, _ in r.points] for r in runs}
    total = ahead_in_total(ours, theirs)
    marks = () if total is None else ((total, f"ahead in total after {total:.1f} s"),)
    return drawn(
        [
            Panel(f"{key}: milliseconds of a step", steps, "{:g}".format, is_log=True),
            Panel(f"{key}: samples trained on", samples, "{:,.0f}".format, marks=marks),
        ]
    )


def row(key: str, ours: Run, theirs: Run) -> str:
    """A line of the table."""
    for run in (ours, theirs):
        if run.missing or len(run.points) < 3:
            said = (run.missing or "too few steps").replace("|", "/")
            return f"| {key} | " + "- | " * 10 + f"no {run.contender}: {said} |"
    early, late = ours.points[1][2], median(p[2] for p in ours.points[-10:])
    usual = median(p[2] for p in theirs.points[1:])
    step, total = ahead_per_step(ours, theirs), ahead_in_total(ours, theirs)
    cells = [f"{ours.first:.1f}", f"{FIRST_STEP:.0f}", f"{theirs.first:.1f}"]
    cells += [f"{1e3 * v:.2f}" for v in (early, late, usual)]
    cells += ["never" if t is None else f"{t:.1f}" for t in (step, total)]
    cells += [f"{IN_TOTAL:.0f}", cost_of(ours)]
    is_reached = ours.first <= FIRST_STEP and total is not None and total <= IN_TOTAL
    cells.append(f"{'reached' if is_reached else 'missed'}; {len(ours.swaps)} kernels swapped in")
    return f"| {key} | " + " | ".join(cells) + " |"


def cost_of(run: Run) -> str:
    """What the search beside it does to a step."""
    if run.beside is None:
        return "-"
    busy, quiet = run.beside
    return f"{busy / quiet:.2f}x ({1e3 * quiet:.2f} to {1e3 * busy:.2f})"


HEADS = (
    "model",
    "first step s",
    "wanted",
    "PyTorch's s",
    "ms of a step at first",
    "at the end",
    "PyTorch ms",
    "ahead per step after s",
    "ahead in total after s",
    "wanted",
    "ms of a step, while searching",
    "",
)


def publish(found: Sequence[tuple[str, Run, Run]], seconds: float, share: float) -> None:
    """Replace the section of RESULTS.md."""
    lines = ["| " + " | ".join(HEADS) + " |", "|---|" + "--:|" * 10 + "---|", *(row(*f) for f in found), ""]
    lines += [f"![{key}](figures/{path_of(key, Path()).stem}.svg)" for key, _, _ in found]
    command = f"python -m benchmarks.dynamic --seconds {seconds:g} --share {share:g} --write"
    write("dynamic", "Training at once, tuning meanwhile, beside PyTorch", f"{processor()}; `{command}`", lines)


def path_of(key: str, folder: Path) -> Path:
    return folder / f"dynamic-{key.replace('/', '-')}.json"


Perform = Callable[[str, str, float, float, float], Run]
"""A contender's run: its name, model and batch, seconds, share and seconds for what the search costs."""


def main(arguments: Sequence[str] | None = None, perform: Perform = alone) -> None:
    import psutil

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="names and batches")
    parser.add_argument("--seconds", type=float, default=90.0, help="of each contender")
    parser.add_argument("--share", type=float, default=0.25, help="of the cores' time, for the search")
    parser.add_argument("--beside", type=float, default=80.0, help="seconds for what the search costs; 0: not measured")
    parser.add_argument("--out", type=Path, default=OUT, help="where the measurements are kept")
    parser.add_argument("--figures", type=Path, default=FIGURES)
    parser.add_argument("--draw", action="store_true", help="measure nothing, show what is there")
    parser.add_argument("--one", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    if options.one:
        name, _, batch = options.models.partition("/")
        run = neoflow_run if options.one == CONTENDERS[0] else torch_run
        begun = psutil.Process().create_time()
        print(json.dumps(asdict(run(name, int(batch), options.seconds, options.share, begun, options.beside))))
        return
    found = []
    for key in options.models.split(","):
        path = path_of(key, options.out)
        if not options.draw:
            runs = [asdict(perform(c, key, options.seconds, options.share, options.beside)) for c in CONTENDERS]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(runs) + "\n")
        if not path.exists():
            continue
        ours, theirs = map(from_json, json.loads(path.read_text()))
        found.append((key, ours, theirs))
        print(row(*found[-1]), flush=True)
        if not (ours.missing or theirs.missing):
            options.figures.mkdir(parents=True, exist_ok=True)
            (options.figures / f"{path.stem}.svg").write_text(figure(*found[-1]))
    if options.write and found:
        publish(found, options.seconds, options.share)


if __name__ == "__main__":
    main()
