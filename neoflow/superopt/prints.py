"""Fingerprints of terms: their values over prime fields, at small prime extents.

Sums, differences, products and quotients are those of the field; other functions are random maps with their name as the
key, which keep 0 where the function does; of a max it is only kept that it is one of residues. So what is equal over
real numbers by arithmetic alone has equal fingerprints, and what has equal fingerprints is most likely equal.

Many tensors at once: arrays have an axis of these before their own.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from neoflow.errors import GraphError
from neoflow.superopt.body import (
    Body,
    Both,
    Call,
    Choose,
    Condition,
    Count,
    Family,
    Holds,
    Number,
    Over,
    Place,
    Slot,
    inner,
)
from neoflow.superopt.forms import Form, Quotient

PRIMES = (2097143, 2097133, 2097131)
"""The three largest below 2^21: sums of 2,048 products of residues are exact in float64, three residues are 63 bits."""
KEEP_ZERO = frozenset({"relu", "tanh", "sin", "abs", "sqrt", "erf"})
FOLDS = {"max": np.maximum.reduce, "min": np.minimum.reduce}
Values = np.ndarray


def value(f: Family, sizes: Mapping[str, int], inputs: Sequence[Values], prime: int = PRIMES[0]) -> Values:
    """A family at sizes, of residues, for many tensors at once. Raises `GraphError` for what has no meaning in a
    field."""
    shape = tuple(n.value(sizes) for n in f.shape)
    grid = np.indices(shape, sparse=True) if shape else ()
    at: dict[str, Values | int] = {**sizes, **dict(zip(f.axes, grid, strict=True))}
    many = max((len(i) for i in inputs), default=1)
    return np.broadcast_to(_Reader(prime, len(shape), inputs).body(f.body, at), (many, *shape))


def random_values(shape: Sequence[int], seed: int, label: str, prime: int = PRIMES[0]) -> Values:
    """Residues that follow from a seed and a name."""
    return np.random.default_rng([seed, zlib.crc32(label.encode()), prime]).integers(1, prime, tuple(shape))


def degrees(b: Body, slots: int) -> frozenset[tuple[int, ...]] | None:
    """The degrees in every argument of the products that a body is a sum of; None where it is none of products."""
    match b:
        case Number() | Count() | Place():
            return frozenset() if b == Number(0.0) else frozenset({(0,) * slots})
        case Slot():
            return frozenset({tuple(int(n == b.position) for n in range(slots))})
        case Over(op="sum"):
            return degrees(b.body, slots)
        case Choose():
            return _either(degrees(b.then, slots), degrees(b.other, slots))
        case Call("neg", (x,)):
            return degrees(x, slots)
        case Call("add" | "sub", (x, y)):
            return _either(degrees(x, slots), degrees(y, slots))
        case Call("mul", (x, y)):
            left, right = degrees(x, slots), degrees(y, slots)
            if left is None or right is None:
                return None
            return frozenset(tuple(m + n for m, n in zip(p, q, strict=True)) for p, q in product(left, right))
    return None


def is_affine(f: Family, slot: int) -> bool:
    """Whether a family is linear in an argument but for what does not depend on it."""
    found = degrees(f.body, len(f.slots))
    return found is not None and all(d[slot] <= 1 for d in found)


def adjoint(
    f: Family, sizes: Mapping[str, int], inputs: Sequence[Values], slot: int, weights: Values, prime: int
) -> Values:
    """What elements of an argument that a family is affine in count in a sum of weighted elements of its result, for
    many tensors of the other arguments. inputs: of this one any of its shape."""
    shape = tuple(n.value(sizes) for n in f.shape)
    grid = np.indices(shape, sparse=True) if shape else ()
    at: dict[str, Values | int] = {**sizes, **dict(zip(f.axes, grid, strict=True))}
    many = max((len(a) for n, a in enumerate(inputs) if n != slot), default=1)
    into = np.zeros((many, inputs[slot][0].size), np.int64)
    reader = _Reader(prime, len(shape), inputs)
    reader.back(f.body, at, np.broadcast_to(weights.reshape(shape), (many, *shape)), slot, into)
    return into


def _either(a: frozenset | None, b: frozenset | None) -> frozenset | None:
    return None if a is None or b is None else a | b


class _Reader:
    """rank: of the result, which arrays have behind the axis of tensors."""

    def __init__(self, prime: int, rank: int, inputs: Sequence[Values]):
        self.prime, self.rank, self.inputs = prime, rank, inputs

    def body(self, b: Body, at: Mapping[str, Values | int]) -> Values:
        match b:
            case Number():
                return np.asarray(self.residue(b.value))
            case Count():
                total = 1
                for f in b.extents:
                    total = total * int(_form(f, at)) % self.prime
                return np.asarray(pow(total, b.power, self.prime))
            case Place():
                return _form(b.form, at) % self.prime
            case Slot():
                return self.read(b, at)
            case Choose():
                return np.where(_holds(b.condition, at), self.body(b.then, at), self.body(b.other, at))
            case Over():
                return self.over(b, at)
            case Call():
                return self.call(b.fn, [self.body(a, at) for a in b.args])

    def read(self, b: Slot, at: Mapping[str, Values | int]) -> Values:
        source = self.inputs[b.position]
        flat = self.places(b, at)
        found = source.reshape(len(source), -1)[:, flat.reshape(-1)]
        return found.reshape(len(source), *(1,) * (self.rank - flat.ndim), *flat.shape)

    def places(self, b: Slot, at: Mapping[str, Values | int]) -> Values:
        """Where a read is in its argument, elements in a row; what is outside is never chosen."""
        flat = np.asarray(0)
        for f, n in zip(b.indices, self.inputs[b.position].shape[1:], strict=True):
            flat = flat * n + np.minimum(np.maximum(_form(f, at), 0), n - 1)
        return flat

    def back(self, b: Body, at: Mapping[str, Values | int], weights: Values, slot: int, into: Values) -> None:
        """Adds what elements of an argument count in a body that is affine in it; weights: of the body's elements."""
        if not any(isinstance(part, Slot) and part.position == slot for part in inner(b)):
            return
        p = self.prime
        match b:
            case Slot():
                size, many = into.shape[1], len(into)
                flat = np.broadcast_to(self.places(b, at), weights.shape).reshape(many, -1)
                rows = (np.arange(many)[:, None] * size + flat).reshape(-1)
                into += np.bincount(rows, weights.reshape(-1), into.size).astype(np.int64).reshape(into.shape)
                into %= p
            case Choose():
                chosen = _holds(b.condition, at)
                self.back(b.then, at, np.where(chosen, weights, 0), slot, into)
                self.back(b.other, at, np.where(chosen, 0, weights), slot, into)
            case Over():
                extents, names = [int(_form(f, at)) for _, f in b.axes], [a for a, _ in b.axes]
                for point in np.ndindex(*extents):
                    self.back(b.body, {**at, **dict(zip(names, point, strict=True))}, weights, slot, into)
            case Call("mul", (x, y)):
                for mine, other in ((x, y), (y, x)):
                    if any(isinstance(part, Slot) and part.position == slot for part in inner(mine)):
                        self.back(mine, at, weights * self.body(other, at) % p, slot, into)
            case Call("sub", (x, y)):
                self.back(x, at, weights, slot, into)
                self.back(y, at, -weights % p, slot, into)
            case Call(fn, args):
                for a in args:
                    self.back(a, at, -weights % p if fn == "neg" else weights, slot, into)

    def residue(self, number: float) -> int:
        if not np.isfinite(number):
            return -1 if number < 0 else self.prime  # below and above all others
        above, below = float(number).as_integer_ratio()
        return above * pow(below, -1, self.prime) % self.prime

    def call(self, fn: str, args: list[Values]) -> Values:
        p = self.prime
        match fn:
            case "add":
                return (args[0] + args[1]) % p
            case "sub":
                return (args[0] - args[1]) % p
            case "mul":
                return args[0] * args[1] % p
            case "neg":
                return -args[0] % p
            case "div":
                return args[0] * _inverse(args[1] % p, p) % p
            case "maximum" | "minimum":
                return getattr(np, fn)(*args)
        total = np.asarray(zlib.crc32(fn.encode()) % p)
        for n, a in enumerate(args):
            total = (total * (48271 + n) + a * a % p * a + 16807 * a) % p
        mixed = total * total % p * total % p
        return np.where(args[0] == 0, 0, mixed) if fn in KEEP_ZERO else mixed

    def over(self, b: Over, at: Mapping[str, Values | int]) -> Values:
        extents, names = [int(_form(f, at)) for _, f in b.axes], [a for a, _ in b.axes]
        points = (self.body(b.body, {**at, **dict(zip(names, p, strict=True))}) for p in np.ndindex(*extents))
        if b.op == "sum":
            return sum(points, np.asarray(0)) % self.prime
        if b.op in FOLDS:
            return FOLDS[b.op](np.broadcast_arrays(*points))
        raise GraphError(f"a {b.op} has no fingerprint")


def _inverse(a: Values, prime: int) -> Values:
    """By Fermat; of 0 it is 0."""
    total, power, left = np.ones_like(a), a, prime - 2
    while left:
        if left & 1:
            total = total * power % prime
        power, left = power * power % prime, left >> 1
    return total


def _form(f: Form, at: Mapping[str, Values | int]) -> Values:
    total = np.asarray(f.constant)
    for atom, k in f.terms:
        total = total + k * (_form(atom.form, at) // atom.divisor if isinstance(atom, Quotient) else at[atom])
    return total


def _holds(c: Condition, at: Mapping[str, Values | int]) -> Values:
    if isinstance(c, Holds):
        found = _form(c.form, at)
        return found == 0 if c.is_equal else found >= 0
    a, b = _holds(c.a, at), _holds(c.b, at)
    return a & b if isinstance(c, Both) else a | b
