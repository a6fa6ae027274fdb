"""What a machine reaches at most: roofs of one that nobody measured."""

from __future__ import annotations

import math

from neoflow.architectures import architecture
from neoflow.roofs import STATED, Level, Roofs
from neoflow.target import Target

FASTEST_CLOCK = 6e9
"""Cycles a second that no core of ten years reaches with vectors: what is known of a machine that nobody measured."""


def flops_a_cycle(target: Target) -> int:
    """Operations that all threads together start in a cycle, a multiply-add being two."""
    return 2 * target.threads * target.fma_units * target.lanes("float32")


def nominal(target: Target) -> Roofs:
    """Roofs that no machine of the target exceeds: a clock that none has, and memory without a limit; of a GPU, the
    data sheet."""
    if target.device == "gpu":
        found = architecture(target)
        return Roofs(
            found.flops / 1e9, (Level("memory", None, found.bandwidth / 1e9),), "by the data sheet of its kind"
        )
    gflops = FASTEST_CLOCK * flops_a_cycle(target) / 1e9
    return Roofs(gflops, (Level("memory", None, math.inf),), "no core has a faster clock")


def stated(target: Target) -> Roofs:
    """What plans are compared by: the same on every machine of a kind, so that they are."""
    return STATED if target.device == "cpu" else nominal(target)
