"""What is measured: tasks, and the rows they leave in a file, one line of JSON each, so that a restart goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

Figures = dict[str, float]


@dataclass(frozen=True)
class Setting:
    """seconds: of runs that a time is taken from. limit: of a row, at most. search: seconds that a search may take.

    dry: tiny shapes, in the emulator, where times mean nothing. lock: a file of `turns` that the row takes with others;
    `limit` is of its preparing then.
    """

    seconds: float = 0.5
    limit: float = 240.0
    search: float = 60.0
    dry: bool = False
    lock: str = ""


@dataclass(frozen=True)
class Outcome:
    """figures: by name, in SI units. said: what a reader has to know, such as why there are none."""

    figures: Figures = field(default_factory=dict)
    said: str = ""


@dataclass(frozen=True)
class Task:
    """One row. key: PIECE/NAME, or PIECE/NAME/CONTENDER. run: raises whatever goes wrong."""

    key: str
    run: Callable[[Setting], Outcome]

    @property
    def piece(self) -> str:
        return self.key.split("/")[0]

    @property
    def name(self) -> str:
        return self.key.split("/")[1]


@dataclass(frozen=True)
class Row:
    """What a task has shown. on: the GPU and its driver. is_done: false where it failed, and is worth another run."""

    key: str
    figures: Figures
    said: str
    on: str
    date: str
    is_done: bool = True


def read_rows(paths: Iterable[Path]) -> dict[str, Row]:
    """By key, the last one of each; a line that a stopped run has left incomplete is passed over."""
    found: dict[str, Row] = {}
    for path in paths:
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                row = Row(**json.loads(line))
            except (ValueError, TypeError):
                continue
            found[row.key] = row
    return found


def append(path: Path, row: Row) -> None:
    """Add a row to a file, on disk when this returns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(row)) + "\n")
