"""Rules that nobody states: all graphs of few operators over an alphabet, those with equal fingerprints proved equal.

    levels       graphs, bottom up; nothing is made of one that is equal to another: a smaller rule says what follows
    candidates   pairs of equal ones, up to names
    implied      those that follow from rules before them are left out
    general      variables in place of what both sides have, extents that need not be equal
    proved       by three tiers, under the weakest guards; what is not proved is refused

Source: Jia et al., TASO, 2019, sections 2 and 3; there equal shapes are all that is looked at.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from neoflow.superopt.alphabet import Alphabet, alphabet_of
from neoflow.superopt.body import Family
from neoflow.superopt.candidates import Candidate, candidates
from neoflow.superopt.forms import name
from neoflow.superopt.general import Pair, generalized, named, shaped_freely, tightened
from neoflow.superopt.implied import Known, renamed, tree
from neoflow.superopt.levels import ALL, explored
from neoflow.superopt.prove import Proof, Statement, prove, weakest
from neoflow.superopt.read import read_rules
from neoflow.superopt.rule import Rule, rules_of
from neoflow.superopt.runs import Runs
from neoflow.superopt.sites import swaps
from neoflow.superopt.stored import proved
from neoflow.superopt.term import Application, Variable, variables
from neoflow.trace import tick

MOST = 20_000_000
"""Different graphs, at most."""
SIZES = 4
"""At which counterexamples are hunted."""
FORMAT = 1
"""Of the files of a generation."""


@dataclass(frozen=True)
class Generated:
    """rules: proved. graphs: made at all; distinct: by fingerprint; candidates: those that are equal to others.
    Of these are left: renamed, where names of variables do not count; ordered, where the order of arguments does not
    that an operator does not mind; common, where variables stand for what both sides have; general, which do not follow
    from smaller ones. refused: not proved. stopped: why it ended."""

    rules: tuple[Rule, ...]
    graphs: int
    distinct: int
    candidates: int
    renamed: int
    ordered: int
    common: int
    general: int
    refused: int
    stopped: str

    def __str__(self) -> str:
        return (
            f"{self.graphs} graphs, {self.distinct} different ones, {self.candidates} pairs, {self.renamed} up to "
            f"names, {self.ordered} up to the order of arguments, {self.common} without common subgraphs, "
            f"{self.general} that do not follow from others, {len(self.rules)} proved and {self.refused} refused: "
            f"{self.stopped}"
        )


def generate(
    alphabet: Alphabet | Sequence[Family],
    operators: int,
    seconds: float | None = None,
    seed: int = 0,
    most: int = MOST,
    folder: Path | None = None,
) -> Generated:
    """The rules between graphs of so many operators. seconds: for making graphs, and again for proofs. most: different
    graphs. folder: where what was made is kept, so that a generation which was interrupted goes on.

    Raises `ConfigError` where the folder is one of another generation.
    """
    used = alphabet if isinstance(alphabet, Alphabet) else alphabet_of(alphabet)
    if folder is not None:
        return _generated(used, operators, seconds, seed, most, folder)
    with tempfile.TemporaryDirectory() as here:
        return _generated(used, operators, seconds, seed, most, Path(here))


def _generated(
    alphabet: Alphabet, operators: int, seconds: float | None, seed: int, most: int, folder: Path
) -> Generated:
    runs = Runs(folder, f"format {FORMAT}, seed {seed}\n{alphabet}\n")
    found = explored(alphabet, operators, runs, seconds, seed, most)
    named = candidates(found)
    until = None if seconds is None else time.monotonic() + seconds
    pruner = _Pruner(alphabet, seed, folder)
    stopped = found.stopped
    for n, candidate in enumerate(named):
        tick()
        if until is not None and time.monotonic() > until:
            left = f"{len(named) - n} pairs were not looked at, as the time is up"
            stopped = left if stopped == ALL else f"{stopped}; {left}"
            break
        pruner.look_at(candidate, partial(candidate.terms, found))
    counts = (len(named), pruner.ordered, pruner.common, pruner.general)
    return Generated(
        tuple(pruner.rules), found.made, found.distinct, len(found.equal), *counts, pruner.refused, stopped
    )


class _Pruner:
    """Looks at candidates in order, and keeps what no rule before them says. What was proved is kept in the folder."""

    def __init__(self, alphabet: Alphabet, seed: int, folder: Path):
        self.seed = seed
        self.rules: list[Rule] = []
        self.ordered = self.common = self.general = self.refused = 0
        self._answers = _Answers(folder / "proofs.jsonl")
        self._asked: set[str] = set()
        proofs: dict[str, Proof | None] = {}
        ranks = {f.name: len(f.shape) for f in alphabet.operators if swaps(f, proofs) is not None}
        self.known = Known(frozenset(f"{label}:{rank}" for label, rank in ranks.items()))
        for f in alphabet.operators:
            if f.name in ranks:
                x, y = (Variable(label, shape) for label, shape in zip("xy", f.slots, strict=True))
                sizes = tuple((s, name(s)) for s in f.symbols)
                statement = Statement(Application(f, sizes, (x, y)), Application(f, sizes, (y, x)))
                self.rules.append(Rule(f"{f.name}_either_way", statement, proofs[f.key]))

    def look_at(self, candidate: Candidate, terms: Callable[[], Pair]) -> None:
        known = self.known
        source, target = candidate.source, candidate.target
        if known.ordered(source) == known.ordered(target):
            return
        self.ordered += 1
        if known.is_instance(source, target):
            return
        self.common += 1
        if known.follows(source, target):
            return
        pair = generalized(terms(), self.seed)
        source, target = map(tree, pair)
        key = renamed(source, target)
        if key in self._asked or known.is_instance(source, target) or known.follows(source, target):
            return
        self._asked.add(key)
        self.general += 1
        found = self._answers.of(key, lambda: _proved(pair, self.seed))
        if found is None:
            self.refused += 1
        else:
            known.add(source, target)
            self.rules.append(replace(found, name=f"generated_{len(self.rules)}"))


class _Answers:
    """A file of what was asked of the prover: a line each, of which the last may be cut short."""

    def __init__(self, file: Path):
        self.file = file
        self._known: dict[str, str | None] = {}
        whole = 0
        for line in file.read_bytes().splitlines(keepends=True) if file.exists() else ():
            if not line.endswith(b"\n"):
                break
            key, text = json.loads(line)
            self._known[key] = text
            whole += len(line)
        if file.exists():
            os.truncate(file, whole)

    def of(self, key: str, ask: Callable[[], Rule | None]) -> Rule | None:
        if key not in self._known:
            found = ask()
            self._known[key] = None if found is None else rules_of([found]).to_text()
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps([key, self._known[key]]) + "\n")
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
        found = proved(Rule("generated", statement), seed, SIZES)
        if isinstance(found, Rule):
            return found
    found = proved(Rule("generated", Statement(*pair)), seed, SIZES)
    return found if isinstance(found, Rule) else None
