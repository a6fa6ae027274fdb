"""Tensors joined and cut along a dimension, and one repeated."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from neoflow.expr import dsl
from neoflow.expr.dsl import read
from neoflow.expr.given import checked_shape
from neoflow.expr.ir import Expr
from neoflow.expr.shape.tools import checked_dim, checked_int, checked_tensor, checked_tensors, make, replaced
from neoflow.expr.tensor import Tensor
from neoflow.expr.typed import Operand, fail


def concat(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensors one after another along dimension `axis`; the other extents are equal."""
    xs = checked_tensors(tensors, "concat")
    d = checked_dim(xs[0], axis, "concat")
    for x in xs[1:]:
        if x.rank != xs[0].rank or replaced(x.shape, d) != replaced(xs[0].shape, d):
            raise fail(
                f"concat along dimension {d}: {x.name} has shape {x.shape}, {xs[0].name} {xs[0].shape}; all other "
                "extents must be equal"
            )
    starts = [0]
    for x in xs:
        starts.append(starts[-1] + x.shape[d])

    def body(ix: tuple[Expr, ...]) -> Operand:
        parts = [read(x, replaced(ix, d, ix[d] - start)) for x, start in zip(xs, starts, strict=False)]
        result = parts[-1]
        for part, end in zip(parts[-2::-1], starts[-2:0:-1], strict=True):
            result = dsl.select(ix[d] < end, part, result)
        return result

    return make(replaced(xs[0].shape, d, starts[-1]), body, "concat")


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensors, all of one shape, side by side along a new dimension at place `axis`."""
    xs = checked_tensors(tensors, "stack")
    for x in xs[1:]:
        if x.shape != xs[0].shape:
            raise fail(f"stack: {x.name} has shape {x.shape}, {xs[0].name} {xs[0].shape}; shapes must be equal")
    d = checked_dim(xs[0], axis, "stack", xs[0].rank + 1)

    def body(ix: tuple[Expr, ...]) -> Operand:
        rest = replaced(ix, d)
        result: Operand = read(xs[-1], rest)
        for n in range(len(xs) - 2, -1, -1):
            result = dsl.select(dsl.equal(ix[d], n), read(xs[n], rest), result)
        return result

    return make((*xs[0].shape[:d], len(xs), *xs[0].shape[d:]), body, "stack")


def split(x: Tensor, sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """x cut along `axis`: into so many equal parts, or before each of the given positions."""
    x = checked_tensor(x, "split")
    d = checked_dim(x, axis, "split")
    n = x.shape[d]
    if isinstance(sections, (int, np.integer)):
        if sections <= 0 or n % sections:
            raise fail(f"split of {x.name} {x.shape}: extent {n} of dimension {d} is no multiple of {sections}")
        cuts = list(range(0, n + 1, n // int(sections)))
    else:
        cuts = [0, *(checked_int(c, "a position of split") for c in sections), n]
    if any(a >= b for a, b in itertools.pairwise(cuts)):
        raise fail(f"split of {x.name} {x.shape}: positions {cuts[1:-1]} do not ascend inside (0, {n})")

    def part(a: int, b: int) -> Tensor:
        return make(replaced(x.shape, d, b - a), lambda ix: read(x, replaced(ix, d, ix[d] + a)), "split")

    return [part(a, b) for a, b in itertools.pairwise(cuts)]


def tile(x: Tensor, reps: int | Sequence[int]) -> Tensor:
    """x repeated as a whole `reps` times along each dimension (matched from the right)."""
    x = checked_tensor(x, "tile")
    times = checked_shape(reps)
    rank = max(x.rank, len(times))
    times = (1,) * (rank - len(times)) + times
    shape = (1,) * (rank - x.rank) + x.shape

    def body(ix: tuple[Expr, ...]) -> Operand:
        return read(x, [i % n for i, n in zip(ix[rank - x.rank :], x.shape, strict=True)])

    return make([n * t for n, t in zip(shape, times, strict=True)], body, "tile")


def repeat(x: Tensor, repeats: int, axis: int) -> Tensor:
    """x with each slice along `axis` repeated `repeats` times in place."""
    d = checked_dim(checked_tensor(x, "repeat"), axis, "repeat")
    (times,) = checked_shape(repeats)
    return make(replaced(x.shape, d, x.shape[d] * times), lambda ix: read(x, replaced(ix, d, ix[d] // times)), "repeat")
