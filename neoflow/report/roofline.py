"""Kernels' times beside what the machine reaches: the roofline model."""

from __future__ import annotations

from dataclasses import dataclass

from neoflow.roofs import Roofs

MORE_THAN_PEAK = (
    "above the peak: operations are counted as written; a branch not taken, a guard folded away or a value shared "
    "between points is work counted and not done"
)
MORE_THAN_BANDWIDTH = (
    "above the bandwidth: the level is chosen by what one call touches; what the kernel before left in a nearer cache "
    "is read from there, and of a tensor that is looked up in only the rows asked for are read"
)


@dataclass(frozen=True)
class Work:
    """What one distinct kernel has to do in a step: its calls, and of one call the operations and bytes.

    Every input is read once, one that is looked up in counts whole, and every output is written once.
    """

    calls: int
    flops: int
    nbytes: int

    def floor(self, roofs: Roofs) -> float:
        """Seconds that all calls take at the machine's roofs: the longer of arithmetic and memory."""
        return self.calls * roofs.seconds(self.flops, self.nbytes)


@dataclass(frozen=True)
class KernelRow:
    """One distinct kernel in one step, all of its calls together.

    number: in the plan. label: a name that no other kernel of the step has. names: what each call computes. place: the
    user's line, "file:line", of the first of it that has one. seconds, share: of the step's kernels. flops: counted
    by `neoflow.expr.count`. nbytes: every input read once and every output written once; touched: those of one call.
    """

    number: int
    label: str
    names: tuple[str, ...]
    place: str
    seconds: float
    share: float
    flops: int
    nbytes: int
    touched: int
    schedule: str
    text: str

    @property
    def gflops(self) -> float:
        """Billions of operations a second."""
        return self.flops / self.seconds / 1e9 if self.seconds else 0.0

    @property
    def gb_s(self) -> float:
        """Billions of bytes a second."""
        return self.nbytes / self.seconds / 1e9 if self.seconds else 0.0

    def floor(self, roofs: Roofs) -> float:
        """Seconds that all calls take at the machine's roofs."""
        calls = max(1, len(self.names))
        return Work(calls, self.flops // calls, self.touched).floor(roofs)

    def above(self, roofs: Roofs) -> tuple[str, ...]:
        """Why shares of roofs exceed 100 %, where they do."""
        arithmetic = (MORE_THAN_PEAK,) if self.gflops > roofs.gflops else ()
        return (*arithmetic, MORE_THAN_BANDWIDTH) if self.gb_s > roofs.level(self.touched).gb_s else arithmetic

    def roof(self, roofs: Roofs) -> str:
        """What no schedule gets past, "compute" or a level of memory (the roofline model, Williams et al. 2009)."""
        level = roofs.level(self.touched)
        return "compute" if self.flops / roofs.gflops >= self.nbytes / level.gb_s else level.name
