"""Faster equal graphs for programs: by the rules that are proved, and what a graph is thought to take as kernels."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial

from neoflow.errors import ConfigError, GraphError, shown
from neoflow.expr.tensor import Tensor, structural_hash
from neoflow.graph import Graph, optimize
from neoflow.graph.cost import is_worth
from neoflow.partition import RULES, Partition, cost_of, object_for_gpu, object_to, partition
from neoflow.roofs import Roofs
from neoflow.superopt import Cost, Family, Limits, Optimized, Rule, Search, family, rules_about, standard
from neoflow.target import Target
from neoflow.trace import tick
from neoflow.tune.roofs import stated

ABOUT = 0.2
"""Share of the time in which rules are made of what follows from a program's own operators."""


def seconds_of(optimize: float | None) -> float | None:
    """The seconds of `optimize`. Raises `ConfigError`."""
    if optimize is None:
        return None
    if isinstance(optimize, bool) or not isinstance(optimize, (int, float)) or not 0 <= optimize < math.inf:
        raise ConfigError(f"optimize is seconds, 0 at least, or None, not {shown(optimize)}")
    return float(optimize)


def optimizer_for(
    target: Target, optimize: float | None, without: Collection[str] = (), rules: Sequence[Rule] = (), seed: int = 0
) -> Optimizer | None:
    """What searches for faster graphs on a target, for so many seconds; None where nothing is to.

    without: passes, and rules of fusion, that are left out. rules: besides those that come along. Raises `ConfigError`.
    """
    seconds = seconds_of(optimize)
    if seconds is None:
        return None
    choose = object_to if target.device == "cpu" else object_for_gpu
    divide = partial(partition, without={r.name for r in RULES}.intersection(without), choose=choose)
    return Optimizer(Limits(seconds, seed=seed), divide, stated(target), without, rules)


class Optimizer:
    """Searches for faster graphs of one program, all of its parts within the same seconds. What was found for a graph
    is found for an equal one again."""

    def __init__(
        self,
        limits: Limits,
        divide: Callable[[Graph], Partition],
        roofs: Roofs,
        without: Collection[str] = (),
        rules: Sequence[Rule] = (),
    ):
        """divide: into kernels, whose times are thought to be what `roofs` says. without: passes that are left out.
        rules: besides those that come along."""
        self.rules = (*standard().rules, *rules)
        self.limits, self.divide, self.roofs, self.without = limits, divide, roofs, without
        self.until: float | None = None
        self.found: dict[str, Optimized] = {}

    def __call__(self, graph: Graph) -> Optimized:
        """The best that is found for a graph in canonical form."""
        key = structural_hash(graph.roots, tuple(dict.fromkeys([*graph.inputs, *graph.parameters])))
        if key in self.found:
            found = self.found[key]
            return replace(found, written=graph, graph=found.replay(graph))
        now = time.monotonic()
        if self.limits.seconds is not None and self.until is None:
            self.until = now + self.limits.seconds
        left = None if self.until is None else max(0.0, self.until - now)
        rules = (*self.rules, *own_rules(graph, math.inf if left is None else now + ABOUT * left))
        left = None if self.until is None else max(0.0, self.until - time.monotonic())
        found = Search(rules, self.cost, replace(self.limits, seconds=left)).run(graph)
        self.found[key] = found if not found.moves or self.is_sure(graph, found.graph) else found.refused()
        return self.found[key]

    def is_sure(self, before: Graph, after: Graph) -> bool:
        """Whether kernels that take the place of others take clearly less by the estimate: smaller differences say
        nothing."""
        kernels = [Counter(c.subgraph for c in self._cut(g).calls) for g in (before, after)]
        gone, new = kernels[0] - kernels[1], kernels[1] - kernels[0]
        seconds = (sum(n * cost_of(s).seconds(self.roofs) for s, n in some.items()) for some in (gone, new))
        return is_worth(*seconds)

    def _cut(self, graph: Graph) -> Partition:
        return self.divide(optimize(graph, self.without))

    def cost(self, graph: Graph) -> Cost:
        """Of the kernels that a graph becomes."""
        cut = self._cut(graph)
        seconds = sum(cost_of(c.subgraph).seconds(self.roofs) for c in cut.calls)
        return Cost(seconds, len(cut.calls), peak_bytes(graph, cut))


def own_rules(graph: Graph, until: float) -> Iterator[Rule]:
    """What follows from the properties of a graph's own operators, the most frequent ones first, as long as there is
    time."""
    counts: dict[str, int] = {}
    families: dict[str, Family] = {}
    for t in graph.nodes:
        tick()
        try:
            f, _ = family(t.definition)
        except GraphError:
            continue
        families.setdefault(f.key, f)
        counts[f.key] = counts.get(f.key, 0) + 1
    if time.monotonic() > until:
        return
    for rule in rules_about(families[key] for key in sorted(counts, key=lambda k: -counts[k])):
        tick()
        yield rule
        if time.monotonic() > until:
            return


def peak_bytes(graph: Graph, cut: Partition) -> int:
    """The most bytes of what kernels write and others still read, the kernels in the order of the partition."""
    last: dict[Tensor, int] = {}
    for n, call in enumerate(cut.calls):
        for t in call.inputs:
            last[_stored(t, cut)] = n
    kept = {_stored(t, cut) for t in graph.roots}
    now = most = 0
    ends: dict[int, int] = {}
    for n, call in enumerate(cut.calls):
        for t in call.outputs:
            now += t.nbytes
            if t in last and t not in kept:
                ends[last[t]] = ends.get(last[t], 0) + t.nbytes
        most = max(most, now)
        now -= ends.pop(n, 0)
    return most


def _stored(t: Tensor, cut: Partition) -> Tensor:
    """What has memory where a tensor lies."""
    return cut.views[t].base if t in cut.views else t
