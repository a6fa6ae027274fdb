"""`neoflow build`: a model as a package, which runs without a compiler."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from neoflow.commands.options import (
    AsJson,
    Fleet,
    ModelName,
    PrecisionName,
    Rounding,
    TargetName,
    Threads,
    print_json,
    searched,
    use_threads,
)


def build(
    model: ModelName,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The package, a folder. Default: MODEL.nflib.")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Samples a step. Default: the model's.")] = None,
    tune: Annotated[
        float | None, typer.Option("--tune", metavar="SECONDS", min=0, help="Search for fast kernels for so long.")
    ] = None,
    target: TargetName = "cpu",
    rounding: Rounding = None,
    precision: PrecisionName = "fp32",
    threads: Threads = None,
    fleet: Fleet = None,
    as_json: AsJson = False,
) -> None:
    """Compile a model's training step (SGD) and its inference ahead of time, into a package for nf.load and for C."""
    from neoflow.report.packaged import build_package

    use_threads(threads)
    made = build_package(model, output, batch, target, precision, searched(tune, rounding), fleet)
    if as_json:
        print_json(asdict(made))
    else:
        print(made)
