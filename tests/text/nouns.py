"""What a program is on its way down, as values that have a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neoflow.code import Code, Entry, Fault, Workspace
from neoflow.expr.tensor import Tensor
from neoflow.graph import Graph, make_graph
from neoflow.loops import Schedule, default_schedule
from neoflow.partition import Subgraph, order_calls
from neoflow.rewriting import stages
from neoflow.runtime.plan import Plan
from neoflow.runtime.planner import make_plan
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
    codes = {s.digest: code_of(s) for s in kernels.subgraphs}
    plan = make_plan(graph, calls, in_place, kernels.views, codes, TARGET.threads)
    return Nouns(written, graph, kernels.subgraphs, schedules, plan)


def code_of(subgraph: Subgraph) -> Code:
    """What its compiled form could be called by: as many phases, workspaces and faults as it has nodes and inputs."""
    nodes, inputs = len(subgraph.nodes), len(subgraph.inputs)
    entries = tuple(Entry(f"nf_{subgraph.digest[:16]}_{n}", 7 * n + 1, bool(n % 2)) for n in range(nodes))
    workspaces = tuple(Workspace(100 * n + 3, bool(n % 2)) for n in range(nodes - 1))
    return Code(entries, workspaces, tuple(Fault(n or None, n + 2) for n in range(inputs)))
