"""Recurrences written out, step by step: what a run means."""

from __future__ import annotations

from collections.abc import Sequence

from neoflow.expr.recurrence import Last, Looped, Run, Stacked
from neoflow.expr.replace import replaced
from neoflow.expr.shape.join import stack
from neoflow.expr.tensor import Tensor, topological


def written_out(roots: Sequence[Tensor]) -> list[Tensor]:
    """The roots without recurrences."""
    roots = list(roots)
    while run := next((t.run for t in topological(roots) if isinstance(t, Looped)), None):
        roots = replaced(roots, steps_of(run, [t for t in topological(roots) if isinstance(t, Looped)]).get)
    return roots


def steps_of(run: Run, wanted: Sequence[Looped]) -> dict[Tensor, Tensor]:
    """What stands for those of some tensors that lead out of a run."""
    recurrence, given = run.recurrence, run.by_placeholder
    wanted = [t for t in wanted if t.run is run]
    carried = [given[p] for p in recurrence.carried]
    stacked = [t for t in wanted if isinstance(t, Stacked)]
    rows: dict[Tensor, dict[int, Tensor]] = {t: {} for t in stacked}
    for step in recurrence.order:
        here = given | dict(zip(recurrence.carried, carried, strict=True))
        here |= {p: given[p][step] for p in recurrence.slices}
        found = list(replaced([*recurrence.then, *(t.of for t in stacked)], here.get))
        carried = found[: len(carried)]
        for t, row in zip(stacked, found[len(carried) :], strict=True):
            rows[t][step] = row
    whole: dict[Tensor, Tensor] = {t: stack([rows[t][s] for s in range(recurrence.steps)]) for t in stacked}
    return whole | {t: carried[t.number] for t in wanted if isinstance(t, Last)}
