"""Forms of a graph: what its contractions are computed by, and which of their operands lie packed.

    y = sum(x * w)    ->    V = B^T x;  U = G w;  M = sum(V * U);  y = A^T M        by winograd 2
                            p = packed(w);  y = sum(x * p)                         packed, as `layouts` does of itself
                            y = sum(x * w)                                         in place

A search for faster graphs costs each graph in the best of its forms, so that rules and layouts are chosen together:
what a form reads and writes is what its part of the graph does, so the best form of a part depends on no other part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from neoflow.graph import Graph
from neoflow.graph.algorithms import BY_NAME, alternatives, use, whole
from neoflow.partition import Partition, Subgraph
from neoflow.rewriting.layouts import lay_out
from neoflow.target import Target
from neoflow.tune.limits import ROUNDING

INFERENCE = 256.0
"""How many times larger than the direct sum's roundings may be where no step learns from them: of winograd 4 with up to
5 x 5 taps, whose results differed by 4e-6 of their root mean square at most from the direct sum's in convolutions of 48
to 448 channels."""
IN_PLACE = "in place"
"""Nothing that a contraction reads is packed beside."""
Chosen = Mapping[str, str]
"""By the digest of a contraction's definition: an algorithm, or `IN_PLACE`; what is not there is as usual."""
Divide = Callable[[Graph], Partition]


@dataclass(frozen=True)
class Forms:
    """What forms there are on a target. packs: whether operands are packed beside; may_last: see `lay_out`.
    tries: whether there is any but the usual one."""

    target: Target
    packs: bool = True
    may_last: Callable[[Subgraph], bool] | None = None
    tries: bool = True

    def each(self, graph: Graph, learns: bool = False) -> Iterator[dict[str, str]]:
        """What may be chosen for a graph behind `PASSES`, the usual form first: each contraction by each algorithm,
        all by one, and all in place. learns: whether it is of a step that changes parameters."""
        yield {}
        if not self.tries:
            return
        most, by_name = ROUNDING if learns else INFERENCE, dict[str, dict[str, str]]()
        definitions = {d.digest: d for d in (whole(t).definition for t in graph.nodes)}
        for digest, algorithms in alternatives(graph).items():
            for a in algorithms:
                if a.rounding(definitions[digest]) <= most:
                    by_name.setdefault(a.name, {})[digest] = a.name
                    yield {digest: a.name}
        yield from (chosen for chosen in by_name.values() if len(chosen) > 1)
        if self.packs:
            yield dict.fromkeys((t.definition.digest for t in graph.nodes), IN_PLACE)

    def take(
        self, graph: Graph, divide: Divide, chosen: Chosen, known: dict[str, Subgraph] | None = None
    ) -> tuple[Graph, Partition]:
        """A graph behind `PASSES` in a form, and its kernels. known: see `lay_out`."""
        formed = computed_by(graph, chosen)
        if not self.packs:
            return formed, divide(formed)
        laid = lay_out(formed, self.target, divide, self.may_last, in_place(chosen), known)
        return laid.graph, divide(laid.graph) if laid.cut is None else laid.cut


def computed_by(graph: Graph, chosen: Chosen) -> Graph:
    """A graph behind `PASSES` with its contractions computed by the algorithms that were chosen."""
    algorithms = {digest: name for digest, name in chosen.items() if name in BY_NAME}
    return use(graph, algorithms)[0] if algorithms else graph


def in_place(chosen: Chosen) -> frozenset[str]:
    """Definitions that read nothing packed."""
    return frozenset(digest for digest, name in chosen.items() if name == IN_PLACE)
