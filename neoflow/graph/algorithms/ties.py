"""The equation that ties a result to the points and taps it is a sum of, along one axis, found from all its solutions.

step * p + dilation * r = z + offset,       0 <= p < points,  0 <= r < taps,  0 <= z < extent
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from neoflow.expr.ir import Axis

Points = np.ndarray
"""[n, 3], integers: a result z, the point p and the tap r that it is a sum of."""


@dataclass(frozen=True)
class Line:
    """The equation of an axis of a result. at: the dimension of the operand that has the points; tap: that of the other
    one, which has the taps, None where there is but one."""

    out: Axis
    at: int
    tap: int | None
    step: int
    dilation: int
    offset: int
    points: int
    taps: int

    def taps_of(self, residue: int) -> range:
        """The taps of the results with this remainder by `step`."""
        every = self.step // math.gcd(self.step, self.dilation)
        rests = ((residue + self.offset - self.dilation * r) % self.step for r in range(min(every, self.taps)))
        first = next((r for r, rest in enumerate(rests) if rest == 0), self.taps)
        return range(first, self.taps, every)

    def point(self, residue: int, tap: int) -> int:
        """The point of the first result with this remainder under one of its taps; that of the next is one more."""
        return (residue + self.offset - self.dilation * tap) // self.step

    @property
    def reach(self) -> tuple[int, int]:
        """The least and the largest  z + offset - dilation * r."""
        last = self.dilation * (self.taps - 1)
        return self.offset - max(last, 0), self.out.extent - 1 + self.offset - min(last, 0)

    @property
    def solutions(self) -> Points:
        """All of them."""
        z, r = np.indices((self.out.extent, self.taps)).reshape(2, -1)
        p, rest = np.divmod(z + self.offset - self.dilation * r, self.step)
        holds = (rest == 0) & (p >= 0) & (p < self.points)
        return np.stack([z[holds], p[holds], r[holds]], axis=1)

    def __str__(self) -> str:
        return f"{self.step} p + {self.dilation} r = z + {self.offset}"


def equation(out: Axis, found: Sequence[Points], at: tuple[int, int], tap: tuple[int | None, int]) -> Line | str:
    """The equation that all of these points fulfil, or why there is none. at, tap: a dimension and its extent."""
    points = np.concatenate([*found])
    if not len(points):
        return "nothing is read along an axis of the result"
    z, p, r = (int(n) for n in points[0])
    same = points[(points[:, 2] == r) & (points[:, 1] != p)]
    if not len(same):
        return "too few points lie along an axis of the result"
    step, rest = divmod(int(same[0, 0]) - z, int(same[0, 1]) - p)
    others = points[points[:, 2] != r]
    dilation, more = (0, 0)
    if len(others):
        dilation, more = divmod(int(others[0, 0]) - z - step * (int(others[0, 1]) - p), int(others[0, 2]) - r)
    line = Line(out, at[0], tap[0], step, dilation, step * p + dilation * r - z, at[1], tap[1])
    on_it = step * points[:, 1] + dilation * points[:, 2] - points[:, 0] == line.offset
    if rest or more or step < 1 or not on_it.all():
        return "an axis of the result is tied to what is read by no equation"
    return line
