"""What several commands take and do alike."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from neoflow.tune import Limits

ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="A name in ./models, or a Python file with build().")]
TargetName = Annotated[
    str, typer.Option("--target", metavar="TARGET", help="cpu, cuda (this machine's GPU), or cuda:sm_80 and the like.")
]
PrecisionName = Annotated[
    str, typer.Option("--precision", metavar="PRECISION", help="Of contractions: fp32, bf16, fp16 or, on a GPU, tf32.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]
Tune = Annotated[
    float | None,
    typer.Option(min=0.0, metavar="SECONDS", help="Search for better schedules of a step first, for so long."),
]
Rounding = Annotated[
    float | None,
    typer.Option(
        "--rounding",
        min=1.0,
        metavar="TIMES",
        help="Of algorithms for contractions: so many times a plain sum's roundings at most. 1: none of Winograd's; "
        "default: 16, its F(2x2, 3x3); 256: F(4x4, 3x3) too.",
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="BYTES",
        help="Let a step take no more, of everything: 2GiB, 500MB; what is not kept is computed again.",
    ),
]
Optimize = Annotated[
    float | None,
    typer.Option("--optimize", min=0.0, metavar="SECONDS", help="Search for a faster equal graph first, for so long."),
]
Fleet = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Measure on a fleet of Ray: HOST:PORT, or `local`. Whoever reaches its ports runs any code on its nodes.",
    ),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of a kernel. Default: every core.")]
WrittenFile = Annotated[Path, typer.Argument(metavar="FILE", help="Where they are written.")]
ImportedFile = Annotated[Path, typer.Argument(metavar="FILE", help="What `export` has written.")]
Best = Annotated[
    int | None, typer.Option(min=1, help="So many of each kernel on each target, the fastest. Default: all.")
]


class WithDefault(TyperGroup):
    """A group of commands whose first argument may be that of one of them, called `model`, which goes without name."""

    DEFAULT = "model"

    def parse_args(self, context: Any, arguments: list[str]) -> list[str]:
        """Put in the name that was left out."""
        is_named = not arguments or arguments[0] in self.commands or arguments[0] in ("--help", "-h")
        if not is_named and self.DEFAULT in self.commands:
            arguments = [self.DEFAULT, *arguments]
        return super().parse_args(context, arguments)


class Mode(str, Enum):
    """What a step is."""

    train = "train"
    infer = "infer"


def searched(seconds: float | None, rounding: float | None) -> Limits | None:
    """What `--tune` and `--rounding` say together; None: what is known, as far as its roundings are usual."""
    from neoflow.tune import Limits

    if seconds is None and rounding is None:
        return None
    limits = Limits(seconds=seconds or 0.0)
    return limits if rounding is None else replace(limits, rounding=rounding)


def print_json(value: Any) -> None:
    """One JSON object on standard output."""
    print(json.dumps(value, indent=1))


def use_threads(threads: int | None) -> None:
    """Threads of every kernel of this process."""
    if threads is not None:
        os.environ["NEOFLOW_THREADS"] = str(threads)
