"""What several commands take and do alike."""

from __future__ import annotations

import json
import os
from enum import Enum
from typing import Annotated, Any

import typer

ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="A name in ./models, or a Python file with build().")]
TargetName = Annotated[
    str, typer.Option("--target", metavar="TARGET", help="cpu, cuda (this machine's GPU), or cuda:sm_80 and the like.")
]
PrecisionName = Annotated[
    str, typer.Option("--precision", metavar="PRECISION", help="Of contractions: fp32, bf16 or fp16.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of a kernel. Default: every core.")]


class Mode(str, Enum):
    """What a step is."""

    train = "train"
    infer = "infer"


def print_json(value: Any) -> None:
    """One JSON object on standard output."""
    print(json.dumps(value, indent=1))


def use_threads(threads: int | None) -> None:
    """Threads of every kernel of this process."""
    if threads is not None:
        os.environ["NEOFLOW_THREADS"] = str(threads)
