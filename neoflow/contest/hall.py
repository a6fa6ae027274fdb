"""The processes of a contest: each started once, and asked for one step after another."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

import neoflow
from neoflow.contest.contenders import Contender, build_expert, environment
from neoflow.contest.process import Worker, WorkerEnded, WorkerFailure
from neoflow.contest.sides import Task
from neoflow.machine import available_cores

PROGRAM = ("-m", "neoflow.contest.serving")
PATIENCE = 600.0
"""Seconds that an answer may take, besides those of a search."""
LARGE = 1 << 30
"""Resident bytes beyond which a process is ended after its step: memory that stays mapped is the next one's to lack."""
TOLERANCE = 1e-2
"""Of the largest value: how far a contender's may be from the first one's; two that differ by more do not the same."""


class Hall:
    """Contenders by key, in processes that start when they are first needed.

    cache: where they keep what they compile; None: where they always do. tune: seconds of the longest search.
    """

    def __init__(
        self, contenders: Sequence[Contender], cache: Path | None = None, patience: float = PATIENCE, tune: float = 0.0
    ) -> None:
        self.contenders = {c.key: c for c in contenders}
        self._cache, self._patience = cache, patience + 2 * tune
        self._workers: dict[str, Worker] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="neoflow-contest-")
        self._expert = build_expert(Path(self._folder.name)) if any(c.expert for c in contenders) else None

    def __enter__(self) -> Hall:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self._workers.values():
            worker.close()
        self._folder.cleanup()

    @property
    def pids(self) -> list[int]:
        """Of all that run."""
        return [w.pid for w in self._workers.values()]

    def load(self, task: Task) -> tuple[dict[str, Worker], dict[str, dict[str, Any]], dict[str, str]]:
        """Contenders that have made a first step, by key; what each told; and why others have not.

        As many are prepared at a time as there are cores. What computes other values than the first is out.
        """
        ready: dict[str, dict[str, Any]] = {}
        missing: dict[str, str] = {}

        def load_one(key: str) -> dict[str, Any] | str:
            try:
                return self._worker(key).ask({"do": "load", **asdict(task)})
            except WorkerFailure as failure:
                self._forget(key, isinstance(failure, WorkerEnded))
                return str(failure)

        with ThreadPoolExecutor(available_cores()) as threads:
            for key, found in zip(self.contenders, threads.map(load_one, self.contenders), strict=True):
                if isinstance(found, str):
                    missing[key] = found
                else:
                    ready[key] = found
        wanted: list[float] = next((r["values"] for r in ready.values()), [])
        for key in list(ready):
            if (error := distance(ready[key]["values"], wanted)) > TOLERANCE:
                missing[key] = f"its values are off by {error:.1e} of the largest: it computes something else"
                del ready[key]
        return {key: self._workers[key] for key in ready}, ready, missing

    def end_large(self) -> None:
        """End the processes that hold much memory; they start again when they are needed."""
        for key, worker in list(self._workers.items()):
            if psutil.Process(worker.pid).memory_info().rss > LARGE:
                self._forget(key, True)

    def _worker(self, key: str) -> Worker:
        """Raises `WorkerFailure`."""
        if key not in self._workers:
            contender = self.contenders[key]
            if contender.expert and isinstance(self._expert, str):
                raise WorkerFailure(self._expert)
            library = self._expert if isinstance(self._expert, Path) else None
            values = environment(contender, self._cache, library) | _path()
            if self._cache is not None and contender.framework == "jax":
                values["JAX_COMPILATION_CACHE_DIR"] = str(self._cache / contender.name)
            self._workers[key] = Worker({"kind": contender.kind}, values, PROGRAM, self._patience)
        return self._workers[key]

    def _forget(self, key: str, is_lost: bool) -> None:
        if is_lost and (worker := self._workers.pop(key, None)) is not None:
            worker.close()


def _path() -> dict[str, str]:
    """Processes import this very neoflow."""
    here = str(Path(neoflow.__file__).parents[1])
    return {"PYTHONPATH": os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))}


def distance(found: Sequence[float], wanted: Sequence[float]) -> float:
    """The largest difference, as a part of the largest value; infinite where there are not as many."""
    if len(found) != len(wanted):
        return float("inf")
    largest = max((abs(v) for v in wanted), default=0.0)
    return max((abs(a - b) for a, b in zip(found, wanted, strict=True)), default=0.0) / (largest or 1.0)
