"""From a graph to kernels: what is stored, what is inlined, what rides along, and why.

    graph -> facts -> rules, in passes: what is stored, which kernels are one -> kernel calls -> their order

Words, each with one meaning here:
    stored, recomputed, view    a compute has memory, or is computed where it is read, or is a run of another's memory
    kernel                      stored computes (its *members*, the first its *head*) with what is recomputed for them
    node                        one definition in a `Subgraph`; its *anchor* is the node that reduces
    rows                        how many leading dimensions a row kernel goes through; a *row* is one point of them,
                                with all that lies inside
    reader, source              who reads a tensor, what a compute reads

To add a way to fuse: a row in `rules` (what it proposes, when that is legal) and its place in a pass of `engine`; when
it pays: rows in `choose`. Tests: `tests/partition/test_rules.py`, whose laws go through the table.
"""

from neoflow.graph.cost import Cost
from neoflow.partition.blocks import blocks_of
from neoflow.partition.body import ROWS
from neoflow.partition.calls import Decision, KernelCall, Partition, View
from neoflow.partition.carried import carried
from neoflow.partition.choose import LOSES, Choice, object_for_gpu, object_to
from neoflow.partition.compose import STRANDS, compose
from neoflow.partition.cost import cost_of, multiplies, objective, reward
from neoflow.partition.engine import RIDING as RIDERS
from neoflow.partition.engine import RULES, partition
from neoflow.partition.handed import HandedCall
from neoflow.partition.looped import Loop, flattened
from neoflow.partition.order import order_calls
from neoflow.partition.overwrite import can_overwrite, is_shared
from neoflow.partition.prepared import MOST as MOST_PREPARED
from neoflow.partition.prepared import prepared_first
from neoflow.partition.returned import RETURNED, as_made
from neoflow.partition.strands import strands_of
from neoflow.partition.subgraph import Node, Subgraph, Value
from neoflow.partition.together import Grouped, grouped
from neoflow.verdict import Verdict

__all__ = [
    "LOSES",
    "MOST_PREPARED",
    "RETURNED",
    "RIDERS",
    "ROWS",
    "RULES",
    "STRANDS",
    "Choice",
    "Cost",
    "Decision",
    "Grouped",
    "HandedCall",
    "KernelCall",
    "Loop",
    "Node",
    "Partition",
    "Subgraph",
    "Value",
    "Verdict",
    "View",
    "as_made",
    "blocks_of",
    "can_overwrite",
    "carried",
    "compose",
    "cost_of",
    "flattened",
    "grouped",
    "is_shared",
    "multiplies",
    "object_for_gpu",
    "object_to",
    "objective",
    "order_calls",
    "partition",
    "prepared_first",
    "reward",
    "strands_of",
]
