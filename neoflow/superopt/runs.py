"""Records of graphs on disk: a sorted file for each unit of work, and a level put together of all of them.

Whatever of a level's records is looked at at once is those with fingerprints of one range, so memory is bounded. A file
appears under its name when it is whole: a process that was killed is begun again where it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from neoflow.errors import ConfigError

MOST = 1 << 24
"""Records that are looked at at once: some 0.5 GB, and as much again while they are sorted."""
SAID = "generation.txt"
"""The file that says what a folder is of."""
TABLE = "operators.json"
"""Shapes and operators at sizes, by number."""


@dataclass(frozen=True)
class Merged:
    """Of a level: new graphs, in the order in which they were made; and records that are equal to a graph before them:
    `same`, a number, or where that is -1 the position of a new graph."""

    new: np.ndarray
    equal: np.ndarray
    same: np.ndarray
    firsts: np.ndarray


class Runs:
    """The files of one generation. Raises `ConfigError` where the folder is of another one."""

    def __init__(self, folder: Path, about: str):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.said = -1
        said = folder / SAID
        if not said.exists():
            write(said, about.encode())
        elif said.read_text(encoding="utf-8") != about:
            raise ConfigError(f"{folder} has another generation begun in it: of other operators, or another seed")

    def read(self, label: str) -> str:
        """A text of the folder, nothing where there is none."""
        path = self.folder / label
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def run(self, operators: int, unit: int, made: Callable[[], np.ndarray], table: Callable[[], str]) -> Path:
        """The file of a unit, made if it is not there. table: what its numbers mean, which is written before it."""
        path = self.folder / f"{operators}-{unit}.npy"
        if not path.exists():
            rows = made()
            text = table()
            if len(text) != self.said:
                write(self.folder / TABLE, text.encode())
                self.said = len(text)
            order = np.argsort(rows["print"], kind="stable")
            kept = np.empty(len(rows), [*rows.dtype.descr, ("row", np.int64)])
            for n in rows.dtype.fields or ():
                kept[n] = rows[n][order]
            kept["row"] = order
            part = path.with_suffix(f".{os.getpid()}")
            with part.open("wb") as file:
                np.save(file, kept, allow_pickle=False)
            part.replace(path)
        return path


def write(path: Path, content: bytes) -> None:
    """A file that is whole, or is not there."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(path)


def merged(paths: Sequence[Path], known: np.ndarray, numbers: np.ndarray) -> Merged:
    """A level: `known` are the fingerprints of all graphs before it, sorted, `numbers` theirs."""
    if not paths:
        none = np.zeros(0, [("print", np.uint64), ("typed", np.int32), ("args", np.int32, (1,)), ("order", np.int64)])
        return Merged(none, none, np.zeros(0, np.int64), np.zeros(0, np.int64))
    runs = [np.load(p, mmap_mode="r", allow_pickle=False) for p in paths]
    news, firsts, equals, sames = [], [], [], []
    for rows in _ranges(runs):
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


def _ranges(runs: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """The records of all runs, by ranges of fingerprints; `order` is that in which they were made."""
    begins = np.concatenate([[0], np.cumsum([len(r) for r in runs])])
    count = int(begins[-1]) // MOST + 1
    for n in range(count):
        low, high = (((1 << 63) * k) // count for k in (n, n + 1))
        parts = []
        for run, begin in zip(runs, begins, strict=False):
            some = run[np.searchsorted(run["print"], np.uint64(low)) : np.searchsorted(run["print"], np.uint64(high))]
            rows = np.empty(len(some), [*some.dtype.descr[:-1], ("order", np.int64)])
            for label in rows.dtype.fields or ():
                if label != "order":
                    rows[label] = some[label]
            rows["order"] = some["row"] + begin
            parts.append(rows)
        yield np.concatenate(parts)
