"""Graphs in the form in which steps are looked for: nothing twice, no copies, and what a step reads of a tensor of all
steps a tensor of its own.

    h1[i] = tanh(h0[i] + x[3, i])    ->    x3[i] = x[3, i];  h1[i] = tanh(h0[i] + x3[i])
"""

from __future__ import annotations

from neoflow.expr.ir import Axis, Const, Expr, Read, Slot
from neoflow.expr.memo import remembered
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph.facts import reads_at_own_point
from neoflow.graph.graph import Graph
from neoflow.mapping.chains import LEAST
from neoflow.mapping.columns import over

Place = tuple[tuple[int, Const], ...]
"""Dimensions that have one index, and the index."""


def merged(graph: Graph) -> list[Tensor]:
    """The roots over tensors of which no two are computed alike from the same ones, without copies."""
    new: dict[Tensor, Tensor] = {}
    known: dict[tuple[int, ...], Tensor] = {}
    for t in graph.order:
        inputs = tuple(new[i] for i in t.inputs)
        is_same = all(a is b for a, b in zip(inputs, t.inputs, strict=True))
        if not isinstance(t, Compute):
            new[t] = t if is_same else t.over(inputs)
        elif isinstance(t.definition.body, Read) and reads_at_own_point(t.definition.body, t.shape):
            new[t] = inputs[0]
        else:
            key = (t.definition.uid, *(i.uid for i in inputs))
            if key not in known:
                known[key] = t if is_same else t.over(inputs)
            new[t] = known[key]
    return [new[t] for t in graph.roots]


def sliced(graph: Graph) -> list[Tensor]:
    """The roots over computes that read slices as tensors, where there are several of a tensor."""
    several: dict[tuple[int, ...], set[Place]] = {}
    for t in graph.order:
        if isinstance(t, Compute) and not isinstance(t.definition.body, Read):
            for x, place in zip(t.inputs, places(t.definition), strict=True):
                several.setdefault((x.uid, *(d for d, _ in place)), set()).add(place)
    edit: dict[Tensor, Tensor] = {}
    for t in graph.order:
        if isinstance(t, Compute) and not isinstance(t.definition.body, Read):
            taken = tuple(
                place if place and len(several[(x.uid, *(d for d, _ in place))]) >= LEAST else ()
                for x, place in zip(t.inputs, places(t.definition), strict=True)
            )
            if any(taken):
                inputs = tuple(_slice(x, p) if p else x for x, p in zip(t.inputs, taken, strict=True))
                edit[t] = Compute(_reading(t.definition, taken), inputs, t.name, t.axis_names, t.where)
    return replaced(graph.roots, edit.get) if edit else list(graph.roots)


@remembered
def places(definition: Definition) -> tuple[Place, ...]:
    """By slot: the dimensions that all its reads have at the same number."""
    found: dict[int, set[Place]] = {}
    for r in definition.reads:
        place = tuple((d, i) for d, i in enumerate(r.indices) if isinstance(i, Const) and r.source.shape[d] > 1)
        found.setdefault(r.slot, set()).add(place)
    return tuple(next(iter(found[n])) if len(found.get(n, ())) == 1 else () for n in range(len(definition.slots)))


def _slice(x: Tensor, place: Place) -> Tensor:
    at: dict[int, Expr] = dict(place)
    shape = tuple(n for d, n in enumerate(x.shape) if d not in at)
    slot, own = Slot(0, x.shape, x.dtype), iter(tuple(Axis(k, n) for k, n in enumerate(shape)))
    body = Read(slot, tuple(at[d] if d in at else next(own) for d in range(len(x.shape))))
    return Compute(Definition(shape, body, (slot,)), (x,), x.name)


@remembered
def _reading(definition: Definition, taken: tuple[Place, ...]) -> Definition:
    """The definition over slices in place of the tensors that they are of."""
    slots = tuple(
        Slot(s.position, tuple(n for d, n in enumerate(s.shape) if d not in dict(p)), s.dtype)
        for s, p in zip(definition.slots, taken, strict=True)
    )
    new: dict[Expr, Expr] = {}
    for e in definition.nodes:
        children = tuple(new[c] for c in e.children)
        if isinstance(e, Read):
            kept = tuple(i for d, i in enumerate(children) if d not in dict(taken[e.slot]))
            new[e] = Read(slots[e.slot], kept)
        else:
            new[e] = over(e, children)
    return Definition(definition.shape, new[definition.body], slots)
