"""Residue classes of axes: where an expression with `//` and `%` has none, and tensors of classes laid side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

from neoflow.expr import affine
from neoflow.expr.close import define
from neoflow.expr.deep import Walk, run
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Select
from neoflow.expr.normal import conjunction
from neoflow.expr.tensor import Compute, Tensor


def period(e: Expr, z: Axis) -> int:
    """A step of z after which `e` has grown by a constant."""
    return run(_period_of(e, z))


def _period_of(e: Expr, z: Axis) -> Walk[int]:
    if isinstance(e, Apply) and e.fn in ("floordiv", "mod"):
        divisor = int(cast(Const, e.args[1]).value)
        terms, _ = affine.linear(e.args[0])
        if all(isinstance(a, Axis) for a in terms):
            return divisor // math.gcd(divisor, terms.get(z, 0))
        return divisor * (yield _period_of(e.args[0], z))
    period = 1
    for c in e.children:
        period = math.lcm(period, (yield _period_of(c, z)))
    return period


def member(modulus: int, residue: int, quotient: Axis) -> Expr:
    """The axis' value in a residue class, by the number within the class."""
    scaled = Apply("mul", (affine.integer(modulus), quotient))
    return affine.simplify(Apply("add", (scaled, affine.integer(residue))))


def members(extent: int, modulus: int, residue: int) -> int:
    """Values below `extent` in a residue class."""
    return -(-(extent - residue) // modulus)


def interleaved(
    targets: tuple[Axis, ...],
    moduli: Mapping[Axis, int],
    classes: Sequence[tuple[Mapping[Axis, int], Tensor]],
    name: str,
    dtype: str,
) -> Compute:
    """The tensor over `targets` of which each class is a tensor: the remainder by `moduli`, and what is there.

    y[z] = select(z % 2 == 0, even[z // 2], odd[z // 2])          zero in the classes that are not given
    """
    result: Expr = Const(0, dtype)
    is_complete = len(classes) == math.prod(min(m, z.extent) for z, m in moduli.items())
    for chosen, part in reversed(classes):
        indices = tuple(
            affine.simplify(Apply("floordiv", (z, affine.integer(moduli[z])))) if z in chosen else z for z in targets
        )
        here = tuple(
            affine.simplify(Apply("eq", (Apply("mod", (z, affine.integer(moduli[z]))), affine.integer(chosen[z]))))
            for z in chosen
        )
        here = tuple(c for c in here if not isinstance(c, Const))
        is_default = is_complete and part is classes[-1][1]
        result = (
            Read(part, indices) if is_default or not here else Select(conjunction(here), Read(part, indices), result)
        )
    return define(tuple(z.extent for z in targets), targets, result, name)
