"""From a graph to kernels: what is stored, what is inlined, what rides along, and why."""

from neoflow.partition.calls import KernelCall, Partition, Verdict, View, can_overwrite, updates_last
from neoflow.partition.fuse import partition
from neoflow.partition.subgraph import Stage, Subgraph, Value

__all__ = [
    "KernelCall",
    "Partition",
    "Stage",
    "Subgraph",
    "Value",
    "Verdict",
    "View",
    "can_overwrite",
    "partition",
    "updates_last",
]
