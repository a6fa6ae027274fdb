"""`Times`: what kernels take, measured where that is known, thought elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable

from neoflow.graph import is_contraction, points
from neoflow.partition import Subgraph, cost_of, multiplies
from neoflow.roofs import Roofs

Lookup = Callable[[Subgraph], float | None]
"""Seconds of a kernel, where they are known."""


class Times:
    """Seconds of kernels, the same for those of one digest.

    A kernel of which nothing is known takes what it is thought to, as many times as long as the known ones of its kind
    took: contractions, and all others. Otherwise what nobody has measured would always look faster. And no contraction
    is thought to multiply faster than any known one did: what is counted beside its products is rough, and 1x1
    convolutions whose weights are packed once came out at 1.5 times the peak, so that Winograd's form of others beside
    them was not looked at.
    """

    def __init__(self, roofs: Roofs, known: Lookup = lambda kernel: None):
        """known: what was measured before."""
        self._roofs, self._lookup = roofs, known
        self._measured: dict[str, float | None] = {}
        self._seconds: dict[str, float] = {}
        self._longer: dict[Hashable, list[float]] = {}
        """by kind, logarithms of how many times as long as thought those took that `learn` was told of"""
        self._fastest = 0.0
        """products a second, of those of them that multiply"""

    def __call__(self, kernel: Subgraph) -> float:
        """Of a call."""
        if kernel.digest not in self._seconds:
            measured = self.measured(kernel)
            self._seconds[kernel.digest] = self._guess(kernel) if measured is None else measured
        return self._seconds[kernel.digest]

    def thought(self, kernel: Subgraph) -> float:
        """By the roofs."""
        return cost_of(kernel).seconds(self._roofs)

    def kind(self, kernel: Subgraph) -> Hashable:
        """Kernels of one kind take as many times as long as thought as each other: those that multiply, all others."""
        return multiplies(kernel)

    def measured(self, kernel: Subgraph) -> float | None:
        """What it took; None where nobody knows."""
        if kernel.digest not in self._measured:
            self._measured[kernel.digest] = self._lookup(kernel)
        return self._measured[kernel.digest]

    def learn(self, kernels: Iterable[Subgraph], measure: Lookup = lambda kernel: None) -> int:
        """Compare what kernels take with what they are thought to, measuring those of which nothing is known; how many
        are known now that were not."""
        new = 0
        for kernel in kernels:
            if self.measured(kernel) is None and (seconds := measure(kernel)) is not None:
                self._measured[kernel.digest] = seconds
                new += 1
            seconds = self.measured(kernel)
            if seconds is not None and seconds > 0:
                ratio = seconds / self.thought(kernel)
                self._longer.setdefault(self.kind(kernel), []).append(math.log(ratio))
                self._fastest = max(self._fastest, _products(kernel) / seconds)
        self._seconds.clear()
        return new

    def _guess(self, kernel: Subgraph) -> float:
        """Of one that nobody has measured."""
        least = _products(kernel) / self._fastest if self._fastest else 0.0
        return max(least, self.thought(kernel) * self._factor(kernel))

    def _factor(self, kernel: Subgraph) -> float:
        """Of what is thought of a kernel."""
        known = self._longer.get(self.kind(kernel)) or [ratio for each in self._longer.values() for ratio in each]
        return math.exp(sum(known) / len(known)) if known else 1.0


def _products(kernel: Subgraph) -> int:
    """Products that its contractions add up."""
    return sum(points(node.definition) for node in kernel.nodes if is_contraction(node.definition))
