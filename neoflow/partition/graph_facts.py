"""What fusion knows of a graph before it decides anything: it is computed once and does not change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neoflow.expr.ir import Reduce, Select
from neoflow.expr.narrow import NARROW, is_held
from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph import Graph, factors, is_contraction


@dataclass(frozen=True, eq=False)
class Facts:
    """nodes: every compute after what it reads. roots: outputs and new values of parameters.

    readers: the computes that read a tensor, in order; a tensor that none reads is absent. narrow: of tensors of
    float32, the narrow float that all of their values exactly are.
    """

    nodes: tuple[Compute, ...]
    roots: frozenset[Tensor]
    readers: Mapping[Tensor, tuple[Compute, ...]]
    narrow: Mapping[Tensor, str]

    @staticmethod
    def of(graph: Graph) -> Facts:
        readers: dict[Tensor, list[Compute]] = {}
        for t in graph.nodes:
            for i in dict.fromkeys(t.inputs):
                readers.setdefault(i, []).append(t)
        found = {t: tuple(each) for t, each in readers.items()}
        return Facts(graph.nodes, frozenset(graph.roots), found, _narrow(graph))

    def readers_of(self, t: Tensor) -> tuple[Compute, ...]:
        return self.readers.get(t, ())

    def multiplies(self, t: Compute, dtype: str) -> bool:
        """Whether t is a contraction of factors whose values are exactly of a narrow type."""
        if not is_contraction(t.definition):
            return False
        body = t.definition.body
        assert isinstance(body, Reduce)
        product = body.body.then if isinstance(body.body, Select) else body.body
        return all(is_held(e, dtype, lambda r: self.narrow.get(t.inputs[r.slot]) == dtype) for e in factors(product))


def _narrow(graph: Graph) -> dict[Tensor, str]:
    found: dict[Tensor, str] = {}

    def is_narrow(t: Compute, dtype: str) -> bool:
        return is_held(t.definition.body, dtype, lambda r: found.get(t.inputs[r.slot]) == dtype)

    for t in graph.nodes:
        dtype = next((d for d in NARROW if t.dtype == "float32" and is_narrow(t, d)), None)
        if dtype is not None:
            found[t] = dtype
    return found
