"""Graphs by number: leaves, and what operators make of graphs before them, with their values over prime fields.

A graph is an operator at sizes (`Typed`) and its arguments' numbers; its level is how many operators it has, each
counted once. Values of low levels are kept, those of higher ones made again from these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from neoflow.errors import GraphError
from neoflow.superopt import prints
from neoflow.superopt.alphabet import EXTENTS, Alphabet, applied_at
from neoflow.superopt.forms import Form
from neoflow.superopt.prints import PRIMES
from neoflow.superopt.term import Shape, Term, Variable

KEPT = 2
"""The highest level whose values are kept."""
MOST_ELEMENTS = 1500
"""Of a tensor; `prints.PRIMES` are good for 2,048."""
SOME = 256
"""Graphs that are evaluated at once."""


@dataclass(frozen=True)
class Typed:
    """An operator at sizes: the number of its family, of its arguments' shapes, and of its own."""

    family: int
    sizes: tuple[tuple[str, Form], ...]
    args: tuple[int, ...]
    shape: int


@dataclass(frozen=True)
class Level:
    """The graphs of so many operators, from number `begin` on: indices of `Typed` (of leaves, -1), arguments (-1 where
    there are fewer), shapes, and the numbers of all graphs in each, sorted."""

    begin: int
    typed: np.ndarray
    args: np.ndarray
    shapes: np.ndarray
    parts: np.ndarray

    @property
    def end(self) -> int:
        return self.begin + len(self.typed)

    def of_shape(self, shape: int) -> np.ndarray:
        """The numbers of graphs of a shape."""
        return self.begin + np.flatnonzero(self.shapes == shape)


class Graphs:
    """Graphs of an alphabet by level."""

    def __init__(self, alphabet: Alphabet, seed: int):
        self.alphabet, self.seed = alphabet, seed
        self.width = max((len(f.slots) for f in alphabet.operators), default=1)
        self.shapes: list[Shape] = []
        self.typed: list[Typed] = []
        self.levels: list[Level] = []
        self._numbers: dict[Shape, int] = {}
        self._texts: dict[str, int] = {}
        self._labels: dict[str, int] = {}
        self._typed: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        self._weights: dict[int, tuple[np.ndarray, int]] = {}
        self._kept: dict[tuple[int, int], np.ndarray] = {}
        self._terms: dict[int, Term] = {}
        self.masks = np.zeros(0, np.uint64)
        """Of every graph the variables that it reads, a bit each."""
        self._before = _before(alphabet.leaves)
        self._leaves()

    def _leaves(self) -> None:
        terms: list[Term] = [*self.alphabet.leaves, *self.alphabet.constants]
        numbers = np.array([self.number(t.shape) for t in terms], np.int32)
        none = np.full(len(terms), -1, np.int32)
        args = np.full((len(terms), self.width), -1, np.int32)
        self.levels.append(Level(0, none, args, numbers, np.zeros((len(terms), 0), np.int32)))
        self.masks = np.zeros(len(terms), np.uint64)
        read = np.arange(len(self.alphabet.leaves), dtype=np.uint64)
        self.masks[: len(read)] = np.uint64(1) << read
        for shape in set(numbers.tolist()):
            self._kept[0, shape] = np.stack([self._leaf(terms[n]) for n in self.levels[0].of_shape(shape)])
        self._terms |= dict(enumerate(terms))

    def _leaf(self, t: Term) -> np.ndarray:
        dims = self.dims(self.number(t.shape))
        if isinstance(t, Variable):
            return np.stack([prints.random_values(dims, self.seed, t.name, p).reshape(-1) for p in PRIMES])
        sizes = {s: f.value(EXTENTS) for s, f in t.sizes}
        return np.stack([prints.value(t.family, sizes, [], p).reshape(-1) for p in PRIMES])

    def number(self, shape: Shape) -> int:
        if shape not in self._numbers:
            self._numbers[shape] = self._texts[_text(shape)] = len(self.shapes)
            self.shapes.append(shape)
        return self._numbers[shape]

    def dims(self, shape: int) -> tuple[int, ...]:
        return tuple(f.value(EXTENTS) for f in self.shapes[shape])

    def operators(self, family: int, args: tuple[int, ...]) -> list[int]:
        """A family at all sizes that it can have of arguments of these shapes: indices of `typed`."""
        key = family, args
        if key not in self._typed:
            f = self.alphabet.operators[family]
            self._typed[key] = []
            for sizes in self.alphabet.sizes(f, [self.shapes[a] for a in args]):
                ordered = tuple((s, sizes[s]) for s in f.symbols)
                shape = tuple(n.put(sizes) for n in f.shape)
                at = [(s, n.value(EXTENTS)) for s, n in ordered]
                if any(n < (0 if s in f.offsets else 1) for s, n in at):
                    continue
                if np.prod([n.value(EXTENTS) for n in shape]) <= MOST_ELEMENTS:
                    self._typed[key].append(len(self.typed))
                    self.typed.append(Typed(family, ordered, args, self.number(shape)))
        return self._typed[key]

    def label(self, typed: int) -> str:
        """An operator at sizes as text that means the same in every process: its family, its arguments' shapes, and
        which of its sizes."""
        t = self.typed[typed]
        which = self._typed[t.family, t.args].index(typed)
        return "; ".join([str(t.family), str(which), *(_text(self.shapes[a]) for a in t.args)])

    def of_label(self, label: str) -> int:
        """The operator at sizes of a label, whose arguments' shapes are those of graphs that are there."""
        if label not in self._labels:
            family, which, *args = label.split("; ")
            numbers = tuple(self._texts[a] for a in args)
            self._labels[label] = self.operators(int(family), numbers)[int(which)]
        return self._labels[label]

    # ------------------------------------------------------------------------------------------------------- values

    def level_of(self, graph: int) -> int:
        return next(n for n, level in enumerate(self.levels) if graph < level.end)

    def values(self, graphs: np.ndarray) -> np.ndarray:
        """Of graphs of one shape: an axis of graphs, of primes, of elements."""
        found: np.ndarray | None = None
        for n, level in enumerate(self.levels):
            here = np.flatnonzero((graphs >= level.begin) & (graphs < level.end))
            if not len(here):
                continue
            made = self._of_level(n, graphs[here])
            found = np.empty((len(graphs), *made.shape[1:]), np.int64) if found is None else found
            found[here] = made
        assert found is not None
        return found

    def _of_level(self, n: int, graphs: np.ndarray) -> np.ndarray:
        level = self.levels[n]
        shape = int(level.shapes[graphs[0] - level.begin])
        if n > KEPT:
            return self._made(level, graphs)
        if (n, shape) not in self._kept:
            self._kept[n, shape] = self._made(level, level.of_shape(shape)).astype(np.int32)
        return self._kept[n, shape][np.searchsorted(level.of_shape(shape), graphs)]

    def _made(self, level: Level, graphs: np.ndarray) -> np.ndarray:
        rows = graphs - level.begin
        found: np.ndarray | None = None
        for typed in np.unique(level.typed[rows]):
            here = np.flatnonzero(level.typed[rows] == typed)
            for begin in range(0, len(here), SOME):
                some = here[begin : begin + SOME]
                args = level.args[rows[some]]
                count = len(self.typed[typed].args)
                made = self.evaluated(int(typed), [self.values(args[:, d]) for d in range(count)])
                if found is None:
                    found = np.empty((len(graphs), *made.shape[1:]), np.int64)
                found[some] = made
        assert found is not None
        return found

    def evaluated(self, typed: int, args: Sequence[np.ndarray]) -> np.ndarray:
        """An operator of values of arguments. Raises `GraphError` where it has none in a field."""
        t = self.typed[typed]
        f, sizes = self.alphabet.operators[t.family], {s: n.value(EXTENTS) for s, n in t.sizes}
        made = []
        for k, p in enumerate(PRIMES):
            inputs = [a[:, k].reshape(len(a), *self.dims(s)) for a, s in zip(args, t.args, strict=True)]
            values = prints.value(f, sizes, inputs, p) % p
            made.append(values.reshape(len(values), -1))
        return np.stack(made, 1)

    def adjoint(self, typed: int, args: Sequence[np.ndarray], slot: int, k: int) -> np.ndarray:
        """What elements of an argument count in the fingerprint of an operator that is affine in it, for one prime."""
        t = self.typed[typed]
        f, sizes = self.alphabet.operators[t.family], {s: n.value(EXTENTS) for s, n in t.sizes}
        inputs = [a[:, k].reshape(len(a), *self.dims(s)) for a, s in zip(args, t.args, strict=True)]
        return prints.adjoint(f, sizes, inputs, slot, self.weights(t.shape)[k].astype(np.int64), PRIMES[k])

    # ------------------------------------------------------------------------------------------------- fingerprints

    def weights(self, shape: int) -> np.ndarray:
        """What elements are multiplied by in a fingerprint: an axis of primes, of elements."""
        return self._weight(shape)[0]

    def _weight(self, shape: int) -> tuple[np.ndarray, int]:
        if shape not in self._weights:
            text = _text(self.shapes[shape])
            dims = self.dims(shape)
            rows = [prints.random_values(dims, self.seed + 1, text, p).reshape(-1) for p in PRIMES]
            key = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
            self._weights[shape] = np.stack(rows).astype(np.float64), key
        return self._weights[shape]

    def packed(self, sums: np.ndarray, shape: int) -> np.ndarray:
        """Fingerprints of sums, by primes in the first axis, of weighted elements."""
        total = np.zeros(sums.shape[1:], np.uint64)
        for k, p in enumerate(PRIMES):
            total = (total << np.uint64(21)) | (sums[k].astype(np.int64) % p).astype(np.uint64)
        return total ^ np.uint64(self._weight(shape)[1])

    def fingerprints(self, values: np.ndarray, shape: int) -> np.ndarray:
        weights = self.weights(shape)
        return self.packed(np.stack([values[:, k] @ weights[k] for k in range(len(PRIMES))]), shape)

    def leaf_prints(self) -> np.ndarray:
        level = self.levels[0]
        return np.concatenate(
            [self.fingerprints(self.values(np.array([n])), int(level.shapes[n])) for n in range(level.end)]
        )

    # --------------------------------------------------------------------------------------------------------- terms

    def add(self, typed: np.ndarray, args: np.ndarray) -> None:
        """One more level."""
        begin, count = self.levels[-1].end, len(self.levels)
        shapes = np.array([t.shape for t in self.typed], np.int32)[typed] if len(typed) else typed
        parts = np.full((len(typed), count), -1, np.int32)
        for n in range(len(typed)):
            inside = {begin + n, *(p for a in args[n] if a >= 0 for p in self.parts(int(a)))}
            parts[n] = sorted(inside)
        self.levels.append(Level(begin, typed, args, shapes, parts))
        self.masks = np.concatenate([self.masks, self.read_by(args)])

    def read_by(self, args: np.ndarray) -> np.ndarray:
        """The variables that graphs of these arguments read, a bit each; -1 is no argument."""
        return np.bitwise_or.reduce(np.append(self.masks, np.uint64(0))[args], axis=-1)

    def is_first(self, masks: np.ndarray) -> np.ndarray:
        """Whether these are, of variables of one shape, the first few: others are the same graphs in other names."""
        good = np.ones(masks.shape, bool)
        for n, before in self._before:
            good &= (masks >> np.uint64(n)) & ~(masks >> np.uint64(before)) & np.uint64(1) == 0
        return good

    def parts(self, graph: int) -> list[int]:
        level = self.levels[self.level_of(graph)]
        return level.parts[graph - level.begin].tolist()

    def term(self, graph: int) -> Term:
        if graph not in self._terms:
            level = self.levels[self.level_of(graph)]
            row = graph - level.begin
            self._terms[graph] = self.applied(int(level.typed[row]), level.args[row])
        return self._terms[graph]

    def applied(self, typed: int, args: np.ndarray) -> Term:
        t = self.typed[typed]
        return applied_at(self.alphabet.operators[t.family], dict(t.sizes), [self.term(int(a)) for a in args if a >= 0])


def _before(variables: Sequence[Variable]) -> list[tuple[int, int]]:
    """The positions of variables that have one of the same shape before them, and of that one."""
    last: dict[Shape, int] = {}
    found = []
    for n, v in enumerate(variables):
        if v.shape in last:
            found.append((n, last[v.shape]))
        last[v.shape] = n
    return found


def _text(shape: Shape) -> str:
    return ", ".join(map(str, shape))


def meaningful(graphs: Graphs, typed: int) -> bool:
    """Whether an operator has values in a field at all."""
    some = [np.ones((1, len(PRIMES), int(np.prod(graphs.dims(s)))), np.int64) for s in graphs.typed[typed].args]
    try:
        graphs.evaluated(typed, some)
    except GraphError:
        return False
    return True


def chunks(numbers: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for begin in range(0, len(numbers), size):
        yield numbers[begin : begin + size]
