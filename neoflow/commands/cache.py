"""`neoflow cache`: what is kept of compiled kernels, and of tuning."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from neoflow.commands.options import AsJson, Best, ImportedFile, WrittenFile, print_json
from neoflow.commands.tune import export_schedules, import_schedules

if TYPE_CHECKING:
    from neoflow.config import Config
    from neoflow.runtime.cache import KernelCache

app = typer.Typer(
    help="Say what is kept of compiled kernels and of tuning, and where; verify it, pass it on, or remove it.",
    invoke_without_command=True,
)
DAY = 24 * 3600.0


def _opened() -> tuple[KernelCache, Config]:
    from neoflow import config
    from neoflow.runtime.cache import KernelCache

    settings = config.load()
    return KernelCache(settings.cache_dir, settings.cache_bytes), settings


def _tell(kept: KernelCache, settings: Config, as_json: bool) -> None:
    from neoflow.report.kept import summary

    found = summary(kept, settings)
    if as_json:
        print_json(asdict(found))
    else:
        print(found)


@app.callback()
def _summary(
    context: typer.Context,
    clear: Annotated[bool, typer.Option("--clear", help="Remove all kernels, as `clear` does.")] = False,
    as_json: AsJson = False,
) -> None:
    if context.invoked_subcommand is None:
        kept, settings = _opened()
        if clear:
            kept.clear()
        _tell(kept, settings, as_json)


@app.command()
def ls(as_json: AsJson = False) -> None:
    """List the kernels that are kept: size, age, and what they compute, where that is known."""
    from neoflow.report.kept import kernels

    found = list(kernels(_opened()[0]))
    if as_json:
        print_json([asdict(row) for row in found])
    else:
        print(*found, sep="\n")


@app.command()
def verify(
    files_only: Annotated[bool, typer.Option("--files", help="Read the files alone; compare no kernel.")] = False,
    as_json: AsJson = False,
) -> None:
    """Read all files again and compare every kernel with NumPy whose subgraph is known; what is wrong is dropped.

    Exit status 1 where something was.
    """
    from neoflow.report import kept as report

    kept, settings = _opened()
    found = report.verify(kept, settings, judge=not files_only)
    if as_json:
        print_json(asdict(found))
    else:
        print(found)
    if not found.is_whole:
        raise typer.Exit(1)


@app.command()
def prune(
    older: Annotated[float | None, typer.Option(min=0, help="Days: what nobody has used for so long goes.")] = None,
    nbytes: Annotated[
        int | None, typer.Option("--bytes", min=0, help="The least recently used modules go until so many are left.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Remove kernels that are old, or too many. Records of tuning stay."""
    from neoflow.errors import ConfigError

    if older is None and nbytes is None:
        raise ConfigError("say what is to go: --older DAYS, --bytes N, or both")
    kept, settings = _opened()
    kept.prune(math.inf if older is None else older * DAY, math.inf if nbytes is None else nbytes)
    _tell(kept, settings, as_json)


@app.command()
def clear(
    records: Annotated[
        bool, typer.Option("--records", help="The records of tuning too: they take long to make.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove all kernels: they are compiled anew when needed."""
    from neoflow.errors import ConfigError
    from neoflow.tuning.kept import records_in

    kept, settings = _opened()
    kept.clear()
    if records:
        try:
            records_in(settings.cache_dir).clear()
        except OSError as error:
            raise ConfigError(f"the records of tuning cannot be removed: {error.strerror or error}") from None
    _tell(kept, settings, as_json)


@app.command("export")
def export_kept(path: WrittenFile, best: Best = None, as_json: AsJson = False) -> None:
    """Write what may leave this machine: the schedules that tuning has found, as JSON lines. Never compiled code."""
    export_schedules(path, best, as_json)


@app.command("import")
def import_kept(path: ImportedFile, as_json: AsJson = False) -> None:
    """Read schedules of another machine: they are verified and measured here before they are used."""
    import_schedules(path, as_json)
