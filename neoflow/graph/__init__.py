"""From root tensors to an ordered, canonical graph, and rewrites of it that keep every value.

A `Rewrite` is a row: `match` finds the places that have its form, `legal` proves that nothing changes there, or says
why not, and `apply` gives what replaces what; its docstring draws it. A `Pass` is a table of rewrites, `PASSES` the
table of passes. The engine (`run`) goes through a graph from its inputs, lets `choose` take one of the legal places at
a compute, and comes back to what a replacement touched, until nothing is left. The `Editor` under it keeps readers,
order and reachability up to date. What was done is a `Derivation`: printed by `explain`, replayed on an equal graph.

graph (`Graph`) · edit (`Editor`) · rewrite (the nouns) · engine · canonical, padding, hoist, batch, widen, join,
added, chains, slices, offsets (the rewrites) · cost (what they compare), rivals (which of several) · algebra (the laws
of folding) · passes (the table) · known (what is constant, computed once) · precision (what is stored narrow: no
rewrite, for values change) · facts, pieces
"""

from neoflow.graph.edit import Editor
from neoflow.graph.engine import Limits, Pass, go_on, run
from neoflow.graph.facts import contiguous_offset, is_contraction, is_move, own_indices, points, reads_at_own_point
from neoflow.graph.graph import Graph, make_graph, same_graph
from neoflow.graph.known import Known, evaluate_constants
from neoflow.graph.laid import Packed, lay, plain
from neoflow.graph.long import LONGEST, operations
from neoflow.graph.packing import FEW, Layout, Operand, PackShared, Wish, block_axis, in_blocks, operands, pack_shared
from neoflow.graph.padding import factors
from neoflow.graph.passes import BATCHES, CANONICALIZE, HOIST, OPTIONAL_REWRITES, PASSES, canonicalize, optimize, priced
from neoflow.graph.pieces import Piece, pieces
from neoflow.graph.precision import MIXED, TF32, Mixed, mix
from neoflow.graph.rewrite import Derivation, Match, Rewrite, Site, Step, sites
from neoflow.graph.rivals import Timed

__all__ = [
    "BATCHES",
    "CANONICALIZE",
    "FEW",
    "HOIST",
    "LONGEST",
    "MIXED",
    "OPTIONAL_REWRITES",
    "PASSES",
    "TF32",
    "Derivation",
    "Editor",
    "Graph",
    "Known",
    "Layout",
    "Limits",
    "Match",
    "Mixed",
    "Operand",
    "PackShared",
    "Packed",
    "Pass",
    "Piece",
    "Rewrite",
    "Site",
    "Step",
    "Timed",
    "Wish",
    "block_axis",
    "canonicalize",
    "contiguous_offset",
    "evaluate_constants",
    "factors",
    "go_on",
    "in_blocks",
    "is_contraction",
    "is_move",
    "lay",
    "make_graph",
    "mix",
    "operands",
    "operations",
    "optimize",
    "own_indices",
    "pack_shared",
    "pieces",
    "plain",
    "points",
    "priced",
    "reads_at_own_point",
    "run",
    "same_graph",
    "sites",
]
