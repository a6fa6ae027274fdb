"""Records of graphs on disk: a sorted file for each unit of work, and a level put together of all of them.

Whatever of a level's records is looked at at once is those with fingerprints of one range, so memory is bounded. A file
appears under its name when it is whole: a process that was killed is begun again where it was.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import numpy as np

from neoflow.errors import ConfigError, GraphError
from neoflow.trace import tick

MOST = 1 << 24
"""Records that are looked at at once: some 0.5 GB, and as much again while they are sorted."""
SAID = "generation.txt"
"""The file that says what a folder is of."""


@dataclass(frozen=True)
class Merged:
    """Of a level: new graphs, in the order in which they were made; and records that are equal to a graph before them:
    `same`, a number, or where that is -1 the position of a new graph."""

    new: np.ndarray
    equal: np.ndarray
    same: np.ndarray
    firsts: np.ndarray


class Until:
    """When work ends: so many seconds from now, None for never, or as soon as somebody says so. why: what ended it."""

    def __init__(self, seconds: float | None = None):
        self.begun, self.seconds, self.why = time.monotonic(), seconds, "the time is up"
        self._is_stopped = False

    def is_over(self, share: float = 1.0) -> bool:
        """Whether it ends now; or such a share of it does."""
        late = self.seconds is not None and time.monotonic() - self.begun >= self.seconds * share
        return self._is_stopped or late

    def stop(self, why: str) -> None:
        self._is_stopped, self.why = True, why

    @contextmanager
    def interrupted(self) -> Iterator[None]:
        """Within, SIGINT and SIGTERM end the work, and what is done so far stays; a second one is what it always is."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}

        def note(number: int, frame: object) -> None:
            self.stop(f"it was ended by {signal.Signals(number).name}")
            for n, handler in before.items():
                signal.signal(n, handler)

        try:
            for n in before:
                signal.signal(n, note)
            yield
        finally:
            for n, handler in before.items():
                signal.signal(n, handler)


class Runs:
    """The files of one generation. Raises `ConfigError` where the folder is of another one."""

    def __init__(self, folder: Path, about: str):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        said = folder / SAID
        if not said.exists():
            write(said, about.encode())
        elif said.read_text(encoding="utf-8") != about:
            raise ConfigError(f"{folder} has another generation begun in it: of other operators, or another seed")

    def path(self, unit: str) -> Path:
        """The file of a unit; beside it another says what its numbers of operators mean, a line each."""
        return self.folder / f"{unit}.npy"

    def write(self, unit: str, rows: np.ndarray, label: Callable[[int], str]) -> None:
        """The file of a unit. label: what a number of an operator means, in any process."""
        path = self.path(unit)
        numbers, rows["typed"] = np.unique(rows["typed"], return_inverse=True)
        write(path.with_suffix(".txt"), "".join(f"{label(n)}\n" for n in numbers.tolist()).encode())
        order = np.argsort(rows["print"], kind="stable")
        kept = np.empty(len(rows), [*rows.dtype.descr, ("row", np.int64)])
        for n in rows.dtype.fields or ():
            kept[n] = rows[n][order]
        kept["row"] = order
        self.save(path, kept)

    def save(self, path: Path, rows: np.ndarray) -> None:
        """An array as a file that is whole, or is not there."""
        part = path.with_suffix(f".{os.getpid()}")
        with part.open("wb") as file:
            np.save(file, rows, allow_pickle=False)
        part.replace(path)


def shared(
    work: Callable[[int], None], numbers: Sequence[int], processes: int, until: Until, share: float = 1.0
) -> bool:
    """Do work of all these numbers in so many processes, copies of this one; whether all was done before the time was
    up, or a share of it. Each takes what nobody has taken yet, and ends where this process has ended, or some seconds
    after the time is up.

    Raises `GraphError` where one of them failed."""
    if processes == 1 or len(numbers) < 2 * processes:
        for n in numbers:
            tick()
            if until.is_over(share):
                return False
            work(n)
        return True
    taken = multiprocessing.get_context("fork").Value("l", 0)
    parent, children = os.getpid(), set[int]()
    for _ in range(processes):
        child = os.fork()
        if not child:
            _take(work, numbers, taken, parent, until, share)
        children.add(child)
    codes = _waited(children, until, share)
    if any(code not in (DONE, LATE) for code in codes):
        raise GraphError(f"a process that made graphs ended with {max(codes, key=abs)}")
    return LATE not in codes


def _waited(children: set[int], until: Until, share: float) -> list[int]:
    """Exit codes of processes; those that go on long after the time are ended, and were late."""
    codes, late = [], 0.0
    while children:
        for child in sorted(children):
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                children.remove(child)
                code = os.waitstatus_to_exitcode(status)
                codes.append(LATE if code == -signal.SIGKILL and late > GRACE else code)
        if children:
            time.sleep(BETWEEN)
            late += BETWEEN if until.is_over(share) else 0.0
            if late > GRACE:
                for child in children:
                    os.kill(child, signal.SIGKILL)
    return codes


DONE, LATE = 0, 3
"""Exit codes of processes."""
BETWEEN, GRACE = 0.001, 2.0
"""Seconds after which processes are asked for, and that they have when the time is up."""


def _take(
    work: Callable[[int], None],
    numbers: Sequence[int],
    taken: Synchronized[int],
    parent: int,
    until: Until,
    share: float,
) -> None:
    """What a copy of a process does; it does not come back."""
    code = 1
    try:
        while os.getppid() == parent:
            with taken.get_lock():
                n = taken.value
                taken.value = n + 1
            if n >= len(numbers) or until.is_over(share):
                code = DONE if n >= len(numbers) else LATE
                break
            work(numbers[n])
    except Exception:  # whatever it is, this copy must not go on with what the process it is of was doing
        traceback.print_exc()
    finally:
        os._exit(code)


def write(path: Path, content: bytes) -> None:
    """Bytes as a file that is whole, or is not there."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(path)


def merged(paths: Sequence[Path], known: np.ndarray, numbers: np.ndarray, of_label: Callable[[str], int]) -> Merged:
    """A level: `known` are the fingerprints of all graphs before it, sorted, `numbers` theirs. of_label: the number of
    an operator."""
    if not paths:
        none = np.zeros(0, [("print", np.uint64), ("typed", np.int32), ("args", np.int32, (1,)), ("order", np.int64)])
        return Merged(none, none, np.zeros(0, np.int64), np.zeros(0, np.int64))
    runs = [np.load(p, mmap_mode="r", allow_pickle=False) for p in paths]
    typed = [
        np.array([of_label(line) for line in p.with_suffix(".txt").read_text(encoding="utf-8").splitlines()], np.int32)
        for p in paths
    ]
    news, firsts, equals, sames = [], [], [], []
    for rows in _ranges(runs, typed):
        order = np.lexsort((rows["order"], rows["print"]))
        rows = rows[order]
        is_first = np.ones(len(rows), bool)
        is_first[1:] = rows["print"][1:] != rows["print"][:-1]
        at = np.minimum(np.searchsorted(known, rows["print"]), max(len(known) - 1, 0))
        is_known = known[at] == rows["print"] if len(known) else np.zeros(len(rows), bool)
        first = rows["order"][np.maximum.accumulate(np.where(is_first, np.arange(len(rows)), 0))]
        fresh = is_first & ~is_known
        news.append(rows[fresh])
        equals.append(rows[~fresh])
        sames.append(np.where(is_known, numbers[at] if len(known) else -1, -1)[~fresh])
        firsts.append(np.where(is_known, -1, first)[~fresh])
    new = np.concatenate(news)
    new = new[np.argsort(new["order"])]
    equal, same, first = np.concatenate(equals), np.concatenate(sames), np.concatenate(firsts)
    order = np.argsort(equal["order"])
    return Merged(new, equal[order], same[order], np.searchsorted(new["order"], first[order]))


def _ranges(runs: Sequence[np.ndarray], typed: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """The records of all runs, by ranges of fingerprints; `order` is that in which they were made."""
    begins = np.concatenate([[0], np.cumsum([len(r) for r in runs])])
    count = int(begins[-1]) // MOST + 1
    for n in range(count):
        low, high = (((1 << 63) * k) // count for k in (n, n + 1))
        parts = []
        for run, meant, begin in zip(runs, typed, begins, strict=False):
            some = run[np.searchsorted(run["print"], np.uint64(low)) : np.searchsorted(run["print"], np.uint64(high))]
            rows = np.empty(len(some), [*some.dtype.descr[:-1], ("order", np.int64)])
            for label in rows.dtype.fields or ():
                if label != "order":
                    rows[label] = some[label]
            rows["typed"] = meant[some["typed"]]
            rows["order"] = some["row"] + begin
            parts.append(rows)
        yield np.concatenate(parts)
