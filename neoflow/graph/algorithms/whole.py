"""A result that is put together of several computes, as one: what autodiff writes as residue classes or sums first.

    even[k] = sum[s](g[k - s] * w[2*s]);   odd[k] = g[k] * w[1];   dx[z] = select(z % 2 == 0, even[z // 2], odd[z // 2])
        ->  dx[z] = select(z % 2 == 0, sum[s](g[z // 2 - s] * w[2*s]), g[z // 2] * w[1])

Nothing is computed so: it is what an algorithm is asked about, and found by, in the place of the last compute.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from neoflow.expr import dtype as dt
from neoflow.expr.close import unproved
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Reduce, Select, Slot, rewrite, substitute
from neoflow.expr.memo import remembered
from neoflow.expr.recipe import Name, Recipe
from neoflow.expr.tensor import Compute, Definition, Placeholder, Tensor
from neoflow.graph.algorithms.classes import MOST_CLASSES
from neoflow.graph.algorithms.strided import strided
from neoflow.graph.facts import is_move

DEEPEST = 3
"""Computes that are written into each other: what is laid side by side, sums, what they add, what pads that."""
Inputs = Callable[[Compute], Sequence[Tensor]]
"""What a compute reads, in the order of its slots."""


@dataclass(frozen=True)
class Whole:
    """compute: with all that it is put together of written in, and what that reads. parts: the computes that were
    written in, inner ones first, and the one that is looked at."""

    compute: Compute
    inputs: Sequence[Tensor]
    parts: tuple[Compute, ...]

    @property
    def definition(self) -> Definition:
        """What an algorithm is asked about."""
        return self.compute.definition


def read_now(t: Compute) -> Sequence[Tensor]:
    """What a compute reads."""
    return t.inputs


def whole(t: Compute, inputs: Inputs = read_now) -> Whole:
    """The adjoint of a strided read that t puts together; else t as it is. inputs: of computes, as they are now."""
    if not _puts_together(t.definition):
        return Whole(t, inputs(t), (t,))
    parts, leaves = dict[Compute, None](), dict[Tensor, int]()
    made = _as_one(t.definition, _structure(t, inputs, parts, leaves))
    if made is None:
        return Whole(t, inputs(t), (t,))
    (compute,) = made.instantiate(tuple(leaves), (t.name,))
    assert isinstance(compute, Compute)
    return Whole(compute, compute.inputs, (*parts, t))


@dataclass(frozen=True)
class _Part:
    """A compute that is written in, and what stands in its slots: another such one, or the leaf of a number."""

    definition: Definition
    slots: tuple[_Part | int, ...]


@remembered
def _puts_together(definition: Definition) -> bool:
    """Whether it chooses and adds by remainders what it reads, and computes nothing else."""
    has_digits = any(isinstance(n, Apply) and n.fn in ("floordiv", "mod") for n in definition.nodes)
    return has_digits and _moves(definition) and len(definition.reads) <= MOST_CLASSES


@remembered
def _moves(definition: Definition) -> bool:
    """Whether it reads, chooses, adds, and computes nothing else."""
    return all(_is_moved(n) for n in definition.nodes if dt.is_float(n.dtype)) and bool(definition.reads)


@remembered
def _multiplies(definition: Definition) -> bool:
    """Whether it adds products of what it reads, or is one."""
    rest = [n for n in definition.nodes if dt.is_float(n.dtype) and not _is_moved(n)]
    return bool(rest) and all(isinstance(n, Apply) and n.fn == "mul" for n in rest)


def _is_moved(e: Expr) -> bool:
    return isinstance(e, (Read, Select)) or _is_zero(e) or (isinstance(e, Reduce) and e.op == "sum")


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0


def _structure(
    t: Compute, inputs: Inputs, parts: dict[Compute, None], leaves: dict[Tensor, int], depth: int = DEEPEST
) -> tuple[_Part | int, ...]:
    """What stands in the slots of t; takes up what is written in, inner ones first, and what is not."""
    slots: list[_Part | int] = []
    for i in inputs(t):
        if depth and isinstance(i, Compute) and _is_written_in(i.definition, t.definition):
            slots.append(_Part(i.definition, _structure(i, inputs, parts, leaves, depth - 1)))
            parts[i] = None
        else:
            slots.append(leaves.setdefault(i, len(leaves)))
    return tuple(slots)


def _is_written_in(definition: Definition, reader: Definition) -> bool:
    """Whether a compute is written into its reader: what pads an operand into a product, else sums and products."""
    if _multiplies(reader):
        body = definition.body
        return is_move(definition) and isinstance(body, Select) and _is_zero(body.other)
    return _multiplies(definition) or _moves(definition)


@remembered
def _as_one(definition: Definition, slots: tuple[_Part | int, ...]) -> Recipe | None:
    """A compute with all its parts written in, over its leaves; None where it is no adjoint of a strided read."""
    if not any(isinstance(s, _Part) for s in slots):
        return None
    leaves: dict[int, Placeholder] = {}
    axes = itertools.count(1 << 16)
    body = _body(definition, slots, leaves, axes)
    made = unproved(definition.axes, body, "whole")
    if isinstance(strided(made.definition), str):
        return None
    return Recipe(tuple(leaves[n] for n in sorted(leaves)), (made,))


def _body(
    definition: Definition, slots: Sequence[_Part | int], leaves: dict[int, Placeholder], axes: Iterator[int]
) -> Expr:
    """Of a compute over its own axes; what it sums over has new numbers from `axes`."""
    fresh = {a: Axis(next(axes), a.extent, a.name) for a in definition.reduction_axes}

    def rule(e: Expr) -> Expr | None:
        if not (isinstance(e, Read) and isinstance(e.source, Slot)):
            return None
        what = slots[e.slot]
        if isinstance(what, int):
            if what not in leaves:
                leaves[what] = Placeholder(e.source.shape, e.source.dtype, Name("", what, ""), None)
            return Read(leaves[what], e.indices)
        body = _body(what.definition, what.slots, leaves, axes)
        return substitute(body, dict(zip(what.definition.axes, e.indices, strict=True)))

    return rewrite(substitute(definition.body, fresh), rule)
