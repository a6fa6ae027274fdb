"""`neoflow tune`: search for the schedules of a model; schedules of another machine, and for it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from neoflow.commands.options import (
    AsJson,
    Best,
    Fleet,
    ImportedFile,
    Mode,
    ModelName,
    PrecisionName,
    Rounding,
    TargetName,
    Threads,
    WithDefault,
    WrittenFile,
    print_json,
    use_threads,
)

app = typer.Typer(
    cls=WithDefault,
    no_args_is_help=True,
    help="`neoflow tune MODEL`: search for better schedules of its training step. Or pass schedules on.",
)


@app.command("model", hidden=True)
def tune_model(
    model: ModelName,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to search.")] = 60.0,
    trials: Annotated[int | None, typer.Option(min=1, help="Candidates to measure at most.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Samples a step. Default: the model's.")] = None,
    mode: Annotated[Mode, typer.Option(help="A training step (SGD), or inference.")] = Mode.train,
    target: TargetName = "cpu",
    precision: PrecisionName = "fp32",
    rounding: Rounding = None,
    threads: Threads = None,
    fleet: Fleet = None,
    report: Annotated[Path | None, typer.Option(help="Write the searches' curves there, as an HTML page.")] = None,
    as_json: AsJson = False,
) -> None:
    """Search for better schedules of a model's kernels; every later compilation on this machine takes them."""
    from neoflow.report.tuned import render_tuning
    from neoflow.report.tuning import tune as run
    from neoflow.tune import Limits
    from neoflow.tune.limits import ROUNDING

    use_threads(threads)
    limits = Limits(trials=trials, seconds=seconds, rounding=rounding or ROUNDING)
    found = run(model, batch, mode.value, limits, target, precision, show=not as_json, fleet=fleet)
    if report is not None:
        _write_report(report, render_tuning(found))
    if as_json:
        print_json(asdict(found))
    else:
        print(found)


def _write_report(path: Path, text: str) -> None:
    """Raises `ConfigError` where it cannot be written."""
    from neoflow.errors import ConfigError
    from neoflow.report.html import write_page

    try:
        write_page(path, text)
    except OSError as error:
        raise ConfigError(f"the report cannot be written to {path}: {error.strerror or error}") from None


@app.command("export")
def export_schedules(path: WrittenFile, best: Best = None, as_json: AsJson = False) -> None:
    """Write the schedules that were measured here as JSON lines, with the subgraphs they are of; no compiled code."""
    from neoflow import config
    from neoflow.errors import ConfigError
    from neoflow.runtime.files import write_atomically
    from neoflow.tune.exchange import export_lines
    from neoflow.tuning.kept import records_in

    lines = list(export_lines(records_in(config.load().cache_dir), best))
    try:
        write_atomically(path, "".join(f"{line}\n" for line in lines).encode())
    except OSError as error:
        raise ConfigError(f"the schedules cannot be written to {path}: {error.strerror or error}") from None
    if as_json:
        print_json({"path": str(path), "schedules": len(lines)})
    else:
        print(f"{len(lines)} schedules: {path}")


@app.command("import")
def import_schedules(path: ImportedFile, as_json: AsJson = False) -> None:
    """Read schedules as JSON lines: each is checked, and is verified and measured here before it is used.

    Exit status 1 when none of the lines is one.
    """
    from neoflow import config
    from neoflow.errors import ConfigError
    from neoflow.tune.exchange import import_lines, lines_of
    from neoflow.tuning.kept import records_in

    try:
        with open(path, "rb") as file:
            found = import_lines(records_in(config.load().cache_dir), lines_of(file))
    except OSError as error:
        raise ConfigError(f"the schedules {path} cannot be read: {error.strerror or error}") from None
    if as_json:
        print_json(asdict(found))
    else:
        print(found)
    if found.refused and not found.new + found.known:
        raise typer.Exit(1)
