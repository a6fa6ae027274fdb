"""What fusion knows of a graph before it decides anything: it is computed once and does not change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph import Graph


@dataclass(frozen=True, eq=False)
class Facts:
    """nodes: every compute after what it reads. roots: outputs and new values of parameters.

    readers: the computes that read a tensor, in order; a tensor that none reads is absent.
    """

    nodes: tuple[Compute, ...]
    roots: frozenset[Tensor]
    readers: Mapping[Tensor, tuple[Compute, ...]]

    @staticmethod
    def of(graph: Graph) -> Facts:
        readers: dict[Tensor, list[Compute]] = {}
        for t in graph.nodes:
            for i in dict.fromkeys(t.inputs):
                readers.setdefault(i, []).append(t)
        return Facts(graph.nodes, frozenset(graph.roots), {t: tuple(found) for t, found in readers.items()})

    def readers_of(self, t: Tensor) -> tuple[Compute, ...]:
        return self.readers.get(t, ())
