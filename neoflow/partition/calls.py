"""The division of a graph into kernels as data, and the order in which the kernels run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from neoflow.expr.tensor import Parameter, Tensor
from neoflow.graph import Graph
from neoflow.partition.subgraph import Subgraph


@dataclass(frozen=True)
class Verdict:
    """Whether something may be done, and the sentence that says why or why not."""

    ok: bool
    reason: str


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
class Partition:
    """calls: the kernels in an order in which they can run. views: computes that are memory of other tensors.

    verdicts: (what was asked, answer) for `explain`.
    """

    calls: tuple[KernelCall, ...]
    views: Mapping[Tensor, View]
    verdicts: tuple[tuple[str, Verdict], ...]

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


def updates_last(graph: Graph, parts: Partition) -> tuple[tuple[KernelCall, ...], frozenset[Parameter]]:
    """Order the kernels so that new parameter values can be written in place, as far as that goes.

    Returns the order and the parameters whose update may overwrite them: every other reader runs before the writer, and
    the writer reads the parameter only at the point it writes.
    """
    calls = parts.calls
    producer = {t: n for n, c in enumerate(calls) for t in c.outputs}
    bases = [{parts.base(t) for t in c.inputs} for c in calls]
    needs: list[set[int]] = [{producer[t] for t in read if t in producer} for read in bases]
    in_place: set[Parameter] = set()
    for p, value in graph.updates:
        writer = producer.get(value)
        if writer is None or sum(root is value for root in graph.roots) > 1:
            continue
        is_viewed = any(t is not p and parts.base(t) is p for t in calls[writer].inputs)
        if is_viewed or not can_overwrite(calls[writer], p, value):
            continue
        before = {n for n, read in enumerate(bases) if p in read and n != writer}
        if any(_needs(needs, n, writer) for n in before):
            continue
        needs[writer] |= before
        in_place.add(p)
    order: list[int] = []
    done: set[int] = set()

    def visit(n: int) -> None:
        if n in done:
            return
        done.add(n)
        for m in sorted(needs[n]):
            visit(m)
        order.append(n)

    for n in range(len(calls)):
        visit(n)
    return tuple(calls[n] for n in order), frozenset(in_place)


def _needs(needs: list[set[int]], n: int, target: int) -> bool:
    """Whether kernel n must run after kernel `target`."""
    stack, seen = [n], set()
    while stack:
        m = stack.pop()
        if m == target:
            return True
        if m not in seen:
            seen.add(m)
            stack.extend(needs[m])
    return False


def can_overwrite(call: KernelCall, t: Tensor, output: Tensor) -> bool:
    """Whether `output` of the kernel may take the place of its input t: t is only read at the point being written."""
    if t.shape != output.shape or t.dtype != output.dtype:
        return False
    return all(i is not t or call.subgraph.followers(n) is not None for n, i in enumerate(call.inputs))
