"""Candidates looked at in order, the most general first, and what no rule before them says proved.

    plain       without constants that are made of constants: these are constants themselves
    left        what does not follow from what holds of fewer operators (`pruning`)
    statements  of these, made as general as they can be; those that are one then count once
    waves       of statements: each is looked at beside the others, whether rules before the wave say it, and else asked
                of the prover; then one after the other, whether a rule of the wave says it

What is said of a statement depends on the rules before its wave alone, so that it is the same in any number of
processes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from neoflow.superopt.alphabet import Alphabet
from neoflow.superopt.candidates import Candidate
from neoflow.superopt.forms import name
from neoflow.superopt.general import Pair, generalized, named, shaped_freely, tightened
from neoflow.superopt.graphs import chunks
from neoflow.superopt.hunt import hunt
from neoflow.superopt.implied import NEAR, Known, Tree, met, renamed, size, tree
from neoflow.superopt.levels import Explored
from neoflow.superopt.prove import Proof, Statement, prove, weakest
from neoflow.superopt.pruning import LEFT, ORDER, Pruner
from neoflow.superopt.read import read_rules
from neoflow.superopt.rule import Rule, rules_of
from neoflow.superopt.runs import Runs, Until, shared, write
from neoflow.superopt.sites import swaps
from neoflow.superopt.term import Application, Variable, variables
from neoflow.trace import tick

AT_ONCE = 64
"""Statements of a wave."""
MADE_AT_ONCE = 16
"""Candidates that a process makes general."""
CONSTANT = 1
"""Operators that a constant may be made of."""
SIZES = 4
"""At which counterexamples are hunted."""
REMEMBERED = 300_000
"""Trees of which it is kept what rules make of them."""
FAR = 4, (3, 1500)
"""From so many operators on, steps from either side that are looked at besides `implied.NEAR`: where smaller statements
were judged so, laws that a search needs would be left out, as the long way round says them too."""
SAID, ASKED = 1, 2
"""Of a statement: that rules before it say it, or that the prover was asked."""


@dataclass(frozen=True)
class Said:
    """A statement in its most general form, and the candidates that say it, by their texts; the first one of them."""

    source: Tree
    target: Tree
    first: Candidate
    keys: tuple[str, ...]

    @property
    def key(self) -> str:
        return renamed(self.source, self.target)

    @property
    def is_rule(self) -> bool:
        """Whether one side reads all variables."""
        read = set(met(self.source)), set(met(self.target))
        return read[0] <= read[1] or read[1] <= read[0]

    @property
    def rank(self) -> tuple[int, int, int, int, str]:
        """Smaller ones are looked at first, of these those without constants and with more variables."""
        both = size(self.source), size(self.target)
        different = len({*met(self.source), *met(self.target)})
        return max(both), self.key.count("()"), sum(both), -different, self.key


class Judge:
    """Keeps what no rule before it says. What is found out is kept in the folder. ended: told of a stage that was."""

    def __init__(
        self,
        alphabet: Alphabet,
        found: Explored,
        seed: int,
        runs: Runs,
        processes: int,
        until: Until,
        ended: Callable[[str], None],
    ):
        self.found, self.seed, self.runs, self.processes, self.until = found, seed, runs, processes, until
        self._ended = ended
        self.rules: list[Rule] = []
        self.plain = self.ordered = self.smaller = self.common = self.general = self.refused = 0
        self._answers = _Answers(runs.folder / "proofs.jsonl")
        self._refused: set[str] = set()
        self._asked: dict[str, bool] = {}
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

    @property
    def counts(self) -> tuple[int, int, int, int, int, int]:
        return self.plain, self.ordered, self.smaller, self.common, self.general, self.refused

    def judge(self, operators: int, some: list[Candidate], is_last: bool) -> int:
        """Look at all candidates of so many operators, and say at how many before the time was up. is_last: whether
        nothing is asked that could follow from those that are not plain."""
        while self._levels < operators:
            self.pruner.grow(self._refused)
            self._levels += 1
        asked = [c for c in some if c.constant <= CONSTANT] if is_last else some
        said = self.pruner.said(asked, self.runs, self.processes, self.until)
        self._ended("congruence closure")
        if said is None:
            return 0
        answers = list(zip(asked, said.tolist(), strict=True))
        self._refused |= {c.key for c, answer in answers if c.constant > CONSTANT and answer == LEFT}
        plain = [(c, answer) for c, answer in answers if c.constant <= CONSTANT]
        left = [c for c, answer in plain if answer == LEFT]
        self.plain += len(plain)
        self.ordered += sum(answer != ORDER for _, answer in plain)
        self.smaller += len(left)
        statements = self._statements(left)
        self._ended("common subgraphs")
        if statements is None:
            return 0
        self.common += len(statements)
        seen = 0
        for begin in range(0, len(statements), AT_ONCE):
            wave = statements[begin : begin + AT_ONCE]
            if not self._wave(wave):
                break
            seen += len(wave)
        self._ended("proofs")
        return len(some) - sum(len(s.keys) for s in statements[seen:])

    # --------------------------------------------------------------------------------------------------- statements

    def _statements(self, some: Sequence[Candidate]) -> list[Said] | None:
        """Candidates made general, smallest first, each statement once; None where the time was up."""
        key = zlib.crc32("\n".join(c.key for c in some).encode())
        parts = [part.tolist() for part in chunks(np.arange(len(some)), MADE_AT_ONCE)]
        paths = [self.runs.folder / f"general-{self._levels}-{key:08x}-{n}.json" for n in range(len(parts))]

        def work(n: int) -> None:
            pairs = [generalized(some[k].terms(self.found), self.seed) for k in parts[n]]
            write(paths[n], json.dumps([[tree(t) for t in pair] for pair in pairs]).encode())

        if not shared(work, [n for n, p in enumerate(paths) if not p.exists()], self.processes, self.until):
            return None
        made: dict[str, Said] = {}
        trees = [(_tree(a), _tree(b)) for path in paths for a, b in json.loads(path.read_bytes())]
        for c, (source, target) in zip(some, trees, strict=True):
            one = Said(source, target, c, (c.key,))
            before = made.get(one.key)
            made[one.key] = one if before is None else replace(before, keys=(*before.keys, c.key))
        return sorted(made.values(), key=lambda s: s.rank)

    # -------------------------------------------------------------------------------------------------------- waves

    def _wave(self, wave: Sequence[Said]) -> bool:
        """Whether all of a wave was looked at before the time was up."""
        rules = "\n".join([*self.pruner.congruence.texts, *(s.key for s in wave)])
        path = self.runs.path(f"wave-{self._levels}-{zlib.crc32(rules.encode()):08x}")
        answers = np.load(path, allow_pickle=False) if path.exists() else None
        if answers is None or not all(self._answers.has(s.key) for s in _asked(wave, answers)):
            answers = self._looked_at(wave)
            if answers is None:
                return False
            self.runs.save(path, answers)
            self._answers.read()
        before = len(self.rules)
        for s, answer in zip(wave, answers.tolist(), strict=True):
            tick()
            if answer == ASKED and (len(self.rules) == before or not self._is_said(s)):
                self._keep(s)
        return True

    def _looked_at(self, wave: Sequence[Said]) -> np.ndarray | None:
        answers = multiprocessing.get_context("fork").RawArray("b", len(wave))

        def work(n: int) -> None:
            s = wave[n]
            is_new = s.key not in self._asked and not self._is_said(s)
            if is_new and s.is_rule:
                self._prove(s)
            answers[n] = ASKED if is_new else SAID

        done = shared(work, range(len(wave)), self.processes, self.until)
        return np.array(answers, np.int8) if done else None

    def _prove(self, s: Said) -> None:
        if not self._answers.has(s.key):
            pair = generalized(s.first.terms(self.found), self.seed)
            self._answers.add(s.key, proof_of(pair, self.seed))

    def _is_said(self, s: Said) -> bool:
        """Whether rules say it: of the graphs, by the closure, or of its most general form, in some steps."""
        known = self.pruner.known
        known.forget(REMEMBERED)
        if known.is_instance(s.source, s.target) or self.pruner.follows(s.first, 0):
            return True
        return known.meet(s.source, s.target, NEAR if s.first.operators < FAR[0] else (*NEAR, FAR[1]))

    def _keep(self, s: Said) -> None:
        self.general += 1
        found = self._answers.rule(s.key) if s.is_rule else None
        self._asked[s.key] = found is not None
        if found is None:
            self.refused += 1
            self._refused |= set(s.keys)
        else:
            self.pruner.rule(s.source, s.target)
            self.rules.append(replace(found, name=f"generated_{len(self.rules)}"))


def _asked(wave: Sequence[Said], answers: np.ndarray) -> list[Said]:
    """What the prover was asked about."""
    return [s for s, answer in zip(wave, answers.tolist(), strict=True) if answer == ASKED and s.is_rule]


def _tree(some: object) -> Tree:
    """Lists as a tree."""
    return tuple(map(_tree, some)) if isinstance(some, list) else str(some)


class _Answers:
    """A file of what was asked of the prover, a line each; the last may be cut short."""

    def __init__(self, file: Path):
        self.file = file
        self._known: dict[str, str | None] = {}
        self._seen = 0
        if file.exists():
            self.read()
            os.truncate(file, self._seen)

    def read(self) -> None:
        """What processes wrote since it was read."""
        if not self.file.exists():
            return
        with self.file.open("rb") as file:
            file.seek(self._seen)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                key, text = json.loads(line)
                self._known[key] = text
                self._seen += len(line)

    def has(self, key: str) -> bool:
        return key in self._known

    def rule(self, key: str) -> Rule | None:
        text = self._known[key]
        return None if text is None else read_rules(text).rules[0]

    def add(self, key: str, found: Rule | None) -> None:
        """What was answered, for all processes."""
        text = None if found is None else rules_of([found]).to_text()
        line = f"{json.dumps([key, text])}\n".encode()
        with self.file.open("ab", buffering=0) as file:  # at once: others write too
            file.write(line)


def proof_of(pair: Pair, seed: int) -> Rule | None:
    """A pair as a rule: with extents that need not be equal, under the weakest guards if it needs some; or as it is.

    The third tier is not asked: of the statements of up to four operators it proved none."""
    if variables(pair[0]).keys() < variables(pair[1]).keys():
        pair = pair[1], pair[0]
    return next((found for s in _statements_of(named(pair)) if (found := _proved(s, seed)) is not None), None)


def _statements_of(pair: Pair) -> Iterator[Statement]:
    free = shaped_freely(pair)
    if free is not None:
        yield Statement(*free)
        guards = weakest(Statement(*free))
        if isinstance(guards, str) and guards:
            yield tightened(free, guards)
    yield Statement(*pair)


def _proved(statement: Statement, seed: int) -> Rule | None:
    found = prove(statement)
    if not isinstance(found, Proof) or hunt(statement, seed, SIZES) is not None:
        return None
    return Rule("generated", statement, found)
