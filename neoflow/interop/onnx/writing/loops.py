"""Recurrences written out: a file has every step, as the operators that loop take graphs of their own, which few
runtimes optimise."""

from __future__ import annotations

from collections.abc import Mapping

from neoflow.errors import DataError
from neoflow.expr.recurrence import Looped
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Tensor, topological
from neoflow.expr.written import steps_of

MOST_STEPS = 1024
"""Of a recurrence that is written out."""


def written_out(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors without recurrences. Raises `DataError` for one of too many steps."""
    roots = list(outputs.values())
    while looped := [t for t in topological(roots) if isinstance(t, Looped)]:
        first, recurrence = looped[0], looped[0].run.recurrence
        if recurrence.steps > MOST_STEPS:
            raise DataError(
                f"tensor {first.name}: a recurrence of {recurrence.steps} steps; up to {MOST_STEPS} are written out",
                recurrence.where,
            )
        roots = list(replaced(roots, steps_of(first.run, looped).get))
    return dict(zip(outputs, roots, strict=True))
