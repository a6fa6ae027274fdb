"""What a schedule is likely to take, roughly: a guess by arithmetic of who has measured nothing yet.

A floor (`floors.py`) errs on the low side and leaves out only what cannot be better. This errs on both sides, by
factors: what it thinks `HOPELESS` times as long as the best so far is measured seldom, so that few candidates are spent
on what chance draws (scalar loops, one task, a contraction as plain sums), and still some, as it may be wrong.
`benchmarks/tuning.py` counts how many of the truly fastest it would have left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from neoflow.loops import Problem, Schedule, contraction, costs, rows, tile
from neoflow.loops.gpu.estimate import estimate
from neoflow.loops.nest import reduced
from neoflow.target import Target
from neoflow.tune.floors import CYCLES, floor_of

HOPELESS = 8.0
"""Times what the best is thought to take."""
PLAIN_SUM = 24.0
"""Times as long as its arithmetic that a contraction takes as a plain reduction: nothing that is loaded is used twice.
Fitted to products of 256 and convolutions of 64 channels, where it takes 10 to 60 times the default."""


def likely_cycles(problem: Problem, schedule: Schedule, target: Target) -> float:
    """Of the busiest core; of a GPU nanoseconds. Only ratios between schedules of one problem say anything."""
    if target.device == "gpu":
        return 1e9 * estimate(problem, schedule, target).floor
    return LIKELY[schedule.template](problem, schedule, target) * floor_of(problem, schedule, target).share


def _contraction(p: Any, k: Schedule, target: Target) -> float:
    return tile.estimated_cycles(p, target, k)


def _reduction(p: Any, k: Schedule, target: Target) -> float:
    body = reduced(p.fused(k))
    narrow = target.lanes("float32") / min(int(k["lanes"]), target.lanes("float32"))
    plain = PLAIN_SUM if contraction.fits(p).ok and costs.points(body.axes) > 1 else 1.0
    return CYCLES["reduction"](p, k, target)[0] * max(1.0, math.sqrt(narrow)) * plain


def _map(p: Any, k: Schedule, target: Target) -> float:
    narrow = target.lanes("float32") / min(int(k["lanes"]), target.lanes("float32"))
    return CYCLES["map"](p, k, target)[0] * max(1.0, math.sqrt(narrow))


def _rows(p: Any, k: Schedule, target: Target) -> float:
    inside = zip(rows.problems(p, k), k.inner, strict=True)
    return costs.points(p.axes) * sum(LIKELY[one.template](nest, one, target) for nest, one in inside)


def _scatter(p: Any, k: Schedule, target: Target) -> float:
    return CYCLES["scatter"](p, k, target)[0]


LIKELY: dict[str, Callable[[Any, Schedule, Target], float]] = {
    "contraction": _contraction,
    "reduction": _reduction,
    "map": _map,
    "rows": _rows,
    "scatter": _scatter,
}
"""By template of a CPU, of one core that does all."""
