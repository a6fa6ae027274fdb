"""`Roofs`: what a machine reaches, measured or stated; the one currency, seconds, in which a kernel's work is priced.

Searches leave out what cannot be fast enough by it, reports show kernels beside it, and what rewrites a graph or cuts
it into kernels compares by it: sum over kernels of max(bytes / P_d, operations / P_c) + L.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from neoflow.boundary import public


@dataclass(frozen=True)
class Level:
    """Memory of one kind: what it holds in bytes (None: everything) and how fast it reads and writes."""

    name: str
    nbytes: int | None
    gb_s: float


@dataclass(frozen=True)
class Roofs:
    """What this machine reaches: float32 GFLOP/s in registers, and its levels of memory, the smallest first.

    origin: where the figures come from. start: seconds from the end of one kernel to the begin of the next, L.
    """

    gflops: float
    levels: tuple[Level, ...]
    origin: str = "measured just after"
    start: float = 0.0

    def level(self, nbytes: int) -> Level:
        """The first level that holds so much."""
        return next(v for v in self.levels if v.nbytes is None or nbytes <= v.nbytes)

    def seconds(self, flops: int, nbytes: int) -> float:
        """What so much work takes at least: the longer of arithmetic and memory."""
        return max(flops / self.gflops, nbytes / self.level(nbytes).gb_s) / 1e9

    def kernel_seconds(
        self,
        instructions: float,
        nbytes: float,
        near: float = 0.0,
        row_bytes: float = 0.0,
        late: float = 0.0,
        beside: float = 0.0,
    ) -> float:
        """What a kernel is thought to take: max(bytes / P_d, operations / P_c) + L, and what lies outside of that.

        instructions: on single elements; a multiply-add is one, and two operations. nbytes: moved in the level that
        holds all of it. near, row_bytes: bytes moved between what the kernel keeps to itself, in the level that holds a
        row of it. late: of nbytes, those that move when all is computed. beside: instructions that nothing hides.
        """
        speed = self.level(int(nbytes)).gb_s
        moved = (nbytes - late) / speed + near / self.level(int(row_bytes)).gb_s
        hidden = max(2 * instructions / self.gflops, moved)
        return (hidden + late / speed + 2 * beside / self.gflops) / 1e9 + self.start

    def rounded(self) -> Roofs:
        """The same in steps of a quarter of an octave: what is decided by them does not follow noise."""
        levels = tuple(replace(v, gb_s=_in_steps(v.gb_s)) for v in self.levels)
        return replace(self, gflops=_in_steps(self.gflops), levels=levels, start=_in_steps(self.start))

    def to_text(self) -> str:
        """The figures as `from_text` reads them back."""
        from neoflow.text import write_record  # imported here: a package that is run does not say it

        return write_record(self, "roofs")

    @classmethod
    @public
    def from_text(cls, text: str) -> Roofs:
        """The figures that `to_text` wrote. Raises `TextError`."""
        from neoflow.text import read_record

        return read_record(cls, text, "roofs")


STEPS = 4
"""Of an octave, into which `Roofs.rounded` goes: measured again, a quiet machine's figures differ by 1 to 3 %."""


def _in_steps(figure: float) -> float:
    return 2.0 ** (round(STEPS * math.log2(figure)) / STEPS) if 0 < figure < math.inf else figure


STATED = Roofs(
    236.0,
    (
        Level("L1", 1 << 16, 400.0),
        Level("L2", 1 << 21, 200.0),
        Level("L3", 1 << 25, 90.0),
        Level("memory", None, 40.0),
    ),
    "stated: two cores of Zen 4",
    3e-7,
)
"""Of a machine that nobody measured: two cores of Zen 4, as `neoflow doctor` measured them, rounded."""
