"""Products by the same weights as one: what stays from call to call is read once for all of them, and packed once.

    a[o] = sum[k](x[0, k] * w[o, k]);  b[o] = sum[k](x[1, k] * w[o, k]);  c[o] = sum[k](x[2, k] * w[o, k])
        ->  q[t, o] = sum[k](x[t, k] * w[o, k]);  a[o] = q[0, o];  b[o] = q[1, o];  c[o] = q[2, o]

The pass that puts reductions side by side (`graph.batch`) counts that what is shared is packed at every call, as in a
step that changes it; where it stays that is done once, and two of them alone may still take longer than apart, so that
no rule leads there step by step. Whether all at once pay is measured (`optimizing`). The sums are the same ones, so
their bits may differ by their schedules alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from neoflow.expr.tensor import Parameter
from neoflow.graph import Editor, Graph, Pass, Site, Step, run
from neoflow.graph.batch import BatchShared
from neoflow.graph.passes import CANONICAL

GATHERED = "gathered"
"""The name of this transformation."""
GATHER = Pass("gather", (BatchShared(is_compared=False),), after=CANONICAL)


@dataclass(frozen=True)
class Gathered:
    """A move of a search: products of a definition, of this digest, that read the same parameter are one."""

    digest: str
    name: str
    steps: tuple[Step, ...] = ()
    """Rules that were applied: none."""

    def replay(self, graph: Graph) -> Graph:
        """The same on an equal graph."""
        return gathered(graph, self.digest)

    def __str__(self) -> str:
        return f"products like {self.name} by the same parameter are one"


def gatherings(graph: Graph) -> Iterator[Gathered]:
    """The moves that there are: a definition each, of which several computes read a parameter that the graph leaves as
    it is."""
    changed = {p for p, _ in graph.updates}
    reading = Counter(
        (t.definition, i)
        for t in graph.nodes
        if t.definition.has_reduction
        for i in dict.fromkeys(t.inputs)
        if isinstance(i, Parameter) and i not in changed
    )
    several = {definition for (definition, _), n in reading.items() if n > 1}
    for definition, t in {t.definition: t for t in reversed(graph.nodes) if t.definition in several}.items():
        yield Gathered(definition.digest, t.name)


def gathered(graph: Graph, digest: str) -> Graph:
    """The graph in which reductions of this definition that share a parameter are one where they can be; the same
    where none can."""

    def choose(editor: Editor, legal: Iterator[Site]) -> Site | None:
        return next((s for s in legal if _is_of(editor, s, digest)), None)

    return run(graph, GATHER, choose)[0]


def _is_of(editor: Editor, site: Site, digest: str) -> bool:
    """Whether a site puts reductions of a definition side by side around a parameter; what brings the graph into
    canonical form again is taken as it is."""
    if not isinstance(site.rewrite, BatchShared):
        return True
    first, *links = site.match.tensors
    columns = zip(*map(editor.inputs, links), strict=True)
    shares = any(isinstance(c[0], Parameter) and all(t is c[0] for t in c) for c in columns)
    return shares and first.definition.digest == digest
