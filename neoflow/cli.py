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


@app.callback()
def _commands() -> None:
    """Write an operator as one index expression, differentiate it, compile it, train with it."""


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1))


def _use_threads(threads: int | None) -> None:
    if threads is not None:
        os.environ["NEOFLOW_THREADS"] = str(threads)


@app.command()
def train(
    model: ModelName,
    data: Annotated[
        Path | None, typer.Option(help="Folder of MNIST's IDX files. Default: scikit-learn's digits, or text.")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1)] = 8,
    batch: Annotated[int, typer.Option(min=1, help="Samples a step.")] = 16,
    lr: Annotated[float, typer.Option(help="Highest learning rate (of Adam).")] = 2e-3,
    seed: Annotated[int, typer.Option(min=0, help="Order of the data, and first values that are random.")] = 0,
    checkpoint: Annotated[Path | None, typer.Option(help="Save here after each epoch and at Ctrl-C.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the newest checkpoint there.")] = False,
    report: Annotated[Path, typer.Option(help="Write the run's HTML report here.")] = Path("neoflow-{model}.html"),
    no_report: Annotated[bool, typer.Option("--no-report", help="Write none.")] = False,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Train a model: of images on handwritten digits, of words on a made text whose best loss is known."""
    from dataclasses import asdict

    from neoflow.commands.train import train as run

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
        report=None if no_report else report,
    )
    if as_json:
        _print_json(asdict(summary))
    else:
        print(summary)
    if summary.stopped == "interrupted":
        raise typer.Exit(130)


@app.command()
def bench(
    model: ModelName,
    batch: Annotated[int, typer.Option(min=1, help="Samples a step.")] = 16,
    mode: Annotated[Mode, typer.Option(help="A training step, or inference.")] = Mode.train,
    against: Annotated[str, typer.Option(help="Peers, separated by commas; there is torch.")] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Also compare gradients and 50 SGD steps with each peer.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=0, help="How long to measure.")] = 20.0,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Time a model's step beside the same step in other frameworks: same parameters, same inputs, in turn."""
    from dataclasses import asdict

    from neoflow.commands import bench as benching

    _use_threads(threads)
    peers = [p for p in against.split(",") if p]
    if check and not peers:
        raise ConfigError("--check compares with a peer: add --against torch")
    checks = [benching.check(model, batch, peer) for peer in peers] if check else []
    result = benching.bench(model, batch, mode.value, peers, seconds)
    if as_json:
        checked = {"check": [{**asdict(c), "agrees": c.is_close} for c in checks]} if check else {}
        _print_json({**asdict(result), **checked})
    else:
        print(*(str(c) for c in checks), result, sep="\n")
    if not all(c.is_close for c in checks):
        raise typer.Exit(1)


@app.command()
def explain(
    model: ModelName,
    batch: Annotated[int | None, typer.Option(min=1, help="Samples a step. Default: the model's.")] = None,
    mode: Annotated[Mode, typer.Option(help="A training step (SGD), or inference.")] = Mode.train,
    stage: Annotated[str | None, typer.Option(help="Print this stage alone.")] = None,
    format: Annotated[Format | None, typer.Option(help="Also print the generated code.")] = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Print every stage of a model's compilation, in order."""
    from dataclasses import asdict

    from neoflow.commands.explain import explain as run

    _use_threads(threads)
    stages = run(model, batch, mode.value, stage, format.value if format else None)
    if as_json:
        _print_json({"model": model, "mode": mode.value, "stages": [asdict(s) for s in stages]})
    else:
        print(*stages, sep="\n\n")


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Say what this machine has and reaches, and what is missing for what."""
    from dataclasses import asdict

    from neoflow.commands.doctor import examine

    machine = examine()
    if as_json:
        _print_json(asdict(machine))
    else:
        print(machine)


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
