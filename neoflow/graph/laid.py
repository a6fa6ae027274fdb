"""Tensors of a graph that lie in another order: what computes them writes it, what reads them reads it.

    y[i, j] = sum[k](x[i, k] * w[k, j]);  update w[k, j] = w[k, j] - g[k, j]
        ->  y[i, j] = sum[k](x[i, k] * p[j // 32, k, j % 32]);
            update p[q, k, r] = p[q, k, r] - g'[q, k, r]

A layout is a bijection, so any tensor may lie so: a parameter, with its gradient and what an optimizer keeps of it, or
what one operator hands to the next. What the program takes and returns is as it was.
Source: layout transformation, section 4.3 of NeoFlow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from neoflow.expr.close import build
from neoflow.expr.ir import Axis, Expr, Read, Reduce, Scatter, Slot, rewrite, substitute
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Compute, Definition, Parameter, Placeholder, Tensor
from neoflow.graph.facts import own_indices, reads_at_own_point
from neoflow.graph.graph import Graph
from neoflow.graph.packing import Layout
from neoflow.verdict import Verdict


class Order(Protocol):
    """A bijection of the indices of tensors: a `Layout`, or a `Turn` of `partition`."""

    def shape(self, plain: Sequence[int], /) -> tuple[int, ...]:
        """The shape of a tensor of this shape that lies so."""

    def indices(self, plain: Sequence[Expr], /) -> tuple[Expr, ...]:
        """Where the element lies that is at `plain` in the tensor."""

    def points(self, plain: Sequence[int], /) -> tuple[Expr, ...]:
        """The point of the tensor, of this shape, that is at the own point of the one that lies so."""


class Packed(Parameter):
    """A parameter that lies in another order, in a program; `of`: as users know it, `layout`: its order."""

    __slots__ = ("layout", "of")
    of: Parameter
    layout: Layout

    def __init__(self, of: Parameter, layout: Layout):
        shape = layout.shape(of.shape)
        super().__init__(shape, of.dtype, of.name, of.where, init=None, of=of, layout=layout)

    @property
    def structure(self) -> str:
        return f"{Parameter.__name__} {self.shape} {self.dtype}"


def plain(p: Parameter) -> Parameter:
    """A parameter as users know it."""
    return p.of if isinstance(p, Packed) else p


Layouts = Mapping[Tensor, Layout]
Beside = Mapping[tuple[Compute, int], Layout]
"""Of slots of computes, the order in which they read a copy of what they read."""


def lay(graph: Graph, layouts: Layouts, beside: Beside = MappingProxyType({})) -> tuple[Graph, dict[Tensor, Tensor]]:
    """The graph in which these parameters and computes lie so, and what became of each of its tensors. beside: what is
    read in a copy, one for all that read it in this order."""
    now: dict[Tensor, Tensor] = {}
    copies: dict[tuple[Tensor, Layout], Compute] = {}

    def copy(t: Tensor, layout: Layout) -> Compute:
        if (t, layout) not in copies:
            copies[t, layout] = layout.packed(now[t])
        return copies[t, layout]

    for t in (*graph.order, *(p for p, _ in graph.updates)):
        if t in now:
            continue
        if isinstance(t, Compute):
            own = {t.inputs[n]: beside[t, n] for n in range(len(t.inputs)) if (t, n) in beside}
            there = {**now, **{i: copy(i, layout) for i, layout in own.items()}} if own else now
            now[t] = laid(t, {**layouts, **own} if own else layouts, there)
        elif isinstance(t, Parameter) and t in layouts:
            now[t] = Packed(t, layouts[t])
        else:
            assert t not in layouts, "what is given lies as it is given"
            now[t] = t.over(tuple(now[i] for i in t.inputs)) if t.inputs else t
    outputs = tuple(_as(now[t], layouts.get(t), None) for t in graph.outputs)
    updates = []
    for p, value in graph.updates:
        new = now[p]
        assert isinstance(new, Parameter)
        updates.append((new, _as(now[value], layouts.get(value), layouts.get(p))))
    return Graph(graph.inputs, outputs, tuple(updates)), now


def _as(t: Tensor, lies: Layout | None, wanted: Layout | None) -> Tensor:
    """What lies in one order in another one; None: as it is written."""
    if lies == wanted:
        return t
    if lies is not None:
        t = _unpacked(t, lies)
    return t if wanted is None else wanted.packed(t)


def _unpacked(t: Tensor, layout: Layout) -> Compute:
    shape = layout.plain_shape(t.shape)
    read = Read(Slot(0, t.shape, t.dtype), layout.indices(own_indices(shape)))
    return build(shape, read, (t,), t.name)


def laid(t: Compute, layouts: Mapping[Tensor, Order], now: Mapping[Tensor, Tensor]) -> Compute:
    """A compute that reads, and perhaps is, what lies otherwise; itself where nothing of it does."""
    inputs = tuple(now[i] for i in t.inputs)
    own, read = layouts.get(t), tuple(layouts.get(i) for i in t.inputs)
    if own is None and not any(read):
        return t if all(i is j for i, j in zip(inputs, t.inputs, strict=True)) else t.over(inputs)
    definition, slots, names = reordered(t.definition, own, read)
    return Compute(definition, tuple(inputs[n] for n in slots), t.name, names, t.where)


@remembered
def reordered(
    definition: Definition, own: Order | None, read: tuple[Order | None, ...]
) -> tuple[Definition, tuple[int, ...], tuple[str, ...]]:
    """A definition in which each slot, and perhaps its result, lies so; which slots are left; the names of its axes."""
    shapes = [s.shape if lies is None else lies.shape(s.shape) for s, lies in zip(definition.slots, read, strict=True)]
    inputs = tuple(Placeholder(s, slot.dtype, "", None) for s, slot in zip(shapes, definition.slots, strict=True))
    shape = definition.shape if own is None else own.shape(definition.shape)

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Read):
            return None
        lies = read[e.slot]
        return Read(Slot(e.slot, inputs[e.slot].shape, e.dtype), e.indices if lies is None else lies.indices(e.indices))

    at: dict[Axis, Expr] = {a: Axis(len(shape) + n, a.extent) for n, a in enumerate(definition.reduction_axes)}
    if own is not None:
        at.update(zip(definition.axes, own.points(definition.shape), strict=True))
    found = build(shape, substitute(rewrite(definition.body, rule), at), inputs, "")
    return (
        found.definition,
        tuple(next(n for n, i in enumerate(inputs) if i is t) for t in found.inputs),
        found.axis_names,
    )


def kin(graph: Graph, p: Parameter) -> frozenset[Tensor] | Verdict:
    """What lies as a parameter does once that lies otherwise: its new value, what that is computed of point by point,
    down to a gradient, and other parameters whose new values are so, as an optimizer's; or why it stays.

    update w = w - m';  update m = m';  m' = 0.9 * m + d;  d = sum(...)   ->    {w, w - m', m, m', d}
    """
    updates = dict(graph.updates)
    readers: dict[Tensor, list[Compute]] = {}
    for node in graph.nodes:
        for i in dict.fromkeys(node.inputs):
            readers.setdefault(i, []).append(node)
    fixed = {t for t in graph.outputs}
    found: set[Tensor] = set()
    stack: list[Tensor] = [p]
    while stack:
        t = stack.pop()
        if t in found or t.shape != p.shape or t.dtype != p.dtype or t in fixed:
            continue
        if isinstance(t, Parameter):
            if isinstance(updates.get(t), Compute) and updates[t] not in fixed:
                found.add(t)
                stack.append(updates[t])
        elif isinstance(t, Compute) and not isinstance(t.definition.body, Scatter):
            found.add(t)
            if not t.definition.has_reduction:
                stack += [i for n, i in enumerate(t.inputs) if _is_own(t, n)]
    if p not in found or updates[p] not in found:
        return Verdict(False, f"{p.name} is given a new value that the program returns too, or does not compute")
    kept = {value: q for q, value in graph.updates}
    while True:
        lost = {
            t
            for t in found
            if (t in kept and kept[t] not in found) or not all(r in found or _sums(r) for r in readers.get(t, ()))
        }
        lost |= {t for t in found if isinstance(t, Parameter) and updates[t] not in found | lost}
        if p in lost or updates[p] in lost:
            other = next((r for r in readers.get(p, ()) if r not in found and not _sums(r)), None)
            return Verdict(
                False, f"{p.name} is read by {updates[p].name if other is None else other.name}, which is no sum"
            )
        if not lost:
            return frozenset(found)
        found -= lost


def _is_own(t: Compute, slot: int) -> bool:
    """Whether a compute reads a slot at its own point alone."""
    return all(reads_at_own_point(r, t.shape) for r in t.definition.reads if r.slot == slot)


def _sums(t: Compute) -> bool:
    """Whether a compute is a sum, which goes through what it reads in any order."""
    return isinstance(t.definition.body, Reduce) and t.definition.body.op == "sum"
