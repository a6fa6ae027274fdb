"""What is known of a body before any value is, found once and shared by all its evaluations."""

from __future__ import annotations

from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr.ir import Axis, Expr, Read
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Definition

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
    return Analysis(extents, uses, frozenset(faulty), frozenset(reading), forms)
