"""What a subgraph is at any size: its text with extents erased, so that what is learned at one size serves at another.

    in0: float32[64, 32]                         in0: float32[A, B]
    in1: float32[32, 16]                   ->    in1: float32[B, C]
    v2[i<64, j<16] = sum[r<32](...)              v2[i<A, j<C] = sum[r<B](in0[i, r] * in1[r, j])

The rules, from the structure alone; what they do not say stays a number, so in doubt two subgraphs are of different
families:

    extents    each extent is a symbol, one for all that must agree: an axis that stands alone as an index agrees with
               the dimension it runs through from end to end, and so does what else runs through it. Extents that are
               equal by chance have symbols of their own. 1 is 1: an axis of one point is no index.
    numbers    in conditions and beside an index are symbols where they follow from extents: the end of a window
               (x[i - 1] under i < 15, for x of 14, is i < A + 1), what begins where another window ends (a
               concatenation), and whole blocks (x[i + 32] with i below 16 and x of 64 is x[i + 2*A]).
    counts     n, 1/n, sqrt(n), 1/sqrt(n) are symbols in and after a node that reduces n points (a mean).

Strides, other offsets, other constants, functions, types, and which value is read where are the family itself.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from neoflow.expr import affine
from neoflow.expr import dtype as dt
from neoflow.expr.ir import Apply, Axis, Const, Expr, Read, Reduce, same
from neoflow.expr.tensor import Definition
from neoflow.expr.text import definition_lines, type_text
from neoflow.partition.text import Numbered, Shaped, outputs_line, value_label
from neoflow.text import header

Place = tuple[str, int, int]
"""Where an extent stands: ("value", its number, dimension) or ("axis", number of the node's value, ident)."""
_BELOW = {"lt": ("lt", 0), "ge": ("ge", 0), "le": ("lt", 1), "gt": ("ge", 1)}
"""A comparison as one with `<` or `>=`, and what is added to its right side."""


@dataclass(frozen=True)
class Family:
    """`text`: the subgraph with symbols for extents, equal for equal families."""

    text: str

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def __str__(self) -> str:
        return self.text


def family_of(
    inputs: Sequence[Shaped],
    nodes: Sequence[Numbered],
    outputs: Sequence[int],
    rows: int | None,
    orders: Sequence[Sequence[int]] = (),
) -> Family:
    """The family of a subgraph."""
    extents = _Extents(inputs, nodes)
    first = len(inputs)
    names = [value_label(n, first) for n in range(first + len(nodes))]
    lines = [header("family")]
    for n, (shape, dtype) in enumerate(inputs):
        lines.append(f"{names[n]}: {type_text([extents.symbol(('value', n, d)) for d in range(len(shape))], dtype)}")
    counts: list[dict[str, int]] = []
    """for each node the points, by their text, that it or what it reads reduces"""
    for n, (definition, reads) in enumerate(nodes):
        own = {text: points for r in reads if r >= first for text, points in counts[r - first].items()}
        if isinstance(definition.body, Reduce):
            text, points = extents.product(first + n, definition, definition.body.axes)
            own[text] = points
        counts.append(own)
        node = _Node(extents, first + n, definition, reads, own)
        lines += definition_lines(node.symbolic(), names[first + n], [names[r] for r in reads], extent=node.axis)
    lines += [f"rows {rows}"] if rows is not None else []
    lines.append(outputs_line([names[n] for n in outputs], orders))
    return Family("\n".join(lines) + "\n")


class _Extents:
    """The symbol of every extent of a subgraph; places that must agree are joined."""

    def __init__(self, inputs: Sequence[Shaped], nodes: Sequence[Numbered]):
        self.joined: dict[Place, Place] = {}
        self.extent: dict[Place, int] = {}
        for n, (shape, _) in enumerate([*inputs, *((d.shape, "") for d, _ in nodes)]):
            self.extent.update({("value", n, d): size for d, size in enumerate(shape)})
        for n, (definition, reads) in enumerate(nodes, len(inputs)):
            self.extent.update({place_of(n, definition, a): a.extent for a in definition.reduction_axes})
            for read in definition.reads:
                for dim, index in enumerate(read.indices):
                    if isinstance(index, Axis) and index.extent == read.source.shape[dim]:
                        self.join(place_of(n, definition, index), ("value", reads[read.slot], dim))
        letters = _letters()
        self.names: dict[Place, str] = {}
        for place in self.extent:
            root = self.root(place)
            if self.extent[place] > 1 and root not in self.names:
                self.names[root] = next(letters)

    def root(self, place: Place) -> Place:
        while place in self.joined:
            place = self.joined[place]
        return place

    def join(self, a: Place, b: Place) -> None:
        a, b = self.root(a), self.root(b)
        if a != b:
            self.joined[max(a, b)] = min(a, b)

    def symbol(self, place: Place) -> str:
        return self.names[self.root(place)] if self.extent[place] > 1 else "1"

    def product(self, number: int, definition: Definition, axes: Sequence[Axis]) -> tuple[str, int]:
        """The points of axes, as symbols and as a number."""
        places = [place_of(number, definition, a) for a in axes if a.extent > 1]
        return "*".join(map(self.symbol, places)), math.prod(self.extent[p] for p in places)


def _letters() -> Iterator[str]:
    """A, B ... Z, A1, B1 ..."""
    return (f"{letter}{n or ''}" for n in itertools.count() for letter in string.ascii_uppercase)


def place_of(number: int, definition: Definition, a: Axis) -> Place:
    """Where the extent of an axis of a node stands."""
    return ("value" if a.ident < len(definition.shape) else "axis"), number, a.ident


@dataclass(frozen=True)
class _Window:
    """One read's dimension along a linear form: it has the form's values from `start` on, `extent` of them."""

    start: int
    extent: int
    symbol: str


class _Node:
    """One node and the numbers in it that follow from extents."""

    def __init__(
        self,
        extents: _Extents,
        number: int,
        definition: Definition,
        reads: tuple[int, ...],
        counts: Mapping[str, int],
    ):
        self.extents, self.number, self.definition, self.counts = extents, number, definition, counts
        windows: dict[frozenset, list[_Window]] = {}
        for read in definition.reads:
            for dim, index in enumerate(read.indices):
                terms, offset = affine.linear(index)
                symbol = extents.symbol(("value", reads[read.slot], dim))
                window = _Window(-offset, read.source.shape[dim], symbol)
                windows.setdefault(frozenset(terms.items()), []).append(window)
        self.known = {form: self.numbers(form, found) for form, found in windows.items() if form}

    def axis(self, a: Axis) -> str:
        """The text of the extent of an axis."""
        return self.extents.symbol(place_of(self.number, self.definition, a))

    def numbers(self, form: frozenset, windows: list[_Window]) -> dict[int, str]:
        """Numbers along a linear form that follow from extents."""
        return self.blocks(form, windows) or _ends(windows)

    def blocks(self, form: frozenset, windows: list[_Window]) -> dict[int, str]:
        """Multiples of the smallest extent along a form, where all extents and all beginnings are such."""
        sizes = {w.symbol: w.extent for w in windows}
        ((atom, coefficient),) = form if len(form) == 1 else ((None, 0),)
        if isinstance(atom, Axis) and coefficient == 1:
            sizes.setdefault(self.axis(atom), atom.extent)
        unit = min(sizes, key=lambda s: sizes[s])
        size = sizes[unit]
        starts = [w.start for w in windows]
        if size == 1 or not any(starts) or any(n % size for n in (*starts, *sizes.values())):
            return {}
        found = {n for w in windows for n in (w.start, w.start + w.extent)}
        return {n: _times(n // size, unit) for n in (*found, *(-n for n in found)) if n}

    def symbolic(self) -> Definition:
        """The definition with symbols in place of the numbers that follow from extents."""
        new: dict[Expr, Expr] = {}
        for e in self.definition.nodes:
            new[e] = self.replacement(e, tuple(new[c] for c in e.children))
        return Definition(self.definition.shape, new[self.definition.body], self.definition.slots)

    def replacement(self, e: Expr, children: tuple[Expr, ...]) -> Expr:
        """What stands for `e`, whose children are replaced by `children`."""
        match e:
            case Const() if dt.is_float(e.dtype):
                return self.count(e)
            case Apply(fn="lt" | "le" | "gt" | "ge") if e.args[0].dtype == dt.INDEX:
                return self.condition(e, children)
            case Read():
                return e.rebuild(tuple(self.index(i, j) for i, j in zip(e.indices, children, strict=True)))
        return e if same(children, e.children) else e.rebuild(children)

    def count(self, e: Const) -> Expr:
        """A constant that is a count of points, its root or one over these."""
        for text, n in self.counts.items():
            forms = {f"{text}": n, f"1/({text})": 1 / n, f"sqrt({text})": n**0.5, f"1/sqrt({text})": n**-0.5}
            for form, value in forms.items():
                if n > 1 and abs(e.value) == value:
                    return _symbol(f"{e.dtype}({'-' if e.value < 0 else ''}{form})")
        return e

    def condition(self, e: Apply, children: tuple[Expr, ...]) -> Expr:
        """A condition on a linear form, whose bound may follow from extents."""
        terms, constant = affine.combine(affine.linear(e.args[0]), affine.linear(e.args[1]), -1)
        fn, more = _BELOW[e.fn]
        text = self.said(terms, more - constant)
        return e.rebuild(children) if text is None else Apply(fn, (affine.from_linear((terms, 0)), _symbol(text)))

    def index(self, e: Expr, replaced: Expr) -> Expr:
        """An index, whose offset may follow from extents."""
        terms, offset = affine.linear(e)
        text = self.said(terms, abs(offset))
        if text is None:
            return replaced
        return Apply("add" if offset > 0 else "sub", (affine.from_linear((terms, 0)), _symbol(text)))

    def said(self, terms: dict[Expr, int], value: int) -> str | None:
        """A number along a linear form as it follows from extents."""
        text = self.known.get(frozenset(terms.items()), {}).get(value)
        return f"({text})" if text and not text.isalnum() else text


def _ends(windows: list[_Window]) -> dict[int, str]:
    """The ends of windows; what begins where another one ends has its symbol in it."""
    found: dict[int, str] = {}
    for w in sorted(windows, key=lambda w: w.start):
        if w.extent > 1:
            start = found.get(w.start, str(w.start) if w.start else "")
            found.setdefault(w.start + w.extent, f"{start} + {w.symbol}" if start else w.symbol)
    return found


def _times(count: int, unit: str) -> str:
    return {1: unit, -1: f"-{unit}"}.get(count, f"{count}*{unit}")


def _symbol(name: str) -> Expr:
    """Something that prints as `name`."""
    return Axis(-1, 1, name)
