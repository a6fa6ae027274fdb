"""The body of a recurrence of which a step changes rows, as kernels: who reads all rows comes after who writes one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from neoflow.expr.recurrence import Looped
from neoflow.expr.replace import replaced
from neoflow.expr.tensor import Compute, Parameter, Placeholder, Tensor, topological
from neoflow.graph import Graph
from neoflow.partition.calls import Partition, View
from neoflow.partition.looped import settled

Divide = Callable[[Graph], tuple[Graph, Partition]]
"""Rewrites a graph, and divides it."""


@dataclass(frozen=True)
class Whole(Graph):
    """A graph of several parts: what it needs besides its roots is `parts`, those of all levels and bodies."""

    parts: tuple[Tensor, ...] = ()

    @cached_property
    def order(self) -> tuple[Tensor, ...]:
        return self.parts


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
