"""`Roofs`: what a machine reaches, measured or at most."""

from __future__ import annotations

import math
from dataclasses import dataclass

from neoflow.architectures import architecture
from neoflow.target import Target

FASTEST_CLOCK = 6e9
"""Cycles a second that no core of ten years reaches with vectors: what is known of a machine that nobody measured."""


@dataclass(frozen=True)
class Level:
    """Memory of one kind: what it holds in bytes (None: everything) and how fast it reads and writes."""

    name: str
    nbytes: int | None
    gb_s: float


@dataclass(frozen=True)
class Roofs:
    """What this machine reaches: float32 GFLOP/s in registers, and its levels of memory, the smallest first.

    origin: where the figures come from.
    """

    gflops: float
    levels: tuple[Level, ...]
    origin: str = "measured just after"

    def level(self, nbytes: int) -> Level:
        """The first level that holds so much."""
        return next(v for v in self.levels if v.nbytes is None or nbytes <= v.nbytes)

    def seconds(self, flops: int, nbytes: int) -> float:
        """What so much work takes at least: the longer of arithmetic and memory."""
        return max(flops / self.gflops, nbytes / self.level(nbytes).gb_s) / 1e9


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
