"""The thread team: runs recorded launches, as `codegen/cpu/team.ll` lays it out in memory, by several threads at once.

One team serves the process. A step that finds it busy with another thread's step runs on its own thread; so does one in
a child of `fork`, until the child has a team of its own. Results do not depend on who does which task.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from neoflow.runtime.device.library import Library

MOST_THREADS = 256
_PAGE = 4096
_GENERATION, _THREADS_AT = 0, 256  # in bytes, see team.ll
_INSIDE = 8


class Team:
    """Threads that wait for recorded launches. They start when first needed, and sleep while nothing runs."""

    def __init__(self, library: Library):
        self._library = library  # is never unloaded: its threads are in there
        self._step = _function(library, "nf_team_step", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
        self._alone = _function(library, "nf_team_alone", ctypes.c_void_p)
        self.copy = library.address("nf_team_copy")
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """No threads yet, and nobody in a step; after a fork the parent's are not here."""
        self._lock = threading.Lock()
        self._memory = np.zeros(_THREADS_AT + 64 * MOST_THREADS + _PAGE, np.uint8)
        start = -self._memory.ctypes.data % _PAGE
        self._words = self._memory[start : start + _THREADS_AT + 64 * MOST_THREADS].view(np.int64)
        self._words[5] = 1  # regions are numbered from 1: 0 is before all
        self._address = self._words.ctypes.data
        self._workers: list[np.ndarray] = []

    def run(self, recording: int, threads: int) -> int:
        """Run the recording at this address; gives the generation it ran in (0: on this thread alone)."""
        if threads > 1 and self._lock.acquire(blocking=False):
            try:
                if len(self._workers) < threads - 1:
                    self._start(threads - 1)
                self._step(self._address, recording, threads)
                return int(self._words[_GENERATION])
            finally:
                self._lock.release()
        self._alone(recording)
        return 0

    def leave(self, generation: int) -> None:
        """Wait until no thread is inside a step up to `generation`: its memory may go then."""
        for n in range(1, len(self._workers) + 1):
            at = (_THREADS_AT + 64 * n + _INSIDE) // 8
            while 0 < self._words[at] <= generation:
                time.sleep(0)

    def _start(self, workers: int) -> None:
        create = ctypes.CDLL(None).pthread_create
        create.argtypes = [ctypes.c_void_p] * 4
        body = self._library.address("nf_team_worker")
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # signals are for Python's threads
        try:
            for number in range(len(self._workers) + 1, min(workers, MOST_THREADS - 1) + 1):
                worker, thread = np.array([self._address, number], np.int64), np.zeros(1, np.int64)
                if create(thread.ctypes.data, None, body, worker.ctypes.data):
                    break  # the system gives no more threads: the others do all of the work
                self._workers.append(worker)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _function(library: Library, symbol: str, *types: Any) -> Callable[..., None]:
    return ctypes.CFUNCTYPE(None, *types)(library.address(symbol))
