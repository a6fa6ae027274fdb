"""`family`: a definition with its extents erased, so that what is proved of it holds at every size.

    y[i<5, j<4] = select(i < 3, a[i, j], b[i - 3, j])  ->  y[i<A+C, j<B] = select(i < A, a[i, j], b[i - A, j])

The rules are those of `partition.family`, from the structure alone: what must agree has one symbol, extents that are
equal by chance have one each; a number follows from extents where a window begins or ends; an axis that is read from an
offset on has a symbol for the offset. Strides, the padding of windows, other constants and functions are the family.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from neoflow.errors import GraphError
from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Apply, Axis, Cast, Const, Expr, Read, Reduce, Select
from neoflow.expr.memo import remembered
from neoflow.expr.tensor import Definition
from neoflow.superopt.body import (
    MOST,
    Body,
    Both,
    Call,
    Choose,
    Condition,
    Count,
    Either,
    Family,
    Holds,
    Number,
    Over,
    Place,
    Slot,
    letters,
    opposite,
)
from neoflow.superopt.forms import Form, form, name

Spot = tuple[str, int, int]
"""Where an extent stands: ("slot", position, dimension) or ("axis", 0, ident)."""


@remembered
def family(definition: Definition) -> tuple[Family, dict[str, int]]:
    """The family of a definition, and the values of its symbols there.

    Raises `GraphError` for what has no family: reads at places that are data, scatters, types that are not float.
    """
    erased = _Erased(definition)
    return erased.family, erased.values


@remembered
def family_with_conditions(definition: Definition) -> tuple[Family, dict[str, int]]:
    """The same, also of what chooses by booleans that it reads: a function of three values like any other."""
    erased = _Erased(definition, ("bool",))
    return erased.family, erased.values


class _Erased:
    def __init__(self, definition: Definition, also: Sequence[str] = ()):
        self.definition = definition
        for dtype in (definition.body.dtype, *(s.dtype for s in definition.slots if s.dtype not in also)):
            if not dt.is_float(dtype):
                raise GraphError(f"an operator of {dtype} has no family; rules are about floats")
        if _size(definition) > MOST:
            raise GraphError(f"an operator of more than {MOST} parts has no family")
        self.joined: dict[Spot, Spot] = {}
        self.extent: dict[Spot, int] = {}
        self.join_extents()
        self.letters = letters()
        self.values: dict[str, int] = {}
        self.symbols: dict[Spot, Form] = {}
        self.offsets: set[str] = set()
        slots = tuple(
            tuple(self.symbol(("slot", s.position, d)) for d in range(len(s.shape))) for s in definition.slots
        )
        self.numbers: dict[frozenset, dict[int, Form]] = {}
        for terms, windows in self.windows().items():
            self.numbers[terms] = self.ends(terms, windows)
        shape = tuple(self.symbol(("axis", 0, d)) for d in range(len(definition.shape)))
        self.counts = {
            math.prod(a.extent for a in n.axes): tuple(self.symbol(("axis", 0, a.ident)) for a in n.axes)
            for n in definition.nodes
            if isinstance(n, Reduce)
        }
        axes = tuple(_axis(a) for a in definition.axes)
        found = Family(slots, shape, axes, self.body(definition.body), frozenset(self.offsets))
        self.values = {letter: self.values[s] for s, letter in found.letters.items()}
        self.family = found.canonical

    def join_extents(self) -> None:
        """One symbol for an axis and the dimensions it runs through from end to end."""
        for s in self.definition.slots:
            self.extent.update({("slot", s.position, d): n for d, n in enumerate(s.shape)})
        for a in (*self.definition.axes, *self.definition.reduction_axes):
            self.extent["axis", 0, a.ident] = a.extent
        for read in self.definition.reads:
            for d, (index, n) in enumerate(zip(read.indices, read.source.shape, strict=True)):
                if isinstance(index, Axis) and index.extent == n:
                    axis: Spot = ("axis", 0, index.ident)
                    first, last = sorted((self.root(axis), self.root(("slot", read.slot, d))))
                    if first != last:
                        self.joined[first] = last

    def root(self, spot: Spot) -> Spot:
        while spot in self.joined:
            spot = self.joined[spot]
        return spot

    def symbol(self, spot: Spot) -> Form:
        root = self.root(spot)
        if root not in self.symbols:
            n = self.extent[root]
            self.symbols[root] = self.new(n) if n > 1 else form(1)
        return self.symbols[root]

    def new(self, value: int) -> Form:
        text = next(self.letters)
        self.values[text] = value
        return name(text)

    def windows(self) -> dict[frozenset, list[tuple[int, Form, int]]]:
        """For each linear form that is an index where windows along it begin, and their extents."""
        found: dict[frozenset, list[tuple[int, Form, int]]] = {}
        for read in self.definition.reads:
            for d, index in enumerate(read.indices):
                terms, offset = affine.linear(index)
                if terms:
                    window = (-offset, self.symbol(("slot", read.slot, d)), read.source.shape[d])
                    found.setdefault(frozenset(terms.items()), []).append(window)
        return found

    def ends(self, terms: frozenset, windows: Sequence[tuple[int, Form, int]]) -> dict[int, Form]:
        """Numbers along a linear form that follow from extents: of a concatenation A and A + B, of a slice -O, of
        what is read backwards 1 - A."""
        ((atom, k),) = terms if len(terms) == 1 else ((None, 0),)
        axis = atom if isinstance(atom, Axis) and k == 1 else None
        found: dict[int, Form] = {}
        for start, symbol, extent in sorted(windows, key=lambda w: w[0]):
            if start not in found:
                is_reversed = isinstance(atom, Axis) and k == -1 and start + extent == 1
                found[start] = form(1) - symbol if is_reversed else form(start)
                if start < 0 and axis is not None:
                    offset = self.new(-start)
                    self.offsets |= set(offset.names)
                    found[start] = offset.times(-1)
            if extent > 1:
                found.setdefault(start + extent, found[start] + symbol)
        if axis is not None and axis.extent > 1 and len(windows) > 1:
            spot: Spot = ("axis", 0, axis.ident)
            is_open = spot == self.root(spot) and spot not in self.symbols
            if is_open and axis.extent in found and found[axis.extent].terms:
                self.symbols[spot] = found[axis.extent]
        return found

    def index(self, e: Expr) -> Form:
        """An index, whose offset may follow from extents."""
        terms, offset = affine.linear(e)
        said = self.numbers.get(frozenset(terms.items()), {}).get(-offset)
        return self.linear(terms) + (form(offset) if said is None else said.times(-1))

    def linear(self, terms: dict[Expr, int]) -> Form:
        total = form(0)
        for atom, k in terms.items():
            total = total + self.atom(atom).times(k)
        return total

    def atom(self, e: Expr) -> Form:
        match e:
            case Axis():
                return name(_axis(e))
            case Apply(fn="floordiv" | "mod", args=(inner, Const(value=value))) if value > 0:
                whole = self.plain(inner)
                quotient = whole.over(int(value))
                return quotient if e.fn == "floordiv" else whole - quotient.times(int(value))
        raise GraphError("an operator that reads at places that are data has no family")

    def plain(self, e: Expr) -> Form:
        terms, constant = affine.linear(e)
        return self.linear(terms) + constant

    def body(self, e: Expr) -> Body:
        match e:
            case Const():
                return self.number(e)
            case Read():
                return Slot(e.slot, tuple(map(self.index, e.indices)))
            case Apply():
                return Call(e.fn, tuple(map(self.body, e.args)))
            case Select():
                condition = self.condition(e.cond)
                if condition is None:
                    return Call("select", (self.body(e.cond), self.body(e.then), self.body(e.other)))
                return Choose(condition, self.body(e.then), self.body(e.other))
            case Cast() if e.arg.dtype == dt.INDEX:
                return Place(self.plain(e.arg))
            case Reduce() if dt.is_float(e.dtype):
                axes = tuple((_axis(a), self.symbol(("axis", 0, a.ident))) for a in e.axes)
                return Over(e.op, axes, self.body(e.body))
        raise GraphError(f"an operator with a {type(e).__name__.lower()} to {e.dtype} has no family")

    def number(self, e: Const) -> Body:
        for n, extents in self.counts.items():
            for power in (1, -1):
                if n > 1 and e.value == float(n) ** power:
                    return Count(extents, power)
        return Number(float(e.value))

    def condition(self, e: Expr) -> Condition | None:
        """A condition on indices; None for one on values."""
        match e:
            case Const(dtype="bool"):
                return Holds(form(0 if e.value else -1))
            case Apply(fn="not"):
                inner = self.condition(e.args[0])
                return None if inner is None else opposite(inner)
            case Apply(fn="and" | "or"):
                a, b = map(self.condition, e.args)
                return None if a is None or b is None else (Both if e.fn == "and" else Either)(a, b)
            case Apply(fn="lt" | "le" | "gt" | "ge" | "eq" | "ne") if e.args[0].dtype == dt.INDEX:
                terms, constant = affine.combine(affine.linear(e.args[0]), affine.linear(e.args[1]), -1)
                return self.compared(e.fn, terms, constant)
        return None

    def compared(self, fn: str, terms: dict[Expr, int], constant: int) -> Condition:
        """terms + constant against 0; its bound may follow from extents."""
        more = 1 if fn in ("le", "gt") else 0  # <= n is < n + 1, whose n + 1 is where a window ends
        said = self.numbers.get(frozenset(terms.items()), {}).get(more - constant)
        whole = self.linear(terms) - (form(more - constant) if said is None else said)
        if fn in ("eq", "ne"):
            equal = Holds(self.linear(terms) + constant, True)
            return equal if fn == "eq" else opposite(equal)
        return opposite(Holds(whole)) if fn in ("lt", "le") else Holds(whole)


def _size(definition: Definition) -> int:
    """Parts of its body where what it uses twice is written twice."""
    sizes: dict[Expr, int] = {}
    for e in definition.nodes:
        sizes[e] = 1 if isinstance(e, Read) else 1 + sum(sizes[c] for c in e.children)
    return sizes[definition.body]


def _axis(a: Axis) -> str:
    return f"i{a.ident}"
