"""The algorithms of a program's contractions: measured within a search, known afterwards, and those that are left since
the whole program is not faster with them."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from neoflow.graph import Graph
from neoflow.graph.algorithms import DIRECT
from neoflow.loops import default_schedule
from neoflow.measure import Measurer
from neoflow.partition import Subgraph
from neoflow.target import Target
from neoflow.tune import Limits, Measure
from neoflow.tune.limits import ROUNDING
from neoflow.tune.records import FILE, Records, Verdict
from neoflow.tune.underway import Ahead
from neoflow.tuning import choosing
from neoflow.tuning.kept import records_in
from neoflow.tuning.roofs import machine_roofs

log = logging.getLogger("neoflow")

ALGORITHMS_SHARE = 0.5
"""Of a program's seconds, at most, for what contractions take by other algorithms with default schedules."""


@dataclass(frozen=True)
class Algorithms:
    """A graph with its contractions computed by what was measured to be fastest, and these choices.

    digest: of the graph as it was. rounding: what was allowed. beyond: what an earlier search has chosen for this graph
    and this much does not allow, with the roundings of each.
    """

    graph: Graph
    choices: tuple[choosing.Choice, ...]
    digest: str = ""
    rounding: float = ROUNDING
    beyond: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.choices), *filter(None, [self.left])])

    @property
    def left(self) -> str:
        """What is left because its roundings are not allowed, and how they are; "" where nothing is."""
        if not self.beyond:
            return ""
        names, most = " and ".join(sorted(self.beyond)), math.ceil(max(self.beyond.values()))
        return (
            f"an earlier search chose {names}, of at most {most} times the direct sum's roundings, and "
            f"{self.rounding:.3g} are allowed here: --rounding {most} or nf.tune.Limits(seconds=0, rounding={most}) "
            "takes what it chose"
        )

    def without(self, digests: Collection[str]) -> Algorithms:
        """The same choices with direct sums for these definitions."""
        choices = (c.directly if c.digest in digests and c.algorithm != DIRECT else c for c in self.choices)
        return replace(self, choices=tuple(choices))

    @property
    def applied(self) -> Algorithms:
        """With the graph computed so."""
        return replace(self, graph=choosing.applied(self.graph, self.choices))

    @property
    def others(self) -> int:
        """Contractions by another algorithm than the direct one."""
        return sum(c.algorithm != DIRECT for c in self.choices)

    @property
    def roundings(self) -> dict[str, float]:
        """Of each other algorithm the most that it rounds."""
        ordered = sorted(self.choices, key=lambda c: c.rounding)
        return {c.algorithm: c.rounding for c in ordered if c.algorithm != DIRECT}

    @property
    def summary(self) -> str:
        told = f"{self.others} of {len(self.choices)} contractions by another algorithm than the direct one"
        return f"{told}; {self.left}" if self.left else told


def have_direct(
    chosen: Iterable[Algorithms], target: Target, folder: Path, is_so: bool, left: Collection[str] = ()
) -> None:
    """Have later compilations of graphs that allow the same roundings sum all contractions directly, or choose for each
    again, but for definitions that are `left`, by their digests; those that allow less say what was chosen."""
    kept = records_in(folder)
    for a in chosen:
        those = {digest: 1.0 for digest in sorted(left) if not is_so}
        kept.keep_verdict(_key(a.digest, a.rounding), target, Verdict({}, {DIRECT: float(is_so), **those}))
        if a.rounding > ROUNDING:
            roundings = {} if is_so else a.without(left).roundings
            kept.keep_verdict(_kept_key(a.digest), target, Verdict({}, roundings))


def knows_algorithms(target: Target, limits: Limits | None, folder: Path) -> bool:
    """Whether there is anything to choose by: times of kernels of such a target, or leave to measure."""
    if limits is not None:
        return True
    if not (folder / FILE).exists():
        return False
    return target.device == "cpu" or records_in(folder).has_times(target)


def known_algorithms(graph: Graph, target: Target, folder: Path, rounding: float = ROUNDING) -> Algorithms:
    """What is known to be fastest for each contraction that several algorithms fit; the direct sum of all, or
    of some, where that was found to be faster in the whole program."""
    kept = records_in(folder)
    verdict = kept.verdict(_key(graph.digest, rounding), target)
    if verdict is not None and verdict.seconds.get(DIRECT):
        found = Algorithms(graph, (), graph.digest, rounding)
    else:
        left = () if verdict is None else [digest for digest in verdict.seconds if digest != DIRECT]
        found = _chosen(graph, target, folder, rounding, left)
    before = kept.verdict(_kept_key(graph.digest), target)
    beyond = {} if before is None else {name: r for name, r in before.seconds.items() if r > rounding}
    found = replace(found, beyond=beyond)
    if found.left:
        log.info("%s", found.left)
    return found


def algorithms(
    graph: Graph, target: Target, limits: Limits, folder: Path, measurer: Measurer | None = None
) -> Algorithms:
    """Choose for each contraction that several algorithms fit: what is not known is measured now, within limits.

    measurer: what measures (default: workers of its own).
    """
    kept, roofs = records_in(folder), machine_roofs(target, folder)
    asked = choosing.to_measure(graph, limits.rounding, roofs, target)
    end = time.monotonic() + _seconds_for(limits)
    with ExitStack() as stack:

        def measures() -> Measurer:
            nonlocal measurer
            measurer = stack.enter_context(Measurer()) if measurer is None else measurer
            return measurer

        _measure(asked, target, kept, measures, end)
        if asked and time.monotonic() < end:
            known = choosing.recorded(kept, target)
            moves = choosing.moves_to_measure(graph, limits.rounding, known, roofs, target)
            _measure(moves, target, kept, measures, end)
    return _chosen(graph, target, folder, limits.rounding)


def _measure(
    asked: Sequence[Sequence[Subgraph]], target: Target, kept: Records, measures: Callable[[], Measure], end: float
) -> None:
    """Measure and keep what kernels take by their default schedules, until the end: all of a contraction, or none."""
    unknown = {k: default_schedule(k, target) for those in asked for k in those if not kept.trials(k, target)}
    if not unknown:
        return
    ahead = Ahead(measures(), target, unknown)
    measured = choosing.measured(ahead, kept, target)
    for those in asked:
        for kernel in those if time.monotonic() < end else ():
            measured(kernel)
    ahead.forget()


def _chosen(graph: Graph, target: Target, folder: Path, rounding: float, left: Collection[str] = ()) -> Algorithms:
    known = choosing.recorded(records_in(folder), target)
    if target.device == "cpu":  # how far estimates of a GPU are off was never measured
        known = choosing.with_moves(known, machine_roofs(target, folder))
    choices = choosing.choose(graph, known, rounding, target)
    return Algorithms(graph, choices, graph.digest, rounding).without(left).applied


def _key(digest: str, rounding: float) -> str:
    """Of what was found of all algorithms of a graph together, where so much was allowed."""
    return f"algorithms of {digest}" if rounding == ROUNDING else f"algorithms of {digest} within {rounding:g}"


def _kept_key(digest: str) -> str:
    """Of the algorithms that a search chose for a graph which was allowed more than is usual."""
    return f"algorithms of {digest} beyond {ROUNDING:g}"


def _seconds_for(limits: Limits) -> float:
    return math.inf if limits.seconds is None else ALGORITHMS_SHARE * limits.seconds
