"""Piece f: what a search gains: the time by default schedules, and by those it found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from benchmarks.gpu.check import NOT_DRY, VERIFIED
from benchmarks.gpu.kernels import CASES, TOLERANCE, Case
from benchmarks.gpu.ours import TARGET, Resident
from benchmarks.gpu.rows import Outcome, Setting, Task
from neoflow.autodiff import grad
from neoflow.models import build_model
from neoflow.pipeline import Compiled, compile_program
from neoflow.train.step import reset, sgd_updates
from neoflow.tune import Limits

KERNELS = ("matmul 4096 float32", "matmul 4096 float16", "capsule convolution b16 y float32")
"""Of piece b."""
MODELS = (("capsnet", 16), ("shufflenet", 16), ("mi_lstm_ptb", 64))
"""Training steps: names and batches."""
DRY = Limits(trials=2)
"""Of the search of a dry run."""
ALIKE = 1e-4
"""How far first losses may be apart."""
Tuned = Callable[[Limits | None], Compiled]


def limits_of(setting: Setting) -> Limits:
    """Of a search."""
    return DRY if setting.dry else Limits(seconds=setting.search)


def beside(
    make: Tuned, arrays: Sequence[np.ndarray], tolerance: float, setting: Setting, again: Callable[[], object]
) -> Outcome:
    """Seconds before and after, candidates, seconds of the search and what it says; WRONG where results differ.

    again: called before each program runs first.
    """
    before = make(None)
    after = make(limits_of(setting))
    programs, results = [], []
    for program in (before, after):
        again()
        programs.append(Resident(program, arrays))
        programs[-1].run()
        results.append([np.array(r, np.float64) for r in programs[-1].results()])
    figures = {f"{n} seconds": p.seconds(setting) for n, p in zip(("default", "tuned"), programs, strict=True)}
    figures |= {"trials": after.tuned.trials, "search": after.tuned.seconds}
    pairs = zip(*results, strict=True)
    figures["error"] = max(float(np.max(np.abs(a - b)) / max(np.max(np.abs(a)), 1e-30)) for a, b in pairs)
    searched = sum(c.trials > 0 for c in after.tuned.choices)
    said = [f"{searched} of {len(after.tuned.choices)} kernels searched, until {after.tuned.stopped}"]
    if not figures["error"] <= tolerance:
        said.insert(0, "WRONG: differs from the program of default schedules")
    return Outcome(figures, "; ".join(said))


def kernel(case: Case, setting: Setting) -> Outcome:
    """A kernel of piece b."""
    roots, inputs, arrays = case.program(setting.dry)

    def make(limits: Limits | None) -> Compiled:
        return compile_program(roots, inputs, None, TARGET, tune=limits)

    return beside(make, arrays, TOLERANCE[case.dtype], setting, lambda: None)


def step(name: str, batch: int, setting: Setting) -> Outcome:
    """A training step of SGD, by its first loss."""
    sizes = VERIFIED[name][1]
    if setting.dry and sizes is None:
        return Outcome(said=NOT_DRY)
    model = build_model(name, 2, **(sizes or {})) if setting.dry else build_model(name, batch)
    updates = sgd_updates(model, grad(model.loss, list(model.parameters.values())))

    def make(limits: Limits | None) -> Compiled:
        return compile_program([model.loss], model.inputs, updates, TARGET, tune=limits)

    return beside(make, model.example(), ALIKE, setting, lambda: reset(model))


TASKS = (
    *(Task(f"f/{case.name}", partial(kernel, case)) for case in CASES if case.name in KERNELS),
    *(Task(f"f/{name} b{batch}", partial(step, name, batch)) for name, batch in MODELS),
)
