"""Piece d: recurrences with their gradients, their loops as one launch each and turn by turn."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

from benchmarks.gpu.ours import Resident, compiled
from benchmarks.gpu.rows import Outcome, Setting, Task
from benchmarks.recurrences.cases import KINDS, SMALL, of_steps
from benchmarks.recurrences.ours import program
from benchmarks.rows.arrays import draw
from neoflow.rewriting import PERSISTENT

FORMS = ("selective_scan", "rwkv", "soft_dtw", "ctc", "euler", "lstm")
STEPS = (256, 4096)
ROWS = tuple((form, t) for form in FORMS for t in STEPS)
ALIKE = 1e-3
"""How far results may be apart, of the largest: sums in another order, over all steps."""


def title(form: str, steps: int) -> str:
    """What a row is called."""
    return f"{KINDS[form][0]}, T = {steps}"


@contextmanager
def turn_by_turn() -> Iterator[None]:
    """Programs compiled meanwhile have no persistent kernels."""
    before = os.environ.get("NEOFLOW_WITHOUT")
    os.environ["NEOFLOW_WITHOUT"] = ",".join(filter(None, (before, PERSISTENT)))
    try:
        yield
    finally:
        del os.environ["NEOFLOW_WITHOUT"]
        if before is not None:
            os.environ["NEOFLOW_WITHOUT"] = before


def ours(form: str, steps: int, setting: Setting) -> Outcome:
    """Seconds and launches of the value and its gradients, both ways; where these differ, WRONG."""
    row = of_steps(form, SMALL if setting.dry else steps, is_small=setting.dry)
    roots, inputs, _ = program(row)
    arrays = draw(row)

    def measured() -> tuple[float, int, list[np.ndarray], str]:
        made = compiled(roots, inputs)
        step = Resident(made, arrays)
        step.run()
        results = [np.asarray(r).copy() for r in step.results()]
        return step.seconds(setting), step.launches, results, made.loops.summary

    seconds, launches, found, said = measured()
    with turn_by_turn():
        slowly, many, wanted, _ = measured()
    figures = {"seconds": seconds, "launches": launches, "turns seconds": slowly, "turns launches": many}
    for a, b in zip(found, wanted, strict=True):
        if not np.abs(a - b).max(initial=0.0) <= ALIKE * max(1.0, float(np.abs(b).max(initial=0.0))):
            return Outcome(figures, f"WRONG: differs from turn by turn; {said}")
    return Outcome(figures, said)


TASKS = tuple(Task(f"d/{title(*row)}", partial(ours, *row)) for row in ROWS)
