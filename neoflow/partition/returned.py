"""What a program returns in another shape than a kernel makes it: the kernel writes it where it is returned.

    kernel 1: s[i, g, k] = sum[...](...)             kernel 1: s[i, g, k] = sum[...](...)
    kernel 2: y[i, c] = s[i, c // 4, c % 4]    ->    y, which is returned: s in order

Done to a division that is finished: whether a shape rides along with something is decided before. Programs with
recurrences keep their copies, as what loops leave has a place of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph import Graph
from neoflow.graph.facts import contiguous_offset
from neoflow.partition.calls import Call, Decision, KernelCall, Partition, View
from neoflow.partition.handed import HandedCall
from neoflow.verdict import Verdict

RETURNED = "returned"


def as_made(graph: Graph, cut: Partition) -> Partition:
    """A division without the kernels that only copy what another one has made to where it is returned."""
    makers = {t: call for call in cut.calls for t in call.outputs}
    views, wholes, decisions = dict(cut.views), dict(cut.wholes), list[Decision]()
    left: list[Call] = []
    for call in cut.calls:
        copied = _copied(graph, call)
        if copied is None:
            left.append(call)
            continue
        source, t = copied
        verdict = _may_write_it(graph, source, makers.get(source), views, wholes)
        decisions.append(Decision(RETURNED, f"{t.name}{list(t.shape)}", verdict))
        if not verdict.ok:
            left.append(call)
            continue
        for viewed, view in views.items():
            if view.base is source:
                views[viewed] = replace(view, base=t)
        views[source], wholes[t] = View(t, 0, is_part=True), (source,)
    return replace(cut, calls=tuple(left), views=views, wholes=wholes, decisions=(*cut.decisions, *decisions))


def _copied(graph: Graph, call: Call) -> tuple[Compute, Compute] | None:
    """What a call only copies, all of it in order, and where to, if that is returned and no parameter's new value."""
    if not isinstance(call, KernelCall) or len(call.inputs) != 1 or len(call.outputs) != 1:
        return None
    (source,), (t,) = call.inputs, call.outputs
    if not isinstance(t, Compute) or t.inputs != (source,) or not isinstance(source, Compute):
        return None
    is_whole = t.size == source.size and contiguous_offset(t.definition) == 0
    is_returned = any(o is t for o in graph.outputs) and all(v is not t for _, v in graph.updates)
    return (source, t) if is_whole and is_returned else None


def _may_write_it(
    graph: Graph,
    source: Compute,
    maker: Call | None,
    views: Mapping[Tensor, View],
    wholes: Mapping[Tensor, tuple[Compute, ...]],
) -> Verdict:
    """Whether what is copied may lie where it is returned."""
    if maker is None or not isinstance(maker, KernelCall) or isinstance(maker, HandedCall):
        return Verdict(False, f"{source.name} is made by no kernel")
    if any(root is source for root in graph.roots):
        return Verdict(False, f"{source.name} is returned as well")
    if source in views or source in wholes:
        return Verdict(False, f"{source.name} lies in other memory already")
    return Verdict(True, f"{source.name} is written where it is returned")
