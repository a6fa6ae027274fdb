"""The division of a graph into kernels as data, and the order in which the kernels run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary, ref

from neoflow.expr.tensor import Compute, Tensor
from neoflow.partition.subgraph import Node, Subgraph, Value
from neoflow.partition.turned import Turns, turned
from neoflow.verdict import Verdict


@dataclass(frozen=True)
class KernelCall:
    """One subgraph of the graph in its place: the tensors it reads and the tensors it writes.

    nodes: what its nodes are in the graph, in order. turns: how it goes by rows through those that it does not go
    through as they are.
    """

    subgraph: Subgraph
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    name: str
    nodes: tuple[Compute, ...] = field(default=(), compare=False, repr=False)
    turns: Turns = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class View:
    """A tensor whose elements are those of `base` (stored, and no view) from element `offset` on, in order.

    is_part: whether a kernel writes it there; its base is then a *whole*, which has memory and no kernel of its own.
    """

    base: Tensor
    offset: int
    is_part: bool = False


@dataclass(frozen=True)
class Motion:
    """How a view goes through its base while a loop runs: in turn n it begins `step` * ((n + ahead) % period) elements
    beyond its offset."""

    step: int
    period: int
    ahead: int = 0


@dataclass(frozen=True)
class LoopCall:
    """Calls that run `turns` times, one after the other. It reads and writes as a kernel does, and is in its place.

    calls: of one turn, in order. motions: the views that are elsewhere in every turn. outputs: what has memory of its
    own and lasts from turn to turn. is_apart: whether no turn needs another one.
    """

    calls: tuple[Call, ...]
    turns: int
    motions: Mapping[Tensor, Motion]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    name: str
    is_apart: bool = False

    @property
    def subgraph(self) -> Subgraph:
        """One of nothing: it is no kernel."""
        return Subgraph((), (), ())

    def __hash__(self) -> int:
        return id(self)


Call = KernelCall | LoopCall


Wholes = Mapping[Tensor, tuple[Compute, ...]]
"""Computes that kernels write in parts, and these parts."""


def makers(
    t: Tensor, views: Mapping[Tensor, View], wholes: Wholes, aliases: Mapping[Tensor, Tensor] | None = None
) -> tuple[Tensor, ...]:
    """What must have been written before t can be read: itself, what it is a view of, or all parts of that."""
    while True:
        if aliases and t in aliases:
            t = aliases[t]
        elif isinstance(t, Compute) and t in views and not views[t].is_part:
            t = t.inputs[0]
        else:
            return wholes.get(t, (t,))


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
    """calls: the kernels in an order in which they can run. views: computes that are memory of other tensors. wholes:
    those of these that kernels write in parts.

    decisions: every candidate that fusion looked at, in order, for `explain`. aliases: placeholders that stand for what
    other parts of a program store, see `compose`.
    """

    calls: tuple[Call, ...]
    views: Mapping[Tensor, View]
    decisions: tuple[Decision, ...]
    wholes: Wholes
    aliases: Mapping[Tensor, Tensor] = field(default_factory=dict)

    def base(self, t: Tensor) -> Tensor:
        """The tensor whose memory t is."""
        return self.views[t].base if t in self.views else t

    def makers(self, t: Tensor) -> tuple[Tensor, ...]:
        """See `makers`."""
        return makers(t, self.views, self.wholes, self.aliases)

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
        for t, v in self.views.items():
            kind = "part" if v.is_part else "view"
            lines.append(f"{kind} {t.name} = {v.base.name} from element {v.offset}")
        return "\n".join(lines)


def in_order(calls: list[KernelCall], views: Mapping[Tensor, View], wholes: Wholes) -> list[KernelCall]:
    """Kernels in an order that respects what they read; among those that can run, the first in program order."""
    producer = {t: n for n, c in enumerate(calls) for t in c.outputs}
    order: list[int] = []
    done: set[int] = set()
    for start in range(len(calls)):
        stack = [start]
        while stack:
            n = stack[-1]
            needed = (m for t in calls[n].inputs for m in makers(t, views, wholes))
            waiting = [producer[m] for m in needed if m in producer and producer[m] not in done]
            if n in done:
                stack.pop()
            elif waiting:
                stack.extend(reversed(waiting))
            else:
                done.add(n)
                order.append(n)
                stack.pop()
    return [calls[n] for n in order]


_SAME: WeakKeyDictionary[Subgraph, ref[Subgraph]] = WeakKeyDictionary()


def _the_same(subgraph: Subgraph) -> Subgraph:
    """The one that is equal to it and was there before: what was found out about that is known of this."""
    known = _SAME.get(subgraph)
    found = None if known is None else known()
    if found is None:
        _SAME[subgraph] = ref(subgraph)
    return found or subgraph


def put_together(
    inputs: tuple[Tensor, ...],
    nodes: Sequence[Compute],
    outputs: tuple[Compute, ...],
    rows: int | None,
    turns: Turns,
    name: str,
) -> KernelCall:
    """A call of a kernel of these nodes, each after what it reads. Raises `PartitionError` when it is none
    (`Subgraph.check`)."""
    number = {t: n for n, t in enumerate((*inputs, *nodes))}
    made = (turned(t, turns) if turns else (t.definition, t.inputs) for t in nodes)
    orders = tuple(turns[t].order(len(t.shape)) if t in turns else () for t in outputs)
    subgraph = Subgraph(
        tuple(Value(t.shape, t.dtype) for t in inputs),
        tuple(Node(definition, tuple(number[i] for i in reads)) for definition, reads in made),
        tuple(number[t] for t in outputs),
        rows,
        orders if any(orders) else (),
    )
    subgraph.check(tuple(t.name for t in number))
    return KernelCall(_the_same(subgraph), inputs, outputs, name, tuple(nodes), turns)
