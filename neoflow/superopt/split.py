"""Large graphs in pieces: by cuts of vertices that break the fewest sites of rules.

Source: Jia et al., Optimizing DNN Computation with Relaxed Graph Substitutions (MetaFlow), 2019, section 5.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from neoflow.expr.tensor import Compute

ENDS = 4
"""The first and the last of so many parts of a graph are on their own sides of a cut: both get a share."""
ENDLESS = 1 << 28


def split(nodes: Sequence[Compute], weights: Mapping[int, int], most: int) -> list[list[int]]:
    """Numbers of computes in pieces of `most` at the most, each after what it reads: convex, and all of a piece behind
    what it reads of pieces before it.

    weights: of each compute, by uid, how many sites of rules use it as an inner one; to read it across costs one more.
    """
    number = {t.uid: n for n, t in enumerate(nodes)}
    reads = [[number[i.uid] for i in t.inputs if i.uid in number] for t in nodes]
    costs = [1 + weights.get(t.uid, 0) for t in nodes]
    done: list[list[int]] = []
    waiting = [list(range(len(nodes)))]
    while waiting:
        piece = waiting.pop()
        if len(piece) <= most:
            done.append(piece)
        else:
            first = cut(piece, reads, costs)
            waiting += [[n for n in piece if n not in first], [n for n in piece if n in first]]
    return done


def cut(piece: Sequence[int], reads: Sequence[Sequence[int]], costs: Sequence[int]) -> set[int]:
    """The first side of the cheapest cut through a piece: who is in it has all that it reads in it.

    A compute is an edge from what comes in to what goes out; it is cut where its value is read on the other side.
    """
    place = {n: k for k, n in enumerate(piece)}
    count, share = len(piece), max(1, len(piece) // ENDS)
    begin, end = 2 * count, 2 * count + 1
    edges: list[tuple[int, int, int]] = [(2 * k, 2 * k + 1, costs[n]) for n, k in place.items()]
    for n, k in place.items():
        for source in {place[r] for r in reads[n] if r in place}:
            edges += [(2 * source + 1, 2 * k, ENDLESS), (2 * k, 2 * source, ENDLESS)]
    edges += [(begin, 2 * k, ENDLESS) for k in range(share)]
    edges += [(2 * k, end, ENDLESS) for k in range(count - share, count)]
    rows, columns, capacities = (np.array(c, np.int32) for c in zip(*edges, strict=True))
    network = coo_array((capacities, (rows, columns)), (2 * count + 2,) * 2).tocsr()
    left = network - maximum_flow(network, begin, end).flow
    left.eliminate_zeros()
    reached = set(breadth_first_order(left, begin, return_predecessors=False).tolist())
    return {n for n, k in place.items() if 2 * k in reached}
