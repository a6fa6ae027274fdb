"""`Kernel`: one subgraph, how it becomes loops, for what machine."""

from __future__ import annotations

from dataclasses import dataclass

from neoflow.code import kernel_symbol
from neoflow.loops import Schedule
from neoflow.partition import Subgraph
from neoflow.target import Target


@dataclass(frozen=True)
class Kernel:
    """What is compiled once and called from anywhere."""

    subgraph: Subgraph
    schedule: Schedule
    target: Target
    key: str
    """What its code is found by."""

    @property
    def symbol(self) -> str:
        """The name that those of its functions begin with."""
        return kernel_symbol(self.key)
