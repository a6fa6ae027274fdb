"""The thread team: runs recorded launches, as `codegen/cpu/team.ll` lays it out in memory, by several threads at once.

One team serves the process. A step that finds it busy with another thread's step runs on its own thread; so does one in
a child of `fork`, until the child has a team of its own. Results do not depend on who does which task.

An exception of Python (Ctrl-C, another signal's handler, one set from another thread) comes between two bytecodes: a
step is one native call, and whatever has to hold before or after it is written natively too.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from itertools import repeat
from typing import Any

import numpy as np

from neoflow.runtime.device.library import Library

MOST_THREADS = 256
_PAGE = 4096
_THREADS_AT = 256  # in bytes, see team.ll
TEAM_BYTES = _THREADS_AT + 64 * MOST_THREADS
_INSIDE = 8


class Team:
    """Threads that wait for recorded launches. They start when first needed, and sleep while nothing runs."""

    def __init__(self, library: Library):
        self._library = library  # is never unloaded: its threads are in there
        self._run = _function(library, "nf_team_run", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
        self.copy = library.address("nf_team_copy")
        self.loop = library.address("nf_team_loop")
        self._echo = _function(library, "nf_team_echo", ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """No threads yet, and nobody in a step; after a fork the parent's are not here."""
        self._starting = threading.RLock()
        self._memory = np.zeros(TEAM_BYTES + _PAGE, np.uint8)
        start = -self._memory.ctypes.data % _PAGE
        self._words = self._memory[start : start + TEAM_BYTES].view(np.int64)
        self._words[5] = 1  # regions are numbered from 1: 0 is before all
        self._address = self._words.ctypes.data
        self._workers: list[np.ndarray] = []

    def run(self, recording: int, threads: int) -> None:
        """Run the recording at this address, which keeps the generation it ran in and counts its runs."""
        if len(self._workers) < threads - 1:
            self._start(min(threads, MOST_THREADS) - 1)
        self._run(self._address, recording, threads)

    def round_trip(self, cores: tuple[int, int], rounds: int = 2000) -> float:
        """Seconds in which a line of memory goes from one core to another and back; infinite where nobody answers, as
        when something else runs there. The calling thread is on the first core meanwhile."""
        memory = np.zeros(_PAGE // 4, np.int64)
        word = memory.ctypes.data + -memory.ctypes.data % 256

        def answer() -> None:
            os.sched_setaffinity(0, {cores[1]})
            self._echo(word, 1, 2 * rounds)

        other, mask = threading.Thread(target=answer), os.sched_getaffinity(0)
        other.start()
        try:
            os.sched_setaffinity(0, {cores[0]})
            self._echo(word, 0, rounds)  # until both are there
            start = time.perf_counter()
            self._echo(word, 2 * rounds, rounds)
            seconds = time.perf_counter() - start
        finally:
            os.sched_setaffinity(0, mask)
            other.join()
        return seconds / rounds if memory.max() == 4 * rounds else float("inf")

    def leave(self, generation: int) -> None:
        """Wait until no thread is inside a step up to `generation`: its memory may go then."""
        for n in range(1, len(self._workers) + 1):
            at = (_THREADS_AT + 64 * n + _INSIDE) // 8
            while 0 < self._words[at] <= generation:
                time.sleep(0)

    def _start(self, workers: int) -> None:
        """Have so many workers. Where the system gives no more threads, the others do all of the work."""
        create = ctypes.CDLL(None).pthread_create
        create.argtypes = [ctypes.c_void_p] * 4
        body = self._library.address("nf_team_worker")
        with self._starting:
            known = self._workers
            new = [np.array([self._address, n], np.int64) for n in range(len(known) + 1, workers + 1)]
            threads = np.zeros(len(new) + 1, np.int64)
            places = [threads.ctypes.data + 8 * n for n in range(len(new))]
            made = map(create, places, repeat(None), repeat(body), [w.ctypes.data for w in new])
            self._workers = known + new  # their memory stays from here on
            any(made)  # one call, so that no exception of Python comes between two threads; the first failure ends it


def _function(library: Library, symbol: str, *types: Any) -> Callable[..., None]:
    return ctypes.CFUNCTYPE(None, *types)(library.address(symbol))
