"""Images whose channels lie last: vectors go along channels, which are many and whole vectors, not along short rows.

    y[b, o, p, q] = sum[c, r, s](x[b, c, p + r, q + s] * w[o, c, r, s])
        ->  y'[b, p, q, o] = sum[c, r, s](x'[b, p + r, q + s, c] * w[o, c, r, s])

Weights stay as they are written: contractions pack them, once where they stay from call to call. Those that others read
along channels (of a depthwise convolution) are moved first, w'[r, s, c], once too. A bijection of memory, so exact;
whether it pays is measured (`optimizing`). What the program takes and returns is as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neoflow.expr.close import define
from neoflow.expr.ir import Axis, Expr, Read
from neoflow.expr.tensor import Compute, Parameter, Placeholder, Tensor
from neoflow.graph import Graph, Step, is_contraction
from neoflow.graph.algorithms import correlation
from neoflow.graph.laid import Order, laid, reordered

CHANNELS = "channels last"
"""The name of this transformation."""


@dataclass(frozen=True)
class Permuted:
    """The order of memory in which these dimensions of a tensor come one after the other."""

    dims: tuple[int, ...]

    def shape(self, plain: Sequence[int]) -> tuple[int, ...]:
        """Of a tensor of this shape that lies so."""
        return tuple(plain[d] for d in self.dims)

    def indices(self, plain: Sequence[Expr]) -> tuple[Expr, ...]:
        """Where the element lies that is at `plain` in the tensor."""
        return tuple(plain[d] for d in self.dims)

    def points(self, plain: Sequence[int]) -> tuple[Expr, ...]:
        """The point of the tensor, of this shape, that is at the own point of the one that lies so."""
        own = [Axis(n, e) for n, e in enumerate(self.shape(plain))]
        return tuple(own[self.dims.index(d)] for d in range(len(plain)))


def last_of(rank: int, dim: int) -> Permuted:
    """The order of so many dimensions in which one comes last."""
    return Permuted((*(d for d in range(rank) if d != dim), dim))


@dataclass(frozen=True)
class Laid:
    """A move of a search: the images of a graph lie with their channels last."""

    steps: tuple[Step, ...] = ()
    """Rules that were applied: none."""

    def replay(self, graph: Graph) -> Graph:
        """The same on an equal graph."""
        return channels_last(graph)

    def __str__(self) -> str:
        return "the channels of images lie last"


def channels_last(graph: Graph) -> Graph:
    """The graph whose images lie with their channels last; the same where it has none, or changes parameters."""
    chosen = images(graph)
    if not chosen:
        return graph
    now: dict[Tensor, Tensor] = {}
    moved: dict[tuple[Tensor, int], Tensor] = {}
    for t in graph.order:
        if isinstance(t, Compute):
            new = laid(t, chosen, now)
            now[t] = _reading_along(new, moved) if t in chosen else new
        else:
            now[t] = t.over(tuple(now[i] for i in t.inputs)) if t.inputs else t
    return graph.with_roots(tuple(now[t] for t in graph.roots))


def images(graph: Graph) -> dict[Tensor, Order]:
    """The computes of a graph that follow from what it is given and have as many dimensions as what windows of its
    contractions go through, each with its order: what lies before the first window, but for the number of an image,
    comes last (channels, or groups of them)."""
    first: dict[int, int] = {}
    for t in graph.nodes:
        if is_contraction(t.definition) and not isinstance(form := correlation(t.definition), str):
            rank, inside = len(form.image.indices), {w.out for w in form.windows}
            begin = min(d for d, i in enumerate(form.image.indices) if i.free & inside)
            first[rank] = min(begin, first.get(rank, begin))
    if graph.updates:
        return {}
    fed: set[Tensor] = set()
    for given in graph.order:
        if isinstance(given, Placeholder) or (isinstance(given, Compute) and not fed.isdisjoint(given.inputs)):
            fed.add(given)
    roots, chosen = set(graph.roots), dict[Tensor, Order]()
    for t in graph.nodes:
        rank = len(t.shape)
        if t in fed and t not in roots and first.get(rank, 0) > 1:
            chosen[t] = Permuted((0, *range(first[rank], rank), *range(1, first[rank])))
    return chosen


def _reading_along(t: Compute, moved: dict[tuple[Tensor, int], Tensor]) -> Compute:
    """A compute whose parameters lie along its vectors, where it is no contraction that packs them."""
    own = t.definition.axes[-1]
    if is_contraction(t.definition) and not all(any(own in i.free for i in r.indices) for r in t.definition.reads):
        return t
    orders: list[Permuted | None] = []
    for slot, source in enumerate(t.inputs):
        across = {
            d
            for r in t.definition.reads
            if r.slot == slot
            for d, i in enumerate(r.indices)
            if own in i.free and any(index.free for index in r.indices[d + 1 :])
        }
        is_one = isinstance(source, Parameter) and len(across) == 1
        orders.append(last_of(len(source.shape), min(across)) if is_one else None)
    if not any(orders):
        return t
    inputs = [
        source if order is None else moved.setdefault((source, order.dims[-1]), _moved(source, order))
        for source, order in zip(t.inputs, orders, strict=True)
    ]
    definition, slots, names = reordered(t.definition, None, tuple(orders))
    return Compute(definition, tuple(inputs[n] for n in slots), t.name, names, t.where)


def _moved(t: Tensor, order: Permuted) -> Compute:
    axes = tuple(Axis(n, e) for n, e in enumerate(order.shape(t.shape)))
    return define(order.shape(t.shape), axes, Read(t, order.points(t.shape)), f"{t.name}_moved")
