"""What a contraction is as the adjoint of a strided read: points of a cotangent and taps that are tied to each result.

    dx[b, c, z] = sum over (p, r) with m*p + d*r = z + o  of  sum[k](g[b, k, p] * w[k, c, r])         along each line

However it is written: gathered, by residue classes or not, with what pads an operand and what was summed first written
in (`whole`); with conditions, as g[(z - r) // 2] where (z - r) % 2 == 0. The equation is read off what indices are, and
proved so: in each residue class they are evaluated at all values of their axes, and have to be all its solutions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from neoflow.expr import affine
from neoflow.expr.check import values_at
from neoflow.expr.ir import Axis, Const, Expr, Read, Select
from neoflow.expr.memo import remembered
from neoflow.expr.residues import member
from neoflow.expr.tensor import Definition
from neoflow.graph.algorithms.classes import Class, classes
from neoflow.graph.algorithms.form import DTYPES
from neoflow.graph.algorithms.ties import Line, Points, equation

MOST_POINTS = 1 << 16
"""Values of the axes along a line that are tried, at most, in a residue class."""
Place = tuple[int, int]
"""0 for the cotangent or 1 for the taps, and a dimension of it."""


@dataclass(frozen=True)
class Strided:
    """A sum over `summed` and the solutions of `lines` of cotangent * taps, whose indices along lines mean nothing.

    is_split: whether it is written by residue classes, each a sum of products.
    """

    cotangent: Read
    taps: Read
    lines: tuple[Line, ...]
    summed: tuple[Axis, ...]
    is_split: bool


@dataclass(frozen=True)
class _Given:
    """A class that is not zero: the indices of both operands, and the axis of the result that each axis lies along."""

    own: Class
    indices: Mapping[Place, Expr]
    owners: Mapping[Axis, Axis]

    @property
    def summed(self) -> tuple[Axis, ...]:
        """The axes that are summed over and lie along no axis of the result."""
        return tuple(a for a in self.own.axes if a not in self.owners and a.extent > 1)


@remembered
def strided(definition: Definition) -> Strided | str:
    """A sum of products as the adjoint of a strided read; or why it is none."""
    if definition.body.dtype not in DTYPES:
        return "it is no sum of floats"
    found = classes(definition)
    if isinstance(found, str):
        return found
    moduli, those = found
    slots = {tuple(sorted(r.slot for r in c.reads)) for c in those if c.reads}
    if len(slots) != 1 or len({*next(iter(slots))}) != 2:
        return "its residue classes are no products of the same two operands"
    ((a, b),) = slots
    form, other = (_strided(definition, moduli, those, roles) for roles in ((a, b), (b, a)))
    return other if isinstance(form, str) and not isinstance(other, str) else form


def _strided(
    definition: Definition, moduli: Mapping[Axis, int], those: Sequence[Class], slots: tuple[int, int]
) -> Strided | str:
    """The same, with the cotangent and the taps in these slots."""
    along = _along(definition, moduli, those)
    given = []
    for c in those:
        if c.reads:
            indices = _indices(c, slots)
            owners = _owners(c, along, indices.values())
            if owners is None:
                return "an index goes along two axes of the result"
            given.append(_Given(c, indices, owners))
    places = _places(given, moduli)
    if isinstance(places, str):
        return places
    given = [_with_taps(g, places) for g in given]
    lines = []
    for z in along:
        at, tap = (tuple(p for p, line in places.items() if p[0] == which and line is z) for which in (0, 1))
        if len(at) != 1 or len(tap) > 1:
            return "an axis of the result goes along no dimension of an operand, or along several"
        line = _line(z, moduli.get(z, 1), given, (*at, *tap), [definition.slots[n].shape for n in slots])
        if isinstance(line, str):
            return line
        lines.append(line)
    if all(line.step == 1 for line in lines):
        return "no operand is read at every other element"
    reason = _differ(given, places) or _lacks(those, moduli, lines)
    if reason is not None:
        return reason
    first = given[0]
    cotangent, taps = (next(r for r in first.own.reads if r.slot == n) for n in slots)
    is_split = isinstance(definition.body, Select) and all(g.own.sums <= 1 for g in given)
    return Strided(cotangent, taps, tuple(lines), first.summed, is_split)


def _indices(c: Class, slots: tuple[int, int]) -> dict[Place, Expr]:
    """Of both operands, by dimension."""
    by_slot = {r.slot: r.indices for r in c.reads}
    return {(which, d): i for which, slot in enumerate(slots) for d, i in enumerate(by_slot[slot])}


def _along(definition: Definition, moduli: Mapping[Axis, int], those: Iterable[Class]) -> tuple[Axis, ...]:
    """The axes of the result that an operand is not simply read at."""
    found = set(moduli)
    for c in those:
        for e in (*(i for r in c.reads for i in r.indices), *c.guards):
            if not isinstance(e, Axis):
                found |= {c.outer[a] for a in e.free if a in c.outer}
    return tuple(z for z in definition.axes if z in found)


def _owners(c: Class, along: Iterable[Axis], indices: Iterable[Expr]) -> dict[Axis, Axis] | None:
    """The axis of the result that each axis lies along: its own, or that of what it is read with; None: of two."""
    lines = set(along)
    found = {a: z for a, z in c.outer.items() if z in lines}
    exprs, known = (*indices, *c.guards), 0
    while known < len(found):
        known = len(found)
        for e in exprs:
            owners = {found[a] for a in e.free if a in found}
            if len(owners) > 1:
                return None
            found |= {a: owner for owner in owners for a in e.free}
    return found


def _places(given: Iterable[_Given], moduli: Mapping[Axis, int]) -> dict[Place, Axis] | str:
    """The dimensions that lie along an axis of the result: what reads these, and taps that differ by class alone."""
    found: dict[Place, Axis] = {}
    constants: dict[Place, list[tuple[Mapping[Axis, int], int]]] = {}
    for g in given:
        for place, index in g.indices.items():
            owner = next((g.owners[a] for a in index.free if a in g.owners), None)
            if owner is not None and found.setdefault(place, owner) is not owner:
                return "a dimension is read along different axes of the result"
            if isinstance(index, Const):
                constants.setdefault(place, []).append((g.own.residues, int(index.value)))
    for place, values in constants.items():
        if place in found or len({value for _, value in values}) == 1:
            continue
        taken = {line for (which, _), line in found.items() if which == place[0]}
        free = (z for z in moduli if z not in taken and _follows(values, z))
        line = next(free, None)
        if line is None:
            return "a constant index follows from no residue"
        found[place] = line
    return found


def _with_taps(g: _Given, places: Mapping[Place, Axis]) -> _Given:
    """The same, with those axes that only the dimensions along an axis of the result have, in this class."""
    own = {a: z for place, z in places.items() for a in g.indices[place].free}
    return replace(g, owners={**own, **g.owners})


def _follows(values: Iterable[tuple[Mapping[Axis, int], int]], z: Axis) -> bool:
    """Whether a constant is a function of one axis' residue."""
    pairs = {(residues[z], value) for residues, value in values}
    return len(pairs) == len({residue for residue, _ in pairs})


def _line(
    z: Axis, modulus: int, given: Iterable[_Given], places: Sequence[Place], shapes: Sequence[tuple[int, ...]]
) -> Line | str:
    """The equation along an axis of the result, of which each class has all solutions; or why there is none."""
    found: list[tuple[int, Points]] = []
    for g in given:
        axes = tuple(a for a, owner in g.owners.items() if owner is z)
        if math.prod(a.extent for a in axes) > MOST_POINTS:
            return f"more than {MOST_POINTS} points lie along an axis of the result"
        residue = g.own.residues.get(z, 0)
        within = next(a for a in axes if g.own.outer.get(a) is z)
        values = [member(modulus, residue, within), *(g.indices[p] for p in places), affine.integer(0)][:3]
        found.append((residue, _points(axes, values, [c for c in g.own.guards if c.free.intersection(axes)])))
    (_, at), *taps = places
    tap = (taps[0][1], shapes[1][taps[0][1]]) if taps else (None, 1)
    line = equation(z, [points for _, points in found], (at, shapes[0][at]), tap)
    if isinstance(line, str):
        return line
    every = line.solutions
    for residue, points in found:
        of_class = int((every[:, 0] % modulus == residue).sum())
        if not len({*map(tuple, points.tolist())}) == len(points) == of_class:
            return f"it is no sum over all p and r with {line}"
    return line


def _points(axes: Sequence[Axis], values: Sequence[Expr], guards: Sequence[Expr]) -> Points:
    """The values at all points of the axes at which the conditions hold."""
    extents = [a.extent for a in axes]
    count = math.prod(extents)
    at = dict(zip(axes, np.indices(extents).reshape(len(axes), -1), strict=True))
    holds = np.ones(count, bool)
    for guard in guards:
        holds &= values_at(guard, at, count).astype(bool)
    return np.stack([values_at(e, at, count)[holds].astype(np.int64) for e in values], axis=1)


def _differ(given: Sequence[_Given], places: Mapping[Place, Axis]) -> str | None:
    """Why the classes are not the same beside what lies along axes of the result; None where they are."""
    seen = set()
    for g in given:
        beside = {p: i for p, i in g.indices.items() if p not in places}
        if not all(isinstance(i, (Axis, Const)) for i in beside.values()):
            return "an operand is read at other than axes beside its lines"
        if not all(any(i is a for i in beside.values()) for a in g.summed):
            return "an axis is summed over that no operand has"
        if not all(c.free & g.owners.keys() for c in g.own.guards):
            return "a condition goes along no axis of the result"
        seen.add(
            (len(g.summed), tuple((p, _named(i, beside, g.summed)) for p, i in sorted(beside.items(), key=_place)))
        )
    return None if len(seen) == 1 else "its residue classes differ in more than what they read along axes of the result"


def _place(item: tuple[Place, Expr]) -> Place:
    return item[0]


def _named(index: Expr, beside: Mapping[Place, Expr], summed: Sequence[Axis]) -> object:
    """An index, whatever number its axis has if it is summed over: that axis by where it is read."""
    is_summed = any(index is a for a in summed)
    return tuple(sorted(p for p, i in beside.items() if i is index)) if is_summed else index


def _lacks(those: Iterable[Class], moduli: Mapping[Axis, int], lines: Iterable[Line]) -> str | None:
    """Why a class that is zero should not be; None where none should."""
    by_axis = {line.out: line.solutions[:, 0] for line in lines}
    for c in those:
        if not c.reads and all(
            bool((z_of % moduli.get(z, 1) == c.residues.get(z, 0)).any()) for z, z_of in by_axis.items()
        ):
            return "a residue class is zero that has taps"
    return None
