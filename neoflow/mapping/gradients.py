"""Gradients of a graph in which recurrences are written out: derived anew, from the loops that these become.

    loss = f(h3), h3 = g(h2, x2) ...; dw = the gradient of loss     ->    h = scan(g, x); dw = that of f(h)

So the gradient of a cell, whatever it was written as, is the adjoint of the loop of the cell. It is one that `nf.grad`
or `nf.vjp` gave; what else is derived, by hand or by another framework, stays and is looked through like the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neoflow.autodiff import vjp
from neoflow.autodiff.backward import Pulled, pulled_of
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Placeholder, Tensor
from neoflow.graph.graph import Graph


@dataclass(frozen=True)
class Apart:
    """A graph without its gradients. stands: by the placeholder that stands for a gradient, what that is by; those that
    need others after them. graph: its outputs are the roots of the whole, then y and cotangent of each gradient."""

    whole: Graph
    graph: Graph
    stands: dict[Tensor, Tensor]

    def joined(self, roots: Sequence[Tensor]) -> Graph:
        """The whole graph with the gradients of what the roots of `graph` have become."""
        count = len(self.whole.roots)
        groups: dict[tuple[Tensor, Tensor], list[Tensor]] = {}
        for stand, y, cotangent in zip(self.stands, roots[count::2], roots[count + 1 :: 2], strict=True):
            groups.setdefault((y, cotangent), []).append(stand)
        found: dict[Tensor, Tensor] = {}
        for pair, stands in groups.items():
            y, cotangent = replaced(pair, found.get)
            found.update(zip(stands, vjp(y, [self.stands[s] for s in stands], cotangent, True), strict=True))
        return self.whole.with_roots(replaced(roots[:count], found.get))


def apart(graph: Graph) -> Apart:
    """A graph and its gradients, those by what a call is given or updates."""
    stands: dict[Tensor, Placeholder] = {}
    known: dict[Pulled, Placeholder] = {}
    sources: dict[Tensor, list[Tensor]] = {}

    def instead(t: Tensor) -> Tensor | None:
        p = pulled_of(t)
        if p is None or t is p.cotangent or not isinstance(p.wrt, Placeholder):
            return None
        if p not in known:
            known[p] = Placeholder(t.shape, t.dtype, t.name, t.where)
        stands[t] = known[p]
        return stands[t]

    roots = replaced(graph.roots, instead)
    while left := [p for p, stand in known.items() if stand not in sources]:
        needed = dict.fromkeys(t for p in left for t in (p.y, p.cotangent))
        new = dict(zip(needed, replaced(list(needed), instead), strict=True))  # in one go: most are of one loss
        sources.update((known[p], [new[p.y], new[p.cotangent]]) for p in left)
    made = sorted(stands, key=lambda t: t.uid)  # what a gradient needs was there before it
    order = dict.fromkeys(stands[t] for t in made)
    of = {stand: p.wrt for p, stand in known.items()}
    outputs = (*roots, *(t for s in order for t in sources[s]))
    return Apart(graph, Graph((*graph.inputs, *order), outputs, ()), {s: of[s] for s in order})
