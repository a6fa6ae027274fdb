"""One timing at a time on a machine, whichever processes and users want one.

The lock is on the folder for temporary files, which everybody may open: nothing has to be made, and what a killed
process held is free again. One that is never given back, by a process that was stopped, is not waited for.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 30.0
"""Seconds to wait for a turn: a timing takes a tenth of one, and a turn too late is better than none."""
_STEP = 0.002


@contextmanager
def turn(patience: float = PATIENCE) -> Iterator[bool]:
    """Within, this process times; False where others would not let it alone."""
    try:
        folder = os.open(tempfile.gettempdir(), os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield False
        return
    try:
        yield _is_locked(folder, time.monotonic() + patience)
    finally:
        os.close(folder)  # and the lock with it


def _is_locked(folder: int, end: float) -> bool:
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(_STEP)
        except OSError:  # a file system without locks
            return False
