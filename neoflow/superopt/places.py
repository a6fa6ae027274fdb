"""Sets of values of names, by the integer set library: which symbols and axes meet conditions, exactly and for all.

Every name is a parameter of a set that has no other dimension, so sets over different names meet by name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import or_
from typing import TypeAlias, TypeVar

import islpy as isl

from neoflow.superopt.forms import Atom, Form, form, name

Places: TypeAlias = isl.Set
"""A set of values of names."""
T = TypeVar("T")
WORDS = frozenset(("and", "or", "not", "exists", "implies", "true", "false", "mod", "floor", "ceil", "floord", "ceild"))
WORDS |= {"min", "max", "abs", "inf", "infty", "NaN", "rat"}
"""What the library reads as words of its own."""
LibraryError = isl.Error
OPERATIONS = 5_000_000
"""Steps of the integer set library for one question, which is some seconds."""


class Unknown(Exception):
    """The proof has no answer: too large, or a question that the library did not finish."""


def said(f: Form) -> str:
    """A form as the library reads it."""
    parts = [f"{k}*{_atom(a)}" for a, k in f.terms]
    return " + ".join([*parts, str(f.constant)]).replace("+ -", "- ")


def _atom(atom: Atom) -> str:
    return atom if isinstance(atom, str) else f"floor(({said(atom.form)})/{atom.divisor})"


def where(condition: str, names: Iterable[str]) -> Places:
    """The values of names that meet a condition in the library's words."""
    return isl.Set.read_from_str(isl.DEFAULT_CONTEXT, f"[{', '.join(sorted(set(names)))}] -> {{ : {condition} }}")


def everywhere() -> Places:
    return isl.Set("{ : }")


def nowhere() -> Places:
    return isl.Set("{ : false }")


def at_least(f: Form, low: int = 0) -> Places:
    """Where the form is at least `low`."""
    return where(f"{said(f)} >= {low}", f.names)


def zero(f: Form) -> Places:
    """Where the form is 0."""
    return where(f"{said(f)} = 0", f.names)


def inside(f: Form, extent: Form) -> Places:
    """Where 0 <= form < extent."""
    return where(f"0 <= {said(f)} < {said(extent)}", [*f.names, *extent.names])


def all_of(sets: Iterable[Places]) -> Places:
    return reduce(lambda a, b: a & b, sets, everywhere())


def any_of(sets: Iterable[Places]) -> Places:
    return reduce(or_, sets, nowhere())


def without(places: Places, names: Iterable[str]) -> Places:
    """The values of the other names for which there is one of these."""
    for text in names:
        position = places.find_dim_by_name(isl.dim_type.param, text)
        if position >= 0:
            places = places.project_out(isl.dim_type.param, position, 1)
    return places


def names_of(places: Places) -> list[str]:
    return [places.get_dim_name(isl.dim_type.param, n) for n in range(places.dim(isl.dim_type.param))]


def onto(places: Places, kept: Iterable[str]) -> Places:
    """The values of some names for which there is one of all others."""
    stay = set(kept)
    return without(places, [n for n in names_of(places) if n not in stay])


def renamed(places: Places, new: Mapping[str, str]) -> Places:
    """The same values of other names."""
    for old, text in new.items():
        position = places.find_dim_by_name(isl.dim_type.param, old)
        if position >= 0:
            places = places.set_dim_name(isl.dim_type.param, position, text)
    return places


def conditions(places: Places, known: Places) -> str:
    """The places among the known ones, in the library's words and with names in order."""
    simple = places.gist(known).coalesce()
    space = isl.Set.read_from_str(isl.DEFAULT_CONTEXT, f"[{', '.join(sorted(names_of(simple)))}] -> {{ : }}")
    text = str(simple.align_params(space.get_space()))
    return text.split("{", 1)[1].rsplit("}", 1)[0].strip().removeprefix(":").strip()


def limited(question: Callable[[], T]) -> T:
    """The answer, within `OPERATIONS`. Raises `Unknown`."""
    context = isl.DEFAULT_CONTEXT
    context.reset_operations()  # they are counted at other times as well
    context.set_max_operations(OPERATIONS)
    try:
        return question()
    except isl.Error:
        raise Unknown("the integer set library does not answer within its limit") from None
    finally:
        context.set_max_operations(0)
        context.reset_operations()


def one_of(places: Places) -> dict[str, int] | None:
    """One of the values of names, if there is any."""
    point = places.sample_point()
    if point.is_void():
        return None
    kind = isl.dim_type.param
    return {n: point.get_coordinate_val(kind, d).to_python() for d, n in enumerate(names_of(places))}


def fresh(stem: str, numbers: itertools.count) -> tuple[str, Form]:
    """A name that nothing else has, and its form."""
    text = f"{stem}_{next(numbers)}"
    return text, name(text)


def parts_of(places: Places, names: Iterable[Form]) -> list[list[tuple[Form, bool]]]:
    """Sets whose union the places are, each by forms that are at least 0 or, where it says so, are 0.

    Raises `Unknown` where they need more names than there are.
    """
    known = [str(n) for n in names]
    kind = isl.dim_type.param
    found = []
    for part in places.get_basic_sets():
        forms = []
        for c in part.get_constraints():
            if c.dim(isl.dim_type.div):
                raise Unknown("a condition that is not one on its own names")
            total = form(c.get_constant_val().to_python())
            for d in range(c.dim(kind)):
                total = total + name(c.get_dim_name(kind, d)).times(c.get_coefficient_val(kind, d).to_python())
            if any(n not in known for n in total.names):
                raise Unknown("a condition on other names")
            forms.append((total, c.is_equality()))
        found.append(forms)
    return found
