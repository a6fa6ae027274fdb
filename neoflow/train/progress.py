"""What a person sees of a run: a moving bar on a terminal, one line an epoch elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, TextIO


def format_values(values: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in values.items())


class Silent:
    """Shows nothing; what the other two do, in outline."""

    def start(self, epochs: int, steps: int | None, epoch: int, taken: int) -> None:
        """A run begins (or continues) in `epoch` with `taken` of its `steps` batches done; None: not known."""

    def step(self, loss: float) -> None:
        """One step is done."""

    def epoch(self, number: int, values: Mapping[str, float], seconds: float) -> None:
        """An epoch is done."""

    def stop(self) -> None:
        """The run is over, for whatever reason."""


class Lines(Silent):
    """One plain line an epoch."""

    def __init__(self, file: TextIO):
        self.file = file
        self.epochs = 0

    def start(self, epochs: int, steps: int | None, epoch: int, taken: int) -> None:
        self.epochs = epochs

    def epoch(self, number: int, values: Mapping[str, float], seconds: float) -> None:
        print(f"epoch {number}/{self.epochs}  {format_values(values)}  {seconds:.1f} s", file=self.file, flush=True)


class Bar(Lines):
    """A bar for the current epoch under the lines of those that are done."""

    def start(self, epochs: int, steps: int | None, epoch: int, taken: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        super().start(epochs, steps, epoch, taken)
        self.console = Console(file=self.file)
        columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
        columns += [TextColumn("loss {task.fields[loss]:.4g}"), TimeElapsedColumn()]
        self.bar = Progress(*columns, console=self.console, transient=True, refresh_per_second=4)
        self.task = self.bar.add_task(f"epoch {epoch + 1}/{epochs}", total=steps, completed=taken, loss=float("nan"))
        self.bar.start()

    def step(self, loss: float) -> None:
        self.bar.update(self.task, advance=1, loss=loss)

    def epoch(self, number: int, values: Mapping[str, float], seconds: float) -> None:
        self.console.print(f"epoch {number}/{self.epochs}  {format_values(values)}  {seconds:.1f} s", highlight=False)
        self.bar.reset(self.task, description=f"epoch {min(number + 1, self.epochs)}/{self.epochs}", loss=float("nan"))

    def stop(self) -> None:
        self.bar.stop()


def reporter(show: bool, file: TextIO | None = None) -> Silent:
    """A bar where `file` (standard error) is a terminal, lines elsewhere, nothing unless `show`."""
    file = sys.stderr if file is None else file
    if not show:
        return Silent()
    return Bar(file) if file.isatty() else Lines(file)
