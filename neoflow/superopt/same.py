"""Operators some of whose arguments are one tensor: a definition reads each tensor once, so `x + x` has one input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from neoflow.superopt.body import Body, Call, Choose, Family, Over, Slot, put_in
from neoflow.superopt.forms import Form, name

MOST_SAME = 2
"""Arguments beyond the inputs of a definition that are looked for."""
MOST_ARGUMENTS = 12
"""Arguments of an operator up to which they are: of 12 there are 1,705 ways in which two are one met before."""


def positions(arguments: int, inputs: int) -> Iterator[tuple[int, ...]]:
    """Which input each argument can be, where inputs are numbered as arguments meet them; one by one, since of many
    arguments there are many ways."""
    same = arguments - inputs
    if same == 0:
        yield tuple(range(arguments))
    elif 0 < same <= MOST_SAME and arguments <= MOST_ARGUMENTS:
        yield from _after((), 0, arguments, same)


def _after(begun: tuple[int, ...], met: int, arguments: int, same: int) -> Iterator[tuple[int, ...]]:
    """The ways that begin so, with so many inputs met and so many arguments left that are one met before."""
    if len(begun) == arguments:
        yield begun
        return
    for n in range(met) if same else ():
        yield from _after((*begun, n), met, arguments, same - 1)
    if len(begun) + same < arguments:
        yield from _after((*begun, met), met + 1, arguments, same)


def shared(family: Family, at: Sequence[int]) -> tuple[Family, dict[str, Form]] | None:
    """A family of fewer arguments, `at` says which each old one is, and what the old symbols are then.

    None where two arguments that become one are of different ranks, or of shapes that no symbol makes equal.
    """
    put = {s: name(s) for s in family.symbols}
    slots: dict[int, tuple[Form, ...]] = {}
    for n, slot in zip(at, family.slots, strict=True):
        first = slots.setdefault(n, slot)
        if len(first) != len(slot):
            return None
        for a, b in zip(first, slot, strict=True):
            one, other = a.put(put), b.put(put)
            symbol, value = (other.alone, one) if other.alone is not None else (one.alone, other)
            if one == other:
                continue
            if symbol is None or symbol in value.names:
                return None
            put = {s: f.put({symbol: value}) for s, f in put.items()}
    body = _at(put_in(family.body, put), at)
    ordered = tuple(tuple(f.put(put) for f in slots[n]) for n in sorted(slots))
    shape = tuple(f.put(put) for f in family.shape)
    return Family(ordered, shape, family.axes, body, family.offsets, family.name), put


def _at(b: Body, at: Sequence[int]) -> Body:
    match b:
        case Slot():
            return Slot(at[b.position], b.indices)
        case Call():
            return Call(b.fn, tuple(_at(a, at) for a in b.args))
        case Choose():
            return Choose(b.condition, _at(b.then, at), _at(b.other, at))
        case Over():
            return Over(b.op, b.axes, _at(b.body, at))
    return b
