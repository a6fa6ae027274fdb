"""A call of another library in the place of kernels, as the division of a graph has it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from neoflow.code import Handed
from neoflow.expr.foreign import Called
from neoflow.expr.tensor import Placeholder, Tensor
from neoflow.partition.calls import KernelCall
from neoflow.partition.subgraph import Subgraph, Value


@dataclass(frozen=True)
class HandedSubgraph(Subgraph):
    """One of no nodes, told from others by what is called."""

    handed: Handed | None = None

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(repr(self.handed).encode()).hexdigest()

    def __str__(self) -> str:
        assert self.handed is not None
        told = ", ".join(f"{name} {value}" for name, value in self.handed.attributes)
        return f"{self.handed.implementation}, {told}"


@dataclass(frozen=True)
class HandedCall(KernelCall):
    """It reads and writes as a kernel does, and is in its place."""

    @property
    def handed(self) -> Handed:
        """What is called."""
        assert isinstance(self.subgraph, HandedSubgraph)
        assert self.subgraph.handed is not None
        return self.subgraph.handed


def handed_call(
    called: Called, inputs: tuple[Tensor, ...], memory: tuple[Placeholder, ...], ticket: int, slopes: tuple[int, ...]
) -> HandedCall:
    """A foreign call that reads and writes these. slopes: see `Handed`."""
    f = called.foreign
    given = tuple((t.shape, t.dtype) for t in called.inputs)
    made = tuple((t.shape, t.dtype) for t in called.results)
    handed = Handed(f.implementation, f.attributes, given, made, ticket, slopes)
    subgraph = HandedSubgraph(tuple(Value(*v) for v in given), (), (), handed=handed)
    return HandedCall(subgraph, inputs, memory, f.implementation)
