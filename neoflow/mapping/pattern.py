"""Patterns: cells by name. What the body of a recurrence that was found is, and what else computes it.

    cell          its equations, over holes: tensors of which any may be there
    cell_input    which holes are what the cell before it gave: its presence makes the cell recurrent
    op_type       the implementation: another function of the same holes, of equal values

Source: the triple of optimization mapping (Xiao et al.).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neoflow.errors import GraphError
from neoflow.expr.interp import evaluate
from neoflow.expr.ir import Apply, Read, same
from neoflow.expr.memo import remembered
from neoflow.expr.recurrence import Recurrence
from neoflow.expr.tensor import Compute, Definition, Placeholder, Tensor, topological
from neoflow.graph.graph import make_graph
from neoflow.graph.passes import canonicalize

Cell = Callable[..., tuple[Tensor, ...]]
Bound = Mapping[Tensor, Tensor]
"""What is in the holes."""

MOST_SIZES = 64
"""Sizes of a cell that are tried on a body."""


@dataclass(frozen=True)
class Pattern:
    """holes: by name, a letter for each extent, "BH"; equal letters are equal extents. cell, op_type: functions of
    tensors of these names. cell_input: by hole, the number of the result of the cell that it is in the next step."""

    name: str
    holes: Mapping[str, str]
    cell: Cell
    cell_input: Mapping[str, int]
    op_type: Cell

    def given(self, sizes: Mapping[str, int], dtype: str = "float32") -> dict[str, Placeholder]:
        """A placeholder for each hole."""
        return {n: Placeholder(tuple(sizes[e] for e in s), dtype, n, None) for n, s in self.holes.items()}

    def check(self, seed: int = 0) -> None:
        """Compare the cell with its implementation on random values. Raises `GraphError`."""
        rng = np.random.default_rng(seed)
        letters = sorted(set("".join(self.holes.values())))
        given = self.given(dict(zip(letters, (2 + rng.permutation(len(letters))).tolist(), strict=True)), "float64")
        feeds: dict[Any, Any] = {t: rng.standard_normal(t.shape) for t in given.values()}
        one, two = (evaluate(list(f(**given)), feeds) for f in (self.cell, self.op_type))
        for n, (a, b) in enumerate(zip(one, two, strict=True)):
            if a.shape != b.shape or not np.allclose(a, b, rtol=1e-9, atol=1e-9):
                raise GraphError(f"pattern {self.name}: result {n} of its cell and of its implementation differ")

    def found_in(self, r: Recurrence) -> dict[str, Tensor] | None:
        """What of a body is in each hole; None where the body is another cell."""
        if len(r.carried) != len(self.cell_input):
            return None
        for order in itertools.permutations(range(len(r.carried))):
            states = dict(zip(self.cell_input, (r.carried[n] for n in order), strict=True))
            thens = [r.then[n] for n in order]
            for sizes in self._sizes(states, r):
                bound = self._bound(sizes, states, thens)
                if bound is not None:
                    return bound
        return None

    def _sizes(self, states: Mapping[str, Tensor], r: Recurrence) -> Iterator[dict[str, int]]:
        """Extents that the letters may stand for."""
        known: dict[str, int] = {}
        for name, t in states.items():
            if len(self.holes[name]) != t.rank:
                return
            for letter, extent in zip(self.holes[name], t.shape, strict=True):
                if known.setdefault(letter, extent) != extent:
                    return
        left = sorted(set("".join(self.holes.values())).difference(known))
        extents = sorted({n for p in (*r.slices, *r.fixed) for n in p.shape})
        for chosen in itertools.islice(itertools.product(extents, repeat=len(left)), MOST_SIZES):
            yield known | dict(zip(left, chosen, strict=True))

    def _bound(
        self, sizes: Mapping[str, int], states: Mapping[str, Tensor], thens: Sequence[Tensor]
    ) -> dict[str, Tensor] | None:
        given = self.given(sizes, thens[0].dtype)
        results = self.cell(**given)
        wanted = _canonical([results[n] for n in self.cell_input.values()])
        body = _canonical(thens)
        bound: Bound = {given[name]: state for name, state in states.items()}
        holes = frozenset(given.values())
        for found in _all_equal(list(zip(wanted, body, strict=True)), bound, holes):
            return {name: found[t] for name, t in given.items() if t in found}
        return None


def pattern(name: str, holes: Mapping[str, str], cell: Cell, cell_input: Mapping[str, int], op_type: Cell) -> Pattern:
    """A pattern whose cell and implementation were compared. Raises `GraphError`."""
    made = Pattern(name, holes, cell, cell_input, op_type)
    made.check()
    return made


def named(r: Recurrence, patterns: Sequence[Pattern]) -> str | None:
    """The name of the first pattern that a body is."""
    return next((p.name for p in patterns if p.found_in(r) is not None), None)


def _canonical(roots: Sequence[Tensor]) -> tuple[Tensor, ...]:
    leaves = [t for t in topological(list(roots)) if type(t) is Placeholder]
    return canonicalize(make_graph(list(roots), leaves)).outputs


def _all_equal(pairs: list[tuple[Tensor, Tensor]], bound: Bound, holes: frozenset[Tensor]) -> Iterator[Bound]:
    """Ways to fill the holes so that of each pair the first is the second; factors and terms may be swapped."""
    if not pairs:
        yield bound
        return
    (a, b), *rest = pairs
    if a in bound:
        if bound[a] is b:
            yield from _all_equal(rest, bound, holes)
        return
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return
    if a in holes:
        yield from _all_equal(rest, {**bound, a: b}, holes)
    elif isinstance(a, Compute) and isinstance(b, Compute) and a.definition is b.definition:
        ways = [b.inputs, b.inputs[::-1]] if _is_symmetric(a.definition) else [b.inputs]
        for inputs in ways:
            yield from _all_equal([*zip(a.inputs, inputs, strict=True), *rest], {**bound, a: b}, holes)


@remembered
def _is_symmetric(definition: Definition) -> bool:
    """Whether it adds or multiplies two tensors element by element."""
    body, own = definition.body, definition.axes
    if not isinstance(body, Apply) or body.fn not in ("add", "mul") or len(definition.slots) != 2:
        return False
    return all(isinstance(e, Read) and same(e.indices, own) and e.source.shape == definition.shape for e in body.args)
