"""Rows that are prepared side by side and timed in turn: of all processes that hold a file's lock, one times, alone.

Whoever prepares (compiles, checks, warms up) holds the lock with the others; whoever times holds it for itself, and so
waits until all others have prepared or have ended.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

TIMING = 30.0
"""Seconds that a row may wait for each other one of those beside it to be timed."""


class Turns:
    """This process among those of a file."""

    def __init__(self, path: Path, limit: float, late: Callable[[], None]):
        """limit: seconds of preparing, all together; late: called once they are over, from another thread."""
        self._file, self._left, self._late = os.open(path, os.O_RDWR | os.O_CREAT), limit, late
        self._timer: threading.Timer | None = None

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Within, this process prepares, but where it is `timing`."""
        self._prepare()
        try:
            yield
        finally:
            self._leave()
            os.close(self._file)

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Within, no other one prepares or times."""
        self._leave()
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._prepare()

    def _prepare(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_SH)
        self._timer = threading.Timer(self._left, self._late)
        self._timer.daemon = True
        self._timer.start()

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        fcntl.flock(self._file, fcntl.LOCK_UN)


_HERE: Turns | None = None
"""Those this process takes."""


@contextmanager
def taking(turns: Turns) -> Iterator[None]:
    """Within, this process takes turns."""
    global _HERE
    with turns.preparing():
        _HERE = turns
        try:
            yield
        finally:
            _HERE = None


@contextmanager
def turn() -> Iterator[None]:
    """Within, this process times; at once where it takes no turns."""
    if _HERE is None:
        yield
        return
    with _HERE.timing():
        yield
