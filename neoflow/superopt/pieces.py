"""Pieces of a graph as graphs of their own, and back: what a search changes at a time.

A piece is convex: no way from one of its computes to another leaves it. What it reads of other computes are
placeholders of its graph; what others read of it are its outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from neoflow.expr.tensor import Compute, Placeholder, Tensor
from neoflow.graph import Graph


@dataclass(frozen=True)
class Piece:
    """graph: the piece alone. read: what each placeholder stands for. given: what each of its outputs is in the
    whole."""

    graph: Graph
    read: tuple[tuple[Placeholder, Tensor], ...]
    given: tuple[Compute, ...]


def cut_out(graph: Graph, at: Collection[int]) -> Piece:
    """The computes of these numbers in `graph.nodes`. The whole graph is a piece that is itself."""
    nodes = graph.nodes
    own = [nodes[n] for n in sorted(at)]
    if len(own) == len(nodes):
        return Piece(graph, (), ())
    inside = {t.uid for t in own}
    made: dict[int, Tensor] = {}
    read: list[tuple[Placeholder, Tensor]] = []
    for t in own:
        inputs = []
        for i in t.inputs:
            if i.uid not in made and isinstance(i, Compute) and i.uid not in inside:
                outside = Placeholder(i.shape, i.dtype, i.name, i.where)
                read.append((outside, i))
                made[i.uid] = outside
            inputs.append(made.get(i.uid, i))
        made[t.uid] = t.over(tuple(inputs))
    needed = {t.uid for t in graph.roots} | {i.uid for t in nodes if t.uid not in inside for i in t.inputs}
    given = tuple(t for t in own if t.uid in needed)
    fed = [i for i in graph.inputs if any(i in t.inputs for t in own)]
    return Piece(Graph((*fed, *(p for p, _ in read)), tuple(made[t.uid] for t in given), ()), tuple(read), given)


def put_back(
    graph: Graph, pieces: Sequence[tuple[Piece, Graph]], homes: Mapping[int, int] | None = None
) -> tuple[Graph, dict[int, int]]:
    """The graph with other graphs in the place of pieces of it, which share no compute; and a number of each compute,
    by uid: what `homes` says of it, or else, where that is not given, the number of the piece that it is of."""
    if len(pieces) == 1 and not pieces[0][0].given:
        return pieces[0][1], {t.uid: 0 for t in pieces[0][1].nodes} if homes is None else {}
    whose = {t.uid: n for n, (piece, _) in enumerate(pieces) for t in piece.given}
    made: dict[int, Tensor] = {}
    found: dict[int, int] = {}
    stack: list[tuple[Tensor, bool]] = [(t, False) for t in reversed(graph.roots)]
    while stack:
        t, is_ready = stack.pop()
        if t.uid in made:
            continue
        if not isinstance(t, Compute):
            made[t.uid] = t
            continue
        number = whose.get(t.uid)
        needed = t.inputs if number is None else tuple(i for _, i in pieces[number][0].read)
        if not is_ready:
            stack.append((t, True))
            stack += [(i, False) for i in reversed(needed) if i.uid not in made]
        elif number is None:
            inputs = tuple(made[i.uid] for i in t.inputs)
            same = all(a is b for a, b in zip(inputs, t.inputs, strict=True))
            made[t.uid] = t if same else t.over(inputs)
            if homes is not None:
                found[made[t.uid].uid] = homes[t.uid]
        else:
            new = _placed(*pieces[number], made)
            if homes is None:
                found.update(dict.fromkeys(new.values(), number))
    return graph.with_roots([made[t.uid] for t in graph.roots]), found


def _placed(piece: Piece, new: Graph, made: dict[int, Tensor]) -> dict[int, int]:
    """Write the computes of a new graph for a piece over what is `made`, and what they are for others into it."""
    placed: dict[int, Tensor] = {p.uid: made[i.uid] for p, i in piece.read}
    for c in new.nodes:
        placed[c.uid] = c.over(tuple(placed.get(i.uid, i) for i in c.inputs))
    for old, output in zip(piece.given, new.outputs, strict=True):
        made[old.uid] = placed.get(output.uid, output)
    return {c.uid: placed[c.uid].uid for c in new.nodes}
