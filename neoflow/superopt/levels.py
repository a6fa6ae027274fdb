"""Levels of graphs one after the other, each from files of records, and what is equal to what."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from neoflow.superopt.alphabet import Alphabet
from neoflow.superopt.graphs import Graphs
from neoflow.superopt.making import Maker
from neoflow.superopt.runs import TABLE, Merged, Runs, merged
from neoflow.superopt.term import Term
from neoflow.trace import tick

ALL = "all graphs were made"


@dataclass(frozen=True)
class Explored:
    """made: graphs at all, distinct: by fingerprint. equal: operators at sizes with arguments; same: the numbers of
    graphs before them that have their fingerprints. stopped: why it ended."""

    graphs: Graphs
    maker: Maker
    made: int
    distinct: int
    equal: np.ndarray
    same: np.ndarray
    stopped: str

    def pairs(self) -> Iterator[tuple[Term, Term]]:
        """Terms that are equal by their fingerprints."""
        for row, same in zip(self.equal, self.same, strict=True):
            yield self.graphs.applied(int(row["typed"]), row["args"]), self.graphs.term(int(same))


def explored(alphabet: Alphabet, operators: int, runs: Runs, seconds: float | None, seed: int, most: int) -> Explored:
    """The graphs of up to so many operators. seconds: after which no more are made. most: different ones, at most."""
    until = None if seconds is None else time.monotonic() + seconds
    graphs = Graphs(alphabet, seed)
    maker = Maker(graphs)
    written = runs.read(TABLE)
    if written:
        graphs.read_table(written)
    known, numbers = _sorted(graphs.leaf_prints(), np.arange(graphs.levels[0].end))
    made, distinct, stopped = 0, len(np.unique(known)), ALL
    equals, sames = [], []
    for count in range(1, operators + 1):
        paths = []
        for n, unit in enumerate(maker.units(count)):
            if until is not None and time.monotonic() > until:
                stopped = "the time is up"
                break
            tick()
            paths.append(runs.run(count, n, partial(maker.made, unit), graphs.table))
        found = merged(paths, known, numbers)
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
    return Explored(graphs, maker, made, distinct, np.concatenate(equals), np.concatenate(sames), stopped)


def _sorted(found: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(found, kind="stable")
    return found[order], numbers[order]


def _first(found: Merged, most: int) -> Merged:
    """As many new graphs, and what is equal to them or to those before."""
    keep = (found.same >= 0) | (found.firsts < most)
    return Merged(found.new[:most], found.equal[keep], found.same[keep], found.firsts[keep])
