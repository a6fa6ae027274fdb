"""The kernels of a graph carried over to another one that was made of it: what has a counterpart stays in its kernel.

A graph in which operands lie in another order is divided as the one before: to ask all rules again would say the same.

kernel 1: y = f(x, w)        ->        kernel 0: p = packed(w)
                                       kernel 1: y = f'(x, p)
"""

from __future__ import annotations

from collections.abc import Mapping

from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph import Graph
from neoflow.partition.calls import Decision, KernelCall, Partition, View, in_order, put_together
from neoflow.verdict import Verdict

RULE = "carried over"


def carried(cut: Partition, graph: Graph, now: Mapping[Tensor, Tensor]) -> Partition:
    """The partition of a graph whose computes are those of `cut`, each in the place of its counterpart in `now`, and
    new ones, each with a kernel of its own. now: of every tensor of the graph before.

    Raises `PartitionError` where the computes of a kernel are none any more.
    """
    kernels = [call for call in cut.calls if isinstance(call, KernelCall)]
    assert len(kernels) == len(cut.calls), "loops are put together of kernels afterwards, see `compose`"
    calls = [carried_call(call, now) for call in kernels]
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
    return put_together(tuple(dict.fromkeys(t.inputs)), (t,), (t,), None, {}, t.name)


def carried_call(call: KernelCall, now: Mapping[Tensor, Tensor]) -> KernelCall:
    """A call in the other graph; the same one where nothing of it is another."""
    if all(now[t] is t for t in call.nodes):
        return call
    order = [_counterpart(t, now) for t in call.nodes]
    inside = set(order)
    inputs = tuple(dict.fromkeys(i for t in order for i in t.inputs if i not in inside))
    outputs = tuple(_counterpart(t, now) for t in call.outputs if isinstance(t, Compute))
    turns = {now[t]: turn for t, turn in call.turns.items()}
    return put_together(inputs, order, outputs, call.subgraph.rows, turns, call.name)
