"""Patterns: cells by name. What an expression that was found is, and what else computes it.

    cell          its equations, over holes: tensors of which any may be there
    cell_input    which holes are what the cell before it gave: its presence makes the cell recurrent
    op_type       the implementation: another function of the same holes, of equal values

Source: the triple of optimization mapping (Xiao et al.).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from neoflow.autodiff import vjp
from neoflow.errors import ExpressionError, GraphError
from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.interp import evaluate
from neoflow.expr.ir import Apply, Reduce
from neoflow.expr.memo import remembered
from neoflow.expr.recurrence import Recurrence
from neoflow.expr.tensor import Compute, Definition, Placeholder, Tensor, topological
from neoflow.mapping.holes import Hole, hole
from neoflow.mapping.outside import DEPTHS, Outside, may_be, outside
from neoflow.mapping.unify import Bound, Looked, Unifier
from neoflow.verdict import Verdict

if TYPE_CHECKING:
    from neoflow.superopt import Proof

Cell = Callable[..., tuple[Tensor, ...]]
Filled = dict[str, Any]
"""By name a tensor, or the number of an attribute."""

Written = tuple[dict[str, Placeholder], dict[str, Placeholder], dict[int, tuple[Tensor, ...]]]
Signs = frozenset[str]
PRIMES = (101, 211, 307, 401, 503, 601, 701, 809)
"""Extents that letters have, to be told from each other: no small multiple of one is near a sum of others."""
TELLING = frozenset(("exp", "log", "erf", "tanh", "sigmoid", "stop_gradient"))
"""Functions that are written in one way."""
ROOTS = frozenset(("sqrt", "rsqrt"))
"""Of which one is written as the other."""
MOST_LESS = 16
"""How much smaller than a letter an extent of a result may be: by a window that moves inside."""
MOST_SIZES = 64
"""Sizes of a cell that are tried on an expression."""


def definitions(roots: Sequence[Tensor]) -> list[Definition]:
    """Of all that is computed for some tensors."""
    return [t.definition for t in topological(list(roots)) if isinstance(t, Compute)]


@remembered
def signs_of(definition: Definition) -> Signs:
    """The functions and reductions of a definition by which a pattern is told."""
    names = {e.fn for e in definition.nodes if isinstance(e, Apply)}
    found = (names & TELLING) | {e.op for e in definition.nodes if isinstance(e, Reduce)}
    if names & ROOTS:
        found.add("root")
    if any(isinstance(i, Apply) and affine.linear(i)[1] for r in definition.reads for i in r.indices):
        found.add("shifted")
    return frozenset(found)


@dataclass(frozen=True)
class Pattern:
    """holes: by name what may be there, see `holes`. cell, op_type: functions of tensors of these names. cell_input: by
    hole, the number of the result of the cell that it is in the next step. attributes: names that are numbers, with an
    example of each. forms: other ways to write the cell, which are tried before it."""

    name: str
    holes: Mapping[str, str]
    cell: Cell
    cell_input: Mapping[str, int]
    op_type: Cell
    attributes: Mapping[str, float] = field(default_factory=dict)
    forms: tuple[Cell, ...] = ()

    @cached_property
    def parts(self) -> dict[str, Hole]:
        return {n: hole(text) for n, text in self.holes.items()}

    @cached_property
    def letters(self) -> tuple[str, ...]:
        return tuple(sorted({letter for h in self.parts.values() for letter in h.letters}))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All ways to write it, in the order in which they are tried."""
        return (*self.forms, self.cell)

    def given(self, sizes: Mapping[str, int], dtype: str = "float32") -> dict[str, Placeholder]:
        """A placeholder for each hole."""
        return {n: Placeholder(h.shape(sizes), h.dtype(dtype), n, None) for n, h in self.parts.items()}

    def numbers(self, dtype: str = "float32") -> dict[str, Placeholder]:
        """A placeholder for each attribute."""
        return {n: Placeholder((), dtype, n, None) for n in self.attributes}

    @cached_property
    def _written(self) -> tuple[tuple[Tensor, ...], ...]:
        """The results of all its cells where every letter is a prime."""
        given = self.given(dict(zip(self.letters, PRIMES, strict=False)))
        return tuple(self.results(c, {**given, **self.attributes}) for c in self.cells)

    @cached_property
    def signs(self) -> tuple[Signs, ...]:
        """By form what stands in it and has no other form."""
        return tuple(Signs().union(*map(signs_of, definitions(results))) for results in self._written)

    @cached_property
    def implemented(self) -> Pattern | None:
        """The pattern of the implementation itself; None where that takes numbers alone for its attributes."""
        own = replace(self, cell=self.op_type, forms=())
        return own if own._results_at(0, own._at(dict(zip(self.letters, PRIMES, strict=False)), "float32")) else None

    # --------------------------------------------------------------------------------------------------------- equal

    def check(self, seed: int = 0) -> None:
        """Compare the cell, in all its forms, with its implementation: random values of random extents, and gradients.
        Raises `GraphError`."""
        rng = np.random.default_rng(seed)
        extents = (3 + rng.permutation(len(self.letters))).tolist()
        self.check_at(dict(zip(self.letters, extents, strict=True)), rng)

    def check_at(self, sizes: Mapping[str, int], rng: np.random.Generator) -> None:
        """The same at some extents."""
        given = self.given(sizes, "float64")
        feeds: dict[Any, Any] = {t: self.parts[n].draw(rng, sizes, "float64") for n, t in given.items()}
        wanted, slopes = self._values(self.op_type, given, feeds)
        for cell in self.cells:
            values, own = self._values(cell, given, feeds)
            for n, (a, b) in enumerate(zip(values, wanted, strict=True)):
                if a.shape != b.shape or not np.allclose(a, b, rtol=1e-7, atol=1e-9):
                    raise GraphError(f"pattern {self.name}: result {n} of its cell and of its implementation differ")
            for n, (a, b) in enumerate(zip(own, slopes, strict=True)):
                if not np.allclose(a, b, rtol=1e-6, atol=1e-8):
                    raise GraphError(f"pattern {self.name}: gradient {n} of its cell and of its implementation differ")

    def _values(
        self, cell: Cell, given: Mapping[str, Tensor], feeds: dict[Any, Any]
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Results, and the gradients of the sum of their squares."""
        results = self.results(cell, {**given, **self.attributes})
        wrt = [t for t in given.values() if dt.is_float(t.dtype)]
        slopes = [g for y in results for g in vjp(y, wrt, y, allow_unused=True)]
        found = evaluate([*results, *slopes], feeds)
        return found[: len(results)], found[len(results) :]

    def results(self, cell: Cell, given: Mapping[str, Any]) -> tuple[Tensor, ...]:
        """Of a cell. Raises `GraphError` for what is no cell of these holes."""
        try:
            found = cell(**given)
        except TypeError as error:
            raise GraphError(f"pattern {self.name}: its cell takes {', '.join(given)}: {error}") from None
        if not isinstance(found, tuple) or not found or not all(isinstance(t, Tensor) for t in found):
            raise GraphError(f"pattern {self.name}: a cell gives a tuple of tensors")
        return found

    def proofs(self) -> tuple[Proof | Verdict, ...]:
        """Of each result of each form, at all sizes, that the implementation gives it; or why there is none."""
        from neoflow.mapping.proof import proof  # with solvers of integers, which nobody waits for who compiles

        sizes = dict(zip(self.letters, PRIMES, strict=False))
        given = self.given(sizes)
        numbers = {**given, **self.attributes}
        holes = {n: (t, self.parts[n].extents) for n, t in given.items()}
        others = self.results(self.op_type, numbers)
        return tuple(p for c in self.cells for p in proof(self.results(c, numbers), others, holes, sizes))

    # --------------------------------------------------------------------------------------------------------- found

    def found_in(self, r: Recurrence, looked: Looked | None = None) -> Filled | None:
        """What of a body is in each hole; None where the body is another cell."""
        if not self.cell_input or len(r.carried) != len(self.cell_input):
            return None
        extents = {n for p in (*r.slices, *r.fixed) for n in p.shape}
        for order in itertools.permutations(range(len(r.carried))):
            states = dict(zip(self.cell_input, (r.carried[n] for n in order), strict=True))
            thens = [r.then[n] for n in order]
            known = self._known((self.parts[n], t.shape) for n, t in states.items())
            for sizes in () if known is None else self.sizes(known, extents):
                found = self.bound(sizes, states, thens, looked)
                if found is not None:
                    return found
        return None

    def told(self, shape: Sequence[int]) -> dict[str, int] | None:
        """The letters that the shape of the one result tells; None where it does not fit."""
        own = self._written[0][0].shape
        if len(own) != len(shape):
            return None
        known: dict[str, int] = {}
        for n, extent in zip(own, shape, strict=True):
            letter, less = min(
                ((x, prime - n) for x, prime in zip(self.letters, PRIMES, strict=False)), key=lambda f: abs(f[1])
            )
            if abs(less) > MOST_LESS:
                if n != extent:
                    return None
            elif known.setdefault(letter, extent + less) != extent + less:
                return None
        return known

    @cached_property
    def outside(self) -> tuple[tuple[Outside, ...], ...]:
        """By form its outermost operations, for each depth of `DEPTHS`."""
        given = self.given(dict(zip(self.letters, PRIMES, strict=False)))
        unifier = Unifier(list(given.values()), list((numbers := self.numbers()).values()))
        results = (self.results(c, {**given, **numbers})[0] for c in self.cells)
        return tuple(tuple(outside(t, unifier, d) for d in DEPTHS) for t in results)

    def _known(self, shapes: Iterable[tuple[Hole, tuple[int, ...]]]) -> dict[str, int] | None:
        """The letters that shapes tell; None where they do not fit."""
        known: dict[str, int] = {}
        for h, shape in shapes:
            if len(h.extents) != len(shape):
                return None
            for (k, letter), extent in zip(h.extents, shape, strict=True):
                if not letter and extent != k:
                    return None
                if letter and (extent % k or known.setdefault(letter, extent // k) != extent // k):
                    return None
        return known

    def sizes(self, known: Mapping[str, int], extents: Iterable[int]) -> Iterator[dict[str, int]]:
        """Extents that the letters may stand for."""
        left = [letter for letter in self.letters if letter not in known]
        for chosen in itertools.islice(itertools.product(sorted(extents), repeat=len(left)), MOST_SIZES):
            yield {**known, **dict(zip(left, chosen, strict=True))}

    @cached_property
    def _kept(self) -> dict[tuple[object, ...], Written]:
        return {}

    def _at(self, sizes: Mapping[str, int], dtype: str) -> Written:
        """Holes, attributes and the results of cells at some sizes, by number; those of the last ones are kept."""
        key = (dtype, *sorted(sizes.items()))
        if key not in self._kept:
            given, numbers = self.given(sizes, dtype), self.numbers(dtype)
            if len(self._kept) == MOST_SIZES:
                self._kept.clear()
            self._kept[key] = given, numbers, {}
        return self._kept[key]

    def _results_at(self, number: int, written: Written) -> tuple[Tensor, ...]:
        """The results of a cell; none at sizes at which it has no meaning."""
        given, numbers, known = written
        if number not in known:
            try:
                known[number] = self.results(self.cells[number], {**given, **numbers})
            except ExpressionError:
                known[number] = ()
        return known[number]

    def bound(
        self,
        sizes: Mapping[str, int],
        states: Mapping[str, Tensor],
        thens: Sequence[Tensor],
        looked: Looked | None = None,
        seen: Outside | None = None,
    ) -> Filled | None:
        """What is in the holes where the results that are carried, or all of them, are `thens`. looked: of the
        `Unifier`. seen: what stands outermost in the one result."""
        written = given, numbers, _ = self._at(sizes, thens[0].dtype)
        start: Bound = {given[name]: state for name, state in states.items()}
        for n in range(len(self.cells)):
            if seen is not None and not may_be(self.outside[n][-1], seen):
                continue
            results = self._results_at(n, written)
            wanted = [results[k] for k in self.cell_input.values()] if states and results else results
            unifier = Unifier(list(given.values()), list(numbers.values()), looked)
            for found in unifier.all_equal(list(zip(wanted, thens, strict=True)), start) if results else ():
                return {n: found[t] for n, t in {**given, **numbers}.items() if t in found}
        return None


def named(r: Recurrence, patterns: Sequence[Pattern], looked: Looked | None = None) -> str | None:
    """The name of the first pattern that a body is."""
    return next((p.name for p in patterns if p.found_in(r, looked) is not None), None)
