"""Recurrences under a limit to memory: into how many segments each goes, so that the program fits and takes least time.

Each pair of runs (`recompute.pairs`) may have no segment, or some; what another one frees of memory by the bytes of
states and rows, and how many more steps run again, say which pair gets more of them first. Of the graphs on that way,
from the fastest to the one of the fewest bytes, the first that fits is taken, by the exact plan of its kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from neoflow import config, tuning
from neoflow.building import find_kernels, usual_schedule
from neoflow.code import Code
from neoflow.expr.count import count_ops
from neoflow.graph import Graph
from neoflow.partition import Partition, flattened, order_calls
from neoflow.recompute import DoesNotFit, Pair, Program, in_segments, pairs
from neoflow.runtime.memory import amount
from neoflow.runtime.plan import Plan
from neoflow.target import Target
from neoflow.trace import tick
from neoflow.tune.roofs import stated

Divide = Callable[[Graph], tuple[Graph, Partition]]
Counts = tuple[int, ...]
"""The segments of each pair."""


@dataclass(frozen=True, eq=False)
class Segmented:
    """graph: what is compiled. pairs, counts: of each pair of runs how many segments it goes in. whole, plan: bytes
    with everything kept and now. before, after: seconds of all kernels in all turns, by the estimate."""

    graph: Graph
    pairs: tuple[Pair, ...] = ()
    counts: Counts = ()
    limit: int = 0
    whole: int = 0
    nbytes: int = 0
    before: float = 0.0
    after: float = 0.0

    @property
    def summary(self) -> str:
        if not any(self.counts):
            return "nothing need be computed again"
        price = f"{1e3 * self.before:.4g} ms to {1e3 * self.after:.4g} ms (+{self.after / self.before - 1:.1%})"
        return (
            f"{amount(self.whole)} brought to {amount(self.nbytes)} of {amount(self.limit)}: "
            f"{sum(map(bool, self.counts))} recurrences run again in segments, by the estimate from {price}"
        )

    def __str__(self) -> str:
        """A line for each pair: what is kept of it, and what runs again."""
        lines = [self.summary]
        for pair, count in zip(self.pairs, self.counts, strict=True):
            r = pair.forward.recurrence
            names = ", ".join(c.name for c in r.carried)
            kept = f"loop over {pair.steps} steps of {names}: " + amount(pair.steps * pair.row_bytes)
            if count:
                kept += (
                    f" brought to {amount(pair.kept_bytes(count))}: {count} segments of {pair.length(count)} steps, "
                    f"each from a state of {amount(pair.state_bytes)}, the last {pair.rest(count)} steps kept"
                )
            lines.append(kept)
        return "\n".join(lines)


def segmented(graph: Graph, limit: int, target: Target, settings: config.Config, divide: Divide) -> Segmented:
    """The graph that fits into `limit` bytes and takes least time by the estimate; as it is where it fits, or where no
    recurrence is read backwards.

    Raises `DoesNotFit` that says the least that works.
    """
    plans = _Plans(graph, limit, target, settings, divide)
    if not plans.pairs or plans.exact(plans.ways[0]).nbytes <= limit:
        return Segmented(graph)
    first, end = 0, len(plans.ways)
    while first < end:  # what takes more segments takes less memory, all but for what kernels need besides
        middle = (first + end) // 2
        first, end = (first, middle) if plans.least(plans.ways[middle]) <= limit else (middle + 1, end)
    for way in plans.ways[first:]:
        if plans.least(way) <= limit and plans.exact(way).nbytes <= limit:
            return plans.made(way)
    raise plans.refused()


class _Plans:
    """ways: counts of segments, from the fastest to the one of the fewest bytes."""

    def __init__(self, graph: Graph, limit: int, target: Target, settings: config.Config, divide: Divide):
        self.graph, self.limit, self.target, self.settings, self.divide = graph, limit, target, settings, divide
        self.pairs = pairs(graph)
        self.ways = list(ways(self.pairs)) if self.pairs else []
        self._programs: dict[Counts, Program] = {}
        self._least: dict[Counts, int] = {}
        self._exact: dict[Counts, Plan] = {}

    def graph_of(self, way: Counts) -> Graph:
        return in_segments(self.graph, {p.forward.recurrence: n for p, n in zip(self.pairs, way, strict=True) if n})

    def program(self, way: Counts) -> Program:
        """Its calls, whose kernels need no memory besides so far."""
        if way not in self._programs:
            tick()
            graph, parts = self.divide(self.graph_of(way))
            calls, in_place = order_calls(graph, parts)
            flat, loops = flattened(calls)
            codes = {c.subgraph.digest: Code(()) for c in flat}
            self._programs[way] = Program(graph, flat, in_place, parts.views, codes, self.target.threads, 0, loops)
        return self._programs[way]

    def least(self, way: Counts) -> int:
        """Bytes without what kernels need besides."""
        if way not in self._least:
            self._least[way] = self.program(way).plan().nbytes
        return self._least[way]

    def exact(self, way: Counts) -> Plan:
        if way not in self._exact:
            program = self.program(way)
            usual = partial(usual_schedule, settings=self.settings)
            tuned = tuning.choose(tuning.uses_of(program.calls), self.target, self.settings.cache_dir, usual)
            subgraphs = [c.use.subgraph for c in tuned.choices]
            schedules = [c.schedule for c in tuned.choices]
            kernels, modules, _ = find_kernels(subgraphs, schedules, self.target, self.settings)
            codes = {k.subgraph.digest: m.codes[k.key] for k, m in zip(kernels, modules, strict=True)}
            self._exact[way] = program.using(codes).plan()
        return self._exact[way]

    def seconds(self, way: Counts) -> float:
        return self.program(way).seconds(stated(self.target))

    def made(self, way: Counts) -> Segmented:
        whole = self.ways[0]
        sizes = self.limit, self.exact(whole).nbytes, self.exact(way).nbytes
        return Segmented(self.graph_of(way), self.pairs, way, *sizes, self.seconds(whole), self.seconds(way))

    def refused(self) -> DoesNotFit:
        """What says the least that works."""
        best: Counts | None = None
        for way in sorted(self.ways, key=self.least):
            if best is not None and self.exact(best).nbytes <= self.least(way):
                break
            if best is None or self.exact(way).nbytes < self.exact(best).nbytes:
                best = way
        assert best is not None
        plan, whole = self.exact(best), self.ways[0]
        return DoesNotFit(
            f"the program does not fit into {amount(self.limit)}: the least that works is {amount(plan.nbytes)}, "
            f"{plan.nbytes} bytes ({plan.memory}), by the estimate at {self.seconds(best) / self.seconds(whole):.2f} "
            f"times the time, its recurrences in segments; with everything kept it takes "
            f"{amount(self.exact(whole).nbytes)}",
            plan.nbytes,
            self.seconds(whole),
        )


def ways(of: Sequence[Pair]) -> Iterator[Counts]:
    """Counts of segments: none at first, then a step more where that frees most bytes for what runs again."""
    ladders = [list(_ladder(p)) for p in of]
    work = [float(count_ops(list(p.lost)).flops or 1) for p in of]
    now = [0] * len(of)
    while True:
        yield tuple(ladder[n] for ladder, n in zip(ladders, now, strict=True))
        best: tuple[float, int] | None = None
        for k, (pair, ladder) in enumerate(zip(of, ladders, strict=True)):
            if now[k] + 1 == len(ladder):
                continue
            a, b = ladder[now[k]], ladder[now[k] + 1]
            freed = _kept(pair, a) - _kept(pair, b)
            again = max(1, pair.rest(a) - pair.rest(b)) if a else pair.steps - pair.rest(b)
            score = work[k] * again / pair.steps / freed
            if best is None or score < best[0]:
                best = score, k
        if best is None:
            return
        now[best[1]] += 1


def _kept(pair: Pair, count: int) -> int:
    return pair.kept_bytes(count) if count else pair.steps * pair.row_bytes


def _ladder(pair: Pair) -> Iterator[int]:
    """Counts of segments, each of less memory than the one before, about a third more than it."""
    least, count = pair.steps * pair.row_bytes, 0
    yield 0
    while (count := max(count + 1, round(count * 4 / 3))) < pair.steps:
        while count < pair.steps and pair.rest(count) <= 0:
            count += 1
        if count < pair.steps and pair.kept_bytes(count) < least:
            least = pair.kept_bytes(count)
            yield count
