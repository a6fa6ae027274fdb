"""All graphs of one more operator, with their fingerprints, a unit of work at a time.

An argument of the most operators is the *block*, many graphs of a shape at once; the others are few. Where an operator
is linear in its block but for a constant, the fingerprint of what it makes is a product of the block's values and a
vector that depends on the others alone: fingerprints of all pairs are a product of two matrices.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from neoflow.superopt import prints
from neoflow.superopt.graphs import SOME, Graphs, chunks, meaningful
from neoflow.superopt.prints import PRIMES
from neoflow.superopt.prove import Proof
from neoflow.superopt.sites import swaps

LARGE = 4096
"""Graphs of a block."""


@dataclass(frozen=True)
class Unit:
    """Work that is done at once: graphs of so many operators with a block of a level and a shape."""

    operators: int
    level: int
    block: np.ndarray
    is_last: bool = False
    """Whether nothing is made of these graphs: then those that read other variables than the first are left out."""


def record(width: int) -> np.dtype:
    """A graph: its fingerprint, its operator at sizes, its arguments."""
    return np.dtype([("print", np.uint64), ("typed", np.int32), ("args", np.int32, (width,))])


class Maker:
    """Makes the graphs of units. symmetric: proofs of operators that do not mind the order of their arguments."""

    def __init__(self, graphs: Graphs):
        self.graphs = graphs
        self.symmetric: dict[str, Proof | None] = {}
        self._fixed: dict[tuple, tuple[np.ndarray, np.ndarray]] = {}
        self._at: tuple[int, int, int] | None = None
        self._meaning: dict[int, bool] = {}
        self._shared: tuple[tuple, tuple[np.ndarray, np.ndarray]] | None = None

    def units(self, operators: int, is_last: bool = False) -> Iterator[Unit]:
        for n, level in enumerate(self.graphs.levels[:operators]):
            for shape in dict.fromkeys(level.shapes.tolist()):
                for block in chunks(level.of_shape(shape), LARGE):
                    yield Unit(operators, n, block, is_last)

    def made(self, unit: Unit) -> np.ndarray:
        """The records of a unit."""
        graphs = self.graphs
        level = graphs.levels[unit.level]
        shape = int(level.shapes[unit.block[0] - level.begin])
        if self._at != (unit.operators, unit.level, shape):  # what is kept is of blocks of one shape
            self._at = unit.operators, unit.level, shape
            self._fixed.clear()
        values = graphs.values(unit.block)
        floats = np.ascontiguousarray(values.transpose(1, 0, 2).astype(np.float64))
        found = [np.zeros(0, record(graphs.width))]
        for f, slot in itertools.product(range(len(graphs.alphabet.operators)), range(graphs.width)):
            family = graphs.alphabet.operators[f]
            if slot >= len(family.slots) or len(family.slots[slot]) != len(graphs.shapes[shape]):
                continue
            is_symmetric = swaps(family, self.symmetric) is not None
            if is_symmetric and slot:
                continue
            for levels in self._levels(unit, len(family.slots), slot):
                tied = is_symmetric and levels == (unit.level,)
                if unit.level + sum(levels) == unit.operators - 1 or len(levels) > 1:
                    found += self._dense(unit, f, slot, shape, levels, (values, floats), tied)
                else:
                    found += self._sparse(unit, f, slot, shape, levels[0], values, tied)
        return np.concatenate(found)

    def _levels(self, unit: Unit, slots: int, block: int) -> list[tuple[int, ...]]:
        """Of the other arguments: fewer operators than the block before it, no more behind it."""
        ranges = [range(unit.level if s < block else unit.level + 1) for s in range(slots) if s != block]
        return [c for c in itertools.product(*ranges) if unit.level + sum(c) >= unit.operators - 1]

    def _usable(self, f: int, args: tuple[int, ...]) -> list[int]:
        found = []
        for typed in self.graphs.operators(f, args):
            if typed not in self._meaning:
                self._meaning[typed] = meaningful(self.graphs, typed)
            if self._meaning[typed]:
                found.append(typed)
        return found

    def _dense(
        self, unit: Unit, f: int, slot: int, shape: int, levels: tuple[int, ...], values: tuple, tied: bool
    ) -> list:
        """Every graph of the block beside all others of some levels."""
        graphs, found = self.graphs, []
        family = graphs.alphabet.operators[f]
        is_affine = prints.is_affine(family, slot)
        for shapes in itertools.product(*(dict.fromkeys(graphs.levels[n].shapes.tolist()) for n in levels)):
            if [len(graphs.shapes[s]) for s in shapes] != [len(s) for n, s in enumerate(family.slots) if n != slot]:
                continue
            for typed in self._usable(f, (*shapes[:slot], shape, *shapes[slot:])):
                others = [graphs.levels[n].of_shape(s) for n, s in zip(levels, shapes, strict=True)]
                pairs = list(itertools.product(*others))
                if not pairs:
                    continue
                fixed = np.array(pairs, np.int64).reshape(len(pairs), len(levels))
                keep = self._fresh(unit, fixed)
                if tied:
                    keep &= unit.block[:, None] <= fixed[None, :, 0]
                if unit.is_last:
                    keep &= graphs.is_first(graphs.masks[unit.block][:, None] | graphs.read_by(fixed)[None])
                rows, columns = np.nonzero(keep)
                if not len(rows):
                    continue
                args = np.insert(fixed[columns], slot, unit.block[rows], axis=1)
                used, at = np.unique(rows, return_inverse=True)
                one = self._affine if is_affine else self._direct
                made = one(typed, slot, fixed, levels, (values[0][used], values[1][:, used]))
                found.append(self._records(made[at, columns], typed, args))
        return found

    def _affine(self, typed: int, slot: int, fixed: np.ndarray, levels: tuple[int, ...], values: tuple) -> np.ndarray:
        key = typed, slot, levels
        if key not in self._fixed:
            self._fixed[key] = self._vectors(typed, slot, fixed)
        vectors, constants = self._fixed[key]
        sums = np.stack([values[1][k] @ vectors[k] for k in range(len(PRIMES))])
        return self.graphs.packed(sums + constants[:, None, :], self.graphs.typed[typed].shape)

    def _vectors(self, typed: int, slot: int, fixed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What a block's values are multiplied by, for each of the other arguments, and what is added."""
        graphs, t = self.graphs, self.graphs.typed[typed]
        weights = graphs.weights(t.shape)
        size = int(np.prod(graphs.dims(t.args[slot])))
        zeros = np.zeros((1, len(PRIMES), size), np.int64)
        vectors = np.empty((len(PRIMES), size, len(fixed)))
        constants = np.empty((len(PRIMES), len(fixed)))
        for rows in chunks(np.arange(len(fixed)), SOME):
            args = [graphs.values(fixed[rows, n]) for n in range(fixed.shape[1])]
            args = [*args[:slot], zeros, *args[slot:]]
            at_zero = graphs.evaluated(typed, args)
            for k, p in enumerate(PRIMES):
                constants[k, rows] = at_zero[:, k] @ weights[k] % p
                vectors[k][:, rows] = graphs.adjoint(typed, args, slot, k).T
        return vectors, constants

    def _direct(self, typed: int, slot: int, fixed: np.ndarray, levels: tuple[int, ...], values: tuple) -> np.ndarray:
        graphs, shape = self.graphs, self.graphs.typed[typed].shape
        found = np.empty((len(values[0]), len(fixed)), np.uint64)
        for n, others in enumerate(fixed):
            args = [graphs.values(np.array([o])) for o in others]
            parts = [graphs.evaluated(typed, [*args[:slot], some, *args[slot:]]) for some in chunks(values[0], SOME)]
            found[:, n] = np.concatenate([graphs.fingerprints(p, shape) for p in parts])
        return found

    def _sparse(self, unit: Unit, f: int, slot: int, shape: int, level: int, values: np.ndarray, tied: bool) -> list:
        """Pairs of graphs that have operators in common."""
        graphs, found = self.graphs, []
        key = int(unit.block[0]), level, unit.operators
        if self._shared is None or self._shared[0] != key:
            self._shared = key, self._pairs(unit, level)
        rows, others = self._shared[1]
        if tied:
            keep = unit.block[rows] <= others
            rows, others = rows[keep], others[keep]
        if unit.is_last:
            keep = graphs.is_first(graphs.masks[unit.block[rows]] | graphs.masks[others])
            rows, others = rows[keep], others[keep]
        shapes = graphs.levels[level].shapes[others - graphs.levels[level].begin]
        for second in dict.fromkeys(shapes.tolist()):
            here = np.flatnonzero(shapes == second)
            both = (shape, second) if slot == 0 else (second, shape)
            for typed in (
                self._usable(f, both)
                if len(graphs.alphabet.operators[f].slots[1 - slot]) == len(graphs.shapes[second])
                else ()
            ):
                for some in chunks(here, SOME):
                    args = [values[rows[some]], graphs.values(others[some])]
                    made = graphs.evaluated(typed, args if slot == 0 else args[::-1])
                    numbers = [unit.block[rows[some]], others[some]]
                    numbers = numbers if slot == 0 else numbers[::-1]
                    prints_of = graphs.fingerprints(made, graphs.typed[typed].shape)
                    found.append(self._records(prints_of, typed, np.stack(numbers, 1)))
        return found

    def _pairs(self, unit: Unit, level: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the block and graphs of a level, which together have all but one of the operators."""
        one, other = self.graphs.levels[unit.level], self.graphs.levels[level]
        parts = one.parts[unit.block - one.begin]
        if unit.level == unit.operators - 1:
            rows, columns = np.nonzero((parts >= other.begin) & (parts < other.end))
            return rows, parts[rows, columns].astype(np.int64)
        holders: dict[int, list[int]] = {}
        for n, inside in enumerate(other.parts.tolist()):
            for p in inside:
                holders.setdefault(p, []).append(other.begin + n)
        found = [
            (row, b)
            for row, inside in enumerate(parts.tolist())
            for b in sorted({b for p in inside for b in holders.get(p, ())})
            if len({*inside, *other.parts[b - other.begin].tolist()}) == unit.operators - 1
        ]
        pairs = np.array(found, np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def _fresh(self, unit: Unit, fixed: np.ndarray) -> np.ndarray:
        """Which pairs of the block and the others have all operators but one between them."""
        one = self.graphs.levels[unit.level]
        total = np.full((len(unit.block), len(fixed)), unit.level)
        parts = one.parts[unit.block - one.begin]
        for n, others in enumerate(fixed):
            theirs = {p for o in others for p in self.graphs.parts(int(o))}
            total[:, n] += len(theirs)
            for p in theirs:
                total[:, n] -= (parts == p).any(1)
        return total == unit.operators - 1

    def _records(self, found: np.ndarray, typed: int, args: np.ndarray) -> np.ndarray:
        rows = np.empty(len(found), record(self.graphs.width))
        rows["print"], rows["typed"], rows["args"] = found, typed, -1
        rows["args"][:, : args.shape[1]] = args
        return rows
