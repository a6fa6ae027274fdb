"""One cell: every contender prepared, timed in turns, and neoflow's kernels beside their floors."""

from __future__ import annotations

import datetime
import os
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.models.cells import CPU, Cell
from benchmarks.results import gpu_here
from benchmarks.steps.contenders import ROOT
from neoflow.contest.contenders import OURS
from neoflow.contest.hall import Hall
from neoflow.contest.process import Usage, WorkerFailure
from neoflow.contest.sides import Task
from neoflow.contest.turns import LEAST_ROUNDS, in_turn, median_ratio
from neoflow.measure.near import Cores


@dataclass(frozen=True)
class Setting:
    """seconds: of turns, as many rounds of blocks as fit and never fewer than `least`. profile: seconds of neoflow's
    kernels one by one, 0 for none."""

    seconds: float = 8.0
    block: float = 0.2
    least: int = LEAST_ROUNDS
    profile: float = 1.0


def revision() -> str:
    """Of the sources, as git tells it; a + where they were changed since."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def measure(task: Task, hall: Hall, setting: Setting) -> Cell:
    """Never raises for a contender that fails: the cell says so."""
    workers, ready, missing = hall.load(task)
    begun = Usage.now([os.getpid(), *hall.pids])
    cores = Cores()
    blocks, ended = in_turn(workers, setting.seconds, setting.block, cores, setting.least)
    alive = [p for p in (os.getpid(), *hall.pids) if Path(f"/proc/{p}").exists()]
    foreign = begun.foreign_until(Usage.now(alive))
    own = blocks.get(OURS.key, [])
    kernels, roofs = (), {}
    if own and setting.profile:
        try:
            told = cores.between(lambda: workers[OURS.key].ask({"do": "kernels", "seconds": setting.profile}))
            kernels, roofs = tuple(told["kernels"]), told["roofs"]
        except WorkerFailure as failure:
            ended[OURS.key] = f"its kernels were not timed: {failure}"
    hall.end_large()
    return Cell(
        task.model,
        task.batch,
        task.mode,
        task.tune,
        datetime.date.today().isoformat(),
        revision(),
        max(map(len, blocks.values()), default=0),
        {key: statistics.median(times) for key, times in blocks.items()},
        {key: median_ratio(own, times) for key, times in blocks.items() if own},
        {**missing, **ended},
        {k: v for k, v in ready.get(OURS.key, {}).items() if k != "values"},
        {key: r["version"] for key, r in ready.items() if "version" in r},
        round(foreign, 3),
        kernels,
        roofs,
        round(cores.share_apart, 3),
        task.target,
        "" if task.target == CPU else gpu_here(),
    )


def prepare(task: Task, hall: Hall) -> str:
    """Let every contender compile a step, so that the cells are measured with warm caches; who could not, in words."""
    _, ready, missing = hall.load(task)
    hall.end_large()
    took = ", ".join(f"{key} {told['first']:.1f} s" for key, told in ready.items())
    return "; ".join([took, *(f"no {key}: {why}" for key, why in missing.items())])
