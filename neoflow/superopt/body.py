"""Families of operators: what `expr.ir` says of one definition, with symbols for its extents.

    family    f ::= Family(symbols, slots, shape, axes, body)
    body      b ::= Number(value)                          0.5, inf
                  | Count(extents, power)                  what a mean divides by: a product of extents, to a power
                  | Place(form)                            an index as a number
                  | Slot(position, indices)                a read of the argument of that position
                  | Call(fn, args)                         fn of `expr.functions`, on numbers
                  | Choose(condition, then, other)         by index: only what it chooses is evaluated
                  | Over(op, axes, body)                   sum prod max min over ((axis, extent), ...)
    condition c ::= Holds(form, is_equal)                  form >= 0, or form = 0
                  | Both(a, b) | Either(a, b)              a negative is pushed to the leaves

Axes and symbols are names. A body is over real numbers: types are looked at where a rule meets a graph.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from neoflow.superopt import places
from neoflow.superopt.forms import Form, name
from neoflow.superopt.places import Places

MOST = 250
"""Parts of a body, written out: larger ones have no family."""
SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
"""Functions that are written between their arguments."""
BY_VALUE = "where"
"""A `select` whose condition is a value, and so evaluates both."""


def argument(position: int) -> str:
    """What the text of a family calls an argument: a, b ... z, a1 ..."""
    return string.ascii_lowercase[position % 26] + (str(position // 26) if position > 25 else "")


@dataclass(frozen=True)
class Number:
    value: float

    def __str__(self) -> str:
        return repr(float(self.value))


@dataclass(frozen=True)
class Count:
    extents: tuple[Form, ...]
    power: int
    """1 or -1"""

    def __str__(self) -> str:
        return f"{'count' if self.power > 0 else 'share'}({', '.join(map(str, self.extents))})"


@dataclass(frozen=True)
class Place:
    form: Form

    def __str__(self) -> str:
        return f"place({self.form})"


@dataclass(frozen=True)
class Slot:
    position: int
    indices: tuple[Form, ...]

    def __str__(self) -> str:
        indices = ", ".join(map(str, self.indices))
        return argument(self.position) + (f"[{indices}]" if indices else "")


@dataclass(frozen=True)
class Call:
    fn: str
    args: tuple[Body, ...]

    def __str__(self) -> str:
        if self.fn in SIGNS:
            return f"({f' {SIGNS[self.fn]} '.join(map(str, self.args))})"
        return f"{BY_VALUE if self.fn == 'select' else self.fn}({', '.join(map(_bare, self.args))})"


@dataclass(frozen=True)
class Choose:
    condition: Condition
    then: Body
    other: Body

    def __str__(self) -> str:
        return f"select({self.condition}, {_bare(self.then)}, {_bare(self.other)})"


@dataclass(frozen=True)
class Over:
    op: str
    axes: tuple[tuple[str, Form], ...]
    body: Body

    def __str__(self) -> str:
        return f"{self.op}[{', '.join(f'{a}<{n}' for a, n in self.axes)}]({_bare(self.body)})"


def _bare(b: Body) -> str:
    """A body where brackets or commas are around it."""
    return str(b)[1:-1] if isinstance(b, Call) and b.fn in SIGNS else str(b)


Body = Number | Count | Place | Slot | Call | Choose | Over


@dataclass(frozen=True)
class Holds:
    form: Form
    is_equal: bool = False

    def __str__(self) -> str:
        more = Form(tuple((a, k) for a, k in self.form.terms if k > 0))
        less = (more - self.form) + self.form.constant
        if not self.is_equal and less.terms and self.form.constant == -1:
            return f"{less} < {more}"
        return f"{more} {'==' if self.is_equal else '>='} {less - self.form.constant}"


@dataclass(frozen=True)
class Both:
    a: Condition
    b: Condition

    def __str__(self) -> str:
        left = str(self.a) if isinstance(self.a, Both) else f"({self.a})"
        return f"{left} & ({self.b})"


@dataclass(frozen=True)
class Either:
    a: Condition
    b: Condition

    def __str__(self) -> str:
        return f"({self.a}) | ({self.b})"


Condition = Holds | Both | Either


def opposite(c: Condition) -> Condition:
    """What holds where `c` does not."""
    match c:
        case Holds(form, is_equal):
            below = Holds(form.times(-1) - 1)
            return Either(Holds(form - 1), below) if is_equal else below
        case Both(a, b):
            return Either(opposite(a), opposite(b))
        case Either(a, b):
            return Both(opposite(a), opposite(b))


def holds(c: Condition, put: Mapping[str, Form]) -> Places:
    """Where a condition holds, its names replaced."""
    match c:
        case Holds(form, is_equal):
            return (places.zero if is_equal else places.at_least)(form.put(put))
        case Both(a, b):
            return holds(a, put) & holds(b, put)
        case Either(a, b):
            return holds(a, put) | holds(b, put)


def parts(b: Body) -> tuple[Body, ...]:
    """The bodies directly inside one."""
    match b:
        case Call():
            return b.args
        case Choose():
            return b.then, b.other
        case Over():
            return (b.body,)
    return ()


def inner(b: Body) -> Iterator[Body]:
    """A body and all bodies inside it."""
    yield b
    for part in parts(b):
        yield from inner(part)


def forms_of(b: Body) -> Iterator[Form]:
    """The forms that stand in a body itself."""
    match b:
        case Count():
            yield from b.extents
        case Place():
            yield b.form
        case Slot():
            yield from b.indices
        case Choose():
            yield from _of_condition(b.condition)
        case Over():
            yield from (n for _, n in b.axes)


def _of_condition(c: Condition) -> Iterator[Form]:
    if isinstance(c, Holds):
        yield c.form
    else:
        yield from (*_of_condition(c.a), *_of_condition(c.b))


def put_in(b: Body, new: Mapping[str, Form]) -> Body:
    """A body with names replaced; a binding of a replaced axis must map to an axis."""
    match b:
        case Count():
            return Count(tuple(f.put(new) for f in b.extents), b.power)
        case Place():
            return Place(b.form.put(new))
        case Slot():
            return Slot(b.position, tuple(f.put(new) for f in b.indices))
        case Call():
            return Call(b.fn, tuple(put_in(a, new) for a in b.args))
        case Choose():
            return Choose(_put_condition(b.condition, new), put_in(b.then, new), put_in(b.other, new))
        case Over():
            axes = tuple((new[a].alone or a if a in new else a, n.put(new)) for a, n in b.axes)
            return Over(b.op, axes, put_in(b.body, new))
    return b


def _put_condition(c: Condition, new: Mapping[str, Form]) -> Condition:
    if isinstance(c, Holds):
        return replace(c, form=c.form.put(new))
    return type(c)(_put_condition(c.a, new), _put_condition(c.b, new))


@dataclass(frozen=True)
class Family:
    """An operator at any size: `out[axes] = body`, which reads arguments of the shapes `slots`.

    symbols: every extent, at least 1, and offsets, at least 0, in the order of the text. name: for people.
    """

    slots: tuple[tuple[Form, ...], ...]
    shape: tuple[Form, ...]
    axes: tuple[str, ...]
    body: Body
    offsets: frozenset[str] = frozenset()
    name: str = "operator"

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        bound = {*self.axes, *(a for b in inner(self.body) if isinstance(b, Over) for a, _ in b.axes)}
        forms = [f for s in (*self.slots, self.shape) for f in s]
        forms += [f for b in inner(self.body) for f in forms_of(b)]
        return tuple(n for n in dict.fromkeys(n for f in forms for n in f.names) if n not in bound)

    @cached_property
    def letters(self) -> dict[str, str]:
        """What each symbol is called in `canonical`."""
        return dict(zip(self.symbols, letters(), strict=False))

    @cached_property
    def key(self) -> str:
        """Its text with symbols and axes named in their order: two are one operator when it is equal."""
        return str(replace(self.canonical, name=""))

    @cached_property
    def canonical(self) -> Family:
        """The same with symbols A, B ... and axes i0, i1 ..."""
        new = {s: name(letter) for s, letter in self.letters.items()}
        bound = [*self.axes, *(a for b in inner(self.body) if isinstance(b, Over) for a, _ in b.axes)]
        new |= {a: name(f"i{n}") for n, a in enumerate(dict.fromkeys(bound))}
        return Family(
            tuple(tuple(f.put(new) for f in s) for s in self.slots),
            tuple(f.put(new) for f in self.shape),
            tuple(str(new[a]) for a in self.axes),
            put_in(self.body, new),
            frozenset(str(new[o]) for o in self.offsets),
            self.name,
        )

    @cached_property
    def sizes(self) -> Places:
        """The values that symbols can have at all."""
        lows = [places.at_least(name(s), 0 if s in self.offsets else 1) for s in self.symbols]
        return places.all_of([*lows, *(places.at_least(n, 1) for n in self.shape)])

    @cached_property
    def fits(self) -> Places:
        """The values of symbols at which every read stays inside its argument."""
        points = self.sizes & places.all_of(
            places.inside(name(a), n) for a, n in zip(self.axes, self.shape, strict=True)
        )
        outside = places.any_of(_outside(self.body, points, self.slots))
        return self.sizes - places.onto(outside, self.symbols)

    @property
    def guards(self) -> str:
        """What its symbols must meet, as text: equal extents, windows that end where their argument does."""
        return places.conditions(self.fits, self.sizes)

    def __str__(self) -> str:
        slots = ", ".join(shaped(argument(n), s) for n, s in enumerate(self.slots))
        left = ", ".join(f"{a}<{n}" for a, n in zip(self.axes, self.shape, strict=True))
        offsets = f" from {', '.join(sorted(self.offsets))}" if self.offsets else ""
        return f"{self.name}({slots}){offsets}{f' [{left}]' if left else ''} = {_bare(self.body)}"


def shaped(label: str, shape: Iterable[Form]) -> str:
    """A name with its shape."""
    extents = ", ".join(map(str, shape))
    return label + (f"[{extents}]" if extents else "")


def _outside(b: Body, points: Places, slots: tuple[tuple[Form, ...], ...]) -> Iterable[Places]:
    """For every read, the values of names among `points` at which it leaves its argument."""
    match b:
        case Slot():
            for index, n in zip(b.indices, slots[b.position], strict=True):
                yield points - places.inside(index, n)
        case Choose():
            yield from _outside(b.then, points & holds(b.condition, {}), slots)
            yield from _outside(b.other, points & holds(opposite(b.condition), {}), slots)
        case Over():
            ranges = places.all_of(places.inside(name(a), n) for a, n in b.axes)
            yield from _outside(b.body, points & ranges, slots)
        case _:
            for part in parts(b):
                yield from _outside(part, points, slots)


def letters() -> Iterator[str]:
    """A, B ... Z, A1, B1 ..."""
    return (f"{letter}{n or ''}" for n in itertools.count() for letter in string.ascii_uppercase)
