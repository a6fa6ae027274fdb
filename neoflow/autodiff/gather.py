"""Terms of an adjoint in gather form: what a solution of index equations says is summed at each element.

    dA[z] = sum over (i, r) with f(i, r) = z of  e(i, r)

Where the solution depends on residues of z (a strided read), dA is split by residue class, so that no term is computed
only to be masked:

    A[2*p + r]:   dA_even[z] = sum[s] g[z - s] * w[2*s],   dA_odd[z] = sum[s] g[z - s] * w[2*s + 1],   then interleaved.

Source: NeoFlow, section 4.2; the split is ours.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from neoflow.autodiff.solve import Solution
from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.close import define
from neoflow.expr.guards import Guards
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Reduce, Select, postorder, substitute
from neoflow.expr.normal import conjunction
from neoflow.expr.recipe import derived
from neoflow.expr.residues import interleaved, member, members, period
from neoflow.expr.tensor import Compute, Tensor

_MAX_CLASSES = 64
"""Residue classes that are computed each by itself, at most: a step of 8 in two dimensions. Chosen, not measured."""
_MAX_SPAN = 1024
"""Longest axis whose values are tried one by one: all of them take 77 ms (one condition, Zen 4)."""
_SPLIT_GAIN = 1.2
"""A term is split by residues where it then visits so many times fewer points: interleaving is a pass of its own.
Chosen, not measured."""
IDENTS = itertools.count(1_000_000)
"""Numbers of new axes."""


def gather(solution: Solution, e: Expr, guards: Guards) -> Expr:
    """The term at z: summed over the free axes, masked by the guards of the solution and of the branch.

    In this order: the branch's conditions make sense at axis values in range, data is only read in the branch.
    """
    e = substitute(e, solution.axes)
    conditions = (*solution.guards, *(substitute(c, solution.axes) for c in guards), *solution.matches)
    conditions = tuple(affine.simplify(c) for c in conditions)
    conditions = tuple(c for c in conditions if not (isinstance(c, Const) and c.value))
    free: list[Axis] = []
    for a in solution.free:
        own = [c for c in conditions if c.free == {a} and not any(isinstance(n, Read) for n in postorder(c))]
        span = _span_that_meets(own, a)
        if span is None:
            free.append(a)
            continue
        low, high = span
        conditions = tuple(c for c in conditions if all(c is not o for o in own))
        shorter = Axis(next(IDENTS), max(high - low + 1, 1), a.name)
        place = {a: affine.simplify(Apply("add", (shorter, affine.integer(low))))}
        e = substitute(e, place)
        conditions = tuple(affine.simplify(substitute(c, place)) for c in conditions)
        if high < low:
            return Const(0, e.dtype)
        if high > low:
            free.append(shorter)
    conditions = tuple(c for c in conditions if not (isinstance(c, Const) and c.value))
    if any(isinstance(c, Const) for c in conditions):
        return Const(0, e.dtype)
    if conditions:
        e = Select(conjunction(conditions), e, Const(0, e.dtype))
    return Reduce("sum", tuple(free), e) if free else e


def _span_that_meets(conditions: list[Expr], a: Axis) -> tuple[int, int] | None:
    """The first and last value of `a` that meet the conditions (of `a` alone), when all between do; else None.

    The adjoint of a concatenation reads each part where it lies: no part is searched for.
    """
    if not conditions or a.extent > _MAX_SPAN:
        return None
    masks = [_values_that_meet(c, a) for c in conditions]
    if any(mask is None for mask in masks):
        return None
    (meets,) = np.nonzero(np.logical_and.reduce([mask for mask in masks if mask is not None]))
    if not len(meets):
        return 0, -1
    first, last = int(meets[0]), int(meets[-1])
    return (first, last) if len(meets) == last - first + 1 else None


_COMPARE = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal}
_COMPARE["ne"] = np.not_equal


def _values_that_meet(condition: Expr, a: Axis) -> np.ndarray | None:
    """For each value of `a` whether the condition, of `a` alone, holds; None when that is not decided."""
    if isinstance(condition, Apply) and condition.fn in _COMPARE and condition.args[0].dtype == dt.INDEX:
        left, right = map(affine.linear, condition.args)
        terms, constant = affine.combine(left, right, -1)
        if terms.keys() == {a}:
            return _COMPARE[condition.fn](terms[a] * np.arange(a.extent) + constant, 0)
    decided = [affine.simplify(substitute(condition, {a: affine.integer(n)})) for n in range(a.extent)]
    return np.array([c.value for c in decided if isinstance(c, Const)]) if _all_constant(decided) else None


def _all_constant(decided: list[Expr]) -> bool:
    return all(isinstance(c, Const) for c in decided)


def _residue_moduli(solution: Solution, targets: tuple[Axis, ...]) -> dict[Axis, int]:
    """For each target, the modulus that turns every `//` and `%` of the solution into linear terms; {} if none does."""
    moduli: dict[Axis, int] = {}
    known = set(targets)
    for e in (*solution.axes.values(), *solution.guards):
        for node in postorder(e):
            if isinstance(node, Apply) and node.fn in ("floordiv", "mod"):
                if not node.free <= known:
                    return {}
                for z in node.free:
                    moduli[z] = math.lcm(moduli.get(z, 1), period(node, z))
    return {z: moduli[z] for z in targets if moduli.get(z, 1) > 1}


def split_by_residue(
    solution: Solution, targets: tuple[Axis, ...], e: Expr, guards: Guards, name: str
) -> tuple[Tensor | None, int]:
    """The contribution computed residue class by residue class and interleaved, or None where that saves nothing.

    Also the points that are visited, either way.
    """
    whole = math.prod(z.extent for z in targets) * solution.trips
    if not solution.free:
        return None, whole
    moduli = _residue_moduli(solution, targets)
    if not moduli or math.prod(moduli.values()) > _MAX_CLASSES:
        return None, whole
    classes: list[tuple[dict[Axis, int], Compute]] = []
    work = 0
    for residues in itertools.product(*(range(min(m, z.extent)) for z, m in moduli.items())):
        chosen = dict(zip(moduli, residues, strict=True))
        own = tuple(Axis(next(IDENTS), members(z.extent, moduli[z], chosen[z])) if z in chosen else z for z in targets)
        place = {z: member(moduli[z], chosen[z], a) for z, a in zip(targets, own, strict=True) if z in chosen}
        narrowed = _narrow(solution, place)
        if narrowed is None:
            continue
        body = gather(narrowed, substitute(e, place), tuple(substitute(c, place) for c in guards))
        if isinstance(body, Const):
            continue
        part = define(tuple(a.extent for a in own), own, body, derived(name, suffix="_" + "".join(map(str, residues))))
        classes.append((chosen, part))
        work += part.size * narrowed.trips
    if work * _SPLIT_GAIN > whole:
        return None, whole
    return interleaved(targets, moduli, classes, name, e.dtype), work


def _narrow(solution: Solution, place: dict[Axis, Expr]) -> Solution | None:
    """The solution inside one residue class: guards decided, free axes cut to what can meet them; None when empty."""
    narrowed = solution.substituted(place)
    for a in solution.free:
        extent = a.extent
        for c in narrowed.guards:
            if c.free == {a}:
                extent = _last_that_meets(c, a, extent) + 1
        if extent <= 0:
            return None
        if extent < a.extent:
            narrowed = narrowed.substituted({a: Axis(next(IDENTS), extent, a.name)})
    return None if any(isinstance(c, Const) and not c.value for c in narrowed.guards) else narrowed


def _last_that_meets(condition: Expr, a: Axis, extent: int) -> int:
    """The largest value of `a` below `extent` for which the condition, of `a` alone, holds; -1 for none."""
    for value in range(extent - 1, -1, -1):
        decided = affine.simplify(substitute(condition, {a: affine.integer(value)}))
        if isinstance(decided, Const) and decided.value:
            return value
    return -1
