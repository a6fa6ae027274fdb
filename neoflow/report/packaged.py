"""A model built into a package: its training step and its inference, and what that takes."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neoflow import pipeline
from neoflow.autodiff import grad
from neoflow.errors import ConfigError
from neoflow.models import build_model
from neoflow.package.manifest import read_manifest
from neoflow.package.saving import SUFFIX
from neoflow.train.step import reset, sgd_updates


@dataclass(frozen=True)
class Packaged:
    """A package that was written: its files with their sizes in bytes, its functions."""

    path: str
    model: str
    target: str
    functions: tuple[str, ...]
    files: Mapping[str, int]
    seconds: float

    def __str__(self) -> str:
        lines = [f"{self.path}: {' and '.join(self.functions)} of {self.model} for {self.target}, {self.seconds:.1f} s"]
        return "\n".join([*lines, *(f"{size:>12,} {name}" for name, size in self.files.items())])


def build_package(
    name: str,
    output: Path | None = None,
    batch: int | None = None,
    target: str = "cpu",
    precision: str = "fp32",
    tune: float | None = None,
) -> Packaged:
    """Compile `step` (x, labels -> loss, and p -= 0.01 dp) and `infer` (x -> scores) of a model into a package.

    Parameters have their first values. tune: seconds of search for fast kernels. Raises `ConfigError` where this
    neoflow does not tune, `PackageError`.
    """
    started = time.perf_counter()
    path = Path(f"{re.sub(r'[^A-Za-z0-9_]', '_', Path(name).stem)}{SUFFIX}") if output is None else output
    model = build_model(name, batch)
    options: dict[str, Any] = {"target": target, "precision": precision} | _tuned(tune)
    reset(model)
    gradients = grad(model.loss, list(model.parameters.values()))
    step = pipeline.compile_program([model.loss], model.inputs, sgd_updates(model, gradients), **options)
    infer = pipeline.compile_program([model.scores], [model.x], **options)
    functions = {"step": step, "infer": infer}
    step.save(path, functions)
    sizes = {n: w.bytes for n, w in read_manifest(path).files.items()}
    return Packaged(str(path), model.name, str(step.target), tuple(functions), sizes, time.perf_counter() - started)


def _tuned(seconds: float | None) -> dict[str, float]:
    """The argument of the compiler that makes it tune."""
    if seconds is None:
        return {}
    if "tune" not in inspect.signature(pipeline.compile_program).parameters:
        raise ConfigError("--tune: this neoflow compiles with its default schedules only; leave it out")
    return {"tune": seconds}
