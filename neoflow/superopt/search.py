"""The search for a faster equal graph: rules one after the other, what is worse at first among them.

    queue <- the graph;  best <- the graph
    take the cheapest of the queue; for each site of a rule in it, the graph after it:
        cheaper than the best: it is the best;  below alpha times the best, and new: into the queue

A graph of more operators than `split` is searched in pieces, and again around what was cut. Source: Jia et al.,
Optimizing DNN Computation with Relaxed Graph Substitutions (MetaFlow), 2019, sections 5.1 and 5.2.
"""

from __future__ import annotations

import heapq
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from neoflow.errors import GraphError
from neoflow.expr.tensor import Compute, Constant, Tensor, structural_hash
from neoflow.graph import CANONICALIZE, Derivation, Editor, Graph, Step, go_on
from neoflow.graph.rewrite import Site
from neoflow.superopt.pieces import cut_out, put_back
from neoflow.superopt.rewrite import Substitution
from neoflow.superopt.rule import Rule
from neoflow.superopt.sites import Sites
from neoflow.superopt.split import split
from neoflow.trace import tick

KNOWN = 100_000
"""Computes whose sites are remembered."""
WIDER = 2.0
"""So many times as much worse than the best may be what is gone on from when nothing is left that is nearer."""
AT_FIRST = 0.7
"""Share of the time for pieces; the rest is for what lies around the cuts."""


@dataclass(frozen=True, order=True)
class Cost:
    """What a graph is thought to take; of equal seconds fewer kernels are cheaper, then fewer bytes. peak: bytes of
    what is there at once."""

    seconds: float
    kernels: int = 0
    peak: int = 0

    def __str__(self) -> str:
        return f"{self.seconds * 1e6:.4g} us, {self.kernels} kernels, {self.peak} bytes at once"


@dataclass(frozen=True)
class Limits:
    """seconds: of the search. graphs: that are costed, of each piece. alpha: how much worse than the best a graph may
    be and be gone on from; once nothing is left that near, step by step more, up to `widest`. split: operators of a
    piece. kernels, peak: beyond them a graph costs without end. seed: of the order in which sites are tried, which
    counts where a limit ends the search.
    """

    seconds: float | None = None
    graphs: int = 2000
    alpha: float = 1.05
    widest: float = 1.0
    split: int = 30
    kernels: int | None = None
    peak: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.alpha >= 1 or self.graphs < 1 or self.split < 2:
            raise GraphError(
                f"a search has an alpha of 1 at least, a graph and pieces of two operators, not {self.alpha}, "
                f"{self.graphs} and {self.split}"
            )

    def allow(self, cost: Cost) -> bool:
        """Whether a graph of this cost may be there at all."""
        return (self.kernels is None or cost.kernels <= self.kernels) and (self.peak is None or cost.peak <= self.peak)


@dataclass(frozen=True)
class Move:
    """What was done to pieces of a graph at once: the numbers of their computes in `nodes`, and derivations one after
    the other."""

    pieces: tuple[tuple[tuple[int, ...], tuple[Derivation, ...]], ...]

    def replay(self, graph: Graph) -> Graph:
        """The same on an equal graph."""
        changed = []
        for at, derivations in self.pieces:
            piece = cut_out(graph, at)
            new = piece.graph
            for derivation in derivations:
                new = derivation.replay(new)
            changed.append((piece, new))
        return put_back(graph, changed)[0]

    @property
    def steps(self) -> Iterator[Step]:
        """The rules that were applied; what brings a graph into its canonical form again is not told."""
        derivations = (d for _, found in self.pieces for d in found)
        return (s for d in derivations for s in d.steps if isinstance(s.rewrite, Substitution))


class Replayed(Protocol):
    """What was done to a graph: a `Move`, or another change that can be done again."""

    def replay(self, graph: Graph, /) -> Graph:
        """The same on an equal graph."""

    @property
    def steps(self) -> Iterable[Step]:
        """The rules that were applied."""


@dataclass(frozen=True)
class Optimized:
    """The best graph that was found for one, and what it is thought to take. graphs: that were costed; sites: computes
    around which sites were looked for. measured: what a call of the whole program took before and after. forms: by the
    digest of a contraction's definition, how it is computed, where the cost knows several ways."""

    written: Graph
    graph: Graph
    before: Cost
    after: Cost
    moves: tuple[Replayed, ...]
    graphs: int
    sites: int
    pieces: int
    stopped: str
    measured: tuple[float, float] | None = None
    forms: tuple[tuple[str, str], ...] = ()

    @property
    def is_other(self) -> bool:
        """Whether anything is done that was not written."""
        return bool(self.moves or self.forms)

    def replay(self, graph: Graph) -> Graph:
        """All of it again on an equal graph, each rule judged again. Raises `GraphError` where one does not fit."""
        for move in self.moves:
            graph = move.replay(graph)
        return graph

    def refused(self, why: str) -> Optimized:
        """The graph as it was: what was found is not believed, or was not faster."""
        gain = f"thought to take {self.after.seconds * 1e6:.6g} us, for {self.before.seconds * 1e6:.6g}"
        reason = f"{self.stopped}; {why} ({len(self.steps)} rules, {len(self.forms)} forms, {gain})"
        return replace(self, graph=self.written, after=self.before, moves=(), forms=(), stopped=reason)

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(s for move in self.moves for s in move.steps)

    @property
    def summary(self) -> str:
        gain = self.before.seconds / self.after.seconds if self.after.seconds else 1.0
        timed = ""
        if self.measured is not None and self.is_other:
            before, after = self.measured
            timed = f", measured {before * 1e6:.4g} to {after * 1e6:.4g} us ({before / after:.2f}x)"
        estimate = f"by the estimate {self.before.seconds * 1e6:.4g} to {self.after.seconds * 1e6:.4g} us ({gain:.2f}x)"
        laid = "".join(f", {move}" for move in self.moves if not tuple(move.steps))
        formed = f"{laid}, {len(self.forms)} definitions computed otherwise" if self.forms else laid
        return (
            f"{len(self.steps)} rules applied{formed}, {estimate}{timed}, {self.graphs} graphs costed: {self.stopped}"
        )

    def __str__(self) -> str:
        lines = [f"before: {self.before}", str(self.written), "", f"after: {self.after}", str(self.graph), ""]
        lines += [str(move) for move in self.moves if not tuple(move.steps)]
        for n, step in enumerate(self.steps):
            lines += [f"{n}. {step}", f"   {step.rewrite.drawing}"]
        lines += [f"computed by {name}: definition {digest[:8]}" for digest, name in self.forms]
        lines += [f"{self.summary}"] if self.measured is not None else []
        return "\n".join([*lines, f"stopped: {self.stopped}"])


@dataclass(frozen=True)
class _Found:
    """The best of one piece."""

    graph: Graph
    cost: Cost
    derivations: tuple[Derivation, ...]
    stopped: str


EXHAUSTED = "nothing is left to try"


class Search:
    """One search; its `cost` and its rules stay the same."""

    def __init__(self, rules: Iterable[Rule] | Sites, cost: Callable[[Graph], Cost], limits: Limits | None = None):
        """rules: or what finds where they apply, with all that it knows from searches before."""
        self.limits = limits or Limits()
        self.until = math.inf if self.limits.seconds is None else time.monotonic() + self.limits.seconds
        self.sites = rules if isinstance(rules, Sites) else Sites(rules)
        self.cost, self.graphs = cost, 0
        self.known: dict[str, _Found] = {}
        self.chance = random.Random(self.limits.seed)

    def run(self, graph: Graph) -> Optimized:
        """The best graph found for a graph in canonical form."""
        before = self.cost(graph)
        moves: list[Move] = []
        if len(graph.nodes) <= self.limits.split:
            found = self.alone(graph, self.until)
            best, after, stopped, count = found.graph, found.cost, found.stopped, 1
            if found.derivations:
                moves.append(Move(((tuple(range(len(graph.nodes))), found.derivations),)))
        else:
            best, after, stopped, count = self.in_pieces(graph, before, moves)
        return Optimized(graph, best, before, after, tuple(moves), self.graphs, self.sites.looked_at, count, stopped)

    # ------------------------------------------------------------------------------------------------------ of a piece

    def alone(self, graph: Graph, until: float) -> _Found:
        """The best that is found for a graph of few operators."""
        structures = Structures()
        cost = self._allowed(graph)
        best = _Found(graph, cost, (), EXHAUSTED)
        queue: list[tuple[Cost, int, _Found]] = [(cost, 0, best)]
        waiting: list[tuple[Cost, int, _Found]] = []
        seen = {structures.of(graph)}
        stopped, count, alpha = EXHAUSTED, 0, self.limits.alpha
        while stopped is EXHAUSTED:
            if not queue:
                if not waiting or alpha >= self.limits.widest:
                    break
                alpha = min(self.limits.widest, 1 + WIDER * (alpha - 1) if alpha > 1 else WIDER)
                queue, waiting = waiting, []
                heapq.heapify(queue)
            _, number, here = heapq.heappop(queue)
            if not _is_near(here.cost, best.cost, alpha):
                waiting.append((here.cost, number, here))
                continue
            for site in self._sites(here.graph):
                tick()
                if time.monotonic() > until:
                    stopped = "the time is up"
                    break
                new, derivation = applied(here.graph, site)
                if (key := structures.of(new)) in seen:
                    continue
                seen.add(key)
                if count == self.limits.graphs:
                    stopped = f"the limit of {count} graphs"
                    break
                count += 1
                made = _Found(new, self._allowed(new), (*here.derivations, derivation), EXHAUSTED)
                if made.cost < best.cost:
                    best = made
                if _is_near(made.cost, best.cost, alpha):
                    heapq.heappush(queue, (made.cost, count, made))
                elif _is_near(made.cost, best.cost, self.limits.widest):
                    waiting.append((made.cost, count, made))
        return replace(best, stopped=stopped)

    def _allowed(self, graph: Graph) -> Cost:
        self.graphs += 1
        cost = self.cost(graph)
        return cost if self.limits.allow(cost) else replace(cost, seconds=math.inf)

    def _sites(self, graph: Graph) -> list[Site]:
        """All sites in a graph, in an order that follows from the seed."""
        editor = Editor(graph.roots, graph.order)
        found = [p for t in graph.nodes for p in self.sites.at(editor, t)]
        self.chance.shuffle(found)
        self.sites.forget(KNOWN)
        return found

    # --------------------------------------------------------------------------------------------------- of all pieces

    def in_pieces(self, graph: Graph, before: Cost, moves: list[Move]) -> tuple[Graph, Cost, str, int]:
        """The pieces of a large graph one after the other, then what lies around the cuts. What is cheaper alone and
        not in its place stays what it was."""
        weights = Counter(t.uid for p in self._sites(graph) for t in p.match.tensors[1:])
        parts = split(graph.nodes, weights, self.limits.split)
        pieces = [cut_out(graph, part) for part in parts]
        chosen = [(piece, piece.graph) for piece in pieces]
        done: list[tuple[tuple[int, ...], tuple[Derivation, ...]]] = []
        best, cost, reasons = graph, before, list[str]()
        for n, (part, piece) in enumerate(zip(parts, pieces, strict=True)):
            left = self.until - (now := time.monotonic())
            found = self.again(piece.graph, now + AT_FIRST * left / (len(parts) - n))
            reasons.append(found.stopped)
            if not found.derivations:
                continue
            tried = [*chosen[:n], (piece, found.graph), *chosen[n + 1 :]]
            whole, _ = put_back(graph, tried)
            if (whole_cost := self._allowed(whole)) < cost:
                best, cost, chosen = whole, whole_cost, tried
                done.append((tuple(part), found.derivations))
        if done:
            moves.append(Move(tuple(done)))
        best, homes = put_back(graph, chosen)
        best, cost, stopped = self.around(best, cost, homes, moves)
        return best, cost, next((r for r in (*reasons, stopped) if r is not EXHAUSTED), EXHAUSTED), len(parts)

    def around(self, graph: Graph, cost: Cost, homes: dict[int, int], moves: list[Move]) -> tuple[Graph, Cost, str]:
        """What sites of rules need that lie in several pieces, each with what is near it.

        homes: the piece of each compute, by uid."""
        tried: set[tuple[str, ...]] = set()
        is_changed = True
        while is_changed:
            is_changed = False
            for site in self._sites(graph):
                if time.monotonic() > self.until:
                    return graph, cost, "the time is up"
                if len({homes[t.uid] for t in site.match.tensors}) < 2:
                    continue
                at = near(graph.nodes, site.match.tensors, self.limits.split)
                piece = cut_out(graph, at)
                key = (site.rewrite.name, *map(str, at)) if not piece.given else (_key(piece.graph),)
                if not at or key in tried:
                    continue
                tried.add(key)
                found = self.again(piece.graph, self.until)
                if not found.derivations:
                    continue
                whole, own = put_back(graph, [(piece, found.graph)], homes)
                if (whole_cost := self._allowed(whole)) < cost:
                    moves.append(Move(((at, found.derivations),)))
                    number = 1 + max(homes.values())
                    inside = {t.uid for t in whole.nodes} - own.keys()
                    graph, cost, homes = whole, whole_cost, {**own, **dict.fromkeys(inside, number)}
                    is_changed = True
                    break
        return graph, cost, EXHAUSTED

    def again(self, graph: Graph, until: float) -> _Found:
        """`alone`, or what it found for an equal graph."""
        key = _key(graph)
        if key not in self.known:
            self.known[key] = self.alone(graph, until)
            return self.known[key]
        found = self.known[key]
        for derivation in found.derivations:
            graph = derivation.replay(graph)
        return replace(found, graph=graph)


def _is_near(cost: Cost, best: Cost, alpha: float) -> bool:
    return cost.seconds <= alpha * best.seconds


def _key(graph: Graph) -> str:
    return structural_hash(graph.roots, graph.inputs)


def near(nodes: Sequence[Compute], tensors: Sequence[Compute], most: int) -> tuple[int, ...]:
    """Numbers of at most so many computes around some of them, convex; none where those alone need more between
    them."""
    number = {t.uid: n for n, t in enumerate(nodes)}
    reads = [[number[i.uid] for i in t.inputs if i.uid in number] for t in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for n, sources in enumerate(reads):
        for r in sources:
            readers[r].append(n)
    kept: set[int] = set()
    found = _convex({number[t.uid] for t in tensors}, reads, readers)
    while len(found) <= most and found != kept:
        kept = found
        found = _convex(kept.union(*(reads[n] for n in kept), *(readers[n] for n in kept)), reads, readers)
    return tuple(sorted(kept))


def _convex(some: set[int], reads: Sequence[Sequence[int]], readers: Sequence[Sequence[int]]) -> set[int]:
    """These, and all on a way from one to another."""
    return _reach(some, reads) & _reach(some, readers)


def _reach(some: set[int], edges: Sequence[Sequence[int]]) -> set[int]:
    found, stack = set(some), list(some)
    while stack:
        new = [n for n in edges[stack.pop()] if n not in found]
        found.update(new)
        stack += new
    return found


def applied(graph: Graph, site: Site) -> tuple[Graph, Derivation]:
    """The graph, which is in canonical form, after a rule and in that form again, and what was done. Only what the rule
    has touched is looked at."""
    editor = Editor(graph.roots, graph.order)
    at = tuple(map(editor.number, site.match.tensors))
    step = Step(site.rewrite, at, site.match.tensors[0].name, site.reason)
    after = go_on(editor, CANONICALIZE, editor.replace(site.rewrite.apply(editor, site.match)))
    return graph.with_roots(editor.finish()), Derivation((step, *after.steps), (), "one rule was applied")


class Structures:
    """Numbers for structures over the same leaves: of equal ones equal, and found from what is new alone."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self._known: dict[int, int] = {}
        """by uid"""

    def of(self, graph: Graph) -> tuple[int, ...]:
        """Of what a graph gives."""
        for t in graph.order:
            if t.uid not in self._known:
                self._known[t.uid] = self._numbers.setdefault(self._structure(t), len(self._numbers))
        return tuple(self._known[t.uid] for t in graph.roots)

    def _structure(self, t: Tensor) -> tuple[object, ...]:
        if isinstance(t, Compute):
            return t.definition, *(self._known[i.uid] for i in t.inputs)
        return (t.structure,) if isinstance(t, Constant) else (t.uid,)
