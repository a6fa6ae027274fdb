"""Schedules judged in the program that they are for.

A search times a kernel by itself, with its operands out of a core's cache. In the program its neighbours run before it,
and leave what it reads with the core that wrote it: a schedule that shares its tasks out otherwise than they do loses
that, and may take longer there than the one that it has beaten. So whole sets of schedules are run as the program,
each kernel gets the one that takes less there, and of all these sets the program takes the fastest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from neoflow.kernel import Kernel
from neoflow.loops import Schedule, problem_of, streamed_otherwise
from neoflow.measure.near import Cores
from neoflow.rewriting.beside import drawn
from neoflow.runtime.device import Device
from neoflow.runtime.function import Function
from neoflow.tune import Limits

Schedules = Mapping[str, Schedule]
"""By the digest of a subgraph."""

DEFAULT, ALONE, BEFORE, CHOSEN = "the default ones", "by themselves", "chosen before", "chosen in the step"
STREAMED = "streamed otherwise"
"""Sets: what needs no search; what is best of each kernel by itself; what was best in this program before; what is best
of each kernel in the program; what is best by itself, but what is written goes past the caches, or into them."""
LARGE = 3
"""Times what the cores' own caches hold together: what a kernel writes of so much is written either way. Which is
better depends on what else the program touches before it is read, so that no time of the kernel by itself shows it."""

SHARE, MOST, USUAL = 0.1, 15.0, 1.0
"""Of the seconds of a tuning, for this; at most so many of them; so many where it has no limit in seconds."""
ROUNDS = 9
"""In which every set is run, at most."""
PATIENCE = 0.3
"""Part of the seconds of rounds that is waited for cores that are apart."""
CLEARLY = 0.02
"""Part of a kernel's time by which a schedule has to be faster in the program, or a set of the program's, to take the
place of one that comes before it."""


@dataclass(frozen=True)
class Judged:
    """The best schedules of a program. name: of the set; seconds: of a call of the program with each set, by its name.
    kernels: of each kernel, whose schedules differ, its name and seconds in the program by set."""

    name: str
    schedules: Schedules
    seconds: Mapping[str, float]
    kernels: Sequence[tuple[str, Mapping[str, float]]] = ()

    @property
    def summary(self) -> str:
        """In a line."""
        took = ", ".join(f"{name} {s * 1e3:.3f} ms" for name, s in self.seconds.items())
        return f"schedules as {self.name}: {took}"

    def __str__(self) -> str:
        """A kernel a line."""
        return "\n".join(
            f"{name}: " + ", ".join(f"{by} {s * 1e6:.1f} us" for by, s in took.items()) for name, took in self.kernels
        )


def seconds_for(limits: Limits) -> float:
    """Of a tuning within limits."""
    return USUAL if limits.seconds is None else min(MOST, SHARE * limits.seconds)


def streamed(kernels: Sequence[Kernel], schedules: Schedules) -> Schedules:
    """The same schedules, of kernels that write much with the other way of writing it."""
    found = dict(schedules)
    for kernel in kernels:
        subgraph, target = kernel.subgraph, kernel.target
        written = sum(subgraph.value(number).nbytes for number in subgraph.outputs)
        if written >= LARGE * target.l2_bytes * target.threads:
            other = streamed_otherwise(problem_of(subgraph), schedules[subgraph.digest], target)
            found[subgraph.digest] = other or schedules[subgraph.digest]
    return found


def sets_of(
    default: Schedules, by_themselves: Schedules, before: Schedules | None, otherwise: Schedules | None = None
) -> dict[str, Schedules]:
    """The sets to compare, the simplest first, each once."""
    found = {DEFAULT: default}
    for name, those in (
        (ALONE, by_themselves),
        (BEFORE, {**default, **(before or {})}),
        (STREAMED, otherwise or by_themselves),
    ):
        if those not in found.values():
            found[name] = those
    return found


class Sets:
    """A program run with one set of schedules after another.

    adopt: has the function run with schedules from its next call on, see `pipeline.adopt`.
    """

    def __init__(
        self, function: Function, kernels: Sequence[Kernel], adopt: Callable[[Function, Schedules], object], d: Device
    ):
        self._function, self._adopt = function, adopt
        self._digests = [k.subgraph.digest for k in kernels]
        self._arrays: list[Any] = drawn(function.inputs, d)

    def kernels(self, schedules: Schedules) -> dict[str, float]:
        """Seconds of all calls of each kernel in the program, what is prepared once left out."""
        self._adopt(self._function, schedules)
        self._function(*self._arrays)
        found = dict.fromkeys(self._digests, 0.0)
        plan = self._function.plan
        for n, (call, took) in enumerate(zip(plan.calls, self._function.profile(*self._arrays, runs=1), strict=True)):
            if n >= plan.prepared and call.kernel < len(self._digests):
                found[self._digests[call.kernel]] += took.seconds
        return found

    def whole(self, schedules: Schedules, block: float) -> float:
        """Seconds of a call of the program, of calls that take `block` together."""
        self._adopt(self._function, schedules)
        return _call(self._function, self._arrays, block)

    @property
    def names(self) -> dict[str, str]:
        """Of the first call of each kernel."""
        found: dict[str, str] = {}
        for call in self._function.plan.calls:
            if call.kernel < len(self._digests):
                found.setdefault(self._digests[call.kernel], call.name)
        return found


BLOCK = 0.02
"""Seconds of calls of the whole program at a time."""


def judge(runs: Sets, sets: Mapping[str, Schedules], seconds: float) -> Judged:
    """The best of several sets of schedules of the same kernels, and of one that has of each kernel what is best in the
    program. What comes first is the simplest, and stays where others are not clearly faster. Half of the seconds are
    for the kernels, half for the whole."""
    end = time.monotonic() + seconds
    times = _in_rounds({name: partial(runs.kernels, s) for name, s in sets.items()}, end - seconds / 2)
    took = {name: {d: median(t[d] for t in found) for d in found[0]} for name, found in times.items()}
    picked = {d: _first({name: took[name][d] for name in sets}) for d in next(iter(sets.values()))}
    several = {**sets}
    mixed = {d: sets[name][d] for d, name in picked.items()}
    if mixed not in several.values():
        several[CHOSEN] = mixed
    wholes = _in_rounds({name: partial(runs.whole, s, BLOCK) for name, s in several.items()}, end)
    seconds_of = {name: median(found) for name, found in wholes.items()}
    best = _first(seconds_of)
    differ = [d for d in picked if len({sets[name][d] for name in sets}) > 1]
    names = runs.names
    kernels = [(names.get(d, d[:8]), {name: took[name][d] for name in sets}) for d in differ]
    return Judged(best, several[best], seconds_of, kernels)


@dataclass(frozen=True)
class Times:
    """Seconds of a call of a program, and of another one that gives the same."""

    usual: float
    other: float

    @property
    def is_faster(self) -> bool:
        """Whether the other one is; where nothing was timed, it is thought so."""
        return self.other <= (1 - CLEARLY) * self.usual

    def __str__(self) -> str:
        return f"{self.usual * 1e3:.3f} ms directly, {self.other * 1e3:.3f} ms with other algorithms"


def beside(pair: tuple[Function, Function], place: Device, seconds: float) -> Times:
    """Two programs of the same inputs in turns, on parameters of their own."""
    arrays = drawn(pair[0].inputs, place)
    for f in pair:
        f(*arrays)
    work = {str(n): partial(_call, f, arrays, BLOCK) for n, f in enumerate(pair)}
    usual, other = map(median, _in_rounds(work, time.monotonic() + seconds).values())
    return Times(usual, other)


def _call(function: Function, arrays: Sequence[Any], block: float) -> float:
    """Seconds of a call, of as many as take a block together; the first one finds caches that were another's."""
    function(*arrays)
    begun, calls = time.perf_counter(), 0
    while calls == 0 or time.perf_counter() - begun < block:
        function(*arrays)
        calls += 1
    return (time.perf_counter() - begun) / calls


def _first(seconds: Mapping[str, float]) -> str:
    """The first that nothing behind it is clearly faster than."""
    names = list(seconds)
    best = names[0]
    for name in names[1:]:
        if seconds[name] < (1 - CLEARLY) * seconds[best]:
            best = name
    return best


def _in_rounds(work: Mapping[str, Callable[[], Any]], end: float) -> dict[str, list[Any]]:
    """What each gives in turns, each time in another order: once at least, and until the end or `ROUNDS`. Each is timed
    while the cores are near each other, where a part of that time is patience enough."""
    found: dict[str, list[Any]] = {name: [] for name in work}
    names, cores = list(work), Cores(PATIENCE * max(0.0, end - time.monotonic()))
    for n in range(ROUNDS):
        start = n % len(names)
        begun = time.monotonic()
        for name in [*names[start:], *names[:start]]:
            found[name].append(cores.between(work[name]))
        now = time.monotonic()
        if 2 * now - begun > end:
            break
    return found
