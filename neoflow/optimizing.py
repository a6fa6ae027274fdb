"""Faster equal graphs for programs: the rules that are proved, and what a graph is thought to take as kernels."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from neoflow.errors import ConfigError, GraphError, shown
from neoflow.expr.tensor import Compute, Tensor
from neoflow.graph import Graph, optimize
from neoflow.partition import KernelCall, Partition, cost_of
from neoflow.roofs import Roofs
from neoflow.superopt import Cost, Limits, Optimized, Rule, Search, family, rules_about, standard

ABOUT = 0.25
"""Share of the time in which rules are made from the properties of a program's own operators."""


@dataclass(frozen=True)
class Optimizing:
    """How long graphs of one program are searched for: so many seconds, together."""

    limits: Limits
    divide: Callable[[Graph], Partition]
    roofs: Roofs
