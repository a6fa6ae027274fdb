"""What is known of a body before any value is, found once and shared by all its evaluations."""

from __future__ import annotations

from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr.ir import Axis, Const, Expr, Read, Reduce, Scatter, Select, Slot
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Definition

Border = tuple[tuple[int, ...], tuple[int, ...]]
"""How far reads leave a tensor in each of its dimensions: below, and above."""
Guards = tuple[tuple[Expr, bool], ...]
"""Conditions under which an expression is evaluated, outermost first, each with the value it has there."""


@dataclass(frozen=True)
class Analysis:
    """What the body of a definition says about itself, whatever the values."""

    extents: tuple[int, ...]
    """of every axis, by ident; at least one"""
    uses: dict[Expr, int]
    """how many nodes use a node"""
    faulty: frozenset[Expr]
    """nodes that can fault at run time, so that the conditions around them matter"""
    reading: frozenset[Expr]
    """nodes that depend on data"""
    forms: dict[Read, tuple[affine.Linear, ...]]
    """reads whose indices are all affine in the axes, with their linear forms"""
    borders: dict[int, Border]
    """by slot, how far its affine reads leave it, all of them together"""
    is_pointwise: bool
    """whether no sum is in it, and nothing that can fault: any part of its elements can be computed by itself"""
    chosen: frozenset[int]
    """axes, by ident, along which a selection takes one of several expressions that are worth computing once"""


@remembered
def analysed(definition: Definition) -> Analysis:
    """What is known of a body before any value is."""
    nodes = definition.nodes
    axes = {a.ident: a.extent for a in (*definition.axes, *definition.reduction_axes)}
    extents = tuple(axes.get(n, 1) for n in range(max(axes, default=0) + 1))
    uses: dict[Expr, int] = {}
    faulty: set[Expr] = set()
    reading: set[Expr] = set()
    forms: dict[Read, tuple[affine.Linear, ...]] = {}
    for e in nodes:
        for c in e.children:
            uses[c] = uses.get(c, 0) + 1
        if isinstance(e, Read) or any(c in reading for c in e.children):
            reading.add(e)
        follows_data = isinstance(e, Read) and any(c in reading for c in e.indices)
        if follows_data or any(c in faulty for c in e.children):
            faulty.add(e)
        if isinstance(e, Read):
            linear = tuple(affine.linear(i) for i in e.indices)
            if all(isinstance(atom, Axis) for terms, _ in linear for atom in terms):
                forms[e] = linear
    is_pointwise = not faulty and not any(isinstance(e, Reduce | Scatter) for e in nodes)
    chosen = frozenset(d for e in nodes if isinstance(e, Select) for d in _chosen(e, reading))
    return Analysis(extents, uses, frozenset(faulty), frozenset(reading), forms, _borders(forms), is_pointwise, chosen)


def border(slot: Slot, forms: tuple[affine.Linear, ...]) -> Border:
    """How far a read with these indices leaves its tensor."""
    below, above = [], []
    for (terms, constant), extent in zip(forms, slot.shape, strict=True):
        ends = [k * (axis.extent - 1) for axis, k in affine.over_axes((terms, constant)).items()]
        below.append(max(0, -constant - sum(min(end, 0) for end in ends)))
        above.append(max(0, constant + sum(max(end, 0) for end in ends) - extent + 1))
    return tuple(below), tuple(above)


def _borders(forms: dict[Read, tuple[affine.Linear, ...]]) -> dict[int, Border]:
    found: dict[int, Border] = {}
    for read, indices in forms.items():
        assert isinstance(read.source, Slot)
        own = border(read.source, indices)
        known = found.get(read.slot, own)
        below, above = (tuple(map(max, a, b)) for a, b in zip(own, known, strict=True))
        found[read.slot] = below, above
    return found


def _chosen(e: Select, reading: set[Expr]) -> tuple[int, ...]:
    """The axis whose positions alone say which of two expressions it is; what is a constant on one side pads."""
    if e.cond in reading or len(e.cond.free) != 1 or isinstance(e.then, Const) or isinstance(e.other, Const):
        return ()
    return tuple(a.ident for a in e.cond.free)
