"""What a recurrence carries of which a step changes one row: a cache of keys and values.

    kept[t, i] = select(t == n, new[i], old[t, i]),  n the number of the step    ->    new is written to row n of kept

Nothing else is copied, and there is one place for it, not two. Proved from the expressions: the condition compares the
first axis with what is an integer a step more in every step, inside of the axis in all of them; the other branch is
what was there, at its own point; and nobody else reads what was there before.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from neoflow.expr import affine
from neoflow.expr.close import define
from neoflow.expr.ir import Apply, Expr, Read, Select, postorder
from neoflow.expr.normal import opened
from neoflow.expr.recurrence import Run
from neoflow.expr.tensor import Compute, Constant, Tensor, topological
from neoflow.verdict import Verdict


@dataclass(frozen=True, eq=False)
class KeptRow:
    """Of what is carried as some number: `new`, a tensor of the body, is its row `first` + the number of the step."""

    new: Tensor
    first: int


def kept_row(run: Run, number: int, kept: Collection[Tensor]) -> KeptRow | Verdict | None:
    """The row of what is carried that a step changes; why it cannot be written in place; None where it is no row.

    kept: the tensors of the body that are asked for of every step.
    """
    r = run.recurrence
    c, then = r.carried[number], r.then[number]
    if not isinstance(then, Compute) or not any(i is c for i in then.inputs) or not c.shape:
        return None
    body, axes = opened(then.definition.body, then.inputs), then.definition.axes
    match body:
        case Select(cond=Apply(fn="eq", args=(a, b)), then=new, other=Read(source=source, indices=indices)) if (
            source is c and len(indices) == len(axes) and all(i is x for i, x in zip(indices, axes, strict=True))
        ):
            index = b if a is axes[0] else a
        case _:
            return None
    if not (a is axes[0] or b is axes[0]) or axes[0] in index.free or axes[0] in new.free or _reads(new, c):
        return None
    first = _first(run, index)
    if first is None:
        return Verdict(False, "which row a step changes is not known before it runs")
    if first < 0 or first + r.steps > c.shape[0]:
        return Verdict(False, f"a row of a step, {first} in the first one, is outside of it")
    if any(t is c or t is then for t in kept):
        return Verdict(False, "it is kept of every step")
    roots = [t for n, t in enumerate(r.then) if n != number]
    order = topological([*r.then, *kept])
    if any(t is c or t is then for t in roots) or any(i is c for t in order if t is not then for i in t.inputs):
        return Verdict(False, "what was there before is read, too")
    return KeptRow(define(c.shape[1:], axes[1:], new, f"row of {then.name}"), first)


def _reads(e: Expr, t: Tensor) -> bool:
    return any(isinstance(n, Read) and n.source is t for n in postorder(e))


def _first(run: Run, index: Expr) -> int | None:
    """What an index is in step 0, where it is one more in every step."""
    terms, constant = affine.linear(index)
    if len(terms) != 1:
        return None
    ((read, factor),) = terms.items()
    if factor != 1 or not isinstance(read, Read) or read.indices:
        return None
    source = next((t for p, t in run.by_placeholder.items() if p is read.source), None)
    if source is None or not any(p is read.source for p in run.recurrence.slices):
        return None
    start = _counts_from(source)
    return None if start is None else start + constant


def _counts_from(t: Tensor) -> int | None:
    """The first element of a vector of integers, each one more than the one before it."""
    if isinstance(t, Constant):
        steps = np.diff(t.value)
        return int(t.value[0]) if t.value.dtype.kind in "iu" and (steps == 1).all() else None
    if not isinstance(t, Compute) or len(t.shape) != 1:
        return None
    terms, constant = affine.linear(t.definition.body)
    (axis,) = t.definition.axes
    return constant if terms == {axis: 1} else None
