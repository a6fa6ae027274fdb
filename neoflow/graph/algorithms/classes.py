"""What a sum of products is in each residue class of its axes: two reads, conditions, and no remainders of these."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.guards import conjuncts
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Reduce, Select, postorder, substitute
from neoflow.expr.residues import member, members, period
from neoflow.expr.tensor import Definition

MOST_CLASSES = 64
"""Residue classes at most: strides of 8 in two dimensions, as for gradients."""
NAMES = 1 << 20
"""Numbers of axes from which on no definition has any."""


@dataclass(frozen=True)
class Class:
    """A residue class of a result: its remainders, and the sum over `axes` of the product of two `reads` there, where
    the `guards` hold; no reads: zero. outer: the axes of the result by what counts within the class. sums: how many
    are written inside each other.
    """

    residues: Mapping[Axis, int]
    outer: Mapping[Axis, Axis]
    axes: tuple[Axis, ...] = ()
    guards: tuple[Expr, ...] = ()
    reads: tuple[Read, ...] = ()
    sums: int = 0


def classes(definition: Definition) -> tuple[dict[Axis, int], list[Class]] | str:
    """The modulus of each axis of the result that has one, and all residue classes; or why there are none."""
    moduli = _moduli(definition)
    if not moduli:
        return "no operand is read at every other element"
    count = math.prod(min(m, z.extent) for z, m in moduli.items())
    if count > MOST_CLASSES:
        return f"it has {count} residue classes, {MOST_CLASSES} at most"
    found = []
    for residues in itertools.product(*(range(min(m, z.extent)) for z, m in moduli.items())):
        each = _class(definition, moduli, dict(zip(moduli, residues, strict=True)))
        if isinstance(each, str):
            return each
        found.append(each)
    return moduli, found


def _moduli(definition: Definition) -> dict[Axis, int]:
    """For each axis of the result, the modulus in whose residue classes no `//` and `%` of it is left."""
    moduli: dict[Axis, int] = {}
    for node in filter(_is_digit, definition.nodes):
        inner = [n for n in postorder(node) if _is_digit(n)]
        if not all(isinstance(n, Apply) and isinstance(n.args[1], Const) and n.args[1].value > 0 for n in inner):
            return {}
        for z in node.free.intersection(definition.axes):
            moduli[z] = math.lcm(moduli.get(z, 1), period(node, z))
    return {z: moduli[z] for z in definition.axes if moduli.get(z, 1) > 1}


def _is_digit(e: Expr) -> bool:
    return isinstance(e, Apply) and e.fn in ("floordiv", "mod") and e.dtype == dt.INDEX


def _class(definition: Definition, moduli: Mapping[Axis, int], residues: Mapping[Axis, int]) -> Class | str:
    place, outer = dict[Axis, Expr](), {z: z for z in definition.axes}
    for n, (z, modulus) in enumerate(moduli.items()):
        quotient = Axis(NAMES + n, members(z.extent, modulus, residues[z]))
        place[z] = member(modulus, residues[z], quotient)
        outer[quotient] = outer.pop(z)
    axes, guards, reads, sums, is_factor = list[Axis](), list[Expr](), list[Read](), 0, False
    stack: list[Expr] = [substitute(definition.body, place)]
    while stack:
        match e := stack.pop():
            case Reduce(op="sum") if not is_factor:
                sums += 1
                axes += e.axes
                stack.append(e.body)
            case Select():
                inner, conditions = _chosen(e)
                if inner is None:
                    return "it chooses between other than a value and zero"
                guards += conditions
                stack.append(inner)
            case Apply(fn="mul"):
                is_factor = True
                stack += reversed(e.args)
            case Read():
                reads.append(Read(e.source, tuple(map(affine.simplify, e.indices))))
            case Const(value=0):
                return Class(residues, outer)
            case _:
                return "it is no sum of products of two"
    if len(reads) != 2:
        return "it is no sum of products of two"
    if any(isinstance(n, Read) for e in (*guards, *(i for r in reads for i in r.indices)) for n in postorder(e)):
        return "what it reads depends on data"
    return Class(residues, outer, tuple(axes), tuple(guards), tuple(reads), sums)


def _chosen(e: Select) -> tuple[Expr | None, tuple[Expr, ...]]:
    """What a choice between a value and zero gives, and where; of one that is decided, what was chosen."""
    cond = affine.simplify(e.cond)
    if isinstance(cond, Const):
        return (e.then if cond.value else e.other), ()
    if _is_zero(e.other):
        return e.then, conjuncts(cond, True)
    return (e.other, conjuncts(cond, False)) if _is_zero(e.then) else (None, ())


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0
