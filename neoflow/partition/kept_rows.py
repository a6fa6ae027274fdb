"""What a recurrence carries of which a step changes one row: a cache of keys and values.

    kept[t, i] = select(t == n, new[i], old[t, i]),  n the number of the step    ->    new is written to row n of kept

Nothing else is copied, and there is one place for it, not two. Proved from the expressions: the condition compares the
first axis with what is an integer a step more in every step, inside of the axis in all of them; the other branch is
what was there, at its own point; and nobody else reads what was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from neoflow.expr import affine
from neoflow.expr.close import define
from neoflow.expr.ir import Apply, Expr, Read, Select, postorder
from neoflow.expr.normal import opened
from neoflow.expr.recurrence import Looped, Run
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Compute, Constant, Parameter, Placeholder, Tensor, topological
from neoflow.graph import Graph
from neoflow.partition.calls import Partition, View
from neoflow.partition.looped import settled
from neoflow.verdict import Verdict

Divide = Callable[[Graph], tuple[Graph, Partition]]
"""Rewrites a graph, and divides it."""


@dataclass(frozen=True)
class Whole(Graph):
    """A graph of several parts: what it needs besides its roots is `parts`, those of all levels and bodies."""

    parts: tuple[Tensor, ...] = ()

    @cached_property
    def order(self) -> tuple[Tensor, ...]:
        return self.parts


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


def is_ordered(cut: Partition) -> bool:
    """Whether the calls of a body can run one after the other, each after those that make what it reads."""
    producer = {t: n for n, c in enumerate(cut.calls) for t in c.outputs}
    made = [{m for t in c.inputs for m in cut.makers(t)} for c in cut.calls]
    needs = [{producer[t] for t in read if t in producer} for read in made]
    done: set[int] = set()
    while ready := [n for n, before in enumerate(needs) if n not in done and before <= done]:
        done.update(ready)
    return len(done) == len(needs)


def in_levels(
    inputs: Sequence[Placeholder], roots: Sequence[Tensor], written: Mapping[Placeholder, int], divide: Divide
) -> tuple[Graph, Partition]:
    """A body as kernels, in levels: what reads rows that are there is divided after what writes one of them.

    written: by what stands for rows, the number of the root that is one of them. Sums and recurrences that several
    levels read are stored by the first of them; what follows from these element by element each computes.
    """
    order = topological(list(roots))
    level = dict.fromkeys(order, 0)
    moving: set[Tensor] = {t for t in order if isinstance(t, Placeholder) and not isinstance(t, Parameter)}
    for _ in range(len(written) + 1):  # from one row to the next that follows from it
        for t in order:
            behind = level.get(roots[written[t]], 0) + 1 if isinstance(t, Placeholder) and t in written else 0
            level[t] = max((level[i] for i in t.inputs), default=behind)
            if not moving.isdisjoint(t.inputs):
                moving.add(t)
    stands: dict[Tensor, Tensor] = {}
    values: dict[int, Tensor] = {}
    cut = Partition((), {}, (), {})
    parts: dict[Tensor, None] = {}
    for now in range(max(level.values()) + 1):
        asked = [n for n, t in enumerate(roots) if level[t] == now]
        crossing = [t for t in _crossing(order, level, now) if t in moving and t not in stands]
        over = replaced([*(roots[n] for n in asked), *crossing], lambda t: stands.get(t))
        graph, found = divide(Graph((*inputs, *_placeholders(stands.values())), tuple(over), ()))
        parts |= dict.fromkeys(graph.order)
        cut = Partition(
            (*cut.calls, *found.calls),
            {**cut.views, **found.views},
            (*cut.decisions, *found.decisions),
            {**cut.wholes, **found.wholes},
            {**cut.aliases, **found.aliases},
        )
        values.update(zip(asked, graph.outputs, strict=False))
        for t, value in zip(crossing, graph.outputs[len(asked) :], strict=True):
            stand = stands[t] = Placeholder(t.shape, t.dtype, t.name, t.where)
            cut = replace(cut, views={**cut.views, stand: View(value, 0)}, aliases={**cut.aliases, stand: value})
    aliases: dict[Tensor, Tensor] = dict(cut.aliases)
    aliases.update({whole: values[n] for whole, n in written.items()})
    outputs = tuple(values[n] for n in range(len(roots)))
    whole = Whole(tuple(inputs), outputs, (), tuple(t for t in parts if t not in set(stands.values())))
    return whole, replace(cut, views=settled(cut.views), aliases=aliases)


def _placeholders(tensors: Iterable[Tensor]) -> tuple[Placeholder, ...]:
    return tuple(t for t in tensors if isinstance(t, Placeholder))


def _crossing(order: Sequence[Tensor], level: Mapping[Tensor, int], now: int) -> list[Tensor]:
    """The sums and recurrences of a level that later ones read, through what is computed element by element."""
    found: dict[Tensor, None] = {}
    stack = [i for t in order if level[t] > now for i in t.inputs if level[i] == now]
    seen = set(stack)
    while stack:
        t = stack.pop()
        if isinstance(t, Looped) or (isinstance(t, Compute) and t.definition.has_reduction):
            found[t] = None
            continue
        new = [i for i in t.inputs if level[i] == now and i not in seen]
        seen.update(new)
        stack += new
    place = {t: n for n, t in enumerate(order)}
    return sorted(found, key=lambda t: place[t])
