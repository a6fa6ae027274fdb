"""The model table, its geometric means against what is to be reached, and the kernels where it falls short."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.models.cells import CPU, PAPERS, Cell
from neoflow.contest.contenders import OURS, PEERS
from neoflow.contest.sides import Task
from neoflow.report.gaps import KernelGap, gap_table

PLAIN = PEERS[0]
"""PyTorch as installed."""
SHOWN = 8
"""Kernels of a step that falls short, those that are furthest above their floors."""
NOT = "not measured"
GOALS, GPU_GOALS = (3.16, 1.8, 2.5), (3.16, 1.5, None)
"""To reach, as geometric means: the paper's models beside PyTorch as installed, and beside the best peer; inference."""
Cells = Mapping[Task, Cell | None]


def is_papers(task: Task) -> bool:
    """Whether it is a training step of the paper's models."""
    return task.mode == "train" and task.model in PAPERS


def mean_gain(cells: Sequence[Cell], against: str | None) -> float | None:
    """The geometric mean of how many times faster neoflow is; None: than the best peer of each."""
    gains = [c.gain(against or c.best()) for c in cells]
    known = [g for g in gains if g is not None]
    return statistics.geometric_mean(known) if known else None


def mean_bound(cells: Sequence[Cell], against: str | None) -> float | None:
    """What `mean_gain` would be if each kernel took no longer than its floor, and nothing came between kernels."""
    known = [c for c in cells if c.kernels and (against or c.best()) in c.seconds]
    return statistics.geometric_mean(c.seconds[against or c.best() or ""] / c.floor for c in known) if known else None


def summary(cells: Cells) -> list[str]:
    """What is to be reached, what was, and what could be, were all kernels at their floors. All of one target."""
    of_plain, of_best, of_inference = GOALS if all(t.target == CPU for t in cells) else GPU_GOALS
    papers = [t for t in cells if is_papers(t)]
    trained = [t for t in cells if t.mode == "train"]
    inferred = [t for t in cells if t.mode == "infer"]
    lines = ["| geometric mean | of | times as fast | to reach | | at all floors |", "|---|---|--:|--:|---|--:|"]
    for what, asked, against, wanted in (
        ("the paper's models, training, beside PyTorch as installed", papers, PLAIN.key, of_plain),
        ("the paper's models, training, beside the best peer", papers, None, of_best),
        ("inference at batch 1, beside the best peer", inferred, None, of_inference),
        ("every model, training, beside the best peer", trained, None, None),
    ):
        there = [c for t in asked if (c := cells[t]) is not None and c.gain(against or c.best()) is not None]
        found = mean_gain(there, against)
        shown = NOT if found is None else f"{found:.2f}"
        goal = "-" if wanted is None else f"{wanted:.2f}"
        mark = "" if wanted is None or found is None else "reached" if found >= wanted else "missed"
        bound = mean_bound(there, against)
        least = "-" if bound is None else f"{bound:.2f}"
        lines.append(f"| {what} | {len(there)} of {len(asked)} rows | {shown} | {goal} | {mark} | {least} |")
    slower = [f"{c.task} ({g:.2f})" for c in cells.values() if c and (g := c.gain(c.best())) is not None and g < 1]
    return [*lines, "", f"Slower than the best peer: {', '.join(slower) or 'none'}."]


def table(cells: Cells, mode: str) -> list[str]:
    """Milliseconds of a step, a row a cell."""
    heads = ["model", *(f"{c.name} ms" for c in (OURS, *PEERS)), "x PyTorch", "best peer", "x best", "floor"]
    heads += ["kernels", "calls"]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "--:|" * (len(PEERS) + 2) + "---|--:|--:|--:|--:|"]
    return [*lines, *(row(task, cell) for task, cell in cells.items() if task.mode == mode)]


def row(task: Task, cell: Cell | None) -> str:
    """A line of the table. floor: the sum of the kernels' floors over the step's time."""
    name = f"{task.model} b{task.batch}"
    if cell is None:
        return f"| {name} | " + " | ".join([NOT, *"-" * (len(PEERS) + 6)]) + " |"
    times = [f"{1e3 * cell.seconds[c.key]:.2f}" if c.key in cell.seconds else NOT for c in (OURS, *PEERS)]
    best = cell.best()
    names = {p.key: p.name for p in PEERS}
    gains = [f"{g:.2f}" if (g := cell.gain(key)) is not None else "-" for key in (PLAIN.key, best)]
    own = cell.seconds.get(OURS.key)
    share = f"{cell.floor / own:.0%}" if own and cell.kernels else "-"
    cells = [*times, gains[0], names.get(best or "", "-"), gains[1], share]
    cells += [str(cell.told.get(n, "-")) for n in ("kernels", "calls")]
    return f"| {name} | " + " | ".join(cells) + " |"


def short(cells: Cells, least: float = 1.0) -> list[str]:
    """The kernels of every step that is not `least` times as fast as the best peer."""
    lines: list[str] = []
    for cell in cells.values():
        if cell is None or not cell.kernels or (gain := cell.gain(cell.best())) is None or gain >= least:
            continue
        seconds = cell.seconds[OURS.key]
        gaps = [KernelGap(**k) for k in cell.kernels]
        lines += ["", f"{cell.task}: {gain:.2f} times as fast as the best; {1e3 * cell.floor:.2f} ms of "]
        lines[-1] += f"{1e3 * seconds:.2f} are the floors of its kernels."
        lines += ["", *gap_table(gaps, seconds, SHOWN)]
    return lines


def searched(cells: Cells, tune: float) -> list[str]:
    """Which rows are of a shorter search."""
    found: dict[float, list[str]] = {}
    for task, cell in cells.items():
        if cell is not None and cell.tune != tune:
            found.setdefault(cell.tune, []).append(str(task))
    return [f"- After {seconds:g} seconds: {', '.join(names)}." for seconds, names in sorted(found.items())]


def notes(cells: Cells) -> list[str]:
    """Who was missing, and why."""
    names = {c.key: c.name for c in (OURS, *PEERS)}
    return [
        f"- {cell.task}: no {names[key]}: {why}."
        for cell in cells.values()
        if cell
        for key, why in cell.missing.items()
    ]
