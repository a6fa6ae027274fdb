"""From a graph to kernels: what is stored, what is inlined, what rides along, and why."""

from neoflow.partition.calls import KernelCall, Partition, View
from neoflow.partition.fuse import partition
from neoflow.partition.order import order_calls
from neoflow.partition.overwrite import can_overwrite, is_shared
from neoflow.partition.subgraph import Stage, Subgraph, Value
from neoflow.verdict import Verdict

__all__ = [
    "KernelCall",
    "Partition",
    "Stage",
    "Subgraph",
    "Value",
    "Verdict",
    "View",
    "can_overwrite",
    "is_shared",
    "order_calls",
    "partition",
]
