"""A sum of products as a chain of products of two: its factors, and the order to multiply them in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from neoflow.expr.interp.analysis import Analysis, Guards
from neoflow.expr.ir import Apply, Const, Expr, Select


@dataclass(frozen=True)
class Mask:
    """A condition under `guards` without which, or with which (not `holds`), the factors of these numbers are zero."""

    cond: Expr
    holds: bool
    guards: Guards
    factors: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Product:
    """sign * the product of `factors`, zero where a mask's condition does not have the value given with it."""

    sign: int
    factors: list[tuple[Expr, Guards]]
    masks: list[Mask]


def as_product(body: Expr, guards: Guards, analysis: Analysis) -> Product:
    """`body` as a product of factors, some of them zero outside a condition."""
    factors: list[tuple[Expr, Guards]] = []
    masks: list[Mask] = []
    sign = 1
    stack: list[tuple[Expr, Guards, tuple[Mask, ...]]] = [(body, guards, ())]
    while stack:
        e, inside, under = stack.pop()
        match e:
            case Apply(fn="mul") if analysis.uses.get(e, 0) <= 1:
                stack += [(e.args[1], inside, under), (e.args[0], inside, under)]
            case Apply(fn="neg") if analysis.uses.get(e, 0) <= 1:
                sign = -sign
                stack.append((e.args[0], inside, under))
            case Select(other=Const(value=0)) | Select(then=Const(value=0)) if analysis.uses.get(e, 0) <= 1:
                holds = isinstance(e.other, Const) and e.other.value == 0
                made = [Mask(c, p, inside) for c, p in _conjuncts(e.cond, holds, analysis)]
                masks += made
                stack.append((e.then if holds else e.other, (*inside, (e.cond, holds)), (*under, *made)))
            case _:
                for mask in under:
                    mask.factors.add(len(factors))
                factors.append((e, inside))
    return Product(sign, factors, masks)


def _conjuncts(cond: Expr, positive: bool, analysis: Analysis) -> list[tuple[Expr, bool]]:
    """A condition as independent ones; one that can fault stays whole, for the order in it matters."""
    found: list[tuple[Expr, bool]] = []
    stack = [(cond, positive)]
    while stack:
        cond, positive = stack.pop()
        fn = cond.fn if isinstance(cond, Apply) and cond not in analysis.faulty else ""
        if fn == "not":
            stack.append((cond.children[0], not positive))
        elif fn == ("and" if positive else "or"):
            stack += [(c, positive) for c in reversed(cond.children)]
        else:
            found.append((cond, positive))
    return found


def pairing(
    sets: list[frozenset[int]], dims: frozenset[int], size: Callable[[frozenset[int]], int]
) -> tuple[list[tuple[int, int]], frozenset[int]]:
    """Which two factors to multiply next, cheapest first, and the axes of the largest array on the way."""
    sets = list(sets)
    steps = []
    peak = max(sets, key=size)
    while len(sets) > 1:
        pairs = [(i, j) for j in range(len(sets)) for i in range(j)]
        i, j = min(pairs, key=lambda p: size(sets[p[0]] | sets[p[1]]))
        steps.append((i, j))
        both = sets.pop(j) | sets.pop(i)
        sets.append(both - (dims - frozenset().union(*sets)))
        peak = max(peak, sets[-1], key=size)
    return steps, peak
