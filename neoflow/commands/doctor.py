"""`neoflow doctor`: this machine."""

from __future__ import annotations

from dataclasses import asdict

from neoflow.commands.options import AsJson, print_json


def doctor(as_json: AsJson = False) -> None:
    """Say what this machine has and reaches, and what is missing for what."""
    from neoflow.report.machine import examine

    machine = examine()
    if as_json:
        print_json(asdict(machine))
    else:
        print(machine)
