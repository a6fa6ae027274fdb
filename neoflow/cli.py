"""The `neoflow` command: a table of commands, each a file of `neoflow.commands` with a function of its name, or `app`.

A command imports what it needs when it runs, so that help is there at once.
"""

from __future__ import annotations

import sys
from importlib import import_module

import typer

from neoflow.errors import NeoflowError

COMMANDS = (
    "train",
    "tune",
    "bench",
    "build",
    "explain",
    "optimize",
    "compare",
    "models",
    "doctor",
    "cache",
    "rules",
)

app = typer.Typer(
    name="neoflow",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _commands() -> None:
    """Write an operator as one index expression, differentiate it, compile it, train with it."""


for command in COMMANDS:
    module = import_module(f"neoflow.commands.{command}")
    if hasattr(module, "app"):  # a group of commands
        app.add_typer(module.app, name=command)
    else:
        app.command()(getattr(module, command))


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
