"""The schedules of a program's kernels: those that earlier runs have found, and the search for better ones.

What was measured is kept beside the kernels, so that every compilation begins where the last search ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from neoflow.codegen.versions import version_of
from neoflow.errors import ConfigError, shown
from neoflow.loops import Schedule, default_schedule, legal, problem_of
from neoflow.measure import Measurer
from neoflow.measure.roofs import roofs_of
from neoflow.partition import Subgraph
from neoflow.runtime.folder import Folder
from neoflow.target import Target
from neoflow.tune import Limits, Measure, Progress, Task, model, spend
from neoflow.tune.finals import chosen
from neoflow.tune.records import FILE, Records

RELATIVES = 4
"""Subgraphs of the same family at other sizes whose best schedules a search begins with."""
FOREIGN = 8
"""Schedules that others said were good, or an older template's, that it begins with."""
FASTEST = 16
"""Schedules of the shortest times that one is chosen from: as fast as each other but for noise."""
ORIGINS = ("default", "measured before", "tuned")
"""Where a schedule is from."""


@dataclass(frozen=True)
class Choice:
    """A kernel's schedule, where it is from, and seconds of a call: with it, with the default, at least (None: not
    measured)."""

    subgraph: Subgraph
    schedule: Schedule
    origin: str = ORIGINS[0]
    seconds: float | None = None
    default_seconds: float | None = None
    floor: float | None = None
    calls: int = 1
    trials: int = 0

    def __str__(self) -> str:
        if self.seconds is None:
            return f"{self.schedule}"
        floor = "" if not self.floor else f", {self.floor / self.seconds:.0%} of its floor"
        before = "" if not self.default_seconds else f", {self.default_seconds / self.seconds:.2f}x the default"
        return f"{self.schedule}  [{self.origin}: {self.seconds * 1e6:.1f} us{before}{floor}]"


@dataclass(frozen=True)
class Tuned:
    """The choices of a program's kernels, and what the search for them spent; stopped: why it ended."""

    choices: tuple[Choice, ...]
    stopped: str = ""
    trials: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return "\n".join(map(str, self.choices))

    @property
    def summary(self) -> str:
        counts = Counter(c.origin for c in self.choices)
        told = ", ".join(f"{counts[o]} {o}" for o in ORIGINS if counts[o])
        spent = f"; {self.trials} candidates in {self.seconds:.0f} s, until {self.stopped}" if self.trials else ""
        return f"{len(self.choices)} schedules: {told}{spent}"


Watch = Callable[[Sequence[Choice], Progress], object]
"""Told of the choices so far and of the latest batch; the tuning ends when it says True."""


def limits_of(tune: float | Limits | None) -> Limits | None:
    """The limits of `tune`: seconds, or what they are already. Raises `ConfigError`."""
    if tune is None or isinstance(tune, Limits):
        return tune
    if isinstance(tune, bool) or not isinstance(tune, (int, float)):
        raise ConfigError(f"tune is seconds, nf.tune.Limits or None, not {shown(tune)}")
    return Limits(seconds=float(tune))


@lru_cache(maxsize=4)
def records_in(folder: Path) -> Records:
    """What was measured, kept in a folder of kernels."""
    return Records(folder / FILE, version_of, lambda path: Folder(path))


def choose(subgraphs: Iterable[Subgraph], target: Target, folder: Path) -> Tuned:
    """For each subgraph the best schedule that was measured on such a target, else the default one."""
    kept = records_in(folder)
    return Tuned(tuple(_known(s, target, kept) for s in subgraphs))


def _known(subgraph: Subgraph, target: Target, kept: Records, calls: int = 1) -> Choice:
    usual, problem = default_schedule(subgraph, target), problem_of(subgraph)
    trials = [t for t in kept.fastest(subgraph, target, FASTEST) if legal(problem, t.schedule, target).ok]
    best = chosen(trials, usual)
    if best is None:
        return Choice(subgraph, usual, calls=calls)
    return Choice(subgraph, best.schedule, ORIGINS[1], best.seconds, calls=calls)


def tune(
    calls: Sequence[tuple[Subgraph, int]],
    target: Target,
    limits: Limits,
    folder: Path,
    seed: int = 0,
    watch: Watch | None = None,
    measure: Measure | None = None,
) -> Tuned:
    """Search for the schedules of distinct subgraphs, each called so often in a step, within limits for all of them.

    folder: where kernels and records are kept. watch: told of every batch. measure: by default on this machine, in
    processes of their own. Raises `CodegenError`, `RuntimeFault` when nothing can be measured here.
    """
    kept, learned = records_in(folder), folder / f"model-{target.device}.ubj"
    known = [_known(s, target, kept, count) for s, count in calls]
    tasks = [_task(c, target, kept) for c in known]
    prior = model.load(learned, target.device) if model.is_available() else None
    choices = list(known)

    def note(number: int, progress: Progress) -> object:
        kept.add(progress.subgraph, target, progress.new)
        choices[number] = _progressed(choices[number], progress)
        return watch(choices, progress) if watch is not None else None

    with Measurer() as here:
        spent = spend(tasks, target, measure or here, limits, seed, prior, note, roofs=roofs_of(target))
    for n, (task, found) in enumerate(zip(tasks, spent.found, strict=True)):
        if found is None:
            continue
        kept.add(task.subgraph, target, [t for t in found.trials if t not in task.known])
        made = len(found.trials) - len(task.known)
        choices[n] = Choice(
            task.subgraph,
            found.best.schedule,
            ORIGINS[2],
            found.best.seconds,
            found.default.seconds,
            found.floor,
            task.calls,
            made,
        )
    if prior is not None and prior.is_trained:
        Folder(folder).write(learned.name, prior.to_bytes())
    return Tuned(tuple(choices), spent.stopped, spent.trials)


def _task(choice: Choice, target: Target, kept: Records) -> Task:
    subgraph = choice.subgraph
    others = [t.schedule for _, t in kept.relatives(subgraph, target)[:RELATIVES]]
    foreign = kept.to_measure(subgraph, target)[:FOREIGN]
    return Task(subgraph, choice.calls, choice.seconds, (*others, *foreign), tuple(kept.trials(subgraph, target)))


def _progressed(choice: Choice, progress: Progress) -> Choice:
    """The choice after a batch, the finals still to come."""
    best, usual = progress.best, progress.default
    if best is None:
        return choice
    return Choice(
        choice.subgraph,
        best.schedule,
        ORIGINS[2],
        best.seconds,
        None if usual is None else usual.seconds,
        progress.floor,
        choice.calls,
        choice.trials + len(progress.new),
    )
