"""The division of a graph into kernels as data, and the order in which the kernels run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neoflow.expr.tensor import Tensor
from neoflow.partition.subgraph import Subgraph
from neoflow.verdict import Verdict


@dataclass(frozen=True)
class KernelCall:
    """One subgraph of the graph in its place: the tensors it reads and the tensors it writes."""

    subgraph: Subgraph
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    name: str


@dataclass(frozen=True)
class View:
    """A tensor whose elements are those of `base` (stored, and no view) from element `offset` on, in order."""

    base: Tensor
    offset: int


@dataclass(frozen=True)
class Decision:
    """What became of one candidate of a rule of fusion: `subject` is the candidate in words."""

    rule: str
    subject: str
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.rule}: {self.subject}: {self.verdict}"


@dataclass(frozen=True)
class Partition:
    """calls: the kernels in an order in which they can run. views: computes that are memory of other tensors.

    decisions: every candidate that fusion looked at, in order, for `explain`.
    """

    calls: tuple[KernelCall, ...]
    views: Mapping[Tensor, View]
    decisions: tuple[Decision, ...]

    def base(self, t: Tensor) -> Tensor:
        """The tensor whose memory t is."""
        return self.views[t].base if t in self.views else t

    @property
    def subgraphs(self) -> tuple[Subgraph, ...]:
        """The distinct subgraphs, in the order of first use."""
        return tuple({c.subgraph.digest: c.subgraph for c in self.calls}.values())

    def __str__(self) -> str:
        lines = []
        for n, call in enumerate(self.calls):
            reads = ", ".join(t.name for t in call.inputs)
            writes = ", ".join(t.name for t in call.outputs)
            lines.append(f"kernel {n} {call.name} [{call.subgraph.digest[:8]}]: ({reads}) -> ({writes})")
            lines += [f"    {line}" for line in str(call.subgraph).splitlines() if not line.startswith("in")]
        lines += [f"view {t.name} = {v.base.name} from element {v.offset}" for t, v in self.views.items()]
        return "\n".join(lines)


def in_order(calls: list[KernelCall], views: Mapping[Tensor, View]) -> list[KernelCall]:
    """Kernels in an order that respects what they read; among those that can run, the first in program order."""
    producer = {t: n for n, c in enumerate(calls) for t in c.outputs}
    producer.update({t: producer[v.base] for t, v in views.items() if v.base in producer})
    order: list[int] = []
    done: set[int] = set()
    for start in range(len(calls)):
        stack = [start]
        while stack:
            n = stack[-1]
            waiting = [producer[t] for t in calls[n].inputs if t in producer and producer[t] not in done]
            if n in done:
                stack.pop()
            elif waiting:
                stack.extend(reversed(waiting))
            else:
                done.add(n)
                order.append(n)
                stack.pop()
    return [calls[n] for n in order]
