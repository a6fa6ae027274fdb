"""Levels of graphs one after the other, each from files of records, and what is equal to what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from neoflow.superopt.alphabet import Alphabet
from neoflow.superopt.graphs import Graphs
from neoflow.superopt.making import Maker, Unit
from neoflow.superopt.runs import Merged, Runs, Until, merged, shared
from neoflow.superopt.term import Term

ALL = "all graphs were made"
MAKING = 0.7
"""Share of the time in which graphs are made; the rest is for what is equal among them."""


@dataclass(frozen=True)
class Explored:
    """made: graphs at all, distinct: by fingerprint. equal: operators at sizes with arguments; same: the numbers of
    graphs before them that have their fingerprints; operators: how many these have. stopped: why it ended."""

    graphs: Graphs
    maker: Maker
    made: int
    distinct: int
    equal: np.ndarray
    same: np.ndarray
    operators: np.ndarray
    stopped: str

    def pairs(self) -> Iterator[tuple[Term, Term]]:
        """Terms that are equal by their fingerprints."""
        for row, same in zip(self.equal, self.same, strict=True):
            yield self.graphs.applied(int(row["typed"]), row["args"]), self.graphs.term(int(same))


def explored(
    alphabet: Alphabet, operators: int, runs: Runs, until: Until, seed: int, most: int, processes: int = 1
) -> Explored:
    """The graphs of up to so many operators; of the largest, those that read the first variables of their shape.
    until: of which a share, `MAKING`, is for them. most: different ones, at most."""
    graphs = Graphs(alphabet, seed)
    maker = Maker(graphs)
    known, numbers = _sorted(graphs.leaf_prints(), np.arange(graphs.levels[0].end))
    made, distinct, stopped = 0, len(np.unique(known)), ALL
    equals, sames = [], []
    for count in range(1, operators + 1):
        units = list(maker.units(count, count == operators))
        labels = [f"{count}-{'last-' if unit.is_last else ''}{n}" for n, unit in enumerate(units)]
        left = [n for n, label in enumerate(labels) if not runs.path(label).exists()]

        def make(n: int, units: list[Unit] = units, labels: list[str] = labels) -> None:
            runs.write(labels[n], maker.made(units[n]), graphs.label)

        if not shared(make, left, processes, until, MAKING):
            stopped = until.why
        paths = [] if until.is_over() else [path for path in map(runs.path, labels) if path.exists()]
        found = merged(paths, known, numbers, graphs.of_label)
        made += len(found.new) + len(found.equal)
        if distinct + len(found.new) >= most:
            stopped = f"the limit of {most} graphs"
            found = _first(found, most - distinct)
        distinct += len(found.new)
        begin = graphs.levels[-1].end
        kept = np.arange(len(found.new))
        if count == operators or stopped != ALL:  # of the last ones only those that others are equal to
            kept = np.unique(found.firsts[found.same < 0])
        graphs.add(found.new["typed"][kept], found.new["args"][kept])
        equals.append(found.equal)
        sames.append(np.where(found.same < 0, begin + np.searchsorted(kept, found.firsts), found.same))
        if stopped != ALL:
            break
        known, numbers = _sorted(
            np.concatenate([known, found.new["print"][kept]]), np.concatenate([numbers, begin + np.arange(len(kept))])
        )
    counts = np.repeat(np.arange(len(equals)) + 1, [len(e) for e in equals])
    return Explored(graphs, maker, made, distinct, np.concatenate(equals), np.concatenate(sames), counts, stopped)


def _sorted(found: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(found, kind="stable")
    return found[order], numbers[order]


def _first(found: Merged, most: int) -> Merged:
    """As many new graphs, and what is equal to them or to those before."""
    keep = (found.same >= 0) | (found.firsts < most)
    return Merged(found.new[:most], found.equal[keep], found.same[keep], found.firsts[keep])
