"""`PASSES`: what is rewritten, an ordered table. The pipeline runs its rows, the tests take each row's law from it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from neoflow.graph.added import AddFirst
from neoflow.graph.batch import BatchShared, BatchSums
from neoflow.graph.canonical import FoldConstants, ForwardCopies, HoistReductions, MergeEqual
from neoflow.graph.chains import ChainSums
from neoflow.graph.engine import Pass, run
from neoflow.graph.factor import FactorSums
from neoflow.graph.graph import Graph
from neoflow.graph.hoist import HoistCostly, HoistLookups
from neoflow.graph.join import JoinSlices
from neoflow.graph.long import SplitLong
from neoflow.graph.offsets import MoveNumbers, MoveReads
from neoflow.graph.ones import DropOnes, ReadVectors
from neoflow.graph.padding import PadGuards, PadNarrow
from neoflow.graph.rivals import compared
from neoflow.graph.shared import ShareSums
from neoflow.graph.slices import ReadSlices
from neoflow.graph.widen import WidenShared
from neoflow.graph.within import SumWithin

CANONICAL = (HoistReductions(), FoldConstants(), ForwardCopies(), MergeEqual(), SplitLong())

CANONICALIZE = Pass("canonicalize", CANONICAL)
PAD_GUARDS = Pass("pad guards", (PadGuards(), PadNarrow()), after=CANONICAL)
FACTOR = Pass("factor", (FactorSums(),), after=CANONICAL)
SHARE_SUMS = Pass("share sums", (ShareSums(), DropOnes(), ReadVectors()), after=CANONICAL)
HOIST = Pass("hoist", (HoistCostly(), HoistLookups()), after=CANONICAL)
BATCH = Pass(
    "batch",
    (JoinSlices(), AddFirst(), BatchShared(), WidenShared(), BatchSums()),
    after=CANONICAL,
    again=True,
    compare=compared,
)
CHAIN_SUMS = Pass("chain sums", (ChainSums(),), after=CANONICAL)
READ_SLICES = Pass("read slices", (ReadSlices(),), after=CANONICAL)
MOVE_OFFSETS = Pass("move offsets", (MoveNumbers(), MoveReads()), after=CANONICAL)
WITHIN = Pass("sums within", (SumWithin(),), after=CANONICAL)

BATCHES = (BatchShared, BatchSums)
"""The rewrites that make one operation of many steps."""

PASSES = (
    CANONICALIZE,
    PAD_GUARDS,
    FACTOR,
    SHARE_SUMS,
    HOIST,
    READ_SLICES,
    BATCH,
    CHAIN_SUMS,
    MOVE_OFFSETS,
    WITHIN,
)
"""Padding needs reductions at the root; what leaves a sum need not be hoisted out of it, and sums are shared when what
leaves them has left; bodies that read slices are equal, and so put side by side; what is side by side is no chain; sums
become chains when nothing changes any more who reads a contraction; offsets are moved where slices leave bodies that
differ; what is read again to be summed is known when all of that is done."""

OPTIONAL_REWRITES = tuple(dict.fromkeys(n for row in PASSES[1:] for n in (row.name, *(r.name for r in row.rewrites))))
"""Passes and rewrites that a graph may do without."""


def priced(row: Pass, price: float) -> Pass:
    """A pass in which each byte that waits for the last of many steps costs so many seconds, see `BatchSums`."""
    rewrites = tuple(replace(r, price=price) if isinstance(r, BATCHES) else r for r in row.rewrites)
    return replace(row, rewrites=rewrites)


def canonicalize(graph: Graph) -> Graph:
    """The graph in canonical form."""
    return run(graph, CANONICALIZE)[0]


def optimize(graph: Graph, without: Collection[str] = ()) -> Graph:
    """The graph after all passes, but for passes and rewrites of these names."""
    for row in PASSES:
        if (left := row.without(without)) is not None:
            graph, _ = run(graph, left)
    return graph
