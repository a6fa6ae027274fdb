"""The patterns that are looked for: those of the catalogue, and a user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neoflow.errors import GraphError, shown
from neoflow.mapping.catalogue import CATALOGUE
from neoflow.mapping.cell import Cell, Pattern

_OWN: dict[str, Pattern] = {}


def pattern(
    name: str,
    holes: Mapping[str, str],
    cell: Cell,
    cell_input: Mapping[str, int],
    op_type: Cell,
    attributes: Mapping[str, float] | None = None,
    forms: Sequence[Cell] = (),
) -> Pattern:
    """A pattern that is looked for from now on, before the others, in what is compiled: cells of recurrences always,
    others with `NEOFLOW_WITH=mapping`. Of a name that is taken, the new one counts.

    holes: by name what may be there, a letter for each extent: "BH"; "B4H" for a multiple, "N<K" for integers below
    K, "ST?" for booleans. cell: the equations, a function of tensors of these names that returns a tuple of tensors;
    forms: other ways to write them. cell_input: of a recurrence, by hole the number of the result that it is in the
    next step; {} of any other. op_type: the implementation, of equal values. attributes: names of numbers, with an
    example of each. All are compared first, on random values, with their gradients; `proofs()` of the result tries to
    prove them equal at all sizes. Raises `GraphError`.
    """
    if not isinstance(name, str) or not name:
        raise GraphError(f"a pattern has a name, not {shown(name)}")
    texts, inputs, numbers = _named(holes, str, "holes"), _named(cell_input, int, "cell_input"), attributes or {}
    numbers = _named(numbers, (int, float), "attributes")
    if not texts:
        raise GraphError(f"pattern {name}: a cell has holes")
    if not isinstance(forms, (list, tuple)):
        raise GraphError(f"pattern {name}: forms is a list of functions, not {shown(forms)}")
    for what in (cell, op_type, *forms):
        if not callable(what):
            raise GraphError(f"pattern {name}: a cell is a function of its holes, not {shown(what)}")
    made = Pattern(name, texts, cell, inputs, op_type, numbers, tuple(forms))
    sizes = dict(zip(made.letters, range(2, 99), strict=False))
    results = made.results(cell, {**made.given(sizes), **numbers})
    for h, n in inputs.items():
        if h not in texts or not 0 <= n < len(results):
            raise GraphError(
                f"pattern {name}: cell_input leads from one of {len(results)} results to a hole, not {h}: {n}"
            )
    made.check()
    _OWN[name] = made
    return made


def _named(given: object, kind: type | tuple[type, ...], what: str) -> dict:
    if not isinstance(given, Mapping) or not all(
        isinstance(n, str) and isinstance(v, kind) and not isinstance(v, bool) for n, v in given.items()
    ):
        raise GraphError(f"{what} of a pattern is a dict by names of holes, not {shown(given)}")
    return dict(given)


def remove(name: str) -> None:
    """Look for a user's own pattern no longer. Raises `GraphError` where there is none of the name."""
    if not isinstance(name, str) or name not in _OWN:
        raise GraphError(f"there is no pattern {shown(name)} of one's own; there are {', '.join(_OWN) or 'none'}")
    del _OWN[name]


def patterns() -> tuple[Pattern, ...]:
    """All of them, in the order in which they are tried."""
    return (*_OWN.values(), *CATALOGUE)
