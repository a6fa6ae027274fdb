"""What a person sees of a run: a moving bar on a terminal, one line an epoch elsewhere; what is compiled, when slow."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any, TextIO

from neoflow.text import notebook
from neoflow.trace import listening

SLOW = 0.5
"""Seconds after which a compilation is worth a line."""
STEPS = 10
"""That a time of a step is the median of."""
_AGAIN = 10.0
"""Seconds from one such line to the next, where lines stay."""


def format_values(values: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in values.items())


class Pace:
    """What a step takes, as it is measured: at the start of a run and now, the medians of `STEPS` of them."""

    def __init__(self) -> None:
        self._first: list[float] = []
        self._last = deque[float](maxlen=STEPS)
        self._has_begun = False

    def note(self, seconds: float) -> None:
        """A step is done. The first one does not count: it finds new code."""
        if self._has_begun:
            self._last.append(seconds)
            if len(self._first) < STEPS:
                self._first.append(seconds)
        self._has_begun = True

    def __str__(self) -> str:
        if not self._last:
            return "no step is timed yet"
        return f"a step takes {median(self._last) * 1e3:.2f} ms, at the start {median(self._first) * 1e3:.2f}"


class Silent:
    """Shows nothing; what the other two do, in outline."""

    def start(self, epochs: int, steps: int | None, epoch: int, taken: int) -> None:
        """A run begins (or continues) in `epoch` with `taken` of its `steps` steps done; None: not known."""

    def compiling(self, text: str) -> None:
        """What is being compiled now; "": no more."""

    def step(self, loss: float, search: str = "") -> None:
        """One step is done; search: how far that for better kernels is beside it, "" where there is none."""

    def epoch(self, number: int, values: Mapping[str, float], seconds: float) -> None:
        """An epoch is done."""

    def line(self, text: str) -> None:
        """Something that happened between two steps."""

    def stop(self) -> None:
        """The run is over, for whatever reason."""


class Lines(Silent):
    """One plain line an epoch."""

    def __init__(self, file: TextIO):
        self.file = file
        self.epochs = 0
        self._told = -_AGAIN

    def start(self, epochs: int, steps: int | None, epoch: int, taken: int) -> None:
        self.epochs = epochs

    def compiling(self, text: str) -> None:
        now = time.monotonic()
        if not text:
            self._told = -_AGAIN
        elif now - self._told > _AGAIN:
            self._told = now
            print(text, file=self.file, flush=True)

    def line(self, text: str) -> None:
        print(text, file=self.file, flush=True)

    def epoch(self, number: int, values: Mapping[str, float], seconds: float) -> None:
        print(f"epoch {number}/{self.epochs}  {format_values(values)}  {seconds:.1f} s", file=self.file, flush=True)


class Bar(Lines):
    """A bar for the current epoch under the lines of those that are done."""

    def __init__(self, file: TextIO):
        super().__init__(file)
        self._bar: Any = None
        self._below: Any = None
        self._status: Any = None

    def start(self, epochs: int, steps: int | None, epoch: int, taken: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.text import Text

        super().start(epochs, steps, epoch, taken)
        columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
        columns += [TextColumn("{task.fields[note]}"), TimeElapsedColumn()]
        self._below = Text()

        class WithSearch(Progress):
            """The bar, and below it how far the search is."""

            def get_renderables(shown) -> Iterable[Any]:
                yield from super().get_renderables()
                if self._below.plain:
                    yield self._below

        self._bar = WithSearch(*columns, console=self._console(), transient=True, refresh_per_second=4)
        self.task = self._bar.add_task(f"epoch {epoch + 1}/{epochs}", total=steps, completed=taken, note="")
        self._bar.start()

    def _console(self) -> Any:
        from rich.console import Console

        return Console(file=self.file)

    def compiling(self, text: str) -> None:
        if self._bar is not None:
            self._bar.update(self.task, note=text)
        elif not text:
            if self._status is not None:
                self._status.stop()
            self._status = None
        elif self._status is None:
            self._status = self._console().status(text)
            self._status.start()
        else:
            self._status.update(text)

    def step(self, loss: float, search: str = "") -> None:
        self._below.plain = search
        self._bar.update(self.task, advance=1, note=f"loss {loss:.4g}")

    def line(self, text: str) -> None:
        self._bar.console.print(text, highlight=False)

    def epoch(self, number: int, values: Mapping[str, float], seconds: float) -> None:
        line = f"epoch {number}/{self.epochs}  {format_values(values)}  {seconds:.1f} s"
        self._bar.console.print(line, highlight=False)
        self._bar.reset(self.task, description=f"epoch {min(number + 1, self.epochs)}/{self.epochs}", note="")

    def stop(self) -> None:
        for shown in (self._status, self._bar):
            if shown is not None:
                shown.stop()


class Notebook(Lines):
    """A bar for the current epoch, shown again and again in one place, beside the lines of those that are done."""

    def __init__(self, file: TextIO, place: notebook.Place):
        super().__init__(file)
        self._place = place
        self._epoch, self._taken, self._note = 1, 0, ""
        self._steps: int | None = None
        self._is_running = False

    def start(self, epochs: int, steps: int | None, epoch: int, taken: int) -> None:
        super().start(epochs, steps, epoch, taken)
        self._epoch, self._steps, self._taken, self._is_running = epoch + 1, steps, taken, True
        self._draw(is_due=True)

    def _draw(self, is_due: bool = False) -> None:
        text = f"epoch {self._epoch}/{self.epochs}"
        self._place.show(notebook.bar(text, self._taken, self._steps, self._note), is_due)

    def compiling(self, text: str) -> None:
        self._note = text
        if self._is_running:
            self._draw(is_due=not text)
        elif text:
            self._place.show(notebook.bar(text, 0, None))
        else:
            self._place.clear()

    def step(self, loss: float, search: str = "") -> None:
        self._taken, self._note = self._taken + 1, f"loss {loss:.4g}" + (f"; {search}" if search else "")
        self._draw(is_due=self._taken == self._steps)

    def epoch(self, number: int, values: Mapping[str, float], seconds: float) -> None:
        super().epoch(number, values, seconds)
        self._epoch, self._taken, self._note = min(number + 1, self.epochs), 0, ""

    def stop(self) -> None:
        self._is_running = False
        self._place.clear()


def reporter(show: bool, file: TextIO | None = None) -> Silent:
    """A bar in a notebook and where `file` (standard error) is a terminal, lines elsewhere, nothing unless `show`."""
    if not show:
        return Silent()
    if file is None and (place := notebook.place()) is not None:
        return Notebook(sys.stdout, place)
    file = sys.stderr if file is None else file
    return Bar(file) if file.isatty() else Lines(file)


@contextmanager
def compiling(show: Silent, what: str) -> Iterator[None]:
    """Within, what the compiler does is shown once it has taken `SLOW` seconds: the stage, and kernels of how many."""
    lock, text, is_slow, is_over = threading.Lock(), f"compiling the {what}", False, False

    def tell(stage: str, done: int, total: int, note: str) -> None:
        nonlocal text
        with lock:
            count = f", {done} of {total} kernels" if total else ""
            text = f"compiling the {what}: {stage}{count}{': ' if note else ''}{note}"
            if is_slow:
                show.compiling(text)

    def reveal() -> None:
        nonlocal is_slow
        with lock:
            is_slow = not is_over
            if is_slow:
                show.compiling(text)

    timer = threading.Timer(SLOW, reveal)
    timer.daemon = True
    timer.start()
    try:
        with listening(tell):
            yield
    finally:
        timer.cancel()
        with lock:
            is_over = True
            if is_slow:
                show.compiling("")
