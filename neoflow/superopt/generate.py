"""Rules that nobody states: all graphs of few operators over an alphabet, those with equal fingerprints proved equal.

    levels       graphs, bottom up; nothing is made of one that is equal to another: a smaller rule says what follows
    candidates   pairs of equal ones, up to names
    pruning      those that follow from what holds of fewer operators are left out: a congruence closure
    implied      and those that follow from rules before them
    general      variables in place of what both sides have, extents that need not be equal
    proved       by three tiers, under the weakest guards; what is not proved is refused

Source: Jia et al., TASO, 2019, sections 2 and 3; there equal shapes are all that is looked at.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from neoflow.superopt.alphabet import Alphabet, alphabet_of
from neoflow.superopt.body import Family
from neoflow.superopt.candidates import Candidate, candidates
from neoflow.superopt.forms import name
from neoflow.superopt.general import Pair, generalized, named, shaped_freely, tightened
from neoflow.superopt.implied import Known, renamed, tree
from neoflow.superopt.levels import ALL, Explored, explored
from neoflow.superopt.prove import Proof, Statement, prove, weakest
from neoflow.superopt.pruning import LEFT, ORDER, Pruner
from neoflow.superopt.read import read_rules
from neoflow.superopt.rule import Rule, rules_of
from neoflow.superopt.runs import Runs, shared
from neoflow.superopt.sites import swaps
from neoflow.superopt.stored import proved
from neoflow.superopt.term import Application, Variable, variables
from neoflow.trace import tick

MOST = 20_000_000
"""Different graphs, at most."""
SIZES = 4
"""At which counterexamples are hunted."""
AT_ONCE = 64
"""Candidates that the prover is asked about side by side."""
MILLISECONDS = 500
"""That the third tier may take: of all the rules that were found so far it proved none."""
FORMAT = 3
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
    Of these are left: renamed, where names of variables do not count; ordered, where the order of arguments does not
    that an operator does not mind; smaller, that do not follow from what holds of fewer operators; general, with
    variables for what both sides have, that do not follow from others. refused: not proved. stopped: why it ended.
    stages: what took how long."""

    rules: tuple[Rule, ...]
    graphs: int
    distinct: int
    candidates: int
    renamed: int
    ordered: int
    smaller: int
    general: int
    refused: int
    stopped: str
    stages: tuple[Stage, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return (
            f"{self.graphs} graphs, {self.distinct} different ones, {self.candidates} pairs, {self.renamed} up to "
            f"names, {self.ordered} up to the order of arguments, {self.smaller} that do not follow from fewer "
            f"operators, {self.general} without common subgraphs that do not follow from others, "
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
    """The rules between graphs of so many operators. seconds: for making graphs, and again for proofs. most: different
    graphs. folder: where what was made is kept, so that a generation which was interrupted goes on. processes: that
    make graphs and look at pairs side by side; what is found does not depend on how many.

    Raises `ConfigError` where the folder is one of another generation.
    """
    used = alphabet if isinstance(alphabet, Alphabet) else alphabet_of(alphabet)
    if folder is not None:
        return _generated(used, operators, seconds, seed, most, folder, processes)
    with tempfile.TemporaryDirectory() as here:
        return _generated(used, operators, seconds, seed, most, Path(here), processes)


def _generated(
    alphabet: Alphabet, operators: int, seconds: float | None, seed: int, most: int, folder: Path, processes: int
) -> Generated:
    runs = Runs(folder, f"format {FORMAT}, seed {seed}\n{alphabet}\n")
    watch = _Watch()
    found = explored(alphabet, operators, runs, seconds, seed, most, processes)
    watch.ended("graphs")
    named = candidates(found)
    watch.ended("names of variables")
    until = math.inf if seconds is None else time.monotonic() + seconds
    judge = _Judge(alphabet, found, seed, folder, watch)
    stopped, left = found.stopped, len(named)
    for count, some in itertools.groupby(named, lambda c: c.operators):
        these = list(some)
        seen = judge.judge(count, these, runs, processes, until)
        left -= seen
        if seen < len(these):
            late = f"{left} pairs were not looked at, as the time is up"
            stopped = late if stopped == ALL else f"{stopped}; {late}"
            break
    counts = (len(named), judge.ordered, judge.smaller, judge.general)
    numbers = (found.made, found.distinct, len(found.equal), *counts, judge.refused)
    return Generated(tuple(judge.rules), *numbers, stopped, watch.stages)


class _Judge:
    """Looks at candidates in order, and keeps what no rule before them says. What was proved is kept in the folder."""

    def __init__(self, alphabet: Alphabet, found: Explored, seed: int, folder: Path, watch: _Watch):
        self.found, self.seed, self.watch = found, seed, watch
        self.rules: list[Rule] = []
        self.ordered = self.smaller = self.general = self.refused = 0
        self._answers = _Answers(folder / "proofs.jsonl")
        self._asked: dict[str, bool] = {}
        self._refused: set[str] = set()
        self._levels = 0
        proofs: dict[str, Proof | None] = {}
        ranks = {f.name: len(f.shape) for f in alphabet.operators if swaps(f, proofs) is not None}
        self.pruner = Pruner(found, Known(frozenset(f"{label}:{rank}" for label, rank in ranks.items())))
        for f in alphabet.operators:
            if f.name in ranks:
                x, y = (Variable(label, shape) for label, shape in zip("xy", f.slots, strict=True))
                sizes = tuple((s, name(s)) for s in f.symbols)
                statement = Statement(Application(f, sizes, (x, y)), Application(f, sizes, (y, x)))
                self.rules.append(Rule(f"{f.name}_either_way", statement, proofs[f.key]))

    def judge(self, operators: int, some: list[Candidate], runs: Runs, processes: int, until: float) -> int:
        """Look at all candidates of so many operators, and say at how many before the time was up."""
        while self._levels < operators:
            self.pruner.grow(self._refused)
            self._levels += 1
        said = self.pruner.said(some, runs, processes, until)
        self.watch.ended("congruence closure")
        if said is None:
            return 0
        self.ordered += int((said != ORDER).sum())
        self.smaller += int((said == LEFT).sum())
        left = np.flatnonzero(said == LEFT).tolist()
        for begin in range(0, len(left), AT_ONCE):
            wave = [some[n] for n in left[begin : begin + AT_ONCE]]
            new = [c for c in wave if not self.pruner.follows(c, 0)]
            if processes > 1:
                shared(partial(self._ask, new), range(len(new)), processes, until)
                self._answers.read()
            for candidate in new:
                tick()
                if time.monotonic() > until:
                    return left[begin]
                if not self.pruner.follows(candidate, 0):
                    self._look_at(candidate)
        self.watch.ended("proofs")
        return len(some)

    def _ask(self, some: Sequence[Candidate], n: int) -> None:
        """The prover about one of them, before it is known whether those before it imply it."""
        pair = generalized(some[n].terms(self.found), self.seed)
        source, target = map(tree, pair)
        known, key = self.pruner.known, renamed(source, target)
        if key not in self._asked and not known.is_instance(source, target) and not known.meet(source, target):
            self._answers.of(key, lambda: _proved(pair, self.seed))

    def _look_at(self, candidate: Candidate) -> None:
        known = self.pruner.known
        if known.is_instance(candidate.source, candidate.target):
            return
        pair = generalized(candidate.terms(self.found), self.seed)
        source, target = map(tree, pair)
        key = renamed(source, target)
        if key in self._asked:
            if not self._asked[key]:
                self._refused.add(candidate.key)
            return
        if known.is_instance(source, target) or known.meet(source, target):
            return
        self.general += 1
        found = self._answers.of(key, lambda: _proved(pair, self.seed))
        self._asked[key] = found is not None
        if found is None:
            self.refused += 1
            self._refused.add(candidate.key)
        else:
            self.pruner.rule(source, target)
            self.rules.append(replace(found, name=f"generated_{len(self.rules)}"))


class _Answers:
    """A file of what was asked of the prover, a line each; the last may be cut short."""

    def __init__(self, file: Path):
        self.file = file
        self._known: dict[str, str | None] = {}
        if file.exists():
            os.truncate(file, self.read())

    def read(self) -> int:
        """What processes wrote; the bytes that are whole."""
        whole = 0
        for line in self.file.read_bytes().splitlines(keepends=True) if self.file.exists() else ():
            if not line.endswith(b"\n"):
                break
            key, text = json.loads(line)
            self._known[key] = text
            whole += len(line)
        return whole

    def of(self, key: str, ask: Callable[[], Rule | None]) -> Rule | None:
        if key not in self._known:
            found = ask()
            self._known[key] = None if found is None else rules_of([found]).to_text()
            with self.file.open("ab", buffering=0) as file:  # at once: others write too
                file.write(f"{json.dumps([key, self._known[key]])}\n".encode())
        text = self._known[key]
        return None if text is None else read_rules(text).rules[0]


def _proved(pair: Pair, seed: int) -> Rule | None:
    """A pair as a rule: with extents that need not be equal, under the weakest guards if it needs some; or as it is."""
    if variables(pair[0]).keys() < variables(pair[1]).keys():
        pair = pair[1], pair[0]
    pair = named(pair)
    free = shaped_freely(pair)
    if free is not None:
        statement = Statement(*free)
        if not isinstance(prove(statement), Proof):
            guards = weakest(statement)
            statement = tightened(free, guards) if isinstance(guards, str) else Statement(*pair)
        found = proved(Rule("generated", statement), seed, SIZES, MILLISECONDS)
        if isinstance(found, Rule):
            return found
    found = proved(Rule("generated", Statement(*pair)), seed, SIZES, MILLISECONDS)
    return found if isinstance(found, Rule) else None
