"""Fingerprints of terms: their values over a prime field, at small prime extents.

Sums, differences and products are those of the field; other functions are random maps with their name as the key, which
keep 0 where the function does; of a max it is only kept that it is one of residues. So what is equal over real numbers
by arithmetic alone has equal fingerprints, and what has equal fingerprints is most likely equal.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from neoflow.errors import GraphError
from neoflow.superopt.body import Body, Both, Call, Choose, Condition, Count, Family, Holds, Number, Over, Place, Slot
from neoflow.superopt.forms import Form, Quotient

PRIME = (1 << 31) - 1
"""Products of two residues fit 63 bits."""
KEEP_ZERO = frozenset({"relu", "tanh", "sin", "abs", "sqrt", "erf"})
FOLDS = {"max": np.maximum.reduce, "min": np.minimum.reduce}
Values = np.ndarray


def value(f: Family, sizes: Mapping[str, int], inputs: Sequence[Values]) -> Values:
    """A family at sizes, of residues. Raises `GraphError` for what has no meaning in a field."""
    shape = tuple(n.value(sizes) for n in f.shape)
    grid = np.indices(shape, sparse=True) if shape else ()
    at: dict[str, Values | int] = {**sizes, **dict(zip(f.axes, grid, strict=True))}
    return np.broadcast_to(_body(f.body, at, inputs), shape)


def digest(values: Values) -> bytes:
    """Sixteen bytes of a shape and its residues."""
    return hashlib.blake2b(f"{values.shape}".encode() + np.ascontiguousarray(values).tobytes(), digest_size=16).digest()


def random_values(shape: Sequence[int], seed: int, label: str) -> Values:
    """Residues that follow from a seed and a name."""
    return np.random.default_rng([seed, zlib.crc32(label.encode())]).integers(1, PRIME, tuple(shape))


def _form(f: Form, at: Mapping[str, Values | int]) -> Values:
    total = np.asarray(f.constant)
    for atom, k in f.terms:
        total = total + k * (_form(atom.form, at) // atom.divisor if isinstance(atom, Quotient) else at[atom])
    return total


def _body(b: Body, at: Mapping[str, Values | int], inputs: Sequence[Values]) -> Values:
    match b:
        case Number():
            return np.asarray(_residue(b.value))
        case Count():
            total = 1
            for f in b.extents:
                total = total * int(_form(f, at)) % PRIME
            return np.asarray(pow(total, b.power, PRIME))
        case Place():
            return _form(b.form, at) % PRIME
        case Slot():
            source = inputs[b.position]
            if not source.ndim:
                return source
            indices = [np.clip(_form(f, at), 0, n - 1) for f, n in zip(b.indices, source.shape, strict=True)]
            return source[tuple(np.broadcast_arrays(*indices))]
        case Choose():
            return np.where(_holds(b.condition, at), _body(b.then, at, inputs), _body(b.other, at, inputs))
        case Over():
            return _over(b, at, inputs)
        case Call():
            return _call(b.fn, [_body(a, at, inputs) for a in b.args])


def _residue(number: float) -> int:
    if not np.isfinite(number):
        return zlib.crc32(repr(number).encode()) % PRIME
    above, below = float(number).as_integer_ratio()
    return above * pow(below, -1, PRIME) % PRIME


def _call(fn: str, args: list[Values]) -> Values:
    if fn == "add":
        return (args[0] + args[1]) % PRIME
    if fn == "sub":
        return (args[0] - args[1]) % PRIME
    if fn == "mul":
        return args[0] * args[1] % PRIME
    if fn == "neg":
        return -args[0] % PRIME
    total = np.asarray(zlib.crc32(fn.encode()) % PRIME)
    for n, a in enumerate(args):
        total = (total * (48271 + n) + a * a % PRIME * a + 16807 * a) % PRIME
    mixed = total * total % PRIME * total % PRIME
    return np.where(args[0] == 0, 0, mixed) if fn in KEEP_ZERO else mixed


def _over(b: Over, at: Mapping[str, Values | int], inputs: Sequence[Values]) -> Values:
    extents = [int(_form(f, at)) for _, f in b.axes]
    points = [
        _body(b.body, {**at, **dict(zip((a for a, _ in b.axes), p, strict=True))}, inputs) for p in np.ndindex(*extents)
    ]
    if b.op == "sum":
        total = np.asarray(0)
        for p in points:
            total = (total + p) % PRIME
        return total
    if b.op in FOLDS:
        return FOLDS[b.op](np.broadcast_arrays(*points))
    raise GraphError(f"a {b.op} has no fingerprint")


def _holds(c: Condition, at: Mapping[str, Values | int]) -> Values:
    if isinstance(c, Holds):
        found = _form(c.form, at)
        return found == 0 if c.is_equal else found >= 0
    a, b = _holds(c.a, at), _holds(c.b, at)
    return a & b if isinstance(c, Both) else a | b
