"""The schedules of a program's kernels: those that earlier runs have found, and the search for better ones.

What was measured is kept beside the kernels, so that every compilation begins where the last search ended.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from neoflow.errors import ConfigError, shown
from neoflow.loops import Schedule, default_schedule, legal, problem_of
from neoflow.measure import Measurer
from neoflow.measure.here import Here
from neoflow.measure.measurer import Pool
from neoflow.measure.roofs import roofs_of
from neoflow.partition import KernelCall, Subgraph
from neoflow.roofs import Roofs
from neoflow.runtime.folder import Folder
from neoflow.target import Target
from neoflow.trace import tell, tick
from neoflow.tune import Limits, Measure, Progress, Task, model, spend
from neoflow.tune.finals import chosen
from neoflow.tune.records import FILE, Records, Verdict
from neoflow.tuning import choosing
from neoflow.tuning.kept import records_in
from neoflow.tuning.roofs import keep_roofs

log = logging.getLogger("neoflow")

RELATIVES = 4
"""Subgraphs of the same family at other sizes whose best schedules a search begins with."""
FOREIGN = 8
"""Schedules that others said were good, or an older template's, that it begins with."""
FASTEST = 16
"""Schedules of the shortest times that one is chosen from: as fast as each other but for noise."""
ORIGINS = ("default", "measured before", "tuned")
"""Where a schedule is from."""


@dataclass(frozen=True)
class Use:
    """A distinct kernel of a program: how often a step calls it, what one of the calls is named, and, where the program
    was timed, by which schedule it runs there and seconds of a call."""

    subgraph: Subgraph
    calls: int = 1
    name: str = "kernel"
    there: tuple[Schedule, float] | None = None


def uses_of(calls: Sequence[KernelCall]) -> tuple[Use, ...]:
    """The distinct kernels of a program's calls."""
    counts = Counter(c.subgraph.digest for c in calls)
    first = {c.subgraph.digest: c for c in reversed(calls)}
    return tuple(Use(first[d].subgraph, n, first[d].name) for d, n in counts.items())


@dataclass(frozen=True)
class Choice:
    """The schedule of a kernel and where it is from; seconds of a call with it, with the default and at least, where
    they are known; candidates measured for it now. curve: after each batch, seconds since the tuning began, candidates
    of this kernel until then, and seconds of the best one."""

    use: Use
    schedule: Schedule
    origin: str = ORIGINS[0]
    seconds: float | None = None
    default_seconds: float | None = None
    floor: float | None = None
    trials: int = 0
    curve: tuple[tuple[float, int, float], ...] = ()

    def __str__(self) -> str:
        if self.seconds is None:
            return f"{self.schedule}"
        floor = "" if not self.floor else f", {self.floor / self.seconds:.0%} of its floor's speed"
        before = "" if not self.default_seconds else f", {self.default_seconds / self.seconds:.2f}x the default's"
        return f"{self.schedule}  [{self.origin}: {self.seconds * 1e6:.1f} us{before}{floor}]"


@dataclass(frozen=True)
class SearchCurve:
    """A kernel's search. points: seconds since the tuning began, candidates until then, seconds of the best one."""

    name: str
    calls: int
    floor: float | None
    points: tuple[tuple[float, int, float], ...]

    @property
    def gain(self) -> float:
        """Seconds of a step."""
        return self.calls * (self.points[0][2] - self.points[-1][2])

    def __str__(self) -> str:
        (seconds, trials, best), first = self.points[-1], self.points[0][2]
        share = f", {self.floor / best:.0%} of its floor's speed" if self.floor else ""
        return f"{trials} candidates in {seconds:.0f} s: {first * 1e6:.1f} to {best * 1e6:.1f} us{share}"


def curves_of(choices: Sequence[Choice]) -> tuple[SearchCurve, ...]:
    """Of the kernels that were searched for."""
    return tuple(SearchCurve(c.use.name, c.use.calls, c.floor, c.curve) for c in choices if c.curve)


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


Usual = Callable[[Subgraph, Target], Schedule]
"""The default schedule of a subgraph: found by its structure, or remembered."""

Watch = Callable[[Sequence[Choice], int, str], object]
"""Told of the choices so far, the number of the latest one and how far the tuning has come; it ends at True."""


def limits_of(tune: float | Limits | None) -> Limits | None:
    """The limits of `tune`: seconds, or what they are already. Raises `ConfigError`."""
    if tune is None or isinstance(tune, Limits):
        return tune
    if isinstance(tune, bool) or not isinstance(tune, (int, float)):
        raise ConfigError(f"tune is seconds, nf.tune.Limits or None, not {shown(tune)}")
    return Limits(seconds=float(tune))


def choose(uses: Iterable[Use], target: Target, folder: Path, usual: Usual = default_schedule) -> Tuned:
    """For each kernel the best schedule that was measured on such a target, else the default one, as `usual` knows
    it."""
    uses, found = tuple(uses), []
    kept = records_in(folder) if (folder / FILE).exists() else None
    verdict = None if kept is None else kept.verdict(program_of(uses), target)
    for use in uses:
        tick()
        schedule = None if verdict is None else verdict.schedules.get(use.subgraph.digest)
        if kept is None:
            found.append(Choice(use, usual(use.subgraph, target)))
        elif schedule is not None and legal(problem_of(use.subgraph), schedule, target).ok:
            found.append(_judged(Choice(use, schedule), usual(use.subgraph, target), target, kept))
        else:
            found.append(_known(use, target, kept, usual))
    return Tuned(tuple(found))


def program_of(uses: Iterable[Use]) -> str:
    """A hash of what kernels a program has, and how often it calls each."""
    counts = sorted((u.subgraph.digest, u.calls) for u in uses)
    return hashlib.sha256(json.dumps(counts).encode()).hexdigest()


def verdict_of(tuned: Tuned, target: Target, folder: Path) -> Mapping[str, Schedule] | None:
    """The schedules that were best in the program before, of those that are legal; None where nobody has judged."""
    verdict = records_in(folder).verdict(program_of(c.use for c in tuned.choices), target)
    if verdict is None:
        return None
    own = {c.use.subgraph.digest: c.use.subgraph for c in tuned.choices}
    those = {digest: s for digest, s in verdict.schedules.items() if digest in own}
    return {digest: s for digest, s in those.items() if legal(problem_of(own[digest]), s, target).ok}


def keep_verdict(uses: Iterable[Use], verdict: Verdict, target: Target, folder: Path) -> None:
    """Have later compilations of a program take these schedules."""
    records_in(folder).keep_verdict(program_of(uses), target, verdict)


def judged(tuned: Tuned, verdict: Verdict, default: Mapping[str, Schedule], target: Target, folder: Path) -> Tuned:
    """Keep what is best in a program, and choose that."""
    keep_verdict([c.use for c in tuned.choices], verdict, target, folder)
    kept, choices = records_in(folder), []
    for c in tuned.choices:
        digest = c.use.subgraph.digest
        schedule = verdict.schedules[digest]
        same = schedule == c.schedule
        choices.append(c if same else _judged(replace(c, schedule=schedule), default[digest], target, kept))
    return replace(tuned, choices=tuple(choices))


def _judged(choice: Choice, default: Schedule, target: Target, kept: Records) -> Choice:
    """A choice that was made in the program, with what is known of its schedule."""
    known = kept.fastest(choice.use.subgraph, target, FASTEST)
    seconds = next((t.seconds for t in known if t.schedule == choice.schedule), None)
    if choice.schedule == default:
        return replace(choice, origin=ORIGINS[0], seconds=seconds or choice.default_seconds)
    return replace(choice, origin=ORIGINS[1], seconds=seconds)


def unmeasured(target: Target, folder: Path) -> Callable[[Subgraph], bool]:
    """Whether nothing was measured of a kernel on such a target: what was is not to be replaced by a guess."""
    if not (folder / FILE).exists():
        return lambda _: True
    kept = records_in(folder)
    return lambda kernel: kept.best(kernel, target) is None


def has_records(folder: Path) -> bool:
    """Whether anything was measured."""
    return (folder / FILE).exists()


def known_seconds(target: Target, folder: Path) -> choosing.Cost:
    """What kernels took by their best schedules, of those that were measured on such a target."""
    if not (folder / FILE).exists():
        return lambda _: None
    return choosing.recorded(records_in(folder), target)


def default_seconds(target: Target, measure: Measure) -> choosing.Cost:
    """What kernels take now by their default schedules, nothing of it kept: a kernel of which a time is kept is one
    whose schedule somebody has looked for. None for what cannot be measured."""
    return lambda kernel: measure(kernel, target, [default_schedule(kernel, target)])[0].seconds


LEAST = 1.0
"""Seconds that are left for schedules, however long the algorithms took."""


@contextmanager
def measuring(
    target: Target, limits: Limits | None, folder: Path, pool: Callable[[Target], Pool] = Here
) -> Iterator[Measurer | None]:
    """What measures the candidates of a program, the workers of a pool starting; None where nothing is to be
    measured. What the machine reaches is kept in the folder."""
    if limits is None:
        yield None
        return
    with Measurer(pool) as measure:
        if target.device == "cpu":
            keep_roofs(target, folder)  # while nothing else runs
            roofs_of(target)
            measure.warm(target)
        yield measure


def _known(use: Use, target: Target, kept: Records, usual: Usual = default_schedule) -> Choice:
    default, fastest = usual(use.subgraph, target), kept.fastest(use.subgraph, target, FASTEST)
    trials = [t for t in fastest if legal(problem_of(use.subgraph), t.schedule, target).ok]
    best = chosen(trials, default)
    return Choice(use, default) if best is None else Choice(use, best.schedule, ORIGINS[1], best.seconds)


def tune(
    uses: Sequence[Use],
    target: Target,
    limits: Limits,
    folder: Path,
    seed: int = 0,
    watch: Watch | None = None,
    measure: Measure | None = None,
    pool: Callable[[Target], Pool] = Here,
    roofs: Roofs | None = None,
) -> Tuned:
    """Search for the schedules of a program's kernels, within limits for all of them together.

    folder: where kernels and records are kept. watch: told of every batch; whoever listens to the compiler hears of it
    too. measure: by default with the workers of a pool, which are processes of this machine. roofs: of the machine
    (default: measured now, once a process). Raises `RuntimeFault` when nothing can be measured.
    """
    begun, kept, learned = time.monotonic(), records_in(folder), f"model-{target.device}.ubj"
    choices = [_known(use, target, kept) for use in uses]
    tasks = [_task(c, target, kept) for c in choices]
    prior = model.load(folder / learned, target.device) if model.is_available() else None
    made = 0

    def note(number: int, progress: Progress) -> object:
        nonlocal made
        made += len(progress.new)
        kept.add(progress.subgraph, target, progress.new)
        choices[number] = _progressed(choices[number], progress, time.monotonic() - begun)
        text = told(made, choices[number], choices)
        tell("tuning", note=text)
        return watch(choices, number, text) if watch is not None else None

    with Measurer(pool) as here:
        spent = spend(tasks, target, measure or here, limits, seed, prior, note, roofs=roofs or roofs_of(target))
    for n, (task, found) in enumerate(zip(tasks, spent.found, strict=True)):
        if found is None:
            continue
        kept.add(task.subgraph, target, [t for t in found.trials if t not in task.known])
        best, usual, count = found.best, found.default.seconds, len(found.trials) - len(task.known)
        curve = choices[n].curve
        choices[n] = Choice(uses[n], best.schedule, ORIGINS[2], best.seconds, usual, found.floor, count, curve)
    if prior is not None and prior.is_trained:
        with suppress(OSError):  # what was learned is a help, no more
            Folder(folder).write(learned, prior.to_bytes())
    return Tuned(tuple(choices), spent.stopped, spent.trials, time.monotonic() - begun)


def _task(choice: Choice, target: Target, kept: Records) -> Task:
    subgraph = choice.use.subgraph
    others = [t.schedule for _, t in kept.relatives(subgraph, target)[:RELATIVES]]
    foreign = kept.to_measure(subgraph, target)[:FOREIGN]
    known = tuple(kept.trials(subgraph, target))
    return Task(subgraph, choice.use.calls, choice.seconds, (*others, *foreign), known, choice.use.there)


def _progressed(choice: Choice, progress: Progress, now: float) -> Choice:
    """The choice after a batch that ended now, the finals still to come."""
    best, usual = progress.best, progress.default
    count = choice.trials + len(progress.new)
    if best is None:
        return replace(choice, trials=count)
    before = None if usual is None else usual.seconds
    curve = choice.curve if best.seconds is None else (*choice.curve, (round(now, 3), count, best.seconds))
    return Choice(choice.use, best.schedule, ORIGINS[2], best.seconds, before, progress.floor, count, curve)


def told(made: int, latest: Choice, choices: Sequence[Choice]) -> str:
    """How far a tuning has come, in a line."""
    known = [(c.use.calls, c.default_seconds or c.seconds, c.seconds) for c in choices if c.seconds is not None]
    before, now = sum(n * a for n, a, _ in known), sum(n * b for n, _, b in known)
    every = f"{len(known)} of {len(choices)} kernels from {before * 1e3:.2f} to {now * 1e3:.2f} ms"
    return f"{told_of(made, latest)}; {every}"


def told_of(made: int, latest: Choice) -> str:
    """What is being tuned: candidates of all kernels until now, and the best of the latest one beside its floor."""
    share = f" ({latest.floor / latest.seconds:.0%} of its floor's speed)" if latest.floor and latest.seconds else ""
    best = "no time yet" if latest.seconds is None else f"{latest.seconds * 1e6:.0f} us{share}"
    return f"{made} candidates, {latest.use.name}: {best}"
