"""The kernels of a graph carried over to another one that was made of it: what has a counterpart stays in its kernel.

A graph in which operands lie in another order is divided as the one before: to ask all rules again would say the same.

kernel 1: y = f(x, w)        ->        kernel 0: p = packed(w)
                                       kernel 1: y = f'(x, p)
"""

from __future__ import annotations

from collections.abc import Mapping

from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph import Graph
from neoflow.partition.calls import Decision, KernelCall, Partition, View, in_order
from neoflow.partition.subgraph import Node, Subgraph, Value
from neoflow.verdict import Verdict

RULE = "carried over"


def carried(cut: Partition, graph: Graph, now: Mapping[Tensor, Tensor]) -> Partition:
    """The partition of a graph whose computes are those of `cut`, each in the place of its counterpart in `now`, and
    new ones, each with a kernel of its own. now: of every tensor of the graph before.

    Raises `PartitionError` where the computes of a kernel are none any more.
    """
    kernels = [call for call in cut.calls if isinstance(call, KernelCall)]
    assert len(kernels) == len(cut.calls), "loops are put together of kernels afterwards, see `compose`"
    calls = [_carried(call, now) for call in kernels]
    views = {now[t]: View(now[v.base], v.offset, v.is_part) for t, v in cut.views.items()}
    wholes = {now[t]: tuple(_counterpart(p, now) for p in parts) for t, parts in cut.wholes.items()}
    known = set(now.values())
    added = [t for t in graph.nodes if t not in known]
    decisions = [
        Decision(RULE, f"{t.name}{list(t.shape)}", Verdict(False, "it is new, and has a kernel of its own"))
        for t in added
    ]
    calls += map(_alone, added)
    return Partition(tuple(in_order(calls, views, wholes)), views, (*cut.decisions, *decisions), wholes)


def _counterpart(t: Compute, now: Mapping[Tensor, Tensor]) -> Compute:
    other = now[t]
    assert isinstance(other, Compute)
    return other


def _alone(t: Compute) -> KernelCall:
    inputs = tuple(dict.fromkeys(t.inputs))
    node = Node(t.definition, tuple(map(inputs.index, t.inputs)))
    values = tuple(Value(i.shape, i.dtype) for i in inputs)
    return KernelCall(Subgraph(values, (node,), (len(inputs),)), inputs, (t,), t.name)


def _computes(call: KernelCall) -> dict[int, Compute]:
    """The nodes of a kernel by their value number, as the tensors that they are in its place."""
    first, found = len(call.inputs), dict[int, Compute]()
    stack: list[tuple[int, Tensor]] = list(zip(call.subgraph.outputs, call.outputs, strict=True))
    while stack:
        number, t = stack.pop()
        if number >= first and number not in found and isinstance(t, Compute):
            found[number] = t
            stack.extend(zip(call.subgraph.nodes[number - first].inputs, t.inputs, strict=True))
    return found


def _carried(call: KernelCall, now: Mapping[Tensor, Tensor]) -> KernelCall:
    """A call in the other graph; the same one where nothing of it is another."""
    made = _computes(call)
    if all(now[t] is t for t in made.values()):
        return call
    order = [_counterpart(made[number], now) for number in sorted(made)]
    inside = set(order)
    inputs = tuple(dict.fromkeys(i for t in order for i in t.inputs if i not in inside))
    number = {t: n for n, t in enumerate((*inputs, *order))}
    outputs = tuple(_counterpart(t, now) for t in call.outputs if isinstance(t, Compute))
    subgraph = Subgraph(
        tuple(Value(t.shape, t.dtype) for t in inputs),
        tuple(Node(t.definition, tuple(number[i] for i in t.inputs)) for t in order),
        tuple(number[t] for t in outputs),
        call.subgraph.rows,
    )
    subgraph.check(tuple(t.name for t in number))
    return KernelCall(subgraph, inputs, outputs, call.name)
