"""A model built into a package: its training step and its inference, and what that takes."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from neoflow import pipeline
from neoflow.autodiff import grad
from neoflow.errors import ConfigError
from neoflow.models import build_model
from neoflow.package.manifest import read_manifest
from neoflow.package.saving import SUFFIX
from neoflow.train.step import reset, sgd_updates
from neoflow.tune import Limits

STEP_SHARE = 0.75
"""Of a search's time, what the step gets: inference shares most of its forward kernels, which are known by then."""


@dataclass(frozen=True)
class Packaged:
    """A package that was written: its files with their sizes in bytes, its functions; candidates of a search."""

    path: str
    model: str
    target: str
    functions: tuple[str, ...]
    files: Mapping[str, int]
    seconds: float
    trials: int = 0

    def __str__(self) -> str:
        lines = [f"{self.path}: {' and '.join(self.functions)} of {self.model} for {self.target}, {self.seconds:.1f} s"]
        if self.trials:
            lines.append(f"{self.trials} candidates were measured")
        return "\n".join([*lines, *(f"{size:>12,} {name}" for name, size in self.files.items())])


def _shares(tune: Limits | None) -> tuple[Limits | None, Limits | None]:
    """Of the step, and of inference."""
    if tune is None or tune.seconds is None:
        return tune, tune
    first = STEP_SHARE * tune.seconds
    return replace(tune, seconds=first), replace(tune, seconds=tune.seconds - first)


def build_package(
    name: str,
    output: Path | None = None,
    batch: int | None = None,
    target: str = "cpu",
    precision: str = "fp32",
    tune: Limits | None = None,
    fleet: str | None = None,
) -> Packaged:
    """Compile `step` (x, labels -> loss, and p -= 0.01 dp) and `infer` (x -> scores) of a model into a package.

    Parameters have their first values. tune: of a search for fast kernels, the seconds of both functions together;
    fleet: whose machines measure. Raises `ConfigError`, `PackageError`.
    """
    started = time.perf_counter()
    if fleet is not None and (tune is None or not tune.has_search):
        raise ConfigError("--fleet: its machines measure for a search, and there is none: add --tune SECONDS")
    path = Path(f"{re.sub(r'[^A-Za-z0-9_]', '_', Path(name).stem)}{SUFFIX}") if output is None else output
    model = build_model(name, batch)
    build = partial(pipeline.compile_program, target=target, precision=precision, fleet=fleet)
    first, second = _shares(tune)
    reset(model)
    gradients = grad(model.loss, list(model.parameters.values()))
    step = build([model.loss], model.inputs, sgd_updates(model, gradients), tune=first)
    infer = build([model.scores], [model.x], tune=second)
    functions = {"step": step, "infer": infer}
    step.save(path, functions)
    sizes = {n: w.bytes for n, w in read_manifest(str(path)).files.items()}
    seconds, trials = time.perf_counter() - started, step.tuned.trials + infer.tuned.trials
    return Packaged(str(path), model.name, str(step.target), tuple(functions), sizes, seconds, trials)
