"""What depends on parameters alone that a program only reads: computed when these change, not at every call.

call 1: p[q, k, r] = w[k, 32 * q + r]              when w has changed: call 1
call 2: y[i, j] = sum[k](x[i, k] * p[...])   ->    every time:         call 2
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neoflow.expr.tensor import Constant, Tensor
from neoflow.graph import Graph
from neoflow.partition.calls import Call, KernelCall, View
from neoflow.partition.handed import HandedCall

MOST = 4
"""Bytes that a call may make of each that it reads: they stay in memory as long as the program does. A filter of 3 x 3
taps has 36 points for tiles of 4 x 4 results."""


def prepared_first(graph: Graph, calls: Sequence[Call], views: Mapping[Tensor, View]) -> tuple[tuple[Call, ...], int]:
    """The calls in another order that is right too, and how many of the first need to run only when a parameter has
    changed since they last did. None of them makes what the program returns, or a part of something else."""
    changed = {p for p, _ in graph.updates}
    lasting: set[Tensor] = {p for p in graph.parameters if p not in changed}
    lasting |= set(graph.constants)
    roots, first = set(graph.roots), list[Call]()
    for call in calls:
        bases = {views[t].base if t in views else t for t in call.inputs}
        is_own = not any(t in roots or t in views for t in call.outputs)
        is_small = sum(t.nbytes for t in call.outputs) <= MOST * sum(t.nbytes for t in bases)
        is_known = all(isinstance(b, Constant) for b in bases)
        if (
            isinstance(call, KernelCall)
            and not isinstance(call, HandedCall)
            and is_own
            and is_small
            and not is_known
            and bases <= lasting
        ):
            first.append(call)
            lasting |= set(call.outputs)
    chosen = set(map(id, first))
    return (*first, *(c for c in calls if id(c) not in chosen)), len(first)
