"""Whole numbers of a rule: sums of symbols and axes with whole coefficients, and of what rounds one down.

    2*p + r - 1        N + M        i - 3*div(i, 3)

`str` writes a form as rules are stored. Symbols (extents, offsets) and axes are names, told apart by who binds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Quotient:
    """`form` over a positive number, rounded down."""

    form: Form
    divisor: int

    def __str__(self) -> str:
        return f"div({self.form}, {self.divisor})"


Atom = str | Quotient


@dataclass(frozen=True)
class Form:
    """terms: atoms in the order of their text, with coefficients other than 0; what is added is written first."""

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    def __add__(self, other: Form | int) -> Form:
        right = form(other)
        return _sorted([*self.terms, *right.terms], self.constant + right.constant)

    def __sub__(self, other: Form | int) -> Form:
        return self + form(other).times(-1)

    def times(self, k: int) -> Form:
        return Form(tuple((a, c * k) for a, c in self.terms) if k else (), self.constant * k)

    def over(self, divisor: int) -> Form:
        """Divided by a positive number and rounded down; what it divides comes out."""
        whole = _sorted([(a, c // divisor) for a, c in self.terms if c % divisor == 0], self.constant // divisor)
        rest = Form(tuple((a, c) for a, c in self.terms if c % divisor), self.constant % divisor)
        return whole + Form(((Quotient(rest, divisor), 1),)) if rest.terms else whole

    def put(self, values: Mapping[str, Form]) -> Form:
        """With names replaced by forms, all at once."""
        result = Form((), self.constant)
        for atom, k in self.terms:
            if isinstance(atom, Quotient):
                found = atom.form.put(values).over(atom.divisor)
            else:
                found = values.get(atom) or name(atom)
            result = result + found.times(k)
        return result

    def value(self, values: Mapping[str, int]) -> int:
        """Its number where every name has one."""
        total = self.constant
        for atom, k in self.terms:
            total += k * (atom.form.value(values) // atom.divisor if isinstance(atom, Quotient) else values[atom])
        return total

    @property
    def names(self) -> Iterator[str]:
        """The names it has, in the order of its text, some of them twice."""
        for atom, _ in self.terms:
            if isinstance(atom, Quotient):
                yield from atom.form.names
            else:
                yield atom

    @property
    def alone(self) -> str | None:
        """The name that the form is, if it is one."""
        if len(self.terms) == 1 and not self.constant and self.terms[0][1] == 1:
            atom = self.terms[0][0]
            return atom if isinstance(atom, str) else None
        return None

    def __str__(self) -> str:
        text = ""
        for atom, k in sorted(self.terms, key=lambda term: term[1] < 0):
            body = str(atom) if abs(k) == 1 else f"{abs(k)}*{atom}"
            text += (f" {'+' if k > 0 else '-'} " if text else "" if k > 0 else "-") + body
        if not text:
            return str(self.constant)
        return text + (f" {'+' if self.constant > 0 else '-'} {abs(self.constant)}" if self.constant else "")


def form(value: Form | int) -> Form:
    return value if isinstance(value, Form) else Form((), value)


def name(text: str) -> Form:
    return Form(((text, 1),))


def _sorted(terms: Iterable[tuple[Atom, int]], constant: int) -> Form:
    total: dict[Atom, int] = {}
    for atom, k in terms:
        total[atom] = total.get(atom, 0) + k
    left = sorted(((a, k) for a, k in total.items() if k), key=lambda term: str(term[0]))
    return Form(tuple(left), constant)
