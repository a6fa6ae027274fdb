"""The nests of a row kernel, and which of them have one loop: each goes through what another goes through anyway.

    s = sum[k](x[k])                          for k: s += x[k], t += x[k] * y[k]
    t = sum[k](x[k] * y[k])             ->

    a[k] = x[k] + y[k]                        for k: v = x[k] + y[k], a[k] = v, s += v * v
    s = sum[k](a[k] * a[k])             ->

A nest comes up to the loop of an earlier one: all that it needs is known there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from neoflow.expr import affine
from neoflow.expr.functions import ARG_REDUCERS
from neoflow.expr.ir import Apply, Axis, Expr, Read, Reduce, postorder, rewrite
from neoflow.loops import costs
from neoflow.loops.nest import (
    Formula,
    Nest,
    input_reads,
    is_data_dependent,
    is_index,
    reduced,
    replaced,
    rounded,
    stride,
)
from neoflow.loops.problem import NestProblem

MOST_TOGETHER = 8
"""Reductions that have one loop: the sums of two vectors of each stay in the registers of the smaller instruction set,
and there are few of their terms."""


@dataclass(frozen=True)
class RowNest:
    """A stored nest: its value number, and its problem over the axes inside a row; row axes are free in it.

    is_late: it may be written over an input, see `partition.overwrite`, so that nothing may be read after it that was
    read before. Of nests that have one loop the problem is that of all of them, the rest that of the first one.
    """

    number: int
    problem: NestProblem
    is_output: bool
    size: int
    dtype: str
    is_late: bool = False

    @property
    def along(self) -> tuple[int, ...]:
        """The value numbers of what is stored while the loop runs."""
        return tuple(number for number, *_ in self.problem.nest.terms)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Those of what is stored after it, in the order of the outputs of the problem's nest."""
        return tuple(number for number, *_ in self.problem.nest.outputs)


def joined(stored: tuple[RowNest, ...]) -> tuple[RowNest, ...]:
    """The nests, each reduction in the first loop that it may have with another nest."""
    found: list[RowNest] = []
    for nest in stored:
        for at in range(_least(found, nest), len(found)):
            one = _with(found[at], nest)
            if one is not None:
                found[at] = one
                break
        else:
            found.append(nest)
    return tuple(found)


def _least(found: list[RowNest], nest: RowNest) -> int:
    """The first of the loops by which all that a nest needs is stored, or while it runs."""
    read = {r.slot for e in nest.problem.nest.expressions for r in input_reads(e)}
    least = 0
    for n, one in enumerate(found):
        if not read.isdisjoint(one.numbers):
            least = n if one.problem.nest.reduction is None else n + 1
        elif not read.isdisjoint(one.along):
            least = n
    return least


def _with(first: RowNest, other: RowNest) -> RowNest | None:
    """A nest with another's reduction in its loop; None where they have none in common."""
    a, b = first.problem.nest, other.problem.nest
    if b.reduction is None or b.reduction.op in ARG_REDUCERS or other.is_late:
        return None
    nest = _after_terms(a, b) if a.reduction is None else _beside(a, b)
    if nest is None:
        return None
    problem = NestProblem(nest, apart=first.problem.apart, reductions=first.problem.reductions)
    return replace(first, problem=problem)


def _after_terms(a: Nest, b: Nest) -> Nest | None:
    """What a map stores, in the loop that reduces it to one value; not where a vector takes longer to compute than to
    load: the exponentials of softmax took 1.3 times as long so, of rows of 128 (Zen 3)."""
    points, terms = _long(a.axes), _long(reduced(b).axes)
    if _long(b.axes) or not points or [x.extent for x in points] != [x.extent for x in terms]:
        return None
    number, address, value = a.outputs[0]
    if not _goes_along(address, value, points[-1]) or costs.arithmetic((value,)) >= costs.WAITED_FOR:
        return None
    mapping: dict[Expr, Expr] = {x: affine.integer(0) for x in a.axes}
    mapping.update(zip(points, terms, strict=True))
    term = number, replaced(address, mapping), replaced(value, mapping)
    body = _without_reads(reduced(b).body, (term,))
    is_read = any(r.slot == number for r in input_reads(reduced(b).body))
    if body is None or not is_read:
        return None
    return replace(b, reduction=Reduce(reduced(b).op, reduced(b).axes, body), terms=(term,))


def _goes_along(address: Expr, value: Expr, last: Axis) -> bool:
    """Whether a map goes along memory in all that it reads and writes, wherever it is: it needs no more of its own
    template."""
    reads = input_reads(value)
    if any(_is_of_place(n) and last in n.free for n in postorder(value)) or any(map(is_data_dependent, reads)):
        return False
    return stride(address, last) == 1 and all(stride(r.indices[0], last) in (0, 1) for r in reads)


def _is_of_place(e: Expr) -> bool:
    """Whether it is a condition on where a point is."""
    return isinstance(e, Apply) and e.dtype == "bool" and any(map(is_index, e.args))


def _beside(a: Nest, b: Nest) -> Nest | None:
    """One more reduction of what is read in a loop, over as many points."""
    own, other = reduced(a), reduced(b)
    if (own.op, own.dtype, _extents(a)) != (other.op, other.dtype, _extents(b)):
        return None
    theirs, ours = (*b.axes, *other.axes), (*a.axes, *own.axes)
    onto: dict[Expr, Expr] = {x: y for x, y in zip(theirs, ours, strict=True) if x is not y}
    body = _without_reads(replaced(other.body, onto), a.terms) if len(a.bodies) < MOST_TOGETHER else None
    read = {r for e in a.in_loop for r in input_reads(e)}
    if body is None or b.anchor is None or read.isdisjoint(input_reads(body)):
        return None
    moved = tuple((n, replaced(address, onto), value) for n, address, value in b.outputs)
    others = (*a.others, (b.anchor, Reduce(other.op, own.axes, body)))
    return replace(a, outputs=a.outputs + moved, others=others)


def _without_reads(body: Expr, terms: tuple[Formula, ...]) -> Expr | None:
    """A body with the values of terms where it reads them; None where it reads another one of them."""
    by_number = {number: (address, rounded(value)) for number, address, value in terms}

    def rule(node: Expr) -> Expr | None:
        if isinstance(node, Read) and node.slot in by_number and node.indices == (by_number[node.slot][0],):
            return by_number[node.slot][1]
        return None

    found = rewrite(body, rule)
    return None if any(r.slot in by_number for r in input_reads(found)) else found


def _long(axes: tuple[Axis, ...]) -> list[Axis]:
    return [a for a in axes if a.extent > 1]


def _extents(nest: Nest) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(a.extent for a in nest.axes), tuple(a.extent for a in reduced(nest).axes)
