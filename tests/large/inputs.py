"""Shapes, and tensors to read: made before, perhaps under another shape, or new inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

import neoflow as nf
from neoflow.expr.tensor import Tensor
from tests.chance import Chance

EXTENTS = (1, 2, 3, 5, 8, 16, 17, 31, 64, 65, 100, 129, 257, 1000)
ELEMENTS, WORK = 100_000, 20_000_000
"""Most elements of a tensor; most points of a contraction."""


class Inputs(Chance):
    """Draws shapes and tensors, and keeps an array for each input."""

    def __init__(self, seed: int, training: bool):
        super().__init__(np.random.default_rng((seed, training)))
        self.seed, self.training = seed, training
        self.feeds: dict[Tensor, np.ndarray] = {}
        self.made: list[Tensor] = []
        """float tensors to read, the latest last"""

    # ------------------------------------------------------------------------------------------------- shapes

    def extent(self, most: int) -> int:
        """An extent up to `most`, large ones as often as small ones."""
        return self.pick([n for n in EXTENTS if n <= max(most, 1)])

    def shape(self, rank: int, points: int = ELEMENTS) -> tuple[int, ...]:
        dims: list[int] = []
        for _ in range(rank):
            dims.append(self.extent(points // math.prod(dims)))
        self.rng.shuffle(dims)
        return tuple(dims)

    # ------------------------------------------------------------------------------------------------- tensors

    def fresh(self, shape: Sequence[int], size: float = 1.0) -> Tensor:
        """A new input of the standard deviation `size`: a parameter now and then, when training."""
        make, kind = (nf.parameter, "w") if self.training and self.chance(0.7) else (nf.placeholder, "x")
        t = make(tuple(shape), name=f"{kind}{len(self.feeds)}")
        self.feeds[t] = (size * self.rng.standard_normal(tuple(shape))).astype(np.float32)
        return t

    def ids(self, shape: Sequence[int], below: int) -> Tensor:
        """New indices in [0, below)."""
        t = nf.placeholder(tuple(shape), self.pick(("int64", "int32")), name=f"n{len(self.feeds)}")
        self.feeds[t] = self.rng.integers(0, below, tuple(shape)).astype(t.dtype)
        return t

    def known(self, fits: Callable[[Tensor], bool] = lambda t: True) -> Tensor | None:
        """A tensor made before, often the latest."""
        found = [t for t in self.made if fits(t)]
        if not found:
            return None
        return found[-1] if self.chance(0.6) else self.pick(found)

    def tensor(self, rank: int, points: int = ELEMENTS, least: int = 1) -> Tensor:
        """A tensor of `rank` and at most `points` elements: made before, perhaps under another shape, or new."""
        if self.chance(0.75):
            t = self.known(lambda t: t.rank == rank and t.size <= points and min(t.shape, default=1) >= least)
            if t is not None:
                return t
            t = self.known(lambda t: t.size <= points)
            if t is not None:
                shape = self.refolded(t.size, rank)
                if min(shape, default=1) >= least:
                    return nf.reshape(t, shape)
        shape = self.shape(rank, points)
        return self.fresh(tuple(max(n, least) for n in shape))

    def refolded(self, size: int, rank: int) -> tuple[int, ...]:
        """`size` as a product of `rank` extents."""
        dims = []
        for _ in range(rank - 1):
            divisors = [d for d in range(1, min(size, 300) + 1) if size % d == 0]
            dims.append(self.pick(divisors))
            size //= dims[-1]
        return (*self.shuffled([*dims, size]),)
