"""Slices of one tensor that are put together again: a read of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from neoflow.expr import affine
from neoflow.expr.close import build
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Select, Slot, postorder, same, substitute
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Compute, Definition, Tensor
from neoflow.graph.edit import Editor
from neoflow.graph.facts import own_indices
from neoflow.graph.rewrite import Edit, Match, Rewrite
from neoflow.verdict import Verdict

MOST = 4096
"""Points of an axis by whose value something is chosen."""
COMPARED = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
}


@dataclass(frozen=True)
class JoinSlices(Rewrite):
    """What is chosen among parts of one tensor by their place in it is a read of it.

    a[j] = x[0, j];  b[j] = x[1, j];  y[j, i] = select(i == 0, a[j], b[j])    ->    y[j, i] = x[i, j]
    """

    name: str = "join slices"

    def match(self, editor: Editor, t: Compute) -> Iterator[Match]:
        if _read(editor, t) is not None:
            yield Match((t,))

    def legal(self, editor: Editor, match: Match) -> Verdict:
        (t,) = match.tensors
        found = _read(editor, t)
        assert found is not None
        return Verdict(True, f"all of it lies in {found[0].name}")

    def apply(self, editor: Editor, match: Match) -> Edit:
        (t,) = match.tensors
        found = _read(editor, t)
        assert found is not None
        base, indices = found
        return {t: build(t.shape, Read(Slot(0, base.shape, base.dtype), indices), (base,), t.name)}


def joined(editor: Editor, parts: Sequence[Compute]) -> int | None:
    """The dimension along which one compute puts these together, in this order, and nothing else reads them."""
    readers = {r for t in parts for r in editor.each_reader(t)}
    if len(readers) != 1 or any(editor.is_root(t) for t in parts):
        return None
    (whole,) = readers
    found, inputs = cases(whole.definition), editor.inputs(whole)
    if found is None or not len(found) == len(inputs) == len(parts):
        return None
    at, own = found[0].axis.ident, own_indices(whole.shape)
    for case in found:
        is_own = same(case.read.indices, (*own[:at], *own[at + 1 :]))
        if len(case.values) != 1 or inputs[case.read.slot] is not parts[case.values[0]] or not is_own:
            return None
    return at


@dataclass(frozen=True)
class Case:
    """At these values of an axis, in order, a body is a read."""

    axis: Axis
    values: tuple[int, ...]
    read: Read


@remembered
def cases(definition: Definition) -> tuple[Case, ...] | None:
    """A body that chooses among reads by the value of one axis of the result; None for another one."""
    body, found = definition.body, list[Case]()
    if not isinstance(body, Select) or not isinstance(body.cond, Apply):
        return None
    axis = body.cond.args[0]
    if not isinstance(axis, Axis) or axis.extent > MOST:
        return None
    left = tuple(range(axis.extent))
    while isinstance(body, Select):
        e = body.cond
        if not (isinstance(e, Apply) and e.fn in COMPARED and e.args[0] is axis and isinstance(e.args[1], Const)):
            return None
        end, holds = int(e.args[1].value), COMPARED[e.fn]
        if not isinstance(body.then, Read) or not left:
            return None
        found.append(Case(axis, tuple(v for v in left if holds(v, end)), body.then))
        left = tuple(v for v in left if not holds(v, end))
        body = body.other
    if not isinstance(body, Read):
        return None
    found = [c for c in (*found, Case(axis, left, body)) if c.values]
    return tuple(found) if all(_knows_where(c.read.indices) for c in found) else None


def _knows_where(indices: Sequence[Expr]) -> bool:
    return not any(isinstance(n, Read) for i in indices for n in postorder(i))


def _read(editor: Editor, t: Compute) -> tuple[Tensor, tuple[Expr, ...]] | None:
    """What all cases of a body read of one tensor, itself or through slices of it, as one read."""
    found = cases(t.definition)
    if found is None:
        return None
    reads = [_through(editor, t, c.read) for c in found]
    base = reads[0][0]
    if any(b is not base for b, _ in reads):
        return None
    indices: list[Expr] = []
    for each in zip(*(i for _, i in reads), strict=True):
        one = _one(found, each)
        if one is None:
            return None
        indices.append(one)
    return base, tuple(indices)


def _through(editor: Editor, t: Compute, read: Read) -> tuple[Tensor, tuple[Expr, ...]]:
    """What a read reads, through one slice."""
    part = editor.inputs(t)[read.slot]
    body = part.definition.body if isinstance(part, Compute) else None
    if not isinstance(part, Compute) or not isinstance(body, Read) or not _knows_where(body.indices):
        return part, read.indices
    mapping: dict[Expr, Expr] = {Axis(d, n): read.indices[d] for d, n in enumerate(part.shape)}
    return editor.inputs(part)[0], tuple(affine.simplify(substitute(i, mapping)) for i in body.indices)


def _one(found: Sequence[Case], indices: Sequence[Expr]) -> Expr | None:
    """An index that is each of these where its case holds: linear in the axis that decides."""
    axis = found[0].axis
    rests, points = set[Expr](), list[tuple[int, int]]()
    for case, index in zip(found, indices, strict=True):
        factors, constant = affine.linear(index)
        step = factors.get(axis, 0)
        rest = {e: c for e, c in factors.items() if e is not axis}
        if any(axis in e.free for e in rest):
            return None
        rests.add(affine.from_linear((rest, 0)))
        points += [(v, step * v + constant) for v in (case.values[0], case.values[-1])]
    (low, first), (high, last) = min(points), max(points)
    step = (last - first) // (high - low)
    if len(rests) > 1 or any(at != first + step * (v - low) for v, at in points):
        return None
    moving: affine.Linear = ({axis: step} if step else {}, first - step * low)
    return affine.simplify(affine.from_linear(affine.combine(affine.linear(rests.pop()), moving)))
