"""Terms over families: variables of symbolic shapes, and applications of families, whose symbols are forms.

    term t ::= Variable(name, shape)
             | Application(family, sizes, args)      sizes: what each symbol of the family is

`fits` says for which values of the symbols a term has a meaning at all: shapes agree and every read stays inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from neoflow.errors import GraphError
from neoflow.superopt import places
from neoflow.superopt.body import Family
from neoflow.superopt.forms import Form, form, name
from neoflow.superopt.places import Places

Shape = tuple[Form, ...]


@dataclass(frozen=True)
class Variable:
    """Any tensor of a shape."""

    name: str
    shape: Shape

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Application:
    """A family at sizes, of arguments."""

    family: Family
    sizes: tuple[tuple[str, Form], ...]
    args: tuple[Term, ...]

    @cached_property
    def put(self) -> dict[str, Form]:
        return dict(self.sizes)

    @cached_property
    def shape(self) -> Shape:
        return tuple(f.put(self.put) for f in self.family.shape)

    @property
    def told(self) -> dict[str, Form]:
        """The sizes that do not follow from the shapes of the arguments."""
        found = unified(self.family.slots, [a.shape for a in self.args])
        return {s: f for s, f in self.sizes if s not in found}

    def __str__(self) -> str:
        told = ", ".join(f"{s}={f}" for s, f in self.told.items())
        return f"{self.family.name}{f'[{told}]' if told else ''}({', '.join(map(str, self.args))})"


Term = Variable | Application


def unified(slots: Sequence[Shape], shapes: Sequence[Shape]) -> dict[str, Form]:
    """Symbols of a family that stand alone in a dimension of an argument, by what is there; the first counts."""
    found: dict[str, Form] = {}
    for slot, shape in zip(slots, shapes, strict=True):
        for symbol, there in zip(slot, shape, strict=False):
            if symbol.alone is not None:
                found.setdefault(symbol.alone, there)
    return found


def apply(family: Family, *args: Term, **sizes: Form | int) -> Application:
    """A family of arguments; sizes: of the symbols that do not follow from the shapes of these. Raises `GraphError`."""
    if len(args) != len(family.slots):
        raise GraphError(f"{family.name} takes {len(family.slots)} arguments, not {len(args)}")
    for n, (slot, arg) in enumerate(zip(family.slots, args, strict=True)):
        if len(slot) != len(arg.shape):
            raise GraphError(f"argument {n} of {family.name} has {len(slot)} dimensions, not {len(arg.shape)}")
    found = unified(family.slots, [a.shape for a in args]) | {s: form(f) for s, f in sizes.items()}
    missing = [s for s in family.symbols if s not in found]
    if missing:
        raise GraphError(f"{family.name} needs a size for {', '.join(missing)}: {family.name}[{missing[0]}=...](...)")
    unknown = [s for s in found if s not in family.symbols]
    if unknown:
        raise GraphError(f"{family.name} has no symbol {unknown[0]}")
    return Application(family, tuple((s, found[s]) for s in family.symbols), args)


def parts(term: Term) -> list[Term]:
    """A term and all terms inside it, arguments first; what is one object is there once."""
    found: dict[int, Term] = {}
    stack: list[tuple[Term, bool]] = [(term, False)]
    while stack:
        t, is_open = stack.pop()
        if id(t) not in found:
            if is_open or isinstance(t, Variable):
                found[id(t)] = t
            else:
                stack.append((t, True))
                stack += [(a, False) for a in reversed(t.args)]
    return list(found.values())


def applications(term: Term) -> list[Application]:
    """Every application of a term, arguments first."""
    return [t for t in parts(term) if isinstance(t, Application)]


def variables(term: Term) -> dict[str, Variable]:
    """By name, in the order in which a reader meets them."""
    return {t.name: t for t in parts(term) if isinstance(t, Variable)}


def symbols(term: Term) -> tuple[str, ...]:
    """Every symbol that sizes and shapes of a term are made of."""
    forms = [f for v in variables(term).values() for f in v.shape]
    forms += [f for a in applications(term) for _, f in a.sizes]
    return tuple(dict.fromkeys(n for f in forms for n in f.names))


def equal_shapes(a: Shape, b: Shape) -> Places:
    """Where two shapes are equal."""
    if len(a) != len(b):
        return places.nowhere()
    return places.all_of(places.zero(m - n) for m, n in zip(a, b, strict=True) if m != n)


def fits(term: Term) -> Places:
    """The values of the symbols at which every application of a term has a meaning."""
    found = [places.at_least(n, 1) for v in variables(term).values() for n in v.shape]
    for a in applications(term):
        found += [equal_shapes(_put(slot, a.put), arg.shape) for slot, arg in zip(a.family.slots, a.args, strict=True)]
        found.append(put_places(a.family.fits, a.put))
    return places.all_of(found)


def _put(shape: Shape, put: Mapping[str, Form]) -> Shape:
    return tuple(f.put(put) for f in shape)


def put_places(found: Places, put: Mapping[str, Form]) -> Places:
    """Values of other names, of which those of the set are forms."""
    inner = {s: f"{s}__inner" for s in put}
    linked = places.all_of([places.renamed(found, inner), *(places.zero(name(inner[s]) - f) for s, f in put.items())])
    return places.without(linked, inner.values())
