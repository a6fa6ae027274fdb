"""Rules that nobody states: all graphs of few operators over an alphabet, those with equal fingerprints proved equal.

    levels       graphs, bottom up; nothing is made of one that is equal to another: a smaller rule says what follows
    candidates   pairs of equal ones, up to names
    pruning      those that follow from what holds of fewer operators are left out: a congruence closure
    general      variables in place of what both sides have, extents that need not be equal
    implied      and those that follow from rules before them
    judge        the rest proved by two tiers, under the weakest guards; what is not proved is refused

Source: Jia et al., TASO, 2019, sections 2 and 3; there equal shapes are all that is looked at.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from neoflow.superopt.alphabet import Alphabet, alphabet_of
from neoflow.superopt.body import Family
from neoflow.superopt.candidates import candidates
from neoflow.superopt.judge import Judge
from neoflow.superopt.levels import ALL, explored
from neoflow.superopt.rule import Rule
from neoflow.superopt.runs import Runs, Until

MOST = 20_000_000
"""Different graphs, at most."""
FORMAT = 4
"""Of the files of a generation."""


@dataclass(frozen=True)
class Stage:
    """What a part of a generation took: seconds, and seconds of processors, of all processes."""

    name: str
    seconds: float
    cpu_seconds: float

    def __str__(self) -> str:
        return f"{self.name}: {self.seconds:.1f} s, {self.cpu_seconds:.1f} s of processors"


class _Watch:
    """Stages by name, in the order in which they began."""

    def __init__(self) -> None:
        self._took: dict[str, tuple[float, float]] = {}
        self._last = self._now()

    def _now(self) -> tuple[float, float]:
        return time.monotonic(), sum(os.times()[:4])

    def ended(self, name: str) -> None:
        """What was done since the last stage was this one."""
        now, before = self._now(), self._took.get(name, (0.0, 0.0))
        self._took[name] = before[0] + now[0] - self._last[0], before[1] + now[1] - self._last[1]
        self._last = now

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(Stage(name, *took) for name, took in self._took.items())


@dataclass(frozen=True)
class Generated:
    """rules: proved. graphs: made at all; distinct: by fingerprint; candidates: those that are equal to others.
    Of these are left: renamed, where names of variables do not count; plain, without constants made of constants;
    ordered, where the order of arguments does not that an operator does not mind; smaller, that do not follow from what
    holds of fewer operators; common, with variables for what both sides have, each once; general, that do not follow
    from others. refused: not proved. stopped: why it ended. stages: what took how long."""

    rules: tuple[Rule, ...]
    graphs: int
    distinct: int
    candidates: int
    renamed: int
    plain: int
    ordered: int
    smaller: int
    common: int
    general: int
    refused: int
    stopped: str
    stages: tuple[Stage, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return (
            f"{self.graphs} graphs, {self.distinct} different ones, {self.candidates} pairs, {self.renamed} up to "
            f"names, {self.plain} without constants made of constants, {self.ordered} up to the order of arguments, "
            f"{self.smaller} that do not follow from fewer operators, {self.common} without common subgraphs, "
            f"{self.general} that do not follow from others, "
            f"{len(self.rules)} proved and {self.refused} refused: "
            f"{self.stopped}"
        )


def generate(
    alphabet: Alphabet | Sequence[Family],
    operators: int,
    seconds: float | None = None,
    seed: int = 0,
    most: int = MOST,
    folder: Path | None = None,
    processes: int = 1,
) -> Generated:
    """The rules between graphs of so many operators. seconds: of all; then, or at SIGINT or SIGTERM where this is the
    main thread, it ends with what is proved. most: different graphs. folder: where what was made is kept, so that a
    generation which was interrupted goes on. processes: that make graphs and look at pairs side by side; what is found
    does not depend on how many.

    Raises `ConfigError` where the folder is one of another generation.
    """
    used = alphabet if isinstance(alphabet, Alphabet) else alphabet_of(alphabet)
    until = Until(seconds)
    with until.interrupted():
        if folder is not None:
            return _generated(used, operators, until, seed, most, folder, processes)
        with tempfile.TemporaryDirectory() as here:
            return _generated(used, operators, until, seed, most, Path(here), processes)


def _generated(
    alphabet: Alphabet, operators: int, until: Until, seed: int, most: int, folder: Path, processes: int
) -> Generated:
    runs = Runs(folder, f"format {FORMAT}, seed {seed}\n{alphabet}\n")
    watch = _Watch()
    found = explored(alphabet, operators, runs, until, seed, most, processes)
    watch.ended("graphs")
    named = candidates(found, until)
    watch.ended("names of variables")
    judge = Judge(alphabet, found, seed, runs, processes, until, watch.ended)
    stopped, left = found.stopped, len(named)
    for count, some in itertools.groupby(named, lambda c: c.operators):
        these = list(some)
        if until.is_over():
            break
        seen = judge.judge(count, these, count == operators)
        left -= seen
        if seen < len(these):
            break
    if until.is_over():
        late = f"{until.why}, {left} pairs were not looked at"
        stopped = late if stopped in (ALL, until.why) else f"{stopped}; {late}"
    numbers = (found.made, found.distinct, len(found.equal), len(named), *judge.counts)
    return Generated(tuple(judge.rules), *numbers, stopped, watch.stages)
