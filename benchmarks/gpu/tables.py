"""Rows as tables; what was not measured stands there with the command that will."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from benchmarks.gpu import cells, check, kernels, loops, steps, theirs, tuned
from benchmarks.gpu.rows import Figures, Row, Task

COMMAND = "python -m benchmarks.gpu"
ROW = "| {} |"
ALIKE = {"fp32": 1e-4, "tf32": 5e-3, "bf16": 5e-2, "fp16": 5e-3}
"""How far losses may be apart, by precision: roundings of the operands, through a model."""


def line(*cells: str) -> str:
    """A row of a table."""
    return ROW.format(" | ".join(cells))


def missing(key: str, row: Row | None) -> str:
    """Why a row has no figures, and what would give them."""
    if row is not None and row.said:
        return row.said.replace("|", "/")
    return f"not measured: `{COMMAND} --only '{key}'`"


def checked(rows: Mapping[str, Row]) -> list[str]:
    """Piece a."""
    lines = [line("what", "kernels", "elements", "largest error, of what is allowed", "")]
    lines.append("|---|--:|--:|--:|---|")
    for task in check.TASKS:
        row = rows.get(task.key)
        found: Figures = {} if row is None else row.figures
        if "worst" in found:
            cells = [f"{found['kernels']:.0f}", f"{found['compared']:.0f}", f"{found['worst']:.2f}"]
            lines.append(line(task.name, *cells, row.said if row else ""))
        elif "loss" in found:
            said = f"loss off by {found['loss']:.1e}, gradients by {found['gradient']:.1e} of their norm at most"
            lines.append(line(task.name, "-", "-", "-", "; ".join(filter(None, (said, row.said if row else "")))))
        else:
            lines.append(line(task.name, "-", "-", "-", missing(task.key, row)))
    return lines


def ratio_of(case: kernels.Case, found: Figures) -> tuple[str, float] | None:
    """The fastest peer, and its time over ours; None where there is none."""
    times = [(found[f"{name} seconds"], name) for name in case.peers if f"{name} seconds" in found]
    return (min(times)[1], min(times)[0] / found["seconds"]) if times else None


def reached(value: float | None, goal: float) -> str:
    """Whether a goal is reached, in words: in the end, or the half that default schedules have to reach."""
    if value is None:
        return "-"
    return "reached" if value >= goal else "half reached" if value >= goal / 2 else "missed"


def measured(rows: Mapping[str, Row]) -> list[str]:
    """Piece b."""
    reaches = rows[kernels.CEILINGS].figures if kernels.CEILINGS in rows else {}
    heads = ["kernel", "ms", "TFLOP/s", "TB/s", "of", "share", "best peer", "its ms", "its / ours", "goal, half", ""]
    lines = [line(*heads), "|---|--:|--:|--:|---|--:|---|--:|--:|--:|---|"]
    for case in kernels.CASES:
        row = rows.get(f"b/{case.name}")
        goals = f"{case.goal:g}, {case.goal / 2:g}" + (" of peer" if case.is_of_peer else " of copy")
        if row is None or "seconds" not in row.figures:
            lines.append(line(case.name, *["-"] * 8, goals, missing(f"b/{case.name}", row)))
            continue
        found, best = row.figures, ratio_of(case, row.figures)
        flops, rate = (found[n] / found["seconds"] for n in ("operations", "bytes"))
        most = reaches.get(case.ceiling)
        share = None if not most else (flops if case.is_of_peer else rate) / most
        peer = ["-"] * 3 if best is None else [best[0], f"{1e3 * found[f'{best[0]} seconds']:.3f}", f"{best[1]:.2f}"]
        value = share if not case.is_of_peer else None if best is None else best[1]
        words = "; ".join(filter(None, (reached(value, case.goal), row.said.replace("|", "/"))))
        figures = [f"{1e3 * found['seconds']:.3f}", f"{flops / 1e12:.2f}", f"{rate / 1e12:.2f}", case.ceiling]
        lines.append(line(case.name, *figures, "-" if share is None else f"{share:.0%}", *peer, goals, words))
    return lines


def stepped(rows: Mapping[str, Row]) -> list[str]:
    """Piece c."""
    others = list(theirs.CONTENDERS)
    heads = ["model", f"{steps.OURS} ms", *(f"{n} ms" for n in others), "eager / ours", "best / ours", ""]
    lines = [line(*heads), "|---|" + "--:|" * (len(heads) - 2) + "---|"]
    ratios: list[tuple[float, float]] = []
    for model, batch, precision in steps.STEPS:
        name = steps.title(model, batch, precision)
        key = f"c/{name}"
        found = {who: rows[f"{key}/{who}"] for who in (steps.OURS, *others) if f"{key}/{who}" in rows}
        seconds = {who: row.figures["seconds"] for who, row in found.items() if "seconds" in row.figures}
        losses = [row.figures["loss"] for row in found.values() if "loss" in row.figures]
        cells = [f"{1e3 * seconds[who]:.3f}" if who in seconds else "-" for who in (steps.OURS, *others)]
        said = [f"{who}: {row.said.replace('|', '/')}" for who, row in found.items() if row.said]
        if losses and not max(losses) - min(losses) <= ALIKE[precision] * abs(losses[0]):
            said.append(f"WRONG: losses from {min(losses)} to {max(losses)}")
        if not found:
            said = [missing(f"{key}/", None)]
        best = min((s for who, s in seconds.items() if who != steps.OURS), default=None)
        pair = ["-", "-"]
        if steps.OURS in seconds and "eager" in seconds and best is not None:
            both = seconds["eager"] / seconds[steps.OURS], best / seconds[steps.OURS]
            ratios += [both] if precision == "fp32" else []
            pair = [f"{r:.2f}" for r in both]
        lines.append(line(name, *cells, *pair, "; ".join(said)))
    means = [math.exp(sum(map(math.log, r)) / len(r)) for r in zip(*ratios, strict=True)]
    goals = (steps.OF_EAGER, steps.OF_BEST)
    wanted = [f"{goal:g}, half {goal / 2:g}" for goal in goals]
    words = ", ".join(reached(m, g) for m, g in zip(means, goals, strict=False)) or "not measured"
    lines.append(
        line("geometric mean, float32", *["-"] * (1 + len(others)), *[f"{m:.2f}" for m in means or []] or "--", words)
    )
    lines.append(line("goal", *["-"] * (1 + len(others)), *wanted, ""))
    return lines


def listed(
    rows: Mapping[str, Row],
    tasks: Sequence[Task],
    heads: Sequence[str],
    needed: str,
    shown: Callable[[Figures], list[str]],
) -> list[str]:
    """A line for each task: what is shown of a row that has the figure needed, and what it says."""
    lines = [line(*heads), "|---|" + "--:|" * (len(heads) - 2) + "---|"]
    for task in tasks:
        row = rows.get(task.key)
        if row is None or needed not in row.figures:
            lines.append(line(task.name, *["-"] * (len(heads) - 2), missing(task.key, row)))
        else:
            lines.append(line(task.name, *shown(row.figures), row.said))
    return lines


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}"


def looped(rows: Mapping[str, Row]) -> list[str]:
    """Piece d."""

    def shown(found: Figures) -> list[str]:
        ours, turns = found["seconds"], found["turns seconds"]
        cells = [milliseconds(ours), f"{found['launches']:.0f}", milliseconds(turns), f"{found['turns launches']:.0f}"]
        return [*cells, f"{turns / ours:.2f}"]

    heads = ["recurrence, with gradients", "ms", "launches", "turn by turn ms", "launches", "ratio", ""]
    return listed(rows, loops.TASKS, heads, "seconds", shown)


def handed(rows: Mapping[str, Row]) -> list[str]:
    """Piece e."""

    def shown(found: Figures) -> list[str]:
        ours, theirs = found[cells.OURS], found[cells.THEIRS]
        alone = milliseconds(found[cells.ALONE]) if cells.ALONE in found else "-"
        return [milliseconds(ours), milliseconds(theirs), f"{ours / theirs:.2f}", alone]

    heads = ["recurrence", "ours ms", "with cuDNN ms", "ratio", "PyTorch's module ms", ""]
    return listed(rows, cells.TASKS, heads, cells.OURS, shown)


def searched(rows: Mapping[str, Row]) -> list[str]:
    """Piece f."""

    def shown(found: Figures) -> list[str]:
        before, after = found["default seconds"], found["tuned seconds"]
        times = [milliseconds(before), milliseconds(after), f"{before / after:.2f}"]
        return [*times, f"{found['trials']:.0f}", f"{found['search']:.0f}"]

    heads = ["program", "default ms", "tuned ms", "ratio", "candidates", "in s", ""]
    return listed(rows, tuned.TASKS, heads, "tuned seconds", shown)


def ceilings(rows: Mapping[str, Row]) -> list[str]:
    """What the GPU reaches at most."""
    row = rows.get(kernels.CEILINGS)
    if row is None or not row.figures:
        return [f"What this GPU reaches: {missing(kernels.CEILINGS, row)}."]
    told = [f"{n} {v * 1e6:.2f} us" if "launch" in n else f"{n} {v / 1e12:.2f} T/s" for n, v in row.figures.items()]
    return [f"What this GPU reaches, in operations or bytes: {', '.join(told)}."]


def section(rows: Mapping[str, Row]) -> list[str]:
    """Everything."""
    parts: Sequence[Sequence[str]] = (
        ["### Kernels against NumPy"],
        checked(rows),
        ["### Kernels"],
        ceilings(rows),
        measured(rows),
        ["### Training steps"],
        stepped(rows),
        ["### Loops"],
        looped(rows),
        ["### Recurrences by cuDNN"],
        handed(rows),
        ["### After a search"],
        searched(rows),
    )
    return "\n\n".join("\n".join(part) for part in parts).splitlines()
