"""Proofs that a cell and its implementation are equal at every size, by `superopt.prove`.

Both are built at one size, at which every letter is a prime of its own, so that what an extent or an offset is made of
can be read off it: at H = 13 the number 26 is 2 H.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from neoflow.errors import GraphError
from neoflow.expr.tensor import Compute, Tensor, topological
from neoflow.superopt import (
    Application,
    Form,
    Proof,
    Statement,
    Term,
    Variable,
    family_with_conditions,
    form,
    name,
    prove,
)
from neoflow.superopt.body import Body, Call, Choose, Count, Number, Over
from neoflow.verdict import Verdict

COUNTED = "count_"
"""Begins the names of extents that a mean divides by."""
MOST = 8
"""The largest multiple of a letter that a number may be."""


def proof(
    cells: Sequence[Tensor],
    others: Sequence[Tensor],
    holes: Mapping[str, tuple[Tensor, Sequence[tuple[int, str]]]],
    letters: Mapping[str, int],
) -> tuple[Proof | Verdict, ...]:
    """Of each pair of results. holes: by name a placeholder and its letters. letters: their extents."""

    def shape(extents: Sequence[tuple[int, str]]) -> tuple[Form, ...]:
        return tuple(name(letter).times(k) if letter else form(k) for k, letter in extents)

    variables: dict[Tensor, Term] = {t: Variable(n, shape(extents)) for n, (t, extents) in holes.items()}
    found: list[Proof | Verdict] = []
    for a, b in zip(cells, others, strict=True):
        try:
            found.append(prove(Statement(_term(b, variables, letters), _term(a, variables, letters))))
        except GraphError as error:
            found.append(Verdict(False, error.message))
    return tuple(found)


def _term(root: Tensor, known: dict[Tensor, Term], letters: Mapping[str, int]) -> Term:
    new = dict(known)
    for t in topological([root]):
        if t in new:
            continue
        if not isinstance(t, Compute):
            raise GraphError(f"{t.name} is no expression of what is in the holes")
        own, values = family_with_conditions(t.definition)
        new_body = _counted(own.body, letters)
        own = own if new_body == own.body else replace(own, body=new_body)
        sizes = tuple((s, _form(values[s], letters) if s in values else name(s[len(COUNTED) :])) for s in own.symbols)
        new[t] = Application(own, sizes, tuple(new[i] for i in t.inputs))
    return new[root]


def _counted(b: Body, letters: Mapping[str, int]) -> Body:
    """A body in which one over a product of extents is that at every size: what a mean divides by, elsewhere summed."""
    match b:
        case Number():
            for count in range(1, len(letters) + 1):
                for chosen in itertools.combinations(letters, count):
                    points = math.prod(letters[n] for n in chosen)
                    for power in (1, -1):
                        if b.value == float(points) ** power:
                            return Count(tuple(name(COUNTED + n) for n in chosen), power)
        case Call():
            return replace(b, args=tuple(_counted(a, letters) for a in b.args))
        case Choose():
            return replace(b, then=_counted(b.then, letters), other=_counted(b.other, letters))
        case Over():
            return replace(b, body=_counted(b.body, letters))
    return b


def _form(value: int, letters: Mapping[str, int]) -> Form:
    """A number in letters."""
    for n, extent in letters.items():
        if extent and value % extent == 0 and value // extent <= MOST and value:
            return name(n).times(value // extent)
    for (a, x), (b, y) in itertools.combinations(letters.items(), 2):
        if value == x + y:
            return name(a) + name(b)
    return form(value)
