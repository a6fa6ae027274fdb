"""The engine: runs a pass, a table of rewrites, over a graph until none is legal anywhere or a limit ends it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from neoflow.expr.tensor import Compute
from neoflow.graph.edit import Editor, Place
from neoflow.graph.graph import Graph
from neoflow.graph.rewrite import Derivation, Rewrite, Site, Step, sites
from neoflow.trace import tick
from neoflow.verdict import Verdict

DONE = "nothing is left to rewrite"
"""Why a pass ends that no limit ended."""
Choose = Callable[[Editor, Iterator[Site]], Site | None]
"""Which of the legal places at one tensor to take, if any. Those not asked for are not looked for."""
Compare = Callable[[Editor, Sequence[Rewrite], Site], Verdict]
"""Whether to take a legal place, all rewrites of the pass in view."""


@dataclass(frozen=True)
class Pass:
    """rewrites: tried at every compute, in this order. after: tried, behind them, at every compute that they touch.
    again: whether all computes are looked at once more after a change, since what is legal depends on more than a
    compute and what it reads. compare: what else may refuse a legal place, for another one.

    A graph on which `after` has nothing to do is one again when the pass ends.
    """

    name: str
    rewrites: tuple[Rewrite, ...]
    after: tuple[Rewrite, ...] = ()
    again: bool = False
    compare: Compare | None = None

    def without(self, names: Collection[str]) -> Pass | None:
        """The pass where these are left out; None where it is named, or nothing is left of it."""
        left = tuple(r for r in self.rewrites if r.name not in names)
        return replace(self, rewrites=left) if left and self.name not in names else None


@dataclass(frozen=True)
class Limits:
    """steps: the most replacements, for each compute of the graph and 100 more.

    No pass over a model of `models/` takes more than 0.3 a compute, over a random program 2: beyond 20 there is no end.
    """

    steps: int = 20


def first(editor: Editor, legal: Iterator[Site]) -> Site | None:
    """The first legal place."""
    return next(legal, None)


def run(graph: Graph, what: Pass, choose: Choose = first, limits: Limits | None = None) -> tuple[Graph, Derivation]:
    """Apply the rewrites of a pass at what `choose` takes, until it takes nothing; each compute after what it reads.

    A compute is looked at once, and again when it or what it reads is new, or something it reads has no other reader
    left: so the time follows the size of the graph and the number of steps.
    """
    editor = Editor(graph.roots, graph.order)
    most = (limits or Limits()).steps * len(graph.nodes) + 100
    derivation = _run(editor, what, _Queue(editor, graph.nodes), choose, most)
    return (graph.with_roots(editor.finish()) if derivation.steps else graph), derivation


def go_on(editor: Editor, what: Pass, computes: Sequence[Compute], choose: Choose = first) -> Derivation:
    """`run` in a graph on which the pass had nothing to do before these, what `Editor.replace` gives, were touched."""
    queue = _Queue(editor, ())
    queue.push(computes)
    return _run(editor, what, queue, choose, Limits().steps * len(computes) + 100)


def in_turn(graph: Graph, passes: Sequence[Pass]) -> tuple[Graph, Derivation]:
    """`run` of one pass after the other, as one derivation."""
    editor, found = Editor(graph.roots, graph.order), list[Derivation]()
    for what in passes:
        found.append(go_on(editor, what, editor.computes()))
    steps, refused = tuple(s for d in found for s in d.steps), tuple(s for d in found for s in d.refused)
    stopped = next((d.stopped for d in found if d.stopped != DONE), DONE)
    return (graph.with_roots(editor.finish()) if steps else graph), Derivation(steps, refused, stopped)


def _run(editor: Editor, what: Pass, queue: _Queue, choose: Choose, most: int) -> Derivation:
    steps: list[Step] = []
    refused: dict[Step, None] = {}
    touched: set[int] = set()
    stopped = DONE

    def step(site: Site) -> Step:
        at = tuple(map(editor.number, site.match.tensors))
        return Step(site.rewrite, at, site.match.tensors[0].name, site.reason)

    looked_at = 0
    while True:
        t = queue.pop()
        if t is None and what.again and len(steps) > looked_at:
            queue, looked_at = _Queue(editor, editor.computes()), len(steps)
            continue
        if t is None:
            break
        tick()
        not_legal: list[Site] = []
        rewrites = what.rewrites + what.after if editor.number(t) in touched else what.rewrites
        legal = sites(editor, rewrites, t, not_legal)
        site = choose(editor, legal if what.compare is None else _best(editor, what, legal, not_legal))
        refused.update(dict.fromkeys(map(step, not_legal)))
        if site is None:
            continue
        if len(steps) == most:
            stopped = f"the limit of {most} steps"
            break
        steps.append(step(site))
        new = editor.replace(site.rewrite.apply(editor, site.match))
        touched.update(map(editor.number, new))
        queue.push(new)
        queue.push([t])
    return Derivation(tuple(steps), tuple(refused), stopped)


def _best(editor: Editor, what: Pass, legal: Iterator[Site], refused: list[Site]) -> Iterator[Site]:
    """The legal places that what compares them leaves, each with its reason; `refused` takes up the others."""
    assert what.compare is not None
    for site in legal:
        verdict = what.compare(editor, what.rewrites, site)
        judged = replace(site, reason=verdict.reason)
        if verdict.ok:
            yield judged
        else:
            refused.append(judged)


class _Queue:
    """Computes to look at, what others need first."""

    def __init__(self, editor: Editor, nodes: Sequence[Compute]):
        self.editor = editor
        self.given = [*reversed(nodes)]
        self.pushed: list[tuple[Place, int, Compute]] = []
        self.waiting = set(map(editor.number, nodes))

    def push(self, computes: Sequence[Compute]) -> None:
        for t in computes:
            n = self.editor.number(t)
            if n not in self.waiting:
                self.waiting.add(n)
                heapq.heappush(self.pushed, (self.editor.place(t), n, t))

    def pop(self) -> Compute | None:
        """The next one that something still needs; None when there is no more."""
        while self.given or self.pushed:
            if self.pushed and (not self.given or self.pushed[0][0] < self.editor.place(self.given[-1])):
                t = heapq.heappop(self.pushed)[2]
            else:
                t = self.given.pop()
            self.waiting.remove(self.editor.number(t))
            if self.editor.is_live(t):
                return t
        return None
