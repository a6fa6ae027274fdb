"""Random numbers as integer expressions of a counter: the same values whatever computes them, in whatever order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neoflow.expr import dsl, given
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Expr
from neoflow.expr.shape.tools import checked_int
from neoflow.expr.tensor import Tensor
from neoflow.expr.typed import Operand
from neoflow.nn.form import training_form
from neoflow.nn.tools import compute, describe, expect

__all__ = ["dropout", "random_bits", "uniform"]

PRIME = 2**31 - 1
"""Values and keys are residues of this prime: value * (value + key) stays below 2^63, so that nothing overflows."""
_ROUNDS = 4


def _mix(value: Expr, key: Operand) -> Expr:
    """value (value + key) modulo the prime: what makes neighbouring counters unlike each other."""
    return value * (value + key) % PRIME


def random_bits(shape: tuple[int, ...], seed: Tensor, stream: int = 0) -> Tensor:
    """An int64 in [0, 2^31 - 1) for each element of `shape`, from a rank-0 integer `seed` (a step counter, say).

    stream: a number that sets apart several uses of one seed. Seed and stream are mixed to a key; element n is then
    `_ROUNDS` rounds of mixing of n + key with the key. Counter-based after Salmon et al., Parallel Random Numbers: As
    Easy as 1, 2, 3, 2011, with multiplication modulo a prime in place of machine words.
    """
    expect(
        seed.rank == 0 and dt.is_int(seed.dtype), f"a seed is one integer (rank 0), not {seed.dtype} {describe(seed)}"
    )
    dims, number = given.checked_shape(shape), checked_int(stream, "stream")
    key = (dsl.cast(seed, "int64") % PRIME + number * 1_640_531_527 % PRIME) % PRIME
    for constant in (1_103_515_245, 12_345, 1_812_433_253, 69_069):
        key = dsl.lift(lambda v, c=constant: _mix(v + 1, c), (key,), "key")

    def counter(ix: tuple[Expr, ...]) -> Expr:
        n: Expr | int = 0
        for i, extent in zip(ix, dims, strict=True):
            n = n * extent + i
        return (n + key[()]) % PRIME

    bits: Tensor = compute(dims, tuple(f"i{n}" for n in range(len(dims))), counter, "counter")
    for _ in range(_ROUNDS):
        bits = dsl.lift(_mix, (bits, key), "bits")
    return bits


def uniform(shape: tuple[int, ...], seed: Tensor, stream: int = 0, dtype: object = "float32") -> Tensor:
    """Uniform values in [0, 1): 24 of the random bits, which a float32 holds exactly."""
    target = given.checked_dtype(dtype)
    return dsl.cast(random_bits(shape, seed, stream) // 2**7, target) * 2.0**-24


def dropout(x: Tensor, rate: float, seed: Tensor, stream: int = 0, state: Mapping[Any, Tensor] | None = None) -> Tensor:
    """Each element 0 with probability `rate`, else x / (1 - rate); in the shape of x.

    seed: a rank-0 integer tensor, new for each step; stream: one for each use in a network. The mask follows from
    these two alone, so a step can be repeated to the bit. state: what a step sets so that its seed is a new one; see
    `nn.state`. Its inference form (`nn.inference`) is x. Source: Srivastava et al., 2014.
    """
    expect(0.0 <= rate < 1.0, f"dropout: rate {rate!r} is not in [0, 1)")
    if not rate:
        return x
    bits, limit, scale = random_bits(x.shape, seed, stream), round(rate * PRIME), 1.0 / (1.0 - rate)
    dropped = dsl.lift(lambda e, b: dsl.select(b >= limit, e * scale, 0.0), (x, bits), "dropout")
    return training_form(dropped, lambda: x, state)
