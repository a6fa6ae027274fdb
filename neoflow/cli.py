"""The `neoflow` command. Each command imports what it needs when it runs, so that help is there at once."""

from __future__ import annotations

import json
import os
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from neoflow.errors import ConfigError, NeoflowError

app = typer.Typer(
    name="neoflow",
    help="Write an operator as one index expression, differentiate it, compile it, train with it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="A name in ./models, or a Python file with build().")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of a kernel. Default: every core.")]


class Mode(str, Enum):
    """What a step is."""

    train = "train"
    infer = "infer"


class Format(str, Enum):
    """Generated code as text."""

    tir = "tir"
    llvm = "llvm"
    asm = "asm"


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1))


def _use_threads(threads: int | None) -> None:
    if threads is not None:
        os.environ["NEOFLOW_THREADS"] = str(threads)


@app.command()
def train(
    model: ModelName,
    data: Annotated[Path | None, typer.Option(help="Folder of MNIST's IDX files. Default: scikit-learn's digits.")] = None,
    epochs: Annotated[int, typer.Option(min=1)] = 8,
    batch: Annotated[int, typer.Option(min=1, help="Samples a step.")] = 16,
    lr: Annotated[float, typer.Option(help="Highest learning rate (of Adam).")] = 2e-3,
    seed: Annotated[int, typer.Option(min=0, help="Order of the data, and first values that are random.")] = 0,
    checkpoint: Annotated[Path | None, typer.Option(help="Save here after each epoch and at Ctrl-C.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the newest checkpoint there.")] = False,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Train a model of images on handwritten digits."""
    from dataclasses import asdict

    from neoflow.report.train import train as run

    _use_threads(threads)
    summary = run(
        model,
        folder=data,
        epochs=epochs,
        batch=batch,
        lr=lr,
        seed=seed,
        checkpoint=checkpoint,
        resume=resume,
        progress=not as_json,
    )
    if as_json:
        _print_json(asdict(summary))
    else:
        print(summary)
    if summary.stopped == "interrupted":
        raise typer.Exit(130)


def main() -> None:
    """Run a command. An error neoflow raises on purpose is one line on standard error, and exit status 1."""
    try:
        app()
    except NeoflowError as error:
        print(f"neoflow: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("neoflow: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
