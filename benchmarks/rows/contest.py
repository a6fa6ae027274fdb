"""One row: every contender in a process of its own, one after the other, then timed in turns.

neoflow's process is a new one for each row, as its search is to begin with nothing. A peer's goes on to the next row,
as its start takes longer than most rows; one that fails is replaced.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import last_of_each
from benchmarks.rows.cases import Row
from benchmarks.rows.worker import DEFAULT, TUNED
from neoflow.contest.contenders import OURS, PEERS, Contender, build_expert, environment
from neoflow.contest.process import Usage, Worker, WorkerFailure, wait_until_quiet
from neoflow.measure.near import Cores

PROGRAM = ("-m", "benchmarks.rows.worker")
NAMES = {DEFAULT: "neoflow default", TUNED: "neoflow"}
"""Of the functions that the worker of neoflow has."""
PLAIN = PEERS[0].name
"""Whose results the others' are compared with."""
SMALLEST = 1e-30
CACHES = "caches"


@dataclass(frozen=True)
class Setting:
    """tune: seconds of a search. rounding: of the algorithms it may choose. rounds of blocks of so many seconds each.
    patience: seconds that a contender may take beyond the search, to its first result. table: the package that has the
    rows and their forms."""

    tune: float = 20.0
    rounding: float = 16.0
    rounds: int = 7
    block: float = 0.1
    patience: float = 180.0
    dry: bool = False
    table: str = "benchmarks.rows"


@dataclass(frozen=True)
class Measured:
    """What became of a row. seconds: of a call, the median over rounds, by contender. ratios: the median over rounds of
    neoflow's time over a contender's. errors: from PyTorch's results, of their largest entry. missing: why a contender
    is not there. told: by the worker of neoflow. foreign: the share of the machine that other work took. first: seconds
    to a contender's first result, all that it compiles included. apart: the share of blocks that were timed while cores
    were apart (`neoflow.measure.near`); 1 before anybody looked."""

    name: str
    date: str
    seconds: Mapping[str, float] = field(default_factory=dict)
    ratios: Mapping[str, float] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    told: Mapping[str, Any] = field(default_factory=dict)
    foreign: float = 0.0
    first: Mapping[str, float] = field(default_factory=dict)
    apart: float = 1.0

    @property
    def ours(self) -> str:
        """The function that the row is about: of the search, where there was one."""
        return NAMES[TUNED] if NAMES[TUNED] in self.seconds else NAMES[DEFAULT]

    @property
    def is_done(self) -> bool:
        """Whether neoflow was measured: a row without it is worth another run."""
        return self.ours in self.seconds

    def best(self) -> str | None:
        """The fastest peer."""
        peers = [(s, n) for n, s in self.seconds.items() if n not in NAMES.values()]
        return min(peers)[1] if peers else None


def read(path: Path) -> dict[str, Measured]:
    """Rows by name, the last one of each; a line that a stopped run has left incomplete is passed over."""
    return last_of_each(path, lambda line: Measured(**json.loads(line)), lambda found: found.name)


class Crew:
    """The workers of the contenders, and where they leave what they compute. A context that ends them."""

    def __init__(self, setting: Setting, contenders: Sequence[Contender] = (OURS, *PEERS)) -> None:
        self._setting = setting
        self._contenders = contenders
        self._workers: dict[str, Worker] = {}

    def __enter__(self) -> Crew:
        self._place = tempfile.TemporaryDirectory(prefix="neoflow-rows-")
        self._folder = Path(self._place.name)
        self._library = build_expert(self._folder)
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._workers):
            self._close(name)
        self._place.cleanup()

    @property
    def pids(self) -> list[int]:
        """Of the processes that wait for the next row."""
        return [w.pid for w in self._workers.values()]

    def measure(self, row: Row) -> Measured:
        """Never raises for a contender that fails: the row says so."""
        missing: dict[str, str] = {}
        told: dict[str, Any] = {}
        first: dict[str, float] = {}
        for contender in self._contenders:
            try:
                ready = self._computed(row, contender)
            except WorkerFailure as failure:
                missing[contender.name] = str(failure)
                continue
            first[contender.name] = ready["first"]
            if not contender.is_peer:
                told = ready
        errors = _errors(self._folder, self._workers)
        pids = [os.getpid(), *self.pids]
        begun = Usage.now(pids)
        cores = Cores()
        blocks = _rounds(self._workers, self._setting, missing, cores)
        foreign = begun.foreign_until(Usage.now([p for p in pids if Path(f"/proc/{p}").exists()]))
        for name in {c.name for c in self._contenders if not c.is_peer or c.name in missing} & self._workers.keys():
            self._close(name)
        seconds = {n: statistics.median(times) for n, times in blocks.items()}
        own = blocks.get(NAMES[TUNED], blocks.get(NAMES[DEFAULT], []))
        ratios = {n: _median_ratio(own, times) for n, times in blocks.items() if own}
        date, apart = datetime.date.today().isoformat(), round(cores.share_apart, 3)
        return Measured(row.name, date, seconds, ratios, errors, missing, told, round(foreign, 3), first, apart)

    def _computed(self, row: Row, contender: Contender) -> dict[str, Any]:
        """What a worker says of a row that it has computed once; its results are in a file of its name."""
        if contender.expert and isinstance(self._library, str):
            raise WorkerFailure(self._library)
        setting = self._setting
        request = {"row": row.name, "kind": contender.kind, "dry": setting.dry, "tune": setting.tune}
        request |= {
            "table": setting.table,
            "rounding": setting.rounding,
            "results": str(_results(self._folder, contender.name)),
        }
        _results(self._folder, contender.name).unlink(missing_ok=True)
        if contender.name in self._workers:
            try:
                return self._workers[contender.name].ask(request)
            except WorkerFailure:  # maybe of what rows before it left: asked again in a new process
                self._close(contender.name)
        expert = self._library if isinstance(self._library, Path) else None
        patience = setting.patience + (0 if contender.is_peer else 2 * setting.tune)
        worker = Worker(request, environment(contender, self._folder / CACHES, expert), PROGRAM, patience)
        self._workers[contender.name] = worker
        return worker.ready

    def _close(self, name: str) -> None:
        """End a worker; the next of its name begins with nothing."""
        self._workers.pop(name).close()
        shutil.rmtree(self._folder / CACHES / name.replace(" ", "_"), ignore_errors=True)


def _median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def _results(folder: Path, name: str) -> Path:
    return folder / f"{name.replace(' ', '_')}.npz"


def _rounds(
    workers: Mapping[str, Worker], setting: Setting, missing: dict[str, str], cores: Cores
) -> dict[str, list[float]]:
    """Blocks in turns, each round beginning with another; a contender that ends meanwhile is left out."""

    def quiet_block(worker: str, which: str) -> float:
        wait_until_quiet(workers.values())
        return workers[worker].block(setting.block, which=which)

    turns = [(n, n, DEFAULT) for n in workers if n != OURS.name]
    if OURS.name in workers:
        which = (TUNED, DEFAULT) if setting.tune else (DEFAULT,)
        turns = [*((NAMES[w], OURS.name, w) for w in which), *turns]
    found: dict[str, list[float]] = {name: [] for name, _, _ in turns}
    for n in range(setting.rounds):
        at = n % max(1, len(turns))
        for name, worker, which_one in (*turns[at:], *turns[:at]):
            if worker in missing:
                continue
            try:
                found[name].append(cores.between(partial(quiet_block, worker, which_one)))
            except WorkerFailure as failure:
                missing[worker] = str(failure)
    return {name: times for name, times in found.items() if len(times) == setting.rounds}


def _errors(folder: Path, names: Iterable[str]) -> dict[str, float]:
    """Of each contender, by the largest entry of PyTorch's result; where PyTorch is missing, none is known."""
    found: dict[str, float] = {}
    if not _results(folder, PLAIN).exists():
        return found
    with np.load(_results(folder, PLAIN)) as wanted:
        for name in names:
            if name == PLAIN:
                continue
            with np.load(_results(folder, name)) as file:
                for key in file.files:
                    which, _, number = key.partition("/")
                    a, b = file[key], wanted[f"{DEFAULT}/{number}"]
                    error = float(np.max(np.abs(a - b)) / max(np.max(np.abs(b)), SMALLEST))
                    shown = NAMES[which] if name == OURS.name else name
                    found[shown] = max(error, found.get(shown, 0.0))
    return found
