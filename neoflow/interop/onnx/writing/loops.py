"""Recurrences written out: a file has every step, as the operators that loop take graphs of their own, which few
runtimes optimise."""

from __future__ import annotations

from collections.abc import Mapping

from neoflow import language as nf
from neoflow.errors import DataError
from neoflow.expr.recurrence import Last, Looped, Run, Stacked
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Tensor, topological

MOST_STEPS = 1024
"""Of a recurrence that is written out."""


def written_out(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors without recurrences. Raises `DataError` for one of too many steps."""
    roots = list(outputs.values())
    while run := next((t.run for t in topological(roots) if isinstance(t, Looped)), None):
        instead = _steps(run, [t for t in topological(roots) if isinstance(t, Looped) and t.run is run])
        roots = list(replaced(roots, instead.get))
    return dict(zip(outputs, roots, strict=True))


def _steps(run: Run, wanted: list[Looped]) -> dict[Tensor, Tensor]:
    """What stands for tensors that lead out of a run."""
    recurrence = run.recurrence
    if recurrence.steps > MOST_STEPS:
        raise DataError(
            f"tensor {wanted[0].name}: a recurrence of {recurrence.steps} steps; up to {MOST_STEPS} are written out",
            recurrence.where,
        )
    given = run.by_placeholder
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
    whole = {t: nf.stack([rows[t][s] for s in range(recurrence.steps)]) for t in stacked}
    return whole | {t: carried[t.number] for t in wanted if isinstance(t, Last)}
