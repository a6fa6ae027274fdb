"""The matrices of Winograd's minimal filtering F(m, r): m results of a filter of r taps, with m + r - 1 products.

    results = A^T ((G taps) * (B^T data))        data: the m + r - 1 elements that the results depend on

Source: Winograd, Arithmetic Complexity of Computations, 1980; Lavin and Gray, Fast Algorithms for Convolutional Neural
Networks, 2015. Made by the construction of Cook and Toom from the points below and infinity, in exact fractions. Which
points round least: Barabasz et al., Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural
Networks, 2020; these have the least `growth`, or nearly, of all sets of fractions of numbers up to 5 that were tried.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

POINTS = tuple(
    tuple(map(Fraction, points.split()))
    for points in (
        "",
        "0",
        "0 1",
        "0 1 -1",
        "0 1/2 3/2 -3/2",
        "0 1/2 -1/2 2 -2",
        "0 1 1/2 -1/2 2 -2",
        "0 1 -1 2/5 -2/5 5/2 -5/2",
        "0 1/4 1/2 -1/2 4/3 -4/3 3 -3",
        "0 1/3 -1/3 3/4 -3/4 4/3 -4/3 3 -3",
    )
)
"""By how many there are, where polynomials are multiplied; a point and its opposite share half of their additions."""
MOST_POINTS = len(POINTS)
"""Products of the largest filtering."""

Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class Filtering:
    """F(m, r). data: B^T; taps: G; results: A^T."""

    data: Matrix
    taps: Matrix
    results: Matrix

    @property
    def length(self) -> int:
        """Elements of a tile of data, and products."""
        return len(self.data)

    @property
    def growth(self) -> Fraction:
        """How much larger intermediate values may be than those of the direct sum: the most, over the results, of
        sum |A^T| (|G| 1) (|B^T| 1) / r."""
        size = [_size(g) * _size(b) for g, b in zip(self.taps, self.data, strict=True)]
        most = max(sum((abs(a) * s for a, s in zip(row, size, strict=True)), Fraction(0)) for row in self.results)
        return most / len(self.taps[0])


def _size(row: tuple[Fraction, ...]) -> Fraction:
    return sum(map(abs, row), Fraction(0))


@lru_cache(maxsize=64)
def filtering(m: int, r: int) -> Filtering:
    """F(m, r), where m + r - 1 is at most `MOST_POINTS`."""
    n = m + r - 1
    assert n <= MOST_POINTS, f"F({m}, {r}) takes more points than there are"
    points = POINTS[n - 1]
    scales = [math.prod((a - b for b in points if b != a), start=Fraction(1)) for a in points]
    data = [_polynomial([b for b in points if b != a], n) for a in points] + [_polynomial(points, n)]
    taps = [tuple(a**k / scale for k in range(r)) for a, scale in zip(points, scales, strict=True)]
    results = [(*(a**i for a in points), Fraction(i == m - 1)) for i in range(m)]
    last = (*(Fraction(0) for _ in range(r - 1)), Fraction(1))
    return Filtering(tuple(data), (*taps, last), tuple(results))


def _polynomial(roots: tuple[Fraction, ...] | list[Fraction], length: int) -> tuple[Fraction, ...]:
    """The coefficients of the product of (x - root), the constant one first, filled up with zeros."""
    found = [Fraction(1)]
    for root in roots:
        found = [a - root * b for a, b in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return (*found, *(Fraction(0) for _ in range(length - len(found))))
