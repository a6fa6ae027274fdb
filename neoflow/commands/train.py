"""`neoflow train`: train a model file on digits or text, and report the run."""

from __future__ import annotations

from dataclasses import asdict, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from neoflow.commands.options import (
    AsJson,
    Memory,
    ModelName,
    PrecisionName,
    Rounding,
    TargetName,
    Threads,
    Tune,
    print_json,
    searched,
    use_threads,
)

if TYPE_CHECKING:
    from neoflow.tune import Limits


class When(str, Enum):
    """When schedules are searched for."""

    static = "static"
    dynamic = "dynamic"


def train(
    model: ModelName,
    data: Annotated[
        Path | None, typer.Option(help="Folder of MNIST's IDX files. Default: scikit-learn's digits, or text.")
    ] = None,
    text: Annotated[
        bool, typer.Option("--text", help="A model of words learns the characters of Python's documentation.")
    ] = False,
    epochs: Annotated[int, typer.Option(min=1)] = 8,
    batch: Annotated[int, typer.Option(min=1, help="Samples a step.")] = 16,
    lr: Annotated[float, typer.Option(help="Highest learning rate (of Adam).")] = 2e-3,
    seed: Annotated[int, typer.Option(min=0, help="Order of the data, and first values that are random.")] = 0,
    checkpoint: Annotated[Path | None, typer.Option(help="Save here after each epoch and at Ctrl-C.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the newest checkpoint there.")] = False,
    report: Annotated[
        Path | None, typer.Option(help="Write the run's HTML report here. Default: neoflow-{model}.html.")
    ] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write none.")] = False,
    target: TargetName = "cpu",
    precision: PrecisionName = "fp32",
    tune: Tune = None,
    rounding: Rounding = None,
    mode: Annotated[
        When,
        typer.Option(help="dynamic: train at once, better schedules are swapped in."),
    ] = When.static,
    tune_share: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="Of the cores' time, for the search of --mode dynamic.")
    ] = 0.25,
    pin: Annotated[
        Path | None, typer.Option(help="Write the schedules there at the end; or, where it is, train with these.")
    ] = None,
    memory: Memory = None,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Train a model: of images on handwritten digits, of words on a made text whose best loss is known."""
    from neoflow.report.run import report_session
    from neoflow.train.session import run_session

    use_threads(threads)
    if report is not None and not no_report:
        _refuse_unwritable(report, model)
    session = run_session(
        model,
        folder=data,
        epochs=epochs,
        batch=batch,
        lr=lr,
        seed=seed,
        checkpoint=checkpoint,
        resume=resume,
        progress=not as_json,
        target=target,
        precision=precision,
        tune=_searched(mode, tune, rounding),
        mode=mode.value,
        tune_share=tune_share,
        pin=pin,
        text=text,
        memory=memory,
    )
    summary = report_session(session, None if no_report else report or Path("neoflow-{model}.html"))
    if as_json:
        print_json(asdict(summary))
    else:
        print(summary)
    if summary.stopped == "interrupted":
        raise typer.Exit(130)


def _searched(mode: When, tune: float | None, rounding: float | None) -> Limits | None:
    """A search beside a run goes on until it gains nothing, where no seconds are given."""
    from neoflow.train.dynamic import PATIENCE

    if mode is When.dynamic and tune is None and rounding is not None:
        return replace(PATIENCE, rounding=rounding)
    return searched(tune, rounding)


def _refuse_unwritable(report: Path, model: str) -> None:
    """Raise `ConfigError` when a report cannot be written there; before the run, not after it."""
    from neoflow.errors import ConfigError
    from neoflow.runtime.files import refuse_unwritable

    path = Path(str(report).replace("{model}", Path(model).stem))
    try:
        refuse_unwritable(path)
    except OSError as error:
        raise ConfigError(
            f"the report cannot be written to {path}: {error}; give another --report, or --no-report"
        ) from None
