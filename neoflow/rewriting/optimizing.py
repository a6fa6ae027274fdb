"""Faster equal graphs for programs: by the rules that are proved, and what a graph is thought to take as kernels."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from neoflow.errors import GraphError
from neoflow.expr.tensor import structural_hash
from neoflow.graph import Editor, Graph
from neoflow.graph.cost import is_worth
from neoflow.partition import Partition, Subgraph
from neoflow.rewriting.channels import CHANNELS, Laid
from neoflow.rewriting.estimates import Estimate
from neoflow.rewriting.forms import Forms
from neoflow.rewriting.gathered import GATHERED, Gathered, gatherings
from neoflow.rewriting.times import Lookup, Times
from neoflow.rewriting.unread import UNREAD, Narrowed
from neoflow.superopt import Family, Limits, Optimized, Replayed, Rule, Search, Sites, family, rules_about, standard
from neoflow.superopt.search import Move, applied
from neoflow.superopt.term import variables
from neoflow.trace import tick

ABOUT, MEASURING, SEARCHING = 0.2, 0.3, 0.6
"""Shares of the time that is left: in which rules are made of what follows from a program's own operators, in which
kernels are measured, and of a search."""
WIDEST = 1.6
"""How much worse than the best may be what is gone on from in the end: two convolutions that are to be three."""
ROUNDS = 4
"""Searches, each of which knows what the kernels that the one before thought of took."""
FASTER = 0.03
"""Part of its time that a whole program has to save: less is noise."""
AGAIN, WELL = 0.3, 0.2
"""Share of all seconds in which it is searched once more, without a change of many kernels, where the whole program
saves less than so much of its time with it: what is gained besides need not be lost."""
OTHERWISE: tuple[tuple[type[Replayed], str], ...] = ((Laid, CHANNELS), (Narrowed, UNREAD))
"""What is left out then, one after the other."""
TOO_LITTLE = "the best that was found is too little to be sure of"


class Optimizer:
    """Searches for faster graphs of one program, all of its parts within the same seconds. What was found for a graph
    is found for an equal one again."""

    def __init__(
        self,
        limits: Limits,
        divide: Callable[[Graph], Partition],
        times: Times,
        without: Collection[str] = (),
        rules: Sequence[Rule] = (),
        measure: Lookup | None = None,
        prepares: bool = True,
        forms: Forms | None = None,
    ):
        """divide: into kernels, which take what `times` says, and `measure`, of those it does not know. without: passes
        that are left out. rules: besides those that come along. prepares, forms: see `Estimate`."""
        self.rules = (*standard().rules, *rules)
        self.limits, self.divide, self.times, self.without = limits, divide, times, without
        self.measure, self.prepares, self.shapes = measure, prepares, forms
        self.until: float | None = None
        self.found: dict[str, Optimized] = {}
        self.own: dict[str, Rule] = {}
        """by name, the rules that follow from the program's own operators"""
        self.begun: set[str] = set()
        """which changes of many kernels searches began with"""
        self.kept: dict[str, Optimized] = {}
        """what was found with one of them that is left out now"""

    def __call__(self, graph: Graph) -> Optimized:
        """The best that is found for a graph in canonical form."""
        key = _key(graph)
        if key in self.found:
            found = self.found[key]
            return replace(found, written=graph, graph=found.replay(graph))
        if self.limits.seconds is not None and self.until is None:
            self.until = time.monotonic() + self.limits.seconds
        own = {rule.name: rule for rule in own_rules(graph, self._end(ABOUT))}
        self.own |= own
        sites = Sites((*self.rules, *own.values()))
        estimate = self.estimate(graph, self.shapes)
        before = estimate.whole(graph)
        self._learn(self._longest(before))
        start, zeroed = without_zeros(graph, own.values())
        start, begun = self._begun(start, estimate)
        begun = (*zeroed, *begun)
        self._learn(estimate.near(start))
        for _ in range(ROUNDS):
            left = self._end(SEARCHING) - time.monotonic()
            seconds = None if left == math.inf else max(0.0, left)
            found = Search(sites, estimate, replace(self.limits, seconds=seconds)).run(start)
            forms = estimate.chosen(found.graph)
            usual, moves = estimate.usual(graph), (*begun, *found.moves)
            found = replace(found, written=graph, before=usual, moves=moves, forms=tuple(forms.items()))
            after = estimate.whole(found.graph, forms) if found.is_other else before
            is_sure = self._is_sure(estimate, before, after)
            new = self._learn(dict.fromkeys([*self._longest(after), *estimate.near(found.graph)]))
            if not new or (
                is_sure and self._is_sure(estimate, before, after) and estimate.chosen(found.graph) == forms
            ):
                break
        is_sure = self._is_sure(estimate, before, after)
        is_timed = bool(begun) and self.measure is not None
        self.found[key] = found if not found.is_other or is_sure or is_timed else found.refused(TOO_LITTLE)
        return self.found[key]

    def _begun(self, graph: Graph, estimate: Estimate) -> tuple[Graph, tuple[Replayed, ...]]:
        """What a search begins with, and how it became that: the graph after each change of many steps that pays."""
        moves: list[Replayed] = [] if UNREAD in self.without else [Narrowed()]
        moves += gatherings(graph) if self.prepares and GATHERED not in self.without else ()
        if self.shapes is not None and self.prepares and CHANNELS not in self.without:
            moves.append(Laid())
        taken: list[Replayed] = []
        for move in moves:
            after = move.replay(graph)
            if after is graph:
                continue
            self._learn(self._longest(estimate.whole(after)))
            if self._pays(move, estimate, graph, after):
                graph = after
                taken.append(move)
                self.begun.update(name for kind, name in OTHERWISE if isinstance(move, kind))
        return graph, tuple(taken)

    def _pays(self, move: Replayed, estimate: Estimate, before: Graph, after: Graph) -> bool:
        """Whether a graph after a move is thought to take less; where kernels are measured, that it is not surely
        slower: a change of nearly all kernels, whose sum is off by more than one of them, is timed with the whole
        program in the end. So is what only computes less, whatever the kernels took: one of SRU's by itself took 0.66
        to 1.1 ms, by where its weights lay, so that on some days what makes it 1.3 times as fast was left out. What
        changes a few kernels is to be surely faster."""
        if isinstance(move, Gathered):
            return self.is_sure(before, after)
        if isinstance(move, Narrowed) and self.measure is not None:
            return True
        now, then = estimate(before), estimate(after)
        return then < now or (self.measure is not None and not is_worth(then.seconds, now.seconds))

    def estimate(self, graph: Graph, forms: Forms | None) -> Estimate:
        """What costs graphs that are equal to one, in such forms."""
        changed = [p for p, _ in graph.updates]
        return Estimate(self.divide, self.times, self.without, changed, self.prepares, forms)

    def take(self, graph: Graph, found: Optimized) -> None:
        """From now on this is what is found for a graph in canonical form."""
        self.found[_key(graph)] = found

    def is_sure(self, before: Graph, after: Graph) -> bool:
        """Whether kernels that take the place of others take clearly less: smaller differences say nothing."""
        estimate = self.estimate(before, self.shapes)
        return self._is_sure(estimate, estimate.whole(before), estimate.whole(after))

    def _is_sure(self, estimate: Estimate, before: Counter[Subgraph], after: Counter[Subgraph]) -> bool:
        return is_worth(estimate.take(before - after), estimate.take(after - before))

    def judge(self, measured: Sequence[float]) -> None:
        """Tell what a call of the whole program took before and after; where it did not become faster, nothing is
        changed."""
        before, after = measured
        self.found = {key: replace(found, measured=(before, after)) for key, found in self.found.items()}
        if after >= (1 - FASTER) * before:
            self.refuse(f"measured, a call took {before * 1e6:.6g} us before and {after * 1e6:.6g} us after")

    def refuse(self, why: str) -> None:
        """Take nothing that was found."""
        self.found = {key: found.refused(why) if found.is_other else found for key, found in self.found.items()}

    def goes_otherwise(self) -> bool:
        """Whether the whole program was not much faster, or none was, with a change of many kernels: then what is found
        from now on leaves that out."""
        left = (name for _, name in OTHERWISE if name in self.begun and name not in self.without)
        name = None if _saved(self.found) >= WELL else next(left, None)
        if name is None:
            return False
        self.kept, self.found = self.found, {}
        self.without = {*self.without, name}
        if self.limits.seconds is not None:
            self.until = time.monotonic() + AGAIN * self.limits.seconds
        return True

    def keep_faster(self) -> None:
        """Of what was found now and before take what saved more of a call; where neither did, say why the first was
        refused."""
        if not self.has_found or _saved(self.found) < _saved(self.kept):
            self.found = {**self.found, **self.kept}

    @property
    def has_found(self) -> bool:
        """Whether any graph has another in its place, or another form."""
        return any(found.is_other for found in self.found.values())

    @property
    def forms(self) -> dict[str, str]:
        """How contractions are computed, by the digests of their definitions, where that was chosen."""
        return {digest: name for found in self.found.values() for digest, name in found.forms}

    @property
    def left(self) -> float:
        """Seconds that are left; none where it has not begun, or there is no limit."""
        return 0.0 if self.until is None else max(0.0, self.until - time.monotonic())

    def _end(self, share: float) -> float:
        """When so much of the time that is left will have gone by."""
        now = time.monotonic()
        return math.inf if self.until is None else now + share * max(0.0, self.until - now)

    def _longest(self, kernels: Counter[Subgraph]) -> list[Subgraph]:
        """Those that are thought to take most of a call first: time may be up before all are measured."""
        return sorted(kernels, key=lambda kernel: -kernels[kernel] * self.times.thought(kernel))

    def _learn(self, kernels: Iterable[Subgraph]) -> int:
        """Measure kernels of which nothing is known while there is time; how many are known now that were not."""
        end = self._end(MEASURING)

        def measure(kernel: Subgraph) -> float | None:
            return None if self.measure is None or time.monotonic() > end else self.measure(kernel)

        return self.times.learn(kernels, measure)


def _saved(found: Mapping[str, Optimized]) -> float:
    """Part of its time that a call of the whole program was measured to save with what was found; 0 where nothing is
    taken."""
    return max((1 - f.measured[1] / f.measured[0] for f in found.values() if f.measured and f.is_other), default=0.0)


def _key(graph: Graph) -> str:
    return structural_hash(graph.roots, tuple(dict.fromkeys([*graph.inputs, *graph.parameters])))


def without_zeros(graph: Graph, rules: Iterable[Rule]) -> tuple[Graph, tuple[Replayed, ...]]:
    """The graph after all rules by which something is a constant whatever it reads, and what was done: it takes less
    without what it was computed by, so nothing needs to be compared."""
    sites = Sites([rule for rule in rules if variables(rule.source) and not variables(rule.target)])
    moves: list[Replayed] = []
    while True:
        editor = Editor(graph.roots, graph.order)
        site = next((s for t in graph.nodes if not editor.is_root(t) for s in sites.at(editor, t)), None)
        if site is None:
            return graph, tuple(moves)
        at = tuple(range(len(graph.nodes)))
        graph, derivation = applied(graph, site)
        moves.append(Move(((at, (derivation,)),)))


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
