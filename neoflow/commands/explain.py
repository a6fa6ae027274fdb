"""`neoflow explain`: every stage of a compilation."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from typing import Annotated

import typer

from neoflow.commands.options import (
    AsJson,
    Memory,
    Mode,
    ModelName,
    Optimize,
    PrecisionName,
    Rounding,
    TargetName,
    Threads,
    print_json,
    searched,
    use_threads,
)


class Format(str, Enum):
    """Generated code as text."""

    tir = "tir"
    llvm = "llvm"
    asm = "asm"
    cuda = "cuda"
    ptx = "ptx"


def explain(
    model: ModelName,
    batch: Annotated[int | None, typer.Option(min=1, help="Samples a step. Default: the model's.")] = None,
    mode: Annotated[Mode, typer.Option(help="A training step (SGD), or inference.")] = Mode.train,
    stage: Annotated[str | None, typer.Option(help="Print this stage alone.")] = None,
    format: Annotated[Format | None, typer.Option(help="Also print the generated code.")] = None,
    target: TargetName = "cpu",
    precision: PrecisionName = "fp32",
    rounding: Rounding = None,
    memory: Memory = None,
    optimize: Optimize = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Print every stage of a model's compilation, in order."""
    from neoflow.report.stages import explain as run

    use_threads(threads)
    code = format.value if format else None
    stages = run(model, batch, mode.value, stage, code, target, precision, memory, optimize, searched(None, rounding))
    if as_json:
        print_json({"model": model, "mode": mode.value, "stages": [asdict(s) for s in stages]})
    else:
        print(*stages, sep="\n\n")
