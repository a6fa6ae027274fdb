"""What a program is on its way down, as values that have a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neoflow.expr.tensor import Tensor
from neoflow.graph import Graph, make_graph
from neoflow.loops import Schedule, default_schedule
from neoflow.partition import Subgraph, order_calls
from neoflow.pipeline import stages
from neoflow.runtime.plan import Plan, make_plan
from neoflow.target import Target
from neoflow.trace import Trace

TARGET = Target(mcpu="znver4", threads=2, vector_bytes=64)


@dataclass(frozen=True)
class Nouns:
    """written: the graph as it was written; graph: after the rewrites."""

    written: Graph
    graph: Graph
    subgraphs: tuple[Subgraph, ...]
    schedules: tuple[Schedule, ...]
    plan: Plan


def nouns_of(outputs: Sequence[Tensor], inputs: Sequence[Tensor], updates: dict | None = None) -> Nouns:
    """Every stage of a program before code."""
    written = make_graph(outputs, inputs, updates)
    graph, kernels = stages(written, Trace())
    schedules = tuple(default_schedule(s, TARGET) for s in kernels.subgraphs)
    calls, in_place = order_calls(graph, kernels)
    return Nouns(written, graph, kernels.subgraphs, schedules, make_plan(graph, calls, in_place, kernels.views))
